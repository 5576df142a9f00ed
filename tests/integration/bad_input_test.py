"""Bad input gets a clear error that names the field and the limit (the table of failures)."""
import threading
import time
import unittest

import service

# A certificate that nobody has the key of.
AUTHORITIES = """\
-----BEGIN CERTIFICATE-----
MIIBiTCCAS+gAwIBAgIULQgzJDZO/h55uc9kDol7DauB3+0wCgYIKoZIzj0EAwIw
GTEXMBUGA1UEAwwOZGVsdGFmaWxsIHRlc3QwIBcNMjYxMTMwMTEzMDQ3WhgPMjEy
NjExMDYxMTMwNDdaMBkxFzAVBgNVBAMMDmRlbHRhZmlsbCB0ZXN0MFkwEwYHKoZI
zj0CAQYIKoZIzj0DAQcDQgAEMBlgP/16PXqPsMLl5m9ymmC0iwOI1audL707rNVk
7h7r47/12zHtwHUv1aQgi0g2/+4MeKShI3m5mZwyz0q9L6NTMFEwHQYDVR0OBBYE
FGj3mvsFhseQGutLAdm9j7s7IOfcMB8GA1UdIwQYMBaAFGj3mvsFhseQGutLAdm9
j7s7IOfcMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIgYoEGys5+
tZOXW5KeKdHwkNbsbDtLNszMgGTsbdpAVcUCIQCybL9zoCD3lehgwXk51his/Hd/
cRzhpnnQAa5n/LaXwA==
-----END CERTIFICATE-----
"""


