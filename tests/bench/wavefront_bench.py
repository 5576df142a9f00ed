#!/usr/bin/env python3
"""Two workers against one, a thread each: the wavefront's speed-up on this machine.

Usage: DELTAFILL_BIN=build/release/bin/deltafill wavefront_bench.py [PRESET] [TOKENS] [ROUNDS]
Runs alternate, so that drifting clocks hit both alike; prints medians as a Markdown table.
"""
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))
import service  # noqa: E402


def main():
    preset = sys.argv[1] if len(sys.argv) > 1 else "tiny"
    tokens = service.some_tokens(int(sys.argv[2]) if len(sys.argv) > 2 else 200_000)
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    model = service.model_directory(preset)
    seconds = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for workers in seconds:
                with service.Service(f"{folder}/{number}-{workers}", "--threads-per-worker", 1,
                                     workers=workers, model=model) as client:
                    client.prefill(tokens[:10_000], "--no-resume")  # warm
                    result = client.prefill(tokens, "--no-resume")
                    seconds[workers].append(result["timings"]["prefill_s"])
    one, two = statistics.median(seconds[1]), statistics.median(seconds[2])
    ratio = statistics.median(a / b for a, b in zip(seconds[1], seconds[2]))
    print("| model | tokens | 1 worker, tokens/s | 2 workers, tokens/s | speed-up |")
    print("|---|---|---|---|---|")
    print(f"| {preset} | {len(tokens):,} | {len(tokens) / one:,.0f} | {len(tokens) / two:,.0f} "
          f"| {ratio:.2f} |")


if __name__ == "__main__":
    main()
