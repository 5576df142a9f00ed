#!/usr/bin/env python3
"""One prompt on several real GPUs, a worker process on each, against one GPU: bits, speed, exchange, loss.

Usage: two_gpus.py LOG_FOLDER. DELTAFILL_BIN names the binary (its CUDA and NCCL libraries beside it),
DELTAFILL_GPUS how many GPUs (2), DELTAFILL_DEVICE_SECONDS when to be done (520), DELTAFILL_WORK a folder
for stores and models. Writes LOG_FOLDER/results.md, results.json, and processes/ with their logs; what no longer
fits into the time is left out and said so. Exits 1 if a promise is broken or a step failed.
"""
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
os.environ.setdefault("DELTAFILL_WORK", tempfile.mkdtemp(
    prefix="deltafill-gpus-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
os.environ["NCCL_NVLS_ENABLE"] = "0"
sys.path.insert(0, str(REPOSITORY / "tests" / "integration"))
import service  # noqa: E402: it reads the environment

service.START_SECONDS_MAX = 240  # weights of 48 B parameters

GPUS = int(os.environ.get("DELTAFILL_GPUS", "2"))
DEVICE = os.environ.get("DELTAFILL_GPU_DEVICE", "cuda:{}")  # "cpu" tries the script without GPUs
SCALE = int(os.environ.get("DELTAFILL_GPU_SCALE", "1"))  # divides all prompts: for such a try
# A dense one, then hybrids; an empty name leaves its part out.
PRESETS = os.environ.get("DELTAFILL_GPU_PRESETS", "dense-1b,kimi-linear-48b").split(",")
LAYERS = {"dense-1b": 24, "kimi-linear-48b": 27, "tiny": 2, "kimi-linear-tiny": 4}
VOCABULARY = {"tiny": 256, "kimi-linear-tiny": 256}
SEED = 7
LONG, SHORT, MIDDLE = (n // SCALE for n in (1 << 20, 1 << 15, 1 << 17))
HYBRID = [int(n) // SCALE for n in os.environ.get("DELTAFILL_GPU_HYBRID_TOKENS", "131072").split(",")]
TRAFFIC = re.compile(r"(by device link|in the stream): (\w+) (\d+) messages, (\d+) bytes, ([\d.]+) s")


class GpuRoles(service.Roles):
    """A worker process on each of the first `workers` GPUs."""

    def add_worker(self):
        number = len(self.workers)
        self.workers.append(service.Process(
            self.folder / f"worker-{number}.log", "worker", "--model", self.model, "--name",
            f"worker-{number}", "--coordinator", self.worker_port, "--store", self.store_port,
            "--device", DEVICE.format(number), "--random-weights", SEED, *self.worker_flags))
        return self.workers[-1]


def prompt(tokens, seed, preset):
    return random.Random(seed).choices(range(VOCABULARY.get(preset, 32000)), k=tokens)


def digest(content):
    return hashlib.sha256(content).hexdigest()[:16]


def tensors_digest(path_content):
    """Of a fetched state without its metadata, which may say when and where."""
    size, = struct.unpack("<Q", path_content[:8])
    header = json.loads(path_content[8:8 + size])
    header.pop("__metadata__", None)
    return digest(json.dumps(header, sort_keys=True).encode() + path_content[8 + size:])


def traffic(folder, direction):
    """(transport, kind) -> messages, bytes, seconds of all workers; direction: from (received), to."""
    sums = {}
    for log in sorted(pathlib.Path(folder).glob("worker-*.log")):
        for line in log.read_text(errors="replace").splitlines():
            if f"exchange {direction} " not in line:
                continue
            for transport, kind, messages, size, seconds in TRAFFIC.findall(line):
                found = sums.setdefault((transport, kind), [0, 0, 0.0])
                found[0] += int(messages)
                found[1] += int(size)
                found[2] += float(seconds)
    return sums


class Run:
    def __init__(self, logs):
        self.logs = logs
        self.work = pathlib.Path(os.environ["DELTAFILL_WORK"])
        self.deadline = time.monotonic() + float(os.environ.get("DELTAFILL_DEVICE_SECONDS", "520"))
        self.rows, self.faults, self.notes, self.results = [], [], [], {}

    def left(self):
        return self.deadline - time.monotonic()

    def say(self, line):
        print(line, flush=True)
        self.notes.append(line)

    def fault(self, line):
        self.faults.append(line)
        self.say(f"FAILED {line}")

    def step(self, name, seconds, function, *arguments):
        if self.left() < seconds:
            self.fault(f"{name}: left out, {self.left():.0f} s left, {seconds} s needed")
            return None
        started = time.monotonic()
        try:
            result = function(*arguments)
            self.say(f"ok {name}: {time.monotonic() - started:.0f} s")
            return result
        except Exception as error:  # a failed step must not take the others with it
            traceback.print_exc()
            self.fault(f"{name}: {type(error).__name__}: {str(error)[-600:]}")
            return None

    def roles(self, name, preset, workers):
        model = self.work / f"model-{preset}"
        if not model.exists():
            service.run("model", "init", "--preset", preset, "--config-only", "--out", model)
        folder = self.work / name
        flags = ["--range-tokens-max", os.environ.get("DELTAFILL_RANGE_TOKENS_MAX", "8192"),
                 "--latent-budget", "12G"]
        return GpuRoles(folder, workers=workers, worker_flags=flags, model=model)

    def keep_logs(self, name):
        for log in (self.work / name).glob("*.log"):
            shutil.copyfile(log, self.logs / "processes" / f"{name}-{log.name}")

    def timed(self, roles, preset, tokens, seed, workers):
        done = roles.prefill(prompt(tokens, seed, preset), "--no-resume", timeout=self.left())
        seconds = done["timings"]["prefill_s"]
        self.results.setdefault((preset, tokens), {}).setdefault(workers, []).append(seconds)
        self.say(f"{preset}, {tokens} tokens, {workers} worker(s): {seconds:.3f} s, "
                 f"{tokens / seconds:.0f} tokens/s")
        return done, seconds

    def bits(self, roles, preset, tokens):
        """Digests of a prompt's checkpoints, end and logits; and its seconds."""
        done = roles.prefill(prompt(tokens, 11, preset), "--checkpoint-every", tokens // 4, "--no-resume",
                             logits=True, timeout=self.left())
        found = {"logits": digest(done["logits"]), "end": tensors_digest(roles.fetch(done["state"]))}
        for checkpoint in done["checkpoints"]:
            found[str(checkpoint["boundary"])] = tensors_digest(roles.fetch(checkpoint["state"]))
        return found, done["timings"]["prefill_s"]

    def configuration(self, preset, workers, sizes, bits_tokens):
        name = f"{preset}-{workers}"
        try:
            with self.roles(name, preset, workers) as roles:
                # Opens the links and warms the cards, too.
                digests, total_s = self.bits(roles, preset, bits_tokens)
                for tokens, repeats in sizes:
                    for repeat in range(repeats):
                        total_s += self.timed(roles, preset, tokens, 100 + repeat, workers)[1]
                longest = sizes[0][0]
                state = roles.prefill(prompt(longest, 100, preset), timeout=self.left())["state"]
                digests[f"{longest} tokens"] = tensors_digest(roles.fetch(state))
        finally:
            self.keep_logs(name)
        return {"bits": digests, "prefill_s": total_s, "traffic": traffic(self.work / name, "from"),
                "sent": traffic(self.work / name, "to")}

    def compare(self, preset, one, many):
        if one is None or many is None:
            return self.fault(f"{preset}: bits are not compared")
        for what, expected in one["bits"].items():
            same = many["bits"].get(what) == expected
            self.rows.append((preset, f"bits of {what}", expected, "equal" if same else "DIFFERENT"))
            if not same:
                self.fault(f"{preset}: {what} differs between 1 and {GPUS} GPUs")

    def speed(self):
        for (preset, tokens), by_workers in sorted(self.results.items()):
            best = {workers: min(seconds) for workers, seconds in by_workers.items()}
            for workers, seconds in sorted(best.items()):
                gain = f", {best[1] / seconds:.3f} x one GPU" if workers > 1 and 1 in best else ""
                self.rows.append((preset, f"{tokens} tokens, {workers} GPU(s)", f"{seconds:.3f} s",
                                  f"{tokens / seconds:,.0f} tokens/s{gain}"))

    def exchange(self, preset, found, workers):
        if found is None:
            return
        handed = sum(found["traffic"].get((way, "recurrent"), [0])[0]
                     for way in ("by device link", "in the stream"))
        for (way, kind), (messages, size, seconds) in sorted(found["traffic"].items()):
            mean_s = seconds / max(messages, 1)
            self.rows.append((preset, f"{kind} {way}: {messages} messages of {size // max(messages, 1)} bytes",
                              f"{mean_s * 1e6:.0f} us each", f"{size / max(seconds, 1e-9) / 1e9:.2f} GB/s"))
        for (way, kind), (messages, _, seconds) in sorted(found["sent"].items()):
            self.rows.append((preset, f"{kind} {way}: from sending to acknowledgement",
                              f"{seconds / max(messages, 1) * 1e6:.0f} us each", f"{messages} messages"))
        if DEVICE != "cpu" and ("by device link", "recurrent") not in found["traffic"]:
            self.fault(f"{preset}: states did not go by NCCL")
        if handed == 0:
            return
        kda_s = sum(found["traffic"].get((way, kind), [0, 0, 0.0])[2] for way in
                    ("by device link", "in the stream") for kind in ("recurrent", "conv_tail")) / handed
        layer_s = workers * found["prefill_s"] / handed
        self.rows.append((preset, "exchange of a KDA layer / a layer's time",
                          f"{kda_s * 1e6:.0f} / {layer_s * 1e6:.0f} us", f"{100 * kda_s / layer_s:.1f} %"))

    def loss(self, preset, expected, prefill_s):
        """kill -9 of one worker in mid-prompt: the others finish, with the same state."""
        name = f"{preset}-loss"
        outcome = {}
        try:
            with self.roles(name, preset, GPUS) as roles:
                self.bits(roles, preset, MIDDLE)
                tokens = service.write_tokens(roles.path(".tokens"), prompt(LONG, 100, preset))
                call = threading.Thread(target=lambda: outcome.update(
                    roles.call("prefill", "--tokens", tokens, "--no-resume", timeout=max(self.left(), 1))))
                call.start()
                time.sleep(0.5 * prefill_s)
                roles.workers[GPUS - 1].kill()
                call.join()
                attempts = outcome.get("attempts", 0)
                state = tensors_digest(roles.fetch(outcome["state"]))
        finally:
            self.keep_logs(name)
        same = state == expected
        self.rows.append((preset, f"kill -9 of a worker at half of {LONG} tokens",
                          f"{outcome['timings']['prefill_s']:.2f} s in {attempts} attempts",
                          "the same state" if same else "ANOTHER STATE"))
        if attempts < 2:
            self.fault("kill -9: the prompt ended before it; nothing is shown")
        if not same:
            self.fault("kill -9: the state differs")

    def links(self):
        """Bandwidths between two processes, if the test's binary is there."""
        test = pathlib.Path(service.BINARY).with_name("gpu_nccl_link_test")
        if DEVICE == "cpu":
            return
        if not test.exists():
            return self.fault("gpu_nccl_link_test: not carried")
        done = subprocess.run([test], capture_output=True, text=True, timeout=min(120, self.left()))
        (self.logs / "nccl_link_test.log").write_text(done.stdout + done.stderr)
        for line in re.findall(r"nccl link.*", done.stdout):
            self.say(line)
        if done.returncode != 0:
            self.fault(f"gpu_nccl_link_test: exit {done.returncode}")

    def dense(self, preset):
        self.step("links between processes", 60, self.links)
        sizes = [(LONG, 2), (SHORT, 5)]
        many = self.step(f"{preset} on {GPUS} GPUs", 60, self.configuration, preset, GPUS, sizes, MIDDLE)
        one = self.step(f"{preset} on 1 GPU", 60, self.configuration, preset, 1, sizes, MIDDLE)
        self.compare(preset, one, many)
        self.exchange(preset, many, GPUS)
        if one is not None:
            best_s = min(self.results[(preset, LONG)].get(GPUS, [4.0]))
            self.step("loss of a worker", 60, self.loss, preset, one["bits"][f"{LONG} tokens"], best_s)

    def write(self):
        lines = [f"# {GPUS} GPUs, a worker process on each", "", "| model | what | value | |", "|---|---|---|---|"]
        lines += [f"| {' | '.join(map(str, row))} |" for row in self.rows]
        lines += ["", *[f"- {note}" for note in self.notes]]
        (self.logs / "results.md").write_text("\n".join(lines) + "\n")
        (self.logs / "results.json").write_text(json.dumps(
            {"gpus": GPUS, "rows": self.rows, "faults": self.faults}, indent=1))
        print("\n".join(lines))


def main():
    logs = pathlib.Path(sys.argv[1])
    (logs / "processes").mkdir(parents=True, exist_ok=True)
    run = Run(logs)
    dense = PRESETS[0]
    try:
        if dense:
            run.dense(dense)
        for hybrid in PRESETS[1:]:
            sizes = [(tokens, 2) for tokens in HYBRID]
            many = run.step(f"{hybrid} on {GPUS} GPUs", 100, run.configuration, hybrid, GPUS, sizes, SHORT)
            one = run.step(f"{hybrid} on 1 GPU", 100, run.configuration, hybrid, 1, sizes, SHORT)
            run.compare(hybrid, one, many)
            run.exchange(hybrid, many, GPUS)
    finally:
        run.speed()
        run.write()
        shutil.rmtree(run.work, ignore_errors=True)
    return 1 if run.faults else 0


if __name__ == "__main__":
    sys.exit(main())
