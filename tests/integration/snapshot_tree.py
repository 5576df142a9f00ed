"""A source tree to make snapshots of, for the integration tests."""
import os
import pathlib
import shutil
import subprocess
import tempfile

import service

LINES = 12 if service.SLOW else 60


def git(folder, *arguments):
    environment = dict(os.environ, GIT_AUTHOR_NAME="A", GIT_AUTHOR_EMAIL="a@example.org",
                       GIT_COMMITTER_NAME="A", GIT_COMMITTER_EMAIL="a@example.org",
                       GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_SYSTEM="/dev/null")
    done = subprocess.run(["git", "-C", str(folder), *arguments], check=True, env=environment,
                          stdout=subprocess.PIPE)
    return done.stdout.decode().strip()


class SnapshotTest(service.ServiceTest):
    """A test with a folder of eight files in `tree`."""

    def setUp(self):
        super().setUp()
        os.environ["DELTAFILL_STATE_DIR"] = str(self.folder / "state")
        # Outside this checkout, which is a git work tree and may be somebody else's.
        self.outside = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.outside)
        self.tree = self.outside / "tree"
        for number in range(8):
            self.write(f"src/file{number}.cc", number)

    def write(self, name, seed, extra=""):
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"int value_{seed}_{i} = {i * seed};\n" for i in range(LINES)) + extra)

    def commit(self):
        git(self.tree, "add", "--all")
        git(self.tree, "commit", "--quiet", "--message", "change")
        return git(self.tree, "rev-parse", "HEAD")

    def start_git(self):
        self.tree.mkdir(exist_ok=True)
        git(self.tree, "init", "--quiet", "--initial-branch", "main")
