"""Everything the other tests show of linear layers, for a model with attention layers and experts."""
import concurrent.futures
import threading
import time
import unittest

import service

PRESET = "kimi-linear-tiny"
PIECE = 4096
LENGTH = 2 * PIECE + 700 if not service.SLOW else PIECE + 333
LOSS_LENGTH = 8_000


def outcome(client, tokens, *flags):
    """Everything a caller can see of a prompt's result."""
    result = client.prefill(tokens, *flags, logits=True)
    return {
        "state": result["state"].split(".")[0],
        "logits": result["logits"],
        "block": client.fetch(result["state"]),
        "end": client.fetch(result["state"], "--at", "end"),
    }


class Hybrid(service.ServiceTest):
    def setUp(self):
        super().setUp()
        self.model = service.model_directory(PRESET)
        self.tokens = service.some_tokens(LENGTH, seed=21)

    def one(self, name, *flags, **options):
        return service.Service(self.folder / name, *flags, model=self.model, **options)

    def test_identity(self):
        at = ("--no-resume", "--checkpoint-at", f"64,1000,{PIECE},{PIECE + 1},{LENGTH - 1}")
        with self.one("reference", "--range-tokens", 4096) as client:
            expected = outcome(client, self.tokens, *at)
            self.assertEqual(client.call("status")["store"]["determinism_mismatches"], 0)
        for workers, range_tokens in ((2, 1024), (3, 192), (4, 4096)):
            name = f"{workers}-workers-{range_tokens}"
            with self.subTest(name), self.one(name, "--range-tokens", range_tokens,
                                              workers=workers) as client:
                self.assertEqual(outcome(client, self.tokens, "--no-resume"), expected)
                self.assertEqual(outcome(client, self.tokens, *at), expected)
                self.assertEqual(client.call("status")["store"]["determinism_mismatches"], 0)
        for workers in (3,) if not service.SLOW else ():
            name = f"{workers}-processes"
            with self.subTest(name), service.Roles(
                    self.folder / name, "--range-tokens", 448, model=self.model,
                    workers=workers) as client:
                self.assertEqual(outcome(client, self.tokens, *at), expected)

    def test_resume_equals_cold(self):
        with self.one("s", "--range-tokens", 448, workers=2) as client:
            cold = outcome(client, self.tokens, "--tenant", "default")
            for boundary in (64, PIECE - 64, PIECE, PIECE + 64, (LENGTH - 1) // 64 * 64 - 64):
                who = ("--tenant", f"t{boundary}")
                with self.subTest(boundary=boundary):
                    client.prefill(self.tokens[:boundary + 1], *who)
                    result = client.prefill(self.tokens, *who, logits=True)
                    self.assertEqual(result["cached_tokens"], boundary)
                    self.assertEqual(result["logits"], cold["logits"])
                    self.assertEqual(client.fetch(result["state"], *who), cold["block"])
            # The answer from the state, and from the whole prompt; then a state of prompt and answer.
            state = client.prefill(self.tokens)["state"]
            flags = ("--max-tokens", 100, "--ignore-eos")
            answer = client.decode("--state", state, *flags, "--save-state")
            again = client.decode(*flags, "--tenant", "other", tokens=self.tokens)
            self.assertEqual(answer["tokens"], again["tokens"])
            both = self.tokens + answer["tokens"]
            self.assertEqual(client.lookup(both)["boundary"], (len(both) - 1) // 64 * 64)
            client.prefill(both, "--no-resume")
            self.assertEqual(client.call("status")["store"]["determinism_mismatches"], 0)

    def test_damage_is_a_miss(self):
        store = self.folder / "store"
        with self.one("a", store=store) as client:
            first = client.prefill(self.tokens, logits=True)
            stored = client.fetch(first["state"])
            client.process.terminate()
        with self.one("b", store=store) as client:  # moves what the log held into value files
            client.process.terminate()
        files = [path for path in store.rglob("*") if path.is_file() and path.suffix == ".blob"]
        self.assertTrue(files)
        for path in files:
            contents = bytearray(path.read_bytes())
            contents[len(contents) // 2] ^= 0x40
            path.write_bytes(contents)
        with self.one("c", store=store) as client:
            self.assertEqual(client.lookup(self.tokens)["boundary"], 0)
            again = client.prefill(self.tokens, logits=True)
            self.assertEqual(again["cached_tokens"], 0)
            self.assertEqual(again["logits"], first["logits"])
            self.assertEqual(client.fetch(again["state"]), stored)

    def test_latents_that_do_not_fit_are_refused(self):
        with self.one("small", "--latent-budget", "64K") as client:
            self.assert_fails("RESOURCE_EXHAUSTED", "latent", client.prefill, self.tokens)

    def test_prompts_wait_for_room_for_their_latents(self):
        """Room for one of them, so that they run one after the other, and decodings between them."""
        prompts = [service.some_tokens(4200, seed=seed) for seed in (31, 32, 33)]
        with self.one("alone") as client:
            expected = [client.prefill(tokens, logits=True)["logits"] for tokens in prompts]
        with self.one("shared", "--latent-budget", "4M", workers=2) as client:
            with concurrent.futures.ThreadPoolExecutor(len(prompts) + 1) as threads:
                runs = [threads.submit(client.prefill, tokens, logits=True) for tokens in prompts]
                decoded = threads.submit(client.decode, "--max-tokens", 5, "--ignore-eos", tokens=prompts[0][:100])
                self.assertEqual([run.result()["logits"] for run in runs], expected)
                self.assertEqual(len(decoded.result()["tokens"]), 5)
            self.assert_fails("RESOURCE_EXHAUSTED", "--latent-budget", client.prefill, service.some_tokens(50000))

    def lose_a_worker(self, length):
        """Kills a worker that has ranges; the prompt's result, and what it should be."""
        tokens = service.some_tokens(length, seed=22)
        with self.one(f"whole-{length}") as client:
            result = client.prefill(tokens, logits=True)
            expected = (result["logits"], client.fetch(result["state"]))
        with service.Roles(self.folder / f"lossy-{length}", "--recovery-interval-s", "0.2",
                           "--range-tokens", 192, model=self.model, workers=3) as client:
            box = {}

            def call():
                box["result"] = client.prefill(tokens, "--schedule", "wavefront", logits=True)

            thread = threading.Thread(target=call)
            thread.start()
            deadline = time.monotonic() + 60
            while thread.is_alive() and not any(
                    worker["name"] == "worker-1" and worker["ranges_queued"]
                    for worker in client.call("status")["workers"]):
                self.assertLess(time.monotonic(), deadline, "the prompt never started")
            client.workers[1].kill()
            thread.join(300)
            result = box["result"]
            self.assertEqual(client.call("status")["store"]["determinism_mismatches"], 0)
            return result, (result["logits"], client.fetch(result["state"])), expected

    def test_a_lost_worker_costs_no_bit(self):
        # A fast machine may be through before the kill: then once more with a longer prompt.
        for length in (LOSS_LENGTH, 4 * LOSS_LENGTH, 16 * LOSS_LENGTH):
            result, outcome_with_loss, expected = self.lose_a_worker(length)
            self.assertEqual(outcome_with_loss, expected)
            if result["attempts"] > 1:
                return
        self.fail("the worker was killed too late")


if __name__ == "__main__":
    unittest.main()
