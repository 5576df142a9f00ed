"""Starts deltafill processes and calls the command line, for the integration tests.

DELTAFILL_BIN names the binary, DELTAFILL_WORK a folder that may be written, DELTAFILL_TEST_DEVICE a
--device for every service and worker, DELTAFILL_TEST_LOGS a folder that their logs are kept in. Everything started here
is stopped when the Service or Roles object is closed.
"""
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

BINARY = os.environ["DELTAFILL_BIN"]
WORK = pathlib.Path(os.environ.get("DELTAFILL_WORK", tempfile.gettempdir()))
# Sanitizers slow everything down; tests scale their sizes by this.
SLOW = bool(os.environ.get("DELTAFILL_SLOW"))
START_SECONDS_MAX = 120
# Where every service and worker computes: "" for the default.
DEVICE = os.environ.get("DELTAFILL_TEST_DEVICE", "")
DEVICE_FLAGS = ("--device", DEVICE) if DEVICE else ()
# For prompts that must still run when a test interferes, however fast the device is.
SHORT_RANGES = ("--range-tokens", 64) if DEVICE not in ("", "cpu") else ()
# Where the processes' logs are kept; "": nowhere.
LOGS = os.environ.get("DELTAFILL_TEST_LOGS", "")
# Where this test's processes listen.
HOST = f"127.{64 + os.getpid() // 65536 % 64}.{os.getpid() // 256 % 256}.{os.getpid() % 256}"
PORTS = itertools.count(10000)
os.environ["no_grpc_proxy"] = HOST  # else gRPC would ask the proxy that http_proxy names


class CallFailed(Exception):
    def __init__(self, arguments, code, stderr):
        super().__init__(f"{' '.join(arguments[:3])}: exit {code}: {stderr.strip()}")
        self.code = code
        self.stderr = stderr

    @property
    def status(self):
        match = re.search(r"deltafill: ([A-Z_]+):", self.stderr)
        return match.group(1) if match else None


def run(*arguments, timeout=600, **options):
    """Runs the command line; returns the JSON object on its last line, or raises CallFailed."""
    command = [BINARY, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, timeout=timeout, **options)
    if done.returncode != 0:
        raise CallFailed(command[1:], done.returncode, done.stderr.decode(errors="replace"))
    lines = done.stdout.decode().splitlines()
    return json.loads(lines[-1]) if lines and lines[-1].startswith("{") else None


def new_address():
    """For a process to listen on. Nobody else takes it: this test has a loopback address of its own,
    and the ports lie below those that connections get."""
    return f"{HOST}:{next(PORTS)}"


def model_directory(preset="tiny", seed=1):
    """A model made once and shared by the tests."""
    directory = WORK / f"model-{preset}-{seed}"
    if not (directory / "config.json").exists():
        making = pathlib.Path(tempfile.mkdtemp(dir=WORK)) / "model"
        run("model", "init", "--preset", preset, "--seed", seed, "--out", making)
        try:
            making.rename(directory)
        except OSError:  # another test was faster
            shutil.rmtree(making)
    return directory


def write_tokens(path, tokens):
    path.write_bytes(struct.pack(f"<{len(tokens)}I", *tokens))
    return path


def some_tokens(count, seed=1, vocabulary=256):
    """Reproducible token ids (a multiplicative generator, so that no Python version matters)."""
    value = seed * 2654435761 % 2147483647 or 1
    tokens = []
    for _ in range(count):
        value = value * 48271 % 2147483647
        tokens.append(value % vocabulary)
    return tokens


def bytes_by_kind(parts):
    """Of a state's parts, as `state show` gives them."""
    sums = {}
    for part in parts:
        sums[part["kind"]] = sums.get(part["kind"], 0) + part["bytes"]
    return sums


class Process:
    """A running deltafill role."""

    def __init__(self, log, *arguments):
        self.log = log
        with open(log, "ab") as sink:
            self.popen = subprocess.Popen([BINARY, *map(str, arguments)], stdout=sink, stderr=sink)

    def kill(self):
        self.popen.kill()
        self.popen.wait()

    def terminate(self, timeout=30):
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(timeout)

    def close(self):
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


