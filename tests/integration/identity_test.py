"""The same prompt gives the same bytes: any workers, ranges, checkpoints, processes."""
import unittest

import service

LENGTH = 4096 * 3 + 193 if not service.SLOW else 64 * 9 + 5
CHECKPOINTS = (64, 1000, 4096, 4097, 8192, LENGTH - 1)


def outcome(client, tokens, *flags):
    """Everything a caller can see of a prompt's result."""
    result = client.prefill(tokens, "--no-resume", *flags, logits=True)
    return {
        "state": result["state"].split(".")[0],
        "boundary": result["boundary"],
        "logits": result["logits"],
        "block": client.fetch(result["state"]),
        "end": client.fetch(result["state"], "--at", "end"),
        "checkpoints": {
            checkpoint["boundary"]: client.fetch(checkpoint["state"])
            for checkpoint in result["checkpoints"]
        },
    }


class Identity(service.ServiceTest):
    def setUp(self):
        super().setUp()
        self.tokens = service.some_tokens(LENGTH)
        self.at = [str(point) for point in CHECKPOINTS if point <= LENGTH]

    def reference(self):
        with service.Service(self.folder / "one", "--range-tokens", 4096) as client:
            return outcome(client, self.tokens, "--checkpoint-at", ",".join(self.at))

    def check(self, client, reference, name):
        plain = outcome(client, self.tokens)
        with_checkpoints = outcome(client, self.tokens, "--checkpoint-at", ",".join(self.at))
        for key in ("boundary", "logits", "block", "end"):
            self.assertEqual(plain[key], reference[key], f"{key} of {name}")
            self.assertEqual(with_checkpoints[key], reference[key], f"{key} of {name}, checkpoints")
        self.assertEqual(with_checkpoints["checkpoints"], reference["checkpoints"], name)

    def test_one_process(self):
        reference = self.reference()
        self.assertEqual(sorted(reference["checkpoints"]),
                         sorted({int(point) // 64 * 64 for point in self.at}))
        for workers in (1, 2, 3, 4):
            for range_tokens in (64, 192, 4096):
                name = f"{workers} workers, ranges of {range_tokens}"
                with self.subTest(name), service.Service(
                        self.folder / name.replace(" ", "-"), "--range-tokens", range_tokens,
                        workers=workers) as client:
                    self.check(client, reference, name)

    def test_separate_processes(self):
        reference = self.reference()
        for workers in (1, 2, 3, 4):
            for range_tokens in (64, 192, 4096) if not service.SLOW else (192,):
                name = f"{workers} processes, ranges of {range_tokens}"
                with self.subTest(name), service.Roles(
                        self.folder / name.replace(" ", "-"), "--range-tokens", range_tokens,
                        workers=workers) as client:
                    self.check(client, reference, name)


if __name__ == "__main__":
    unittest.main()
