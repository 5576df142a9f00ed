"""Snapshots of trees that change in any way, and of trees that mean harm; versions by a branch's
name; questions in a template."""
import os
import random
import socket
import unittest

import service
import snapshot_tree
from snapshot_tree import git

ROUNDS = 3 if service.SLOW else 8


class SnapshotTrees(snapshot_tree.SnapshotTest):
    def change_something(self, dice, number):
        """An edit, a new file, a file less or a rename, at random."""
        files = sorted(path for path in (self.tree / "src").iterdir())
        chosen = dice.choice(files)
        kind = dice.choice(["edit", "add", "delete", "rename"] if len(files) > 3 else ["edit", "add"])
        if kind == "edit":
            lines = chosen.read_text().splitlines(keepends=True)
            lines.insert(dice.randrange(len(lines) + 1), f"// change {number}\r\n")
            chosen.write_text("".join(lines), newline="")
        elif kind == "add":
            self.write(f"src/{dice.choice('abz')}-new{number}.cc", 100 + number)
        elif kind == "delete":
            chosen.unlink()
        else:
            chosen.rename(chosen.with_name(f"{dice.choice('abz')}-moved{number}.cc"))
        return kind

    def test_after_any_change_an_update_equals_a_fresh_create(self):
        dice = random.Random(7)
        kinds = set()
        with service.Service(self.folder / "s", workers=2) as client:
            client.call("snapshot", "create", "app", self.tree)
            for number in range(ROUNDS):
                with self.subTest(number=number):
                    kinds |= {self.change_something(dice, 10 * number + i) for i in range(2)}
                    tokens = self.folder / "tokens"
                    updated = client.call("snapshot", "update", "app", "--tokens-out", tokens)
                    fresh = client.call("snapshot", "create", "fresh", self.tree, "--order-from",
                                        "app", "--no-resume", "--tokens-out", self.folder / "fresh")
                    self.assertEqual(fresh["recomputed_tokens"], fresh["tokens"])
                    self.assertEqual((self.folder / "fresh").read_bytes(), tokens.read_bytes())
                    self.assertEqual(fresh["state"], updated["state"])
                    # Another tenant shares nothing: its bits are computed by themselves.
                    cold = client.call("prefill", "--tokens", tokens, "--tenant", "cold",
                                       "--no-resume")
                    self.assertEqual(client.fetch(cold["state"], "--tenant", "cold"),
                                     client.fetch(updated["state"]))
                    client.call("snapshot", "delete", "fresh")
            self.assertEqual(client.call("status")["store"]["determinism_mismatches"], 0)
        if not service.SLOW:
            self.assertEqual(kinds, {"edit", "add", "delete", "rename"})

    def make_hostile(self):
        """Fills the tree; returns why each file must be left out."""
        secret = self.outside / "secret.txt"
        secret.write_text("secret")
        deep = self.tree.joinpath(*["d"] * 70)
        deep.mkdir(parents=True)
        (deep / "deep.txt").write_text("deep")
        (self.tree / "latin1.txt").write_bytes(b"caf\xe9")
        (self.tree / "lines.txt").write_bytes(b"one\r\ntwo\r\n")
        (self.tree / "line\nbreak \"\\.txt").write_text("odd name")
        with open(os.fsencode(self.tree) + b"/\xff\xfe.txt", "w") as file:
            file.write("no UTF-8 in its name")
        os.truncate(os.open(self.tree / "huge", os.O_CREAT | os.O_WRONLY), 1 << 40)
        os.mkfifo(self.tree / "pipe")
        self.socket = socket.socket(socket.AF_UNIX)
        self.addCleanup(self.socket.close)
        self.socket.bind(str(self.tree / "socket"))
        (self.tree / "file").symlink_to(secret)
        (self.tree / "folder").symlink_to(self.outside)
        (self.tree / "device").symlink_to("/dev/zero")
        (self.tree / "self").symlink_to("self")
        (self.tree / "src" / "up").symlink_to("..")
        (self.tree / ".gitignore").symlink_to(secret)
        return {"latin1.txt": "not UTF-8 at byte 3", "huge": "larger than 1048576 bytes",
                "pipe": "a FIFO", "socket": "a socket",
                "/".join(["d"] * 65): "deeper than 64 directories",
                **dict.fromkeys(["file", "folder", "device", "self", "src/up", ".gitignore"],
                                "a symbolic link")}

    def test_a_hostile_tree_is_read_safely(self):
        expected = self.make_hostile()
        with service.Service(self.folder / "s") as client:
            tokens = self.folder / "tokens"
            created = client.call("snapshot", "create", "app", self.tree, "--tokens-out", tokens,
                                  timeout=120)
            self.assertEqual({each["path"]: each["reason"] for each in created["left_out"]}, expected)
            text = bytes(tokens.read_bytes()[::4])
            self.assertNotIn(b"secret", text)
            self.assertIn(b"===== lines.txt\none\r\ntwo\r\n===== end\n", text)
            self.assertIn(b'===== "line\\012break \\042\\134.txt"\nodd name\n', text)
            self.assertIn(b'===== "\\377\\376.txt"\n', text)
            # What is tracked may turn into anything after it was added.
            self.start_git()
            for path in ("huge", "pipe", "socket", "device", "self", "folder", ".gitignore"):
                os.unlink(self.tree / path)
            git(self.tree, "add", "--all")
            git(self.tree, "commit", "--quiet", "--message", "all")
            (self.tree / "lines.txt").unlink()
            os.mkfifo(self.tree / "lines.txt")
            (self.tree / "src").rename(self.outside / "src")
            (self.tree / "src").symlink_to(self.outside / "src")
            updated = client.call("snapshot", "update", "app", timeout=120)
            reasons = {each["path"]: each["reason"] for each in updated["left_out"]}
            self.assertEqual(reasons["lines.txt"], "a FIFO")
            self.assertEqual(reasons["src/file0.cc"],
                             "not beneath the tree without symbolic links")
            self.assertEqual(updated["commit"], "")

    def test_a_branch_or_tag_names_a_version(self):
        self.start_git()
        base = self.commit()
        git(self.tree, "tag", "--annotate", "v1.0", "--message", "one")
        git(self.tree, "checkout", "--quiet", "-b", "feature/x")
        with service.Service(self.folder / "s") as client:
            client.call("snapshot", "create", "app", self.tree)
            self.write("src/file7.cc", 70)
            other = self.commit()
            client.call("snapshot", "update", "app")
            for revision, commit in (("main", base), ("v1.0", base), ("HEAD~1", base),
                                     ("feature/x", other), ("HEAD", other)):
                shown = client.call("snapshot", "show", f"app@{revision}")
                self.assertEqual(shown["name"], f"app@{commit}")
                answer = client.call("snapshot", "ask", f"app@{revision}", "?", "--max-tokens", 2)
                self.assertEqual(answer["usage"]["cached_tokens"], shown["boundary"])
            self.assert_fails("NOT_FOUND", f"there are {', '.join(sorted(['app@' + base[:12], 'app@' + other[:12]]))}",
                              client.call, "snapshot", "ask", "app@nothing", "?")
            self.write("src/file7.cc", 71)
            newest = self.commit()
            self.assert_fails("NOT_FOUND", f"no version is kept of commit {newest}", client.call,
                              "snapshot", "ask", "app@feature/x", "?")
            self.assert_fails("NOT_FOUND", "app@0123456789", client.call, "snapshot", "show",
                              "app@0123456789")
            deleted = client.call("snapshot", "delete", "app@v1.0")
            self.assertEqual(deleted["removed_snapshots"], 1)
            self.assert_fails("NOT_FOUND", "no version is kept", client.call, "snapshot", "show",
                              "app@main")
            os.environ["DELTAFILL_STATE_DIR"] = str(self.folder / "elsewhere")
            self.assert_fails("NOT_FOUND", "not remembered here", client.call, "snapshot", "show",
                              "app@main")
            self.assertEqual(client.call("snapshot", "show", f"app@{other[:7]}")["name"],
                             f"app@{other}")

    def test_a_template_puts_the_question(self):
        template = self.folder / "template"
        with service.Service(self.folder / "s") as client:
            created = client.call("snapshot", "create", "app", self.tree)
            template.write_text("<eos>user: {question}\nassistant:\n")

            def prompt_tokens(question):
                answer = client.call("snapshot", "ask", "app", question, "--template", template,
                                     "--max-tokens", 1)
                return answer["usage"]["prompt_tokens"] - created["tokens"]
            # One special token and bytes; the newline at the file's end does not count.
            self.assertEqual(prompt_tokens("What?"), 1 + len("user: What?\nassistant:"))
            self.assertEqual(prompt_tokens("<eos>"), 1 + len("user: <eos>\nassistant:"),
                             "a question has no special tokens")
            for text in ("no place", "{question} {question}"):
                template.write_text(text)
                self.assert_fails("INVALID_ARGUMENT", "{question}", prompt_tokens, "What?")
            template.unlink()
            self.assert_fails("INVALID_ARGUMENT", str(template), prompt_tokens, "What?")


if __name__ == "__main__":
    unittest.main()
