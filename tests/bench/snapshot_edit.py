#!/usr/bin/env python3
"""Creates a snapshot of a tree, edits a late file, updates: what was reused, and how long it took.

Usage: DELTAFILL_BIN=build/release/bin/deltafill snapshot_edit.py [--picture FILE] NAME=DIRECTORY...
Each directory is copied first (with its git history). The update's state must be that of a fresh
create, computed anew from token 0. Prints a Markdown table; --picture draws the last directory's
reuse by file as SVG.
"""
import argparse
import os
import pathlib
import shutil
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))
import service  # noqa: E402

WIDTH, BAR, LEFT, TOP = 760, 44, 10, 44


def processor_seconds(client):
    """Of the service and all its threads, which what else the machine does hardly changes."""
    fields = pathlib.Path(f"/proc/{client.process.popen.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def timed(client, *arguments):
    """The answer, and how long it took: by the clock, and of the service's processor time."""
    start, before = time.monotonic(), processor_seconds(client)
    answer = client.call(*arguments)
    return answer, f"{time.monotonic() - start:.2f} ({processor_seconds(client) - before:.2f})"


def draw(path, name, shown):
    """A bar of all tokens in their order: file boundaries in white, checkpoints as ticks below, what
    the update computed in red."""
    tokens, resumed = shown["tokens"], shown["resumed_at"]

    def at(token):
        return f"{LEFT + WIDTH * token / tokens:.1f}"

    def marks(positions, top, height, apart):
        """A line at each position that is at least so far from the one before."""
        drawn = []
        for x in sorted(positions, key=float):
            if not drawn or float(x) - float(drawn[-1]) >= apart:
                drawn.append(x)
        return "".join(f"M{x} {top}v{height}" for x in drawn)

    files = [at(s["first_token"]) for s in shown["segments"]]
    ticks = [at(c["boundary"]) for c in shown["checkpoints"]]
    edited = next(s["first_token"] for s in shown["segments"] if s["path"] == shown["edited"])
    share = 100 * resumed / tokens
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + 2 * LEFT}" height="124" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{LEFT}" y="16">{name}: {tokens:,} tokens in {shown["files"]} files. '
        f'{shown["edited"]} was edited.</text>',
        f'<rect x="{LEFT}" y="{TOP}" width="{WIDTH}" height="{BAR}" fill="#d9534f"/>',
        f'<rect x="{LEFT}" y="{TOP}" width="{WIDTH * resumed / tokens:.1f}" height="{BAR}" '
        'fill="#7fb77e"/>',
        f'<path d="{marks(files, TOP, BAR, 3)}" stroke="#fff" stroke-width=".4"/>',
        f'<path d="{marks(ticks, TOP + BAR, 7, 1)}" stroke="#333" stroke-width=".6"/>',
        f'<path d="M{at(edited)} {TOP - 2}l-4 -8h8z" fill="#333"/>',
        f'<text x="{LEFT}" y="114"><tspan fill="#3f7f3e">reused {resumed:,} ({share:.1f} %)</tspan>'
        f'<tspan dx="14" fill="#b52b27">computed {tokens - resumed:,}</tspan><tspan dx="14">'
        f'{len(ticks)} checkpoints (ticks), {shown["state_bytes"] / 2**20:.0f} MiB</tspan></text>',
        "</svg>"]
    pathlib.Path(path).write_text("\n".join(lines) + "\n")


def late_file(shown):
    """The file at nine tenths of the tokens, or the next one."""
    return next(s["path"] for s in shown["segments"]
                if s["first_token"] >= 0.93 * shown["tokens"] and not s["path"].startswith('"'))


def measure(client, name, directory, folder, picture):
    tree = folder / name
    shutil.copytree(directory, tree, symlinks=True, ignore=shutil.ignore_patterns("build"))
    created, create_s = timed(client, "snapshot", "create", name, tree, "--versions", 0)
    edited = late_file(client.call("snapshot", "show", name))
    with open(tree / edited, "a") as file:
        file.write("// one more line\n")
    updated, update_s = timed(client, "snapshot", "update", name)
    shown = client.call("snapshot", "show", name)
    fresh = client.call("snapshot", "create", name + "-fresh", tree, "--order-from", name,
                        "--no-resume", "--versions", 0)
    same = fresh["state"] == updated["state"] and fresh["reused_tokens"] == 0
    mismatches = client.call("status")["store"]["determinism_mismatches"]
    assert same and mismatches == 0, (fresh, updated, mismatches)
    for each in (name, name + "-fresh"):
        client.call("snapshot", "delete", each)
    print(f"| {name} | {created['files']} | {created['tokens']:,} | {create_s} | `{edited}` "
          f"| {updated['reused_tokens']:,} ({100 * updated['reused_tokens'] / updated['tokens']:.1f} %) "
          f"| {updated['recomputed_tokens']:,} | {update_s} | identical |", flush=True)
    if picture:
        draw(picture, name, dict(shown, edited=edited))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--picture")
    parser.add_argument("trees", nargs="+")
    arguments = parser.parse_args()
    print("| tree | files | tokens | create, s (processor) | edited | reused | recomputed "
          "| update, s (processor) | states against a fresh create |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        os.environ["DELTAFILL_STATE_DIR"] = str(folder / "state")
        with service.Service(folder / "service", workers=1) as client:
            for tree in arguments.trees:
                name, directory = tree.split("=", 1)
                last = tree == arguments.trees[-1]
                measure(client, name, directory, folder, arguments.picture if last else None)


if __name__ == "__main__":
    main()