class BadInput(service.ServiceTest):
    @classmethod
    def setUpClass(cls):
        import pathlib
        import tempfile
        cls.home = pathlib.Path(tempfile.mkdtemp(prefix="bad-input", dir=service.WORK))
        cls.client = service.Service(cls.home, *service.SHORT_RANGES)
        cls.vocabulary = cls.client.call("status")["models"][0]["vocabulary"]

    @classmethod
    def tearDownClass(cls):
        cls.client.process.close()

    def setUp(self):
        super().setUp()
        self.client.folder = self.folder

    def test_prompts(self):
        bad = self.vocabulary
        self.assert_fails("INVALID_ARGUMENT", str(bad), self.client.prefill, [1, 2, bad])
        self.assert_fails("INVALID_ARGUMENT", "prompt", self.client.prefill, [])
        self.assert_fails("INVALID_ARGUMENT", "model", self.client.prefill, [1], "--model", "gpt")

    def test_checkpoints(self):
        tokens = service.some_tokens(300)
        for flags, field in (
                (("--checkpoint-at", "64,301"), "checkpoint_at"),
                (("--checkpoint-at", "128,64"), "checkpoint_at"),
                (("--checkpoint-at", "64,64"), "checkpoint_at"),
                (("--checkpoint-every", "63"), "checkpoint_every")):
            with self.subTest(flags):
                self.assert_fails("INVALID_ARGUMENT", field, self.client.prefill, tokens, *flags)

    def test_equal_boundaries_after_flooring_are_one(self):
        result = self.client.prefill(service.some_tokens(300), "--checkpoint-at", "10,130,140,200")
        self.assertEqual([point["boundary"] for point in result["checkpoints"]], [128, 192])

    def test_handles(self):
        state = self.client.prefill(service.some_tokens(300, seed=9))["state"]
        self.assert_fails("INVALID_ARGUMENT", "state", self.client.fetch, "nonsense")
        self.assert_fails("INVALID_ARGUMENT", "state", self.client.fetch, state[:-2])
        with self.assertRaises(service.CallFailed) as absent:
            self.client.call("state", "show", "st1." + "0" * 64)
        with self.assertRaises(service.CallFailed) as foreign:
            self.client.call("state", "show", state, "--tenant", "other")
        self.assertEqual(absent.exception.status, "NOT_FOUND")
        self.assertEqual(foreign.exception.stderr, absent.exception.stderr)

    def test_decode(self):
        checkpoint = self.client.prefill(
            service.some_tokens(300, seed=9), "--checkpoint-at", "128")["checkpoints"][0]["state"]
        self.assert_fails("INVALID_ARGUMENT", "prompt", self.client.decode, "--state", checkpoint)
        for flags, field in ((("--max-tokens", "0"), "max_tokens"),
                             (("--temperature", "-1"), "temperature"),
                             (("--top-p", "1.5"), "top_p"),
                             (("--stop-ids", str(self.vocabulary)), "stop_ids")):
            with self.subTest(flags):
                self.assert_fails("INVALID_ARGUMENT", field, self.client.decode, *flags,
                                  tokens=[1, 2, 3])

    def test_a_deadline_stops_the_work(self):
        tokens = service.some_tokens(400_000, seed=2)
        started = time.monotonic()
        self.assert_fails("DEADLINE_EXCEEDED", "--timeout-s 0.7 has passed", self.client.prefill,
                          tokens, "--timeout-s", "0.7")
        self.assertLess(time.monotonic() - started, 10)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            status = self.client.call("status")
            if status["prompts_running"] == 0 and not any(
                    worker["ranges_queued"] for worker in status["workers"]):
                return
            time.sleep(0.05)
        self.fail("work went on after the deadline")

    def test_a_full_queue_is_refused(self):
        with service.Service(self.folder / "narrow", "--prompts-running-max", 1,
                             "--prompts-queued-max", 1, *service.SHORT_RANGES) as client:
            tokens = service.some_tokens(400_000, seed=3)

            def call():
                try:
                    client.prefill(tokens, "--timeout-s", "4")
                except service.CallFailed:
                    pass

            threads = [threading.Thread(target=call) for _ in range(2)]
            for thread in threads:
                thread.start()
            deadline = time.monotonic() + 4
            while client.call("status")["prompts_queued"] == 0:
                self.assertLess(time.monotonic(), deadline, "nothing ever waited")
                time.sleep(0.02)
            self.assert_fails("RESOURCE_EXHAUSTED", "queue full", client.prefill, tokens[:100])
            for thread in threads:
                thread.join()

    def test_a_public_address_needs_credentials(self):
        self.assert_does_not_start("credentials", "serve", "--model", service.model_directory(),
                                   "--store", self.folder / "store", "--listen", "0.0.0.0:10000")

    def assert_does_not_start(self, text, *arguments):
        with self.assertRaises(service.CallFailed) as caught:
            service.run(*arguments, timeout=60)
        self.assertIn(text, caught.exception.stderr)
        return caught.exception

    def test_addresses_are_checked_before_the_model_is_read(self):
        store = self.folder / "store"
        serve = ("serve", "--model", self.folder / "absent", "--store", store, "--listen")
        roles = (serve,
                 ("statestore", "--store", store, "--listen"),
                 ("coordinator", "--store", self.client.address, "--worker-listen"),
                 ("worker", "--model", self.folder / "absent", "--store", self.client.address,
                  "--coordinator", self.client.address, "--listen"))
        for role in roles:
            for address in (f"{service.HOST}:65536", service.HOST, "7450", f"{service.HOST}:80x"):
                with self.subTest(role=role[0], address=address):
                    failed = self.assert_does_not_start(
                        f"{role[-1]}: INVALID_ARGUMENT: '{address}': want HOST:PORT", *role, address)
                    self.assertEqual(failed.code, 2)
            with self.subTest(role=role[0]):
                self.assert_does_not_start(f"'{self.client.address}': Address already in use", *role,
                                           self.client.address)
        self.assertFalse(store.exists())

    def test_the_store_is_opened_before_the_model_is_read(self):
        serve = ("serve", "--model", self.folder / "absent", "--listen", service.new_address())
        self.assert_does_not_start("is open already", *serve, "--store", self.client.store)
        self.assert_does_not_start("--store-budget", *serve, "--store", self.folder / "store",
                                   "--store-budget", "12X")

    def test_mixed_up_addresses_are_told_apart(self):
        front, worker_port = service.new_address(), service.new_address()
        log = self.folder / "worker.log"
        processes = [
            service.Process(self.folder / "coordinator.log", "coordinator", "--listen", front,
                            "--worker-listen", worker_port, "--store", self.client.address),
            service.Process(log, "worker", "--model", service.model_directory(), "--coordinator",
                            self.client.address, "--store", self.client.address)]
        try:
            deadline = time.monotonic() + service.START_SECONDS_MAX
            for address, text in ((front, "state store: what answers at its address is none"),
                                  (worker_port, "clients want the address")):
                while True:
                    with self.assertRaises(service.CallFailed) as caught:
                        service.run("status", "--server", address)
                    if caught.exception.status != "UNAVAILABLE" or time.monotonic() > deadline:
                        break
                    time.sleep(0.05)
                self.assertEqual(caught.exception.status, "UNIMPLEMENTED", caught.exception)
                self.assertIn(text, caught.exception.stderr)
            while "a coordinator does at its --worker-listen" not in log.read_text():
                self.assertLess(time.monotonic(), deadline, log.read_text())
                time.sleep(0.05)
        finally:
            for process in processes:
                process.close()

    def test_authorities_are_certificates(self):
        self.assert_does_not_start("has no PEM certificate", "status", "--server",
                                   self.client.address, "--tls-ca", service.__file__)

    def test_a_service_without_tls_is_told_in_our_words_alone(self):
        authorities = self.folder / "authorities.pem"
        authorities.write_text(AUTHORITIES)
        failed = self.assert_does_not_start("with TLS?", "status", "--server", self.client.address,
                                            "--tls-ca", authorities)
        for line in failed.stderr.splitlines():
            self.assertTrue(line.startswith("deltafill: "), line)

    def test_logits_that_cannot_be_written_fail_before_the_work(self):
        with self.assertRaises(service.CallFailed) as caught:
            self.client.prefill([1, 2], "--return-logits", self.folder / "absent" / "logits")
        self.assertEqual(caught.exception.code, 2)
        self.assertIn("--return-logits", caught.exception.stderr)

    def test_what_is_misspelt_is_named(self):
        self.assert_does_not_start("Not known here: serv\n", "serv")
        self.assert_does_not_start("Not known here: --modell\n", "serve", "--modell", "m", "--store",
                                   self.folder / "store")

    def test_numbers_are_not_negative(self):
        for flag in ("--checkpoint-every", "--checkpoint-at"):
            self.assert_does_not_start(f"{flag}: must not be negative, is -64", "prefill",
                                       "--prompt", "x", flag, "-64")
        self.assert_does_not_start("--seed: must not be negative, is -1", "decode", "--prompt", "x",
                                   "--seed", "-1")

    def test_a_corrupt_model_fails_at_once(self):
        import shutil
        broken = self.folder / "broken"
        shutil.copytree(service.model_directory(), broken)
        weights = next(broken.glob("*.safetensors"))
        weights.write_bytes(weights.read_bytes()[:-100])
        self.assert_does_not_start(weights.name, "serve", "--model", broken, "--store",
                                   self.folder / "store", "--listen", service.new_address())


if __name__ == "__main__":
    unittest.main()
