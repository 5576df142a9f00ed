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

WIDTH, BAR, LEFT = 760, 44, 10


def timed(client, *arguments):
    start = time.monotonic()
    return client.call(*arguments), time.monotonic() - start


def draw(path, name, shown):
    """A bar of all tokens: a box a file, its colour saying whether the update computed it."""
    tokens = shown["tokens"]
    def at(token):
        return LEFT + WIDTH * token / tokens
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + 2 * LEFT}" height="118" '
             'font-family="sans-serif" font-size="12">',
             '<rect width="100%" height="100%" fill="#ffffff"/>',
             f'<text x="{LEFT}" y="18">{name}: {tokens:,} tokens in {shown["files"]} files; an edit of '
             f'{shown["edited"]}</text>']
    resumed = shown["resumed_at"]
    for segment in shown["segments"]:
        begin, end = segment["first_token"], segment["first_token"] + segment["tokens"]
        width = at(end) - at(begin)
        for first, last, colour in ((begin, min(end, resumed), "#7fb77e"),
                                    (max(begin, resumed), end, "#d9534f")):
            if first < last:
                lines.append(f'<rect x="{at(first):.1f}" y="28" width="{at(last) - at(first):.1f}" '
                             f'height="{BAR}" fill="{colour}"/>')
        if width > 2:
            lines.append(f'<path d="M{at(end):.1f} 28v{BAR}" stroke="#ffffff" stroke-width="0.5"/>')
    for checkpoint in shown["checkpoints"]:
        lines.append(f'<path d="M{at(checkpoint["boundary"]):.1f} {28 + BAR}v8" stroke="#333333"/>')
    reused = 100 * resumed / tokens
    lines += [f'<text x="{LEFT}" y="100"><tspan fill="#3f7f3e">reused {resumed:,} ({reused:.1f} %)</tspan>'
              f'<tspan dx="14" fill="#b52b27">computed {tokens - resumed:,}</tspan>'
              f'<tspan dx="14">{len(shown["checkpoints"])} checkpoints (ticks), '
              f'{shown["state_bytes"] / 2**20:.0f} MiB</tspan></text>', "</svg>"]
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
    print(f"| {name} | {created['files']} | {created['tokens']:,} | {create_s:.2f} | `{edited}` "
          f"| {updated['reused_tokens']:,} ({100 * updated['reused_tokens'] / updated['tokens']:.1f} %) "
          f"| {updated['recomputed_tokens']:,} | {update_s:.2f} | identical |", flush=True)
    if picture:
        draw(picture, name, dict(shown, edited=edited))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--picture")
    parser.add_argument("trees", nargs="+")
    arguments = parser.parse_args()
    print("| tree | files | tokens | create, s | edited | reused | recomputed | update, s "
          "| states against a fresh create |")
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
