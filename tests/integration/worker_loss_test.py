"""A worker killed in mid-prompt costs time, never the answer."""
import threading
import time
import unittest

import service

LENGTH = 400_000 if not service.SLOW else 200_000


class WorkerLoss(service.ServiceTest):
    def prefill_in_background(self, client, tokens, *flags):
        box = {}

        def call():
            try:
                box["result"] = client.prefill(tokens, *flags, logits=True)
            except service.CallFailed as failure:
                box["failure"] = failure

        thread = threading.Thread(target=call)
        thread.start()
        return thread, box

    def kill_a_busy_worker(self, client):
        """Kills a worker that has had ranges for a while (the planner may leave some idle)."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            busy = [w["name"] for w in client.call("status")["workers"] if w["ranges_queued"]]
            if busy:
                time.sleep(0.8)
                client.workers[int(busy[-1].split("-")[1])].kill()
                return
            time.sleep(0.02)
        self.fail("the prompt never started")

    def test_the_request_completes_with_the_same_bytes(self):
        tokens = service.some_tokens(LENGTH, seed=11)
        with service.Roles(self.folder / "whole", workers=1) as client:
            result = client.prefill(tokens, logits=True)
            expected = (result["logits"], client.fetch(result["state"]))
        with service.Roles(self.folder / "lossy", "--recovery-interval-s", "0.5",
                           *service.SHORT_RANGES, workers=3) as client:
            thread, box = self.prefill_in_background(client, tokens, "--checkpoint-at", "100000")
            self.kill_a_busy_worker(client)
            thread.join(300)
            self.assertIn("result", box, box.get("failure"))
            result = box["result"]
            self.assertGreater(result["attempts"], 1, "the worker was killed too late")
            self.assertGreaterEqual(result["usage"]["computed_tokens"], LENGTH)
            self.assertEqual((result["logits"], client.fetch(result["state"])), expected)
            self.assertEqual(client.call("status")["store"]["determinism_mismatches"], 0)

    def test_without_workers_a_prompt_is_unavailable(self):
        tokens = service.some_tokens(LENGTH, seed=12)
        with service.Roles(self.folder / "none", *service.SHORT_RANGES, workers=1) as client:
            thread, box = self.prefill_in_background(client, tokens)
            self.kill_a_busy_worker(client)
            thread.join(120)
            self.assertIn("failure", box)
            self.assertEqual(box["failure"].status, "UNAVAILABLE")
            client.add_worker()
            client.wait_ready([client.coordinator], 1)
            self.assertEqual(client.prefill(tokens[:500])["tokens"], 500)


if __name__ == "__main__":
    unittest.main()
