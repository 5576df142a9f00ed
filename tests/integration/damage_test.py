"""A flipped byte in a stored part is a miss with a reason, and the answer is still right."""
import shutil
import unittest

import service


class Damage(service.ServiceTest):
    def parts_files(self, store):
        return [path for path in store.rglob("*") if path.is_file() and path.suffix == ".blob"]

    def flip(self, store, seed):
        """Flips one byte in the middle of every value file."""
        files = self.parts_files(store)
        self.assertTrue(files, "the store keeps no value files to damage")
        for path in files:
            contents = bytearray(path.read_bytes())
            contents[(len(contents) // 2 + seed * 997) % len(contents)] ^= 0x40
            path.write_bytes(contents)

    def store_damaged(self, store, use):
        """Prefills and stores what `use` asks for, damages it, and returns what `use` does."""
        with service.Service(self.folder / "a", store=store) as client:
            result = use(client)
            client.process.terminate()
        # A restart moves what the log held into value files.
        with service.Service(self.folder / "b", store=store) as client:
            client.process.terminate()
        self.flip(store, 1)
        return result

    def test_decoding_notices_what_nobody_looked_at(self):
        tokens = service.some_tokens(900, seed=5)
        flags = ("--max-tokens", 20, "--ignore-eos")
        store = self.folder / "store"

        def use(client):
            return client.prefill(tokens), client.decode(*flags, tokens=tokens)

        first, whole = self.store_damaged(store, use)
        self.assertEqual(whole["usage"]["cached_tokens"], first["boundary"])
        shutil.copytree(store, self.folder / "copy")
        with service.Service(self.folder / "c", store=store) as client:
            again = client.decode(*flags, tokens=tokens)
            self.assertEqual(again["tokens"], whole["tokens"])
            self.assertEqual(again["usage"]["cached_tokens"], 0)
            self.assertGreater(client.call("status")["store"]["quarantined_parts"], 0)
        with service.Service(self.folder / "d", store=self.folder / "copy") as client:
            self.assert_fails("DATA_LOSS", "damaged", client.decode, "--state", first["state"],
                              *flags)

    def test_damage_is_a_miss(self):
        tokens = service.some_tokens(900, seed=5)
        store = self.folder / "store"

        def use(client):
            result = client.prefill(tokens, logits=True)
            return result, client.fetch(result["state"])

        first, stored = self.store_damaged(store, use)
        with service.Service(self.folder / "c", store=store) as client:
            looked_up = client.lookup(tokens)
            self.assertEqual(looked_up["boundary"], 0)
            self.assertIn("checksum", looked_up["miss_reason"])
            self.assert_fails("NOT_FOUND", "", client.fetch, first["state"])
            again = client.prefill(tokens, logits=True)
            self.assertEqual(again["cached_tokens"], 0)
            self.assertEqual(again["logits"], first["logits"])
            self.assertGreater(client.call("status")["store"]["quarantined_parts"], 0)
            # Storing it again heals the state.
            self.assertEqual(client.fetch(again["state"]), stored)
            self.assertEqual(client.lookup(tokens)["boundary"], first["boundary"])


if __name__ == "__main__":
    unittest.main()
