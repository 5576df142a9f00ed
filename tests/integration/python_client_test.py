"""The Python package against a service."""
import time
import unittest

import deltafill
import numpy

import service


class PythonClient(service.ServiceTest):
    def setUp(self):
        super().setUp()
        self.served = service.Service(self.folder, workers=2)
        self.addCleanup(self.served.process.close)
        self.client = deltafill.Client(self.served.address)
        self.addCleanup(self.client.close)

    def test_prefill_agrees_with_the_command_line(self):
        tokens = service.some_tokens(1000)
        result = self.client.prefill(tokens, checkpoint_at=[300, 640], return_logits=True)
        again = self.served.prefill(tokens, logits=True)
        self.assertEqual(result.accepted.cached_tokens, 0)
        self.assertEqual(result.done.state, again["state"])
        self.assertEqual([point.boundary for point in result.done.checkpoints], [256, 640])
        self.assertEqual(result.logits.tobytes(), again["logits"])
        self.assertEqual(self.client.lookup(tokens).boundary, 960)
        self.assertEqual(self.client.lookup(numpy.array(tokens, dtype="<u2")).boundary, 960)
        self.assertEqual(self.client.lookup(iter(tokens)).boundary, 960)
        with self.assertRaises(ValueError):
            self.client.lookup([1, -1])
        with self.assertRaises(TypeError):
            self.client.lookup([1.5])

    def test_state_as_arrays(self):
        handle = self.client.prefill(service.some_tokens(500)).done.state
        canonical = self.client.fetch_state(handle)
        fla = self.client.fetch_state(handle, layout="fla", at_end=True)
        name = "layers.0.recurrent_state"
        heads, value_dim, key_dim = canonical.tensors[name].shape
        self.assertEqual(fla.tensors[name].shape, (1, heads, value_dim, key_dim))
        self.assertEqual(canonical.description.boundary, 448)
        self.assertEqual(canonical.metadata["boundary"], "448")
        self.assertIn("logits", fla.tensors)
        part = self.client.fetch_state(handle, layers=[0], heads=(1, 2)).tensors[name]
        self.assertEqual(part.tobytes(), canonical.tensors[name][1:2].tobytes())

    def test_generate(self):
        handle = self.client.prefill("def main():").done.state
        generated = self.client.generate(b"\n    return", state=handle, max_tokens=8, ignore_eos=True)
        whole = self.client.generate("def main():\n    return", max_tokens=8, ignore_eos=True)
        self.assertEqual(generated.ids, whole.ids)
        self.assertEqual(len(generated.ids), 8)
        self.assertEqual(generated.done.finish_reason, "length")

    def test_states_and_errors(self):
        handle = self.client.prefill(service.some_tokens(200)).done.state
        self.assertTrue(self.client.describe(handle, verify=True).verified)
        self.assertTrue(self.client.pin(handle).pinned)
        self.assertFalse(self.client.pin(handle, pinned=False).pinned)
        self.assertEqual([state.boundary for state in self.client.states()], [192])
        self.client.delete(handle)
        with self.assertRaises(deltafill.Error) as raised:
            self.client.fetch_state(handle)
        self.assertEqual(raised.exception.code, "NOT_FOUND")
        with self.assertRaises(deltafill.Error) as raised:
            self.client.prefill([])
        self.assertEqual(raised.exception.code, "INVALID_ARGUMENT")
        with deltafill.Client(self.served.address, tenant="other") as other:
            self.assertEqual(list(other.states()), [])
        self.assertEqual(len(self.client.server_info().workers), 2)

    def test_closing_the_events_cancels(self):
        events = self.client.prefill_events(service.some_tokens(200000))
        next(events)
        events.close()
        while True:
            server = self.client.server_info()
            if server.prompts_running + server.prompts_queued == 0:
                return
            time.sleep(0.05)


if __name__ == "__main__":
    unittest.main()
