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
# Prompts of hybrids after the one of MIDDLE tokens; on one GPU, where they take twice as long, others if so said.
HYBRID_TOKENS = os.environ.get("DELTAFILL_GPU_HYBRID_TOKENS", "1048576")
HYBRID, HYBRID_ALONE = ([int(n) // SCALE for n in text.split(",") if n] for text in
                        (HYBRID_TOKENS, os.environ.get("DELTAFILL_GPU_HYBRID_ALONE_TOKENS", HYBRID_TOKENS)))
MORE = 1000  # tokens, of the prompt that resumes
TRAFFIC = re.compile(r"(by device link|in the stream): (\w+) (\d+) messages, (\d+) bytes, ([\d.]+) s")


class GpuRoles(service.Roles):
    """A worker process on each of the first `workers` GPUs, over a copy of a store that has a salt: part ids
    of the same bytes are then the same in all of them."""

    def __init__(self, folder, store, **options):
        folder.mkdir(parents=True)
        shutil.copytree(store, folder / "store")
        super().__init__(folder, **options)

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


def parts_digest(parts):
    """Of a state: the ids of its parts are hashes of their bytes."""
    return digest(json.dumps(sorted((part["kind"], part["id"]) for part in parts)).encode())


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
        self.store = self.salted_store()

    def salted_store(self):
        """An empty state of a tiny model makes the tenant's salt."""
        self.work.mkdir(parents=True, exist_ok=True)
        with service.Service(self.work / "salt", model=service.model_directory("tiny")) as client:
            client.prefill([1] * 128)
        return self.work / "salt" / "store"

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
        return GpuRoles(folder, self.store, workers=workers, worker_flags=flags, model=model)

    def close(self, name):
        """Keeps the logs and gives the stores' room back."""
        for log in (self.work / name).glob("*.log"):
            shutil.copyfile(log, self.logs / "processes" / f"{name}-{log.name}")
        found = traffic(self.work / name, "from"), traffic(self.work / name, "to")
        shutil.rmtree(self.work / name, ignore_errors=True)
        return found

    def took(self, preset, tokens, workers, seconds):
        self.results.setdefault((preset, tokens), {}).setdefault(workers, []).append(seconds)
        self.say(f"{preset}, {tokens} tokens, {workers} worker(s): {seconds:.3f} s, "
                 f"{tokens / seconds:.0f} tokens/s")
        return seconds

    def timed(self, roles, preset, tokens, seed, workers):
        done = roles.prefill(prompt(tokens, seed, preset), "--no-resume", timeout=self.left())
        return self.took(preset, tokens, workers, done["timings"]["prefill_s"])

    def bits(self, roles, preset, tokens, workers, *flags):
        """Digests of a prompt's logits, end and checkpoints; what the call said."""
        done = roles.prefill(prompt(tokens, tokens, preset), *flags, "--no-resume", logits=True,
                             timeout=self.left())
        if workers > 1 and done["schedule"] != "wavefront":
            raise ValueError(f"{tokens} tokens ran by schedule {done['schedule']!r}: one GPU did nothing")
        end = roles.call("state", "show", done["state"])["parts"]
        found = {f"{tokens} tokens: logits": digest(done["logits"]), f"{tokens} tokens: end": parts_digest(end)}
        for checkpoint in done["checkpoints"]:
            parts = roles.call("state", "show", checkpoint["state"])["parts"]
            found[f"{tokens} tokens: {checkpoint['boundary']}"] = parts_digest(parts)
        if workers == 1:
            kinds = ", ".join(f"{kind} {size / 1e6:,.1f} MB" for kind, size in service.bytes_by_kind(end).items())
            self.rows.append((preset, f"state of {tokens} tokens", kinds, f"{len(end)} parts"))
        return found, done

    def resumed(self, roles, preset, tokens, workers, cold):
        more = prompt(tokens, tokens, preset) + prompt(MORE, 5, preset)
        done = roles.prefill(more, logits=True, timeout=self.left())
        self.rows.append((preset, f"{MORE} tokens more than {tokens}, {workers} GPU(s): logits after",
                          f"{done['logits_s']:.3f} s, {done['cached_tokens']} tokens cached",
                          f"cold {cold['logits_s']:.3f} s, {cold['logits_s'] / done['logits_s']:.0f} x"))

    def configuration(self, preset, workers, sizes, exact):
        """sizes: (tokens, repeats) that are timed; exact: tokens whose bits are kept, with checkpoints in the first."""
        name = f"{preset}-{workers}"
        digests, total_s = {}, 0.0
        try:
            with self.roles(name, preset, workers) as roles:
                # The first opens the links and warms the cards, too.
                found, first = self.bits(roles, preset, exact[0], workers, "--checkpoint-every", exact[0] // 4)
                digests.update(found)
                self.resumed(roles, preset, exact[0], workers, first)
                for tokens, repeats in sizes:
                    for repeat in range(repeats):
                        total_s += self.timed(roles, preset, tokens, 100 + repeat, workers)
                for tokens in exact[1:]:
                    found, done = self.bits(roles, preset, tokens, workers)
                    digests.update(found)
                    total_s += self.took(preset, tokens, workers, done["timings"]["prefill_s"])
                total_s += first["timings"]["prefill_s"]
        finally:
            received, sent = self.close(name)
        return {"bits": digests, "prefill_s": total_s, "traffic": received, "sent": sent}

    def compare(self, preset, one, many):
        if one is None or many is None:
            return self.fault(f"{preset}: bits are not compared")
        for what, expected in one["bits"].items():
            same = many["bits"].get(what) == expected
            self.rows.append((preset, f"bits of {what}", expected, "equal" if same else "DIFFERENT"))
            if not same:
                self.fault(f"{preset}: {what} differs between 1 and {GPUS} GPUs")
        for what in many["bits"].keys() - one["bits"].keys():
            self.rows.append((preset, f"bits of {what}", many["bits"][what], f"on {GPUS} GPUs only"))

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
                self.bits(roles, preset, MIDDLE, GPUS)
                tokens = service.write_tokens(roles.path(".tokens"), prompt(LONG, LONG, preset))
                call = threading.Thread(target=lambda: outcome.update(
                    roles.call("prefill", "--tokens", tokens, "--no-resume", timeout=max(self.left(), 1))))
                call.start()
                time.sleep(0.5 * prefill_s)
                roles.workers[GPUS - 1].kill()
                call.join()
                attempts = outcome.get("attempts", 0)
                state = parts_digest(roles.call("state", "show", outcome["state"])["parts"])
        finally:
            self.close(name)
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
        sizes = [(LONG, 1), (SHORT, 5)]
        exact = [MIDDLE, LONG]
        many = self.step(f"{preset} on {GPUS} GPUs", 60, self.configuration, preset, GPUS, sizes, exact)
        one = self.step(f"{preset} on 1 GPU", 60, self.configuration, preset, 1, sizes, exact)
        self.compare(preset, one, many)
        self.exchange(preset, many, GPUS)
        if one is not None:
            best_s = min(self.results[(preset, LONG)].get(GPUS, [4.0]))
            self.step("loss of a worker", 60, self.loss, preset, one["bits"][f"{LONG} tokens: end"], best_s)

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
            sizes, exact, alone = [(MIDDLE, 2)], [MIDDLE, *HYBRID], [MIDDLE, *HYBRID_ALONE]
            # 48 B: 80 and 145 s for a million tokens.
            many_s, one_s = 25 + int(85 * sum(exact) / 1e6), 25 + int(150 * sum(alone) / 1e6)
            many = run.step(f"{hybrid} on {GPUS} GPUs", many_s, run.configuration, hybrid, GPUS, sizes, exact)
            one = run.step(f"{hybrid} on 1 GPU", one_s, run.configuration, hybrid, 1, sizes, alone)
            run.compare(hybrid, one, many)
            run.exchange(hybrid, many, GPUS)
    finally:
        run.speed()
        run.write()
        shutil.rmtree(run.work, ignore_errors=True)
    return 1 if run.faults else 0


if __name__ == "__main__":
    sys.exit(main())
