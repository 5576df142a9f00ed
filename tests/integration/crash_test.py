"""kill -9 of the whole service at random moments: what was acknowledged is there and verifies.

DELTAFILL_CRASH_ROUNDS sets the number of rounds (10; 50 are run by hand for the record).
"""
import os
import random
import threading
import time
import unittest

import service

ROUNDS = int(os.environ.get("DELTAFILL_CRASH_ROUNDS", "3" if service.SLOW else "10"))


class Crash(service.ServiceTest):
    def checkpoint_states(self, client, tokens, acknowledged, lock, answered):
        """Prefills with many checkpoints; remembers those that were acknowledged in full."""
        try:
            result = client.prefill(tokens, "--checkpoint-every", "1024")
        except service.CallFailed:
            return
        with lock:
            acknowledged += [(point["state"], point["boundary"]) for point in result["checkpoints"]]
            acknowledged.append((result["state"], result["boundary"]))
        answered.set()

    def test_nothing_acknowledged_is_lost(self):
        choice = random.Random(20)
        store = self.folder / "store"
        acknowledged, lock = [], threading.Lock()
        for number in range(ROUNDS):
            answered = threading.Event()
            client = service.Service(self.folder / f"round-{number}", store=store, workers=2)
            threads = [
                threading.Thread(target=self.checkpoint_states, args=(
                    client, service.some_tokens(choice.randint(2000, 30000), seed=100 * number + i),
                    acknowledged, lock, answered)) for i in range(4)
            ]
            for thread in threads:
                thread.start()
            # Every other round dies soon after its first answer, however slow the machine is;
            # the rest at any moment, before an answer too.
            if number % 2 == 0:
                self.assertTrue(answered.wait(120), "no prefill was answered within two minutes")
                time.sleep(choice.uniform(0.0, 0.2))
            else:
                time.sleep(choice.uniform(0.05, 1.5))
            client.process.kill()
            for thread in threads:
                thread.join()
        self.assertTrue(acknowledged, "no round acknowledged anything; the test shows nothing")
        with service.Service(self.folder / "after", store=store) as client:
            for state, boundary in acknowledged:
                shown = client.call("state", "verify", state)
                self.assertTrue(shown["verified"])
                self.assertEqual(shown["boundary"], boundary)
            for state in client.call("state", "list")["states"]:
                self.assertTrue(client.call("state", "verify", state["state_id"])["verified"])
            print(f"{ROUNDS} rounds, {len(acknowledged)} states acknowledged, all verified")


if __name__ == "__main__":
    unittest.main()
