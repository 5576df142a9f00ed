"""The text of a snapshot as client/snapshot/rendering.cc makes it, for the benchmarks."""
import re
import subprocess

HEADER = ("These are the files of a source tree. Each stands between two lines of equals signs; the "
          "first gives its path.\n\n").encode()


def git(folder, *arguments):
    done = subprocess.run(["git", "-C", str(folder), *arguments], check=True, stdout=subprocess.PIPE)
    return done.stdout.decode(errors="surrogateescape")


def render(path, contents):
    longest = max((len(run) for run in re.findall(rb"^=+", contents, re.M)), default=0)
    fence = b"=" * max(5, longest + 1)
    end = b"" if not contents or contents.endswith(b"\n") else b"\n"
    name = path.encode(errors="surrogateescape")
    return fence + b" " + name + b"\n" + contents + end + fence + b" end\n\n"


def common_prefix(a, b):
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[:middle] == b[:middle] else (low, middle - 1)
    return low
