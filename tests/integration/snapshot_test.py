"""Snapshots of source trees: create, update, versions, watch, ask, delete."""
import hashlib
import pathlib
import signal
import struct
import subprocess
import sys
import threading
import unittest

import service
import snapshot_tree
from snapshot_tree import git

class Snapshots(snapshot_tree.SnapshotTest):
    @staticmethod
    def read_tokens(path):
        contents = pathlib.Path(path).read_bytes()
        return list(struct.unpack(f"<{len(contents) // 4}I", contents))

    def test_an_update_equals_a_fresh_create(self):
        with service.Service(self.folder / "s", workers=2) as client:
            created = client.call("snapshot", "create", "app", self.tree)
            self.assertEqual(created["reused_tokens"], 0)
            self.assertEqual(created["recomputed_tokens"], created["tokens"])
            self.write("src/file7.cc", 7, "// edited\n")
            self.write("src/new.cc", 9)
            (self.tree / "binary").write_bytes(b"\0")
            tokens = self.folder / "tokens"
            updated = client.call("snapshot", "update", "app", "--tokens-out", tokens)
            self.assertEqual(updated["first_changed"], "src/file7.cc")
            self.assertEqual(updated["changed_files"], 2)
            self.assertEqual([each["path"] for each in updated["left_out"]], ["binary"])
            self.assertGreater(updated["reused_tokens"], 0.7 * created["tokens"])
            self.assertLess(updated["recomputed_tokens"], 0.4 * created["tokens"])

            fresh = client.call("snapshot", "create", "fresh", self.tree, "--order-from", "app",
                                "--no-resume")
            self.assertEqual(fresh["reused_tokens"], 0)
            self.assertEqual(fresh["state"], updated["state"])
            self.assertEqual(client.call("status")["store"]["determinism_mismatches"], 0)
            # Another tenant shares nothing: its bits are computed by themselves.
            cold = client.prefill(self.read_tokens(tokens), "--tenant", "cold")
            self.assertEqual(client.fetch(cold["state"], "--tenant", "cold"),
                             client.fetch(updated["state"]))

            again = client.call("snapshot", "update", "app")
            self.assertEqual(again["recomputed_tokens"], 0)
            self.assertEqual(again["state"], updated["state"])
            for name in ("fresh", "app"):
                client.call("snapshot", "delete", name)
            self.assertEqual(client.call("state", "list")["states"], [])

    def test_show_list_ask(self):
        with service.Service(self.folder / "s") as client:
            created = client.call("snapshot", "create", "app", self.tree)
            shown = client.call("snapshot", "show", "app")
            self.assertEqual(shown["state"], created["state"])
            self.assertEqual(sum(s["tokens"] for s in shown["segments"]) + shown["header_tokens"],
                             created["tokens"])
            self.assertEqual(shown["segments"][0]["path"], "src/file0.cc")
            self.assertEqual([s["name"] for s in client.call("snapshot", "list")["snapshots"]],
                             ["app"])
            answer = client.call("snapshot", "ask", "app", "What?", "--max-tokens", 5)
            self.assertEqual(answer["usage"]["cached_tokens"], created["boundary"])
            self.assertEqual(answer["usage"]["prompt_tokens"],
                             created["tokens"] + len("Question: What?\nAnswer: "))
            self.assert_fails("FAILED_PRECONDITION", "held by a snapshot", client.call, "state",
                              "delete", created["state"])
            self.assert_fails("ALREADY_EXISTS", "app", client.call, "snapshot", "create", "app",
                              self.tree)
            self.assert_fails("NOT_FOUND", "not remembered", client.call, "snapshot", "update", "b")
            self.assert_fails("NOT_FOUND", "no snapshot", client.call, "snapshot", "ask", "b", "?")
            self.assert_fails("INVALID_ARGUMENT", "absent", client.call, "snapshot", "create", "b",
                              self.folder / "absent")
            self.assert_fails("INVALID_ARGUMENT", "name: must be", client.call, "snapshot",
                              "create", "a/b", self.tree)

    def test_versions_of_two_branches_share_their_prefix(self):
        self.start_git()
        base = self.commit()
        with service.Service(self.folder / "s") as client:
            created = client.call("snapshot", "create", "app", self.tree)
            self.assertEqual(created["commit"], base)
            last = client.call("snapshot", "show", "app")["segments"][-1]["path"]
            states = {base: created["state"]}
            for branch in ("one", "two"):
                git(self.tree, "checkout", "--quiet", "-b", branch, base)
                self.write(last, 50, f"// {branch}\n")
                commit = self.commit()
                updated = client.call("snapshot", "update", "app")
                self.assertEqual(updated["commit"], commit)
                self.assertGreater(updated["reused_tokens"], 0.7 * created["tokens"], branch)
                states[commit] = updated["state"]
            self.assertEqual(len(set(states.values())), 3)
            for commit, state in states.items():
                shown = client.call("snapshot", "show", f"app@{commit[:10]}")
                self.assertEqual((shown["state"], shown["damage"]), (state, ""))
                answer = client.call("snapshot", "ask", f"app@{commit}", "?", "--max-tokens", 2)
                self.assertEqual(answer["usage"]["cached_tokens"], shown["boundary"])
            self.write(last, 51)
            self.assertEqual(client.call("snapshot", "update", "app")["commit"], "", "not committed")
            git(self.tree, "checkout", "--quiet", "--force", base)
            back = client.call("snapshot", "update", "app")
            self.assertEqual((back["state"], back["recomputed_tokens"]), (states[base], 0))
            self.assertEqual(client.call("snapshot", "delete", "app")["removed_snapshots"], 4)
            self.assertEqual(client.call("state", "list")["states"], [])

    def test_a_hot_file_that_sits_early_is_moved(self):
        with service.Service(self.folder / "s") as client:
            client.call("snapshot", "create", "app", self.tree)
            for round_number in range(30):
                self.write("src/file0.cc", 60 + round_number)
                updated = client.call("snapshot", "update", "app")
                if updated["reorder"]:
                    break
            self.assertGreater(updated["reorder"]["tokens_saved_per_update"], 0)
            client.call("snapshot", "update", "app", "--reorder")
            segments = client.call("snapshot", "show", "app")["segments"]
            self.assertEqual(segments[-1]["path"], "src/file0.cc")
            self.write("src/file0.cc", 100)
            updated = client.call("snapshot", "update", "app")
            self.assertGreater(updated["reused_tokens"], 0.7 * updated["tokens"])
            self.assertIsNone(updated["reorder"])

    def test_snapshots_outlive_a_killed_service(self):
        with service.Service(self.folder / "a") as client:
            created = client.call("snapshot", "create", "app", self.tree)
            client.process.kill()
        with service.Service(self.folder / "b", store=self.folder / "a" / "store") as client:
            shown = client.call("snapshot", "show", "app")
            self.assertEqual((shown["state"], shown["damage"]), (created["state"], ""))
            self.assertTrue(client.call("state", "verify", created["state"])["verified"])
            again = client.call("snapshot", "update", "app", "--dir", self.tree)
            self.assertEqual(again["recomputed_tokens"], 0)

    def test_a_held_snapshot_is_not_evicted(self):
        with service.Service(self.folder / "probe") as client:
            size = client.prefill(service.some_tokens(200))["usage"]["state_bytes"]
        with service.Service(self.folder / "s", "--store-budget", 6 * size) as client:
            created = client.call("snapshot", "create", "app", self.tree, "--checkpoint-budget",
                                  2 * size)
            self.assertLessEqual(len(created["checkpoints"]), 3)
            for seed in range(8):
                client.prefill(service.some_tokens(200, seed=seed))
            self.assertGreater(client.call("status")["store"]["evicted_states"], 0)
            self.assertEqual(client.call("snapshot", "update", "app")["recomputed_tokens"], 0)

    def test_watch_updates_after_changes_and_ends_when_told(self):
        with service.Service(self.folder / "s") as client:
            client.call("snapshot", "create", "app", self.tree)
            command = [service.BINARY, "snapshot", "update", "app", "--watch", "--settle-s", "0.05",
                       "--server", client.address, "--json"]
            watch = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sys.stderr, text=True)
            # A watch that hangs must fail this test, not the whole run.
            timer = threading.Timer(120, watch.kill)
            timer.start()
            try:
                self.assertIn('"recomputed_tokens":0', watch.stdout.readline(), "the first update")
                for name, seed in (("src/file7.cc", 70), ("more/deep/new.cc", 71),
                                   ("more/deep/new.cc", 72)):
                    self.write(name, seed)
                    self.read_until(watch, client, name)
                watch.send_signal(signal.SIGTERM)
                self.assertEqual(watch.wait(60), 0)
            finally:
                timer.cancel()
                watch.kill()
                watch.wait()
                watch.stdout.close()

    def read_until(self, watch, client, name):
        """Reads reports until the snapshot has the file as it is now."""
        text = f"===== {name}\n{(self.tree / name).read_text()}===== end\n\n"
        wanted = hashlib.sha256(text.encode()).hexdigest()[:32]
        while True:
            self.assertTrue(watch.stdout.readline(), "the watch ended")
            segments = client.call("snapshot", "show", "app")["segments"]
            if {s["path"]: s["content_hash"] for s in segments}.get(name) == wanted:
                return


if __name__ == "__main__":
    unittest.main()
