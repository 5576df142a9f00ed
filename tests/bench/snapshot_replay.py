#!/usr/bin/env python3
"""Replays a repository's last commits into a snapshot and counts what updates recompute.

Usage: DELTAFILL_BIN=build/release/bin/deltafill snapshot_replay.py [--commits N] [--one-layer]
       REPOSITORY...
A REPOSITORY is a git directory; it is only read. The model is preset `tiny`, where every byte is a
token; with --one-layer one of 64 channels and a single layer, which takes a seventh of the time: how many
tokens an update recomputes does not depend on the weights. For each repository:
  scratch    every commit's tokens
  path       files by path, counted from the texts, as if every block's end had a checkpoint
  history    `snapshot create` before the first of the commits, then `snapshot update` after each
  hindsight  the same with the order that the replayed commits themselves suggest: about the best
             that any fixed order could do
Prints a Markdown table and what it says. snapshot_orders.py compares more orders without computing.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))
import service  # noqa: E402
from snapshot_rendering import HEADER, common_prefix, git, render  # noqa: E402


def clone(source, folder, *flags):
    subprocess.run(["git", "clone", "--quiet", *flags, f"file://{source}", str(folder)], check=True)
    return folder


def one_layer_model(folder):
    """A directory whose config.json is of one layer; without weights."""
    service.run("model", "init", "--preset", "tiny", "--config-only", "--out", folder)
    config = json.loads((folder / "config.json").read_text())
    config.update(hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=1,
                  num_key_value_heads=1, first_k_dense_replace=1)
    config["linear_attn_config"].update(kda_layers=[1], num_heads=1, head_dim=32)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def path_order_text(folder, left_out):
    """The rendering of a checked out tree with its files by path."""
    paths = [p for p in git(folder, "ls-files", "-z").split("\0") if p and p not in left_out]
    return HEADER + b"".join(render(p, (folder / p).read_bytes())
                             for p in sorted(paths, key=os.fsencode))


def replay(client, name, folder, commits, order_from=None, texts=None):
    """Creates at commits[0] and updates at each that follows; what updates recomputed, and how long
    they took. texts, if a list, gets each commit's rendering by path."""
    git(folder, "checkout", "--quiet", "--force", commits[0])
    flags = ["--order-from", order_from] if order_from else []
    report = client.call("snapshot", "create", name, folder, "--versions", 0, *flags)
    recomputed, seconds, scratch = 0, 0.0, 0
    for number, commit in enumerate(commits):
        if number > 0:
            git(folder, "checkout", "--quiet", "--force", commit)
            start = time.monotonic()
            report = client.call("snapshot", "update", name)
            seconds += time.monotonic() - start
            recomputed += report["recomputed_tokens"]
            scratch += report["tokens"]
        if texts is not None:
            texts.append(path_order_text(folder, {each["path"] for each in report["left_out"]}))
            assert len(texts[-1]) == report["tokens"], "the rendering is not what this script thinks"
    return scratch, recomputed, seconds, report


def replay_repository(client, source, count, folder):
    work = clone(source, folder / "work")
    commits = git(work, "log", "--first-parent", "--format=%H", f"--max-count={count + 1}").split()
    commits.reverse()
    texts = []
    scratch, ours, seconds, report = replay(client, "history", work, commits, texts=texts)
    path = sum(len(now) - common_prefix(before, now) // 64 * 64
               for before, now in zip(texts, texts[1:]))
    del texts
    print(f"{source}: history {ours:,} of {scratch:,}, path {path:,}", file=sys.stderr, flush=True)
    client.call("snapshot", "delete", "history")
    # A clone without what came before: its history is the replayed commits.
    shallow = clone(source, folder / "shallow", "--depth", str(count))
    client.call("snapshot", "create", "future", shallow, "--versions", 0)
    _, hindsight, _, _ = replay(client, "hindsight", work, commits, order_from="future")
    for name in ("future", "hindsight"):
        client.call("snapshot", "delete", name)
    name = pathlib.Path(str(source).removesuffix("/repo")).name.replace("+", "/")
    updates = len(commits) - 1
    print(f"| {name} | {report['files']} | {report['tokens']:,} | {scratch / 1e6:.1f} "
          f"| {path / 1e6:.1f} ({scratch / path:.1f} x) | **{ours / 1e6:.1f} ({scratch / ours:.1f} x)** "
          f"| {hindsight / 1e6:.1f} ({scratch / hindsight:.1f} x) | {seconds / updates:.2f} |", flush=True)
    return name, scratch / ours


def conclude(gains, commits):
    reached = [name for name, gain in gains if gain >= 10]
    print(f"\nTokens that {commits} updates recompute, one after each commit; the x say how many times fewer than "
          "from scratch. History and\nhindsight order ran for real, as the workers counted. Path order is counted "
          "from the same texts as if every block's end had a\ncheckpoint, which favours it. Hindsight is the order "
          "that the replayed commits themselves suggest: what knowing the future gives.\n"
          f"The goal was 10 x fewer than from scratch; history order reaches it on {', '.join(reached) or 'none'}. "
          "Token counts do not depend on what else\nthe machine does; seconds do.")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--commits", type=int, default=50)
    parser.add_argument("--one-layer", action="store_true")
    parser.add_argument("repositories", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    print("| repository | files | tokens | from scratch, M | path order, M | history order, M "
          "| hindsight order, M | seconds an update |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    gains = []
    for repository in arguments.repositories:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            os.environ["DELTAFILL_STATE_DIR"] = str(folder / "state")
            flags, model = (), None
            if arguments.one_layer:
                flags, model = ("--random-weights", 1), one_layer_model(folder / "model")
            with service.Service(folder / "service", *flags, workers=1, model=model) as client:
                gains.append(replay_repository(client, repository.resolve(), arguments.commits,
                                               folder))
    conclude(gains, arguments.commits)


if __name__ == "__main__":
    main()
