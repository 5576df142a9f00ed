"""Compiles what fla's KDA forward would compile while it tunes itself, in parallel: every choice of
every kernel at the given head counts goes into Triton's cache on disk, untimed. Afterwards
kda_side_by_side.py tunes in seconds.

  python kda_fla_compile.py [--heads 8,16,32,64,96] [--packed-heads 96] [--parts 3] [--tokens 8192]
"""
import argparse
import os
import subprocess
import sys
import time


def compile_part(sequences, tokens, heads, part, parts):
    """Runs the forward once; of each kernel's choices, every `parts`-th is compiled and run."""
    os.environ["FLA_CACHE_RESULTS"] = "0"  # the times are none
    from triton.runtime.autotuner import Autotuner
    bench = Autotuner._bench

    def compile_instead(self, *args, config, **meta):
        if self.configs.index(config) % parts != part:
            return [float("inf")] * 3
        return bench(self, *args, config=config, **meta)

    def run_once(kernel_call, quantiles=None):
        kernel_call()
        return [1.0] * 3

    Autotuner._bench = compile_instead
    Autotuner.do_bench = staticmethod(run_once)
    import kda_side_by_side
    kda_side_by_side.Fla()(kda_side_by_side.make_inputs(sequences, tokens, heads, 0.0))
    kda_side_by_side.torch.cuda.synchronize()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--heads", default="8,16,32,64,96")
    parser.add_argument("--packed-heads", default="96", help="head counts of packed batches")
    parser.add_argument("--parts", type=int, default=3, help="processes a head count")
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--part", type=int, nargs=3, help="one process: sequences heads part")
    args = parser.parse_args()
    if args.part:
        sequences, heads, part = args.part
        compile_part(sequences, args.tokens // sequences, heads, part, args.parts)
        return 0
    started = time.monotonic()
    cases = [(1, int(h)) for h in args.heads.split(",") if h]
    cases += [(8, int(h)) for h in args.packed_heads.split(",") if h]
    running = []
    for sequences, heads in cases:
        for part in range(args.parts):
            command = [sys.executable, __file__, "--parts", str(args.parts), "--tokens",
                       str(args.tokens), "--part", str(sequences), str(heads), str(part)]
            running.append(subprocess.Popen(command))
    failed = sum(process.wait() != 0 for process in running)
    print(f"{len(running)} processes, {failed} failed, {time.monotonic() - started:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
