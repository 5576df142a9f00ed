"""A run resumed from any stored boundary equals a cold one, decoding included."""
import unittest

import service

RANGE = 256
LENGTHS = sorted({1, 63, 64, 65, 127, 128, 129, RANGE - 1, RANGE, RANGE + 1, 2 * RANGE - 1, 2 * RANGE,
                  2 * RANGE + 1, 1000})
DECODE_TOKENS = 200 if not service.SLOW else 20


class Resume(service.ServiceTest):
    def outcome(self, client, tokens, tenant, *flags):
        who = ("--tenant", tenant)
        result = client.prefill(tokens, *who, *flags, logits=True)
        state = result["state"]
        decoded = client.decode("--state", state, "--max-tokens", DECODE_TOKENS, "--ignore-eos",
                                *who)
        return result, (result["boundary"], result["logits"], client.fetch(state, *who),
                        client.fetch(state, "--at", "end", *who), decoded["tokens"])

    def test_resume_equals_cold(self):
        whole = service.some_tokens(max(LENGTHS), seed=7)
        with service.Service(self.folder / "s", "--range-tokens", RANGE, workers=2) as client:
            for length in LENGTHS:
                tokens = whole[:length]
                _, cold = self.outcome(client, tokens, "cold", "--no-resume")
                deepest = (length - 1) // 64 * 64
                for boundary in sorted({0, 64, RANGE, deepest - 64, deepest}):
                    if not 0 <= boundary <= deepest:
                        continue
                    tenant = f"t{length}-{boundary}"
                    with self.subTest(length=length, boundary=boundary):
                        if boundary:
                            client.prefill(tokens[:boundary + 1], "--tenant", tenant)
                        result, resumed = self.outcome(client, tokens, tenant)
                        self.assertEqual(result["cached_tokens"], boundary)
                        self.assertEqual(resumed, cold)

    def test_a_longer_prompt_starts_from_a_shorter_ones_state(self):
        tokens = service.some_tokens(3000, seed=3)
        with service.Service(self.folder / "s") as client:
            client.prefill(tokens[:2000])
            result = client.prefill(tokens)
            self.assertEqual(result["cached_tokens"], 1999 // 64 * 64)
            self.assertEqual(client.lookup(tokens)["boundary"], 2999 // 64 * 64)
            other = tokens[:1000] + [5] + tokens[1001:]
            self.assertEqual(client.lookup(other)["boundary"], 0)
            self.assertTrue(client.lookup(other)["miss_reason"])

    def test_states_outlive_the_service(self):
        tokens = service.some_tokens(700, seed=4)
        with service.Service(self.folder / "a") as client:
            result = client.prefill(tokens)
            stored = client.fetch(result["state"])
            self.assertEqual(client.process.terminate(), 0)
        with service.Service(self.folder / "b", store=self.folder / "a" / "store") as client:
            self.assertEqual(client.fetch(result["state"]), stored)
            self.assertEqual(client.prefill(tokens)["cached_tokens"], 640)


if __name__ == "__main__":
    unittest.main()
