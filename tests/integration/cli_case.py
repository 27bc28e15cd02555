"""What the tests of the command line share: a folder of their own and the checks of one call."""

import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import unittest

# The program and the repository: `TEST.py FSDPTRAIN SOURCE_DIR`.
FSDPTRAIN, SOURCE_DIR = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2])

DONE, FAILED, REFUSED, SAVED = 0, 1, 2, 75


class CliTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="fsdptrain-cli-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_cli(self, *arguments, **options):
        return subprocess.run([FSDPTRAIN, *map(str, arguments)], capture_output=True, text=True,
                              timeout=60, cwd=self.folder, check=False, **options)

    def check_done(self, *arguments, **options):
        result = self.run_cli(*arguments, **options)
        self.assertEqual((result.returncode, result.stderr), (DONE, ""))
        return result.stdout

    def check_error(self, exit_code, message, *arguments, **options):
        result = self.run_cli(*arguments, **options)
        self.assertEqual(result.returncode, exit_code, result.stderr)
        self.assertRegex(result.stderr, r"\Afsdptrain: [^\n]+\n\Z")
        self.assertIn(message, result.stderr)
        self.assertEqual(result.stdout, "")

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def prepare(self, content, name="text.tok"):
        self.write("text.txt", content)
        self.check_done("data", "prepare", "--text", "text.txt", "--output", name)
        return self.folder / name

    def on_small_disk(self, size, command):
        """Runs `fsdptrain COMMAND` beside a folder `disk` of that size, then lists the folder."""
        (self.folder / "disk").mkdir(exist_ok=True)
        # The mount lives and dies with its namespace.
        script = (f"mount -t tmpfs -o size={size} tmpfs disk || exit 77; {shlex.quote(FSDPTRAIN)} "
                  f"{command}; code=$?; find disk -type f | sort; exit $code")
        namespace = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
        try:
            result = subprocess.run([*namespace, "sh", "-c", script], capture_output=True,
                                    text=True, timeout=60, cwd=self.folder, check=False)
        except FileNotFoundError:
            self.skipTest("there is no unshare")
        if result.returncode == 77 or result.stderr.startswith("unshare:"):
            self.skipTest("this user may not mount a small file system: " + result.stderr.strip())
        return result

    def files(self):
        return sorted(path.name for path in self.folder.iterdir())


def main():
    unittest.main(argv=sys.argv[:1], verbosity=2)
