"""Our times from a log of kda_forward_bench beside those of fla from tables of kda_side_by_side.py,
as Markdown on standard output. Where a case stands in the log several times, the median counts.

  python kda_table.py --bench bench.log --side side-1.md [side-2.md ...]
"""
import argparse
import re
import statistics

CASE = re.compile(r"(\d+)x(\d+)x(\d+)(?::gate=(-?[\d.]+))? +([\d.]+) ms +floor +[\d.]+ ms +([\d.]+) %"
                  r" of floor +workspace (\d+) MB")


def shape_name(sequences, tokens, heads, gate):
    return f"{sequences} × {int(tokens):,} · H {heads}" + (f" · gate {float(gate)}" if gate else "")


def read_bench(path):
    cases, copies = {}, []
    with open(path) as lines:
        for line in lines:
            if line.startswith("copy "):
                copies.append(line.split()[1])
            if match := CASE.match(line):
                *shape, ms, share, workspace = match.groups()
                case = cases.setdefault(shape_name(*shape), ([], [], int(workspace)))
                case[0].append(float(ms))
                case[1].append(float(share))
    return cases, copies


def read_side(paths):
    fla, targets, heads = {}, {}, []
    for path in paths:
        with open(path) as lines:
            for line in lines:
                cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
                if line.startswith("NVIDIA"):
                    heads.append(line.strip().split(" Written by")[0])
                if len(cells) == 7 and cells[1] == "fla" and cells[2] != "not run":
                    fla[cells[0]] = (cells[2], cells[5])
                    targets[cells[0]] = cells[6]
    return fla, targets, heads


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    parser.add_argument("--side", nargs="+", default=[])
    args = parser.parse_args()
    cases, copies = read_bench(args.bench)
    fla, targets, heads = read_side(args.side)
    print(f"Ours: `kda_forward_bench`, copy {', '.join(copies)} TB/s. fla:")
    for head in heads:
        print(f"- {head}")
    print("\n| shape | ms | % of memory floor | workspace, GB | fla ms | fla against ours "
          "| fla beyond inputs, GB | target ms |\n|---|---|---|---|---|---|---|---|")
    for shape in [*cases, *(s for s in fla if s not in cases)]:
        times, shares, workspace = cases.get(shape, ([], [], 0))
        ms = statistics.median(times) if times else None
        ours = f"{ms:.3f} | {statistics.median(shares):.0f} | {workspace / 1e3:.2f}" if ms else " | |"
        theirs, memory = fla.get(shape, ("", ""))
        ratio = f"{float(theirs) / ms:.2f} ×" if ms and theirs else ""
        print(f"| {shape} | {ours} | {theirs} | {ratio} | {memory} | {targets.get(shape, '')} |")


if __name__ == "__main__":
    main()
