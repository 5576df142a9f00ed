#!/usr/bin/env python3
"""Runs a benchmark and keeps its output as a result, with hardware, date and commit.

Usage: record.py RESULT_FILE TITLE -- COMMAND [ARGUMENT...]
What is no Markdown table is kept as preformatted text. What the command writes to standard error
is shown and not kept.
"""
import datetime
import os
import pathlib
import platform
import subprocess
import sys


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main():
    split = sys.argv.index("--")
    result_file, title = sys.argv[1:split]
    command = sys.argv[split + 1:]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    if not output.startswith("|"):
        output = f"```\n{output}```\n"
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], check=True,
                            stdout=subprocess.PIPE, text=True).stdout.strip()
    cores = len(os.sched_getaffinity(0))
    text = (f"# {title}\n\n"
            f"{processor()}, {cores} cores · {datetime.date.today()} · commit {commit}\n\n"
            f"`{' '.join(pathlib.Path(word).name if '/' in word else word for word in command)}`\n\n"
            f"{output}")
    pathlib.Path(result_file).write_text(text)
    print(text)


if __name__ == "__main__":
    main()
