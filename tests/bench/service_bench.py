#!/usr/bin/env python3
"""A whole service with random weights: a long prompt cold, resumed with 1,000 tokens more, decoded.

Usage: DELTAFILL_BIN=... [DELTAFILL_TEST_DEVICE=cuda] [DELTAFILL_AT_ONCE=16,64]
service_bench.py PRESET TOKENS WORKERSxRANGE...
One service for each WORKERSxRANGE (workers, and --range-tokens-max). Prints a Markdown table on
standard output and the services' own lines about memory and loading on standard error.
"""
import concurrent.futures
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))
import service  # noqa: E402

MORE = 1000
RESUMES = 5
DECODED = (64, 576)
# Decodings; of hybrids each holds the latents of all tokens, in the worker's --latent-budget.
AT_ONCE = [int(number) for number in os.environ.get("DELTAFILL_AT_ONCE", "16").split(",")]


class DeviceMemory:
    """The most that the card had in use, as nvidia-smi says; None without one."""

    def __init__(self):
        self.peak = None
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        while not self.stopped.wait(0.1):
            try:
                used = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            except (OSError, subprocess.CalledProcessError):
                return
            self.peak = max(self.peak or 0, max(int(line) for line in used.split()))

    def stop(self):
        self.stopped.set()
        self.thread.join()
        return "-" if self.peak is None else f"{self.peak / 1024:.1f}"


def vocabulary_of(model):
    return int(json.loads((model / "config.json").read_text())["vocab_size"])


def decode_rate(client, state):
    """Tokens a second of one decoding, starting left out."""
    seconds = [client.decode("--state", state, "--max-tokens", count, "--ignore-eos")["elapsed_s"]
               for count in DECODED]
    return (DECODED[1] - DECODED[0]) / (seconds[1] - seconds[0])


def decode_rate_at_once(client, state, calls):
    """Of several decodings together: starting left out, and starting (of clients too) included."""

    def seconds(count):
        def call(number):
            client.decode("--state", state, "--max-tokens", count, "--ignore-eos", "--temperature",
                          1, "--seed", number)

        started = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(calls) as threads:
            list(threads.map(call, range(calls)))  # raises what a call raised
        return time.monotonic() - started

    few, many = map(seconds, DECODED)
    alone = calls * (DECODED[1] - DECODED[0]) / (many - few)
    return f"{alone:,.0f} ({calls * DECODED[1] / many:,.0f})"


def resume(client, prefix):
    """The prefix and MORE tokens, other ones each time."""
    results = []
    for number in range(RESUMES):
        more = service.some_tokens(MORE, seed=1000 + number, vocabulary=max(prefix) + 1)
        results.append(client.prefill(prefix + more, logits=True))
        print(f"resumed: {json.dumps(results[-1]['timings'])}", file=sys.stderr)
    return results


def split(resumes):
    """Medians in milliseconds: all, and what the service says of it."""

    def median(value):
        return f"{statistics.median(map(value, resumes)) * 1000:.1f}"

    timings = [lambda r, name=name: r["timings"][name]
               for name in ("prompt_s", "lookup_s", "prefill_s", "restore_s")]
    return " | ".join(map(median, [lambda r: r["logits_s"], *timings]))


def measure(folder, model, tokens, workers, range_tokens):
    memory = DeviceMemory()
    started = time.monotonic()
    with service.Service(folder, "--random-weights", 1, "--range-tokens-max", range_tokens,
                         "--decode-batch", max(AT_ONCE), workers=workers, model=model) as client:
        start_s = time.monotonic() - started
        client.prefill(tokens[:4 * range_tokens], "--no-resume", "--tenant", "warm")
        cold = client.prefill(tokens[:-MORE], logits=True)
        resumes = resume(client, tokens[:-MORE])
        resumed = resumes[0]
        kinds = service.bytes_by_kind(client.call("state", "show", cold["state"])["parts"])
        print(f"state of {cold['tokens']:,} tokens: {json.dumps(kinds)} bytes", file=sys.stderr)
        alone = decode_rate(client, resumed["state"])
        together = " | ".join(decode_rate_at_once(client, resumed["state"], calls)
                              for calls in AT_ONCE)
    for line in pathlib.Path(client.process.log).read_text().splitlines():
        if any(word in line for word in ("memory: ", "weights: ", "ready: ", "error", "warning")):
            print(line, file=sys.stderr)
    prefill_s = cold["timings"]["prefill_s"]
    return (f"| {workers} | {range_tokens:,} | {start_s:.1f} | {cold['elapsed_s']:.3f} "
            f"| {cold['logits_s']:.3f} | {cold['tokens'] / prefill_s:,.0f} "
            f"| {resumed['cached_tokens']:,} | {resumed['logits_s']:.3f} "
            f"| {cold['logits_s'] / resumed['logits_s']:.0f} | {split(resumes)} "
            f"| {alone:,.0f} | {together} | {memory.stop()} |")


def main():
    preset, count = sys.argv[1], int(sys.argv[2])
    with tempfile.TemporaryDirectory(dir=service.WORK) as folder:
        model = pathlib.Path(folder) / preset
        service.run("model", "init", "--preset", preset, "--config-only", "--out", model)
        tokens = service.some_tokens(count + MORE, seed=31, vocabulary=vocabulary_of(model))
        print(f"{preset}, {count:,} tokens cold and {MORE:,} more resumed; seconds as the client sees "
              "them; decoding from the state of all of them, tokens a second: one greedily, and several "
              "at once (in brackets, starting included)\n")
        columns = ["workers", "range", "start s", "cold s", "cold logits s", "cold tokens/s", "cached",
                   "resumed logits s", "faster", f"median of {RESUMES}, ms", "prompt", "lookup",
                   "computing", "waiting for the state", "decoding alone",
                   *(f"{calls} at once" for calls in AT_ONCE), "peak GiB"]
        print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)
        for number, case in enumerate(sys.argv[3:]):
            workers, range_tokens = map(int, case.split("x"))
            print(measure(f"{folder}/{number}", model, tokens, workers, range_tokens), flush=True)


if __name__ == "__main__":
    main()