class Client:
    """Calls on one service, which whoever derives from this starts and closes."""

    def __init__(self, address, folder):
        self.address = address
        self.folder = folder
        self.files = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def path(self, suffix):
        self.files += 1
        return self.folder / f"file-{self.files}{suffix}"

    def call(self, *arguments, **options):
        return run(*arguments, "--server", self.address, "--json", **options)

    def prefill(self, tokens, *flags, logits=False, **options):
        path = write_tokens(self.path(".tokens"), tokens)
        arguments = ["prefill", "--tokens", path, *flags]
        if logits:
            logits_path = self.path(".logits")
            arguments += ["--return-logits", logits_path]
        result = self.call(*arguments, **options)
        if logits:
            result["logits"] = logits_path.read_bytes()
        return result

    def lookup(self, tokens, *flags):
        return self.call("lookup", "--tokens", write_tokens(self.path(".tokens"), tokens), *flags)

    def fetch(self, state, *flags):
        path = self.path(".safetensors")
        self.call("state", "fetch", state, "--out", path, *flags)
        return path.read_bytes()

    def decode(self, *flags, tokens=None, **options):
        arguments = ["decode", *flags]
        if tokens is not None:
            arguments += ["--tokens", write_tokens(self.path(".tokens"), tokens)]
        return self.call(*arguments, **options)

    def wait_ready(self, processes, workers=1):
        deadline = time.monotonic() + START_SECONDS_MAX
        failure = "it has too few workers"
        while time.monotonic() < deadline:
            if any(process.popen.poll() is not None for process in processes):
                failure = "a process ended"
                break
            try:
                if len(self.call("status")["workers"]) >= workers:
                    return self
            except CallFailed as failed:
                failure = str(failed)
            time.sleep(0.05)
        self.close()
        logs = [f"{process.log}:\n{pathlib.Path(process.log).read_text()[-2000:]}"
                for process in processes]
        raise AssertionError("\n".join([f"no service: {failure}", *logs]))


class Service(Client):
    """`deltafill serve`."""

    def __init__(self, folder, *flags, workers=1, store=None, model=None):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(new_address(), folder)
        self.store = store or folder / "store"
        self.process = Process(
            folder / "serve.log", "serve", "--model", model or model_directory(), "--store",
            self.store, "--listen", self.address, "--workers", workers, *DEVICE_FLAGS, *flags)
        self.wait_ready([self.process], workers)

    def close(self):
        self.process.close()


class Roles(Client):
    """Coordinator, state store and workers as processes of their own."""

    def __init__(self, folder, *flags, workers=2, worker_flags=(), model=None):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(new_address(), folder)
        self.model = model or model_directory()
        self.worker_flags = worker_flags
        self.worker_port = new_address()
        self.store_port = new_address()
        self.store_process = Process(
            folder / "store.log", "statestore", "--store", folder / "store", "--listen",
            self.store_port)
        self.coordinator = Process(
            folder / "coordinator.log", "coordinator", "--listen", self.address, "--worker-listen",
            self.worker_port, "--store", self.store_port, *flags)
        self.workers = []
        for _ in range(workers):
            self.add_worker()
        self.wait_ready(self.processes(), workers)

    def processes(self):
        return [*self.workers, self.coordinator, self.store_process]

    def add_worker(self):
        name = f"worker-{len(self.workers)}"
        self.workers.append(Process(
            self.folder / f"{name}.log", "worker", "--model", self.model, "--name", name,
            "--coordinator", self.worker_port, "--store", self.store_port,
            "--threads-per-worker", 1, *DEVICE_FLAGS, *self.worker_flags))
        return self.workers[-1]

    def close(self):
        for process in self.processes():
            process.close()


class ServiceTest(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=self.id().split(".")[-1], dir=WORK))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.addCleanup(self.keep_logs)

    def keep_logs(self):
        for log in sorted(self.folder.rglob("*.log")) if LOGS else ():
            if "store" in log.parts:  # the store's own files
                continue
            kept = pathlib.Path(LOGS) / self.id() / log.relative_to(self.folder)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(log, kept)

    def assert_fails(self, status, text, call, *arguments, **options):
        with self.assertRaises(CallFailed) as caught:
            call(*arguments, **options)
        self.assertEqual(caught.exception.status, status, caught.exception)
        self.assertIn(text, caught.exception.stderr)
