"""Where a service computes and what with: --device and --random-weights."""
import os
import unittest

import service

# Without a library there is no GPU to be had, on any machine.
NO_LIBRARY = {**os.environ, "DELTAFILL_CUDA_LIBRARY": "/nonexistent/libdeltafill_cuda.so"}


class Device(service.ServiceTest):
    def refusal(self, code, *flags):
        with self.assertRaises(service.CallFailed) as caught:
            service.run("serve", "--model", service.model_directory(), "--store",
                        self.folder / "store", "--listen", service.new_address(),
                        *flags, env=NO_LIBRARY, timeout=60)
        self.assertEqual(caught.exception.code, code, caught.exception.stderr)
        return caught.exception.stderr

    def test_a_gpu_that_cannot_be_had(self):
        text = self.refusal(1, "--device", "cuda:1")
        self.assertIn("cuda:1", text)
        self.assertIn("/nonexistent/libdeltafill_cuda.so", text)

    def test_options_that_contradict_each_other(self):
        for flags, names in (
                (("--device", "cuda", "--dtype", "f32"), ("--device cuda", "--dtype f32")),
                (("--device", "cuda", "--isa", "avx2"), ("--device is cuda", "--isa avx2")),
                (("--device", "cuda:0,1", "--workers", 1), ("--device cuda:0,1", "--workers 1")),
                (("--device", "gpu"), ("--device: 'gpu'",))):
            with self.subTest(flags):
                text = self.refusal(2, *flags)
                for name in names:
                    self.assertIn(name, text)

    def test_a_worker_has_one_gpu(self):
        with self.assertRaises(service.CallFailed) as caught:
            service.run("worker", "--model", service.model_directory(), "--coordinator",
                        "127.0.0.1:1", "--store", "127.0.0.1:2", "--device", "cuda:0,1",
                        env=NO_LIBRARY, timeout=60)
        self.assertEqual(caught.exception.code, 2)
        self.assertIn("cuda:0,1", caught.exception.stderr)

    def test_random_weights(self):
        bare = self.folder / "bare"
        service.run("model", "init", "--preset", "tiny", "--config-only", "--out", bare)
        store = self.folder / "store"
        tokens = service.some_tokens(500)

        def prefill(name, *flags, model=bare):
            with service.Service(self.folder / name, *flags, store=store, model=model) as client:
                result = client.prefill(tokens, logits=True)
                return result["cached_tokens"], result["logits"]

        cached, logits = prefill("first", "--random-weights", 1)
        self.assertEqual(cached, 0)
        self.assertEqual(prefill("again", "--random-weights", 1), (448, logits))
        cached, other = prefill("other", "--random-weights", 2)
        self.assertEqual(cached, 0)
        self.assertNotEqual(other, logits)
        # A checkpoint with the very same values is another model.
        self.assertEqual(prefill("real", model=service.model_directory(seed=1))[0], 0)
        log = (self.folder / "first" / "serve.log").read_text()
        self.assertIn("memory: weights ", log)
        self.assertIn("random weights: ", log)


if __name__ == "__main__":
    unittest.main()
