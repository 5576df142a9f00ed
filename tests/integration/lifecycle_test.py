"""Listing, pinning, deleting, evicting; tenants; decoding with a saved state; clean stop."""
import json
import unittest

import service


class Lifecycle(service.ServiceTest):
    def test_list_pin_delete(self):
        with service.Service(self.folder / "s") as client:
            results = [client.prefill(service.some_tokens(200 + i, seed=i)) for i in range(3)]
            listed = client.call("state", "list")["states"]
            self.assertEqual(len(listed), 3)
            state = results[0]["state"]
            self.assertTrue(client.call("state", "pin", state)["pinned"])
            self.assertFalse(client.call("state", "unpin", state)["pinned"])
            client.call("state", "delete", state)
            self.assert_fails("NOT_FOUND", "", client.call, "state", "show", state)
            self.assert_fails("NOT_FOUND", "", client.call, "state", "delete", state)
            self.assertEqual(client.lookup(service.some_tokens(200, seed=0))["boundary"], 0)
            self.assertEqual(len(client.call("state", "list")["states"]), 2)

    def test_eviction_keeps_pinned_states(self):
        with service.Service(self.folder / "probe") as client:
            size = client.prefill(service.some_tokens(200, seed=1))["usage"]["state_bytes"]
        budget = int(size * 4.5)
        with service.Service(self.folder / "s", "--store-budget", budget) as client:
            pinned = client.prefill(service.some_tokens(200, seed=1))["state"]
            client.call("state", "pin", pinned)
            for seed in range(2, 14):
                client.prefill(service.some_tokens(200, seed=seed))
            status = client.call("status")["store"]
            self.assertLessEqual(status["bytes"], budget)
            self.assertGreater(status["evicted_states"], 0)
            self.assertTrue(client.call("state", "verify", pinned)["verified"])
            self.assertEqual(client.lookup(service.some_tokens(200, seed=13))["boundary"], 192)
            self.assertEqual(client.lookup(service.some_tokens(200, seed=2))["boundary"], 0)

    def test_tenants_do_not_share(self):
        tokens = service.some_tokens(500, seed=8)
        with service.Service(self.folder / "s") as client:
            mine = client.prefill(tokens, "--tenant", "a")
            theirs = client.prefill(tokens, "--tenant", "b")
            self.assertEqual(theirs["cached_tokens"], 0)
            self.assertNotEqual(mine["state"], theirs["state"])
            self.assertEqual(client.fetch(mine["state"], "--tenant", "a"),
                             client.fetch(theirs["state"], "--tenant", "b"))
            self.assert_fails("NOT_FOUND", "", client.fetch, mine["state"], "--tenant", "b")
            self.assertEqual(len(client.call("state", "list", "--tenant", "a")["states"]), 1)

    def test_a_saved_answer_is_a_prefix(self):
        tokens = service.some_tokens(300, seed=6)
        with service.Service(self.folder / "s") as client:
            state = client.prefill(tokens)["state"]
            answer = client.decode("--state", state, "--max-tokens", 100, "--save-state",
                                   "--ignore-eos")
            self.assertEqual(len(answer["tokens"]), 100)
            whole = tokens + answer["tokens"]
            self.assertEqual(client.lookup(whole + [1])["boundary"], 384)
            cold = client.prefill(whole, "--tenant", "cold", logits=True)
            warm = client.prefill(whole, logits=True)
            self.assertEqual(warm["cached_tokens"], 384)
            self.assertEqual(warm["logits"], cold["logits"])
            self.assertEqual(client.fetch(answer["state"], "--at", "end"),
                             client.fetch(cold["state"], "--at", "end", "--tenant", "cold"))
            more = client.decode("--state", answer["state"], "--max-tokens", 5, tokens=[1, 2, 3])
            self.assertTrue(more["tokens"])

    def test_decoding_is_reproducible(self):
        with service.Service(self.folder / "s") as client:
            tokens = service.some_tokens(100, seed=5)
            flags = ("--max-tokens", 30, "--ignore-eos", "--temperature", 0.8, "--top-p", 0.9)
            first = client.decode(*flags, "--seed", 1, tokens=tokens)
            self.assertEqual(first["tokens"], client.decode(*flags, "--seed", 1, tokens=tokens)["tokens"])
            self.assertNotEqual(first["tokens"], client.decode(*flags, "--seed", 2, tokens=tokens)["tokens"])
            stop = first["tokens"][10]
            stopped = client.decode(*flags, "--seed", 1, "--stop-ids", stop, tokens=tokens)
            self.assertEqual(stopped["finish_reason"], "stop")
            self.assertEqual(stopped["tokens"], first["tokens"][:first["tokens"].index(stop) + 1])

    def test_fetched_tensors(self):
        tokens = service.some_tokens(130, seed=3)
        with service.Service(self.folder / "s") as client:
            state = client.prefill(tokens)["state"]
            for layout in ("canonical", "fla"):
                for at in ("block", "end"):
                    contents = client.fetch(state, "--layout", layout, "--at", at)
                    header_bytes = int.from_bytes(contents[:8], "little")
                    header = json.loads(contents[8:8 + header_bytes])
                    tensors = {k: v for k, v in header.items() if k != "__metadata__"}
                    self.assertEqual(header["__metadata__"]["layout"], layout)
                    self.assertEqual(max(t["data_offsets"][1] for t in tensors.values()),
                                     len(contents) - 8 - header_bytes)
                    self.assertEqual("logits" in tensors, at == "end")
            half = client.fetch(state, "--layers", 0, "--heads", "0:1")
            self.assertLess(len(half), len(client.fetch(state)))

    def test_it_stops_promptly(self):
        with service.Service(self.folder / "s", workers=2) as client:
            client.prefill(service.some_tokens(500))
            self.assertEqual(client.process.terminate(timeout=10), 0)


if __name__ == "__main__":
    unittest.main()
