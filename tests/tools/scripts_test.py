"""tools/quickstart and tools/setup/packages.sh against fake commands: no build, no installation."""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

FSDPTRAIN = r"""#!/usr/bin/env bash
set -euo pipefail
echo "$*" >>"$FAKE_LOG"
case "$1 $2" in
  "data prepare") [[ -s $4 ]] || { echo "error: $4 is empty or missing" >&2; exit 2; }; cp "$4" "$6" ;;
  "config --config") grep -E '^(seq_len|validation_fraction) = ' "$3" | sed 's/ *#.*//' ;;
  "data baseline") echo "unigram 3.21 nats/byte"; echo "trigram 2.05 nats/byte" ;;
  "launch --nproc-per-node")
    [[ $3 == 2 && $4 == --propagate-exit-code && $5 == -- && "$6 $7" == "train --config" ]] || exit 2
    run_dir=$(sed -nE 's/.*run\.dir=([^ ]+).*/\1/p' <<<"$*")
    mkdir "$run_dir"
    echo '{"step": 0, "validation_loss": 5.5}' >"$run_dir/metrics.jsonl"
    echo "{\"step\": 10, \"validation_loss\": $FAKE_LOSS, \"seconds\": 1}" >>"$run_dir/metrics.jsonl"
    echo '{"step": 10, "loss": 1.0}' >>"$run_dir/metrics.jsonl" ;;
  generate*) echo "$FAKE_SAMPLE" >"${@: -1}" ;;
esac
"""

CMAKE = r"""#!/usr/bin/env bash
if [[ $1 == --preset ]]; then
  mkdir -p "$4"
elif [[ ${FAKE_BUILD:-ok} == ok ]]; then
  echo "[1/1] linking"
  cp "$FAKE_FSDPTRAIN" "$2/fsdptrain"
else
  echo "model.cpp:1: error: expected a declaration"
  exit 1
fi
"""

BIBLE = r"""#!/usr/bin/env bash
echo "Ge1:1 In the beginning God created the heaven and the earth."
echo "1Sm2:3 Talk no more so exceeding proudly; "
"""


class Sandbox(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name) / "checkout"
        self.bin = pathlib.Path(folder.name) / "bin"
        self.log = pathlib.Path(folder.name) / "log"
        self.bin.mkdir()
        for name in ("tools/quickstart", "tools/setup/packages.sh", "configs/quickstart.toml"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        self.environment = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "FAKE_LOG": str(self.log),
            "FAKE_FSDPTRAIN": str(self.bin / "fsdptrain"),
            "FAKE_LOSS": "1.9",
            "FAKE_SAMPLE": "And the behemoth created the earth so proudly",
        }
        self.command("sudo", "#!/bin/sh\nshift\nexec \"$@\"\n")
        self.command("dpkg-query", "#!/bin/sh\nprintf installed\n")

    def command(self, name, text):
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def run_script(self, *arguments, **environment):
        return subprocess.run(
            arguments, cwd=self.root, env=self.environment | environment, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, check=False)


class Quickstart(Sandbox):
    def setUp(self):
        super().setUp()
        self.command("fsdptrain", FSDPTRAIN)
        self.command("cmake", CMAKE)
        self.command("bible", BIBLE)

    def quickstart(self, *arguments, **environment):
        return self.run_script("tools/quickstart", *arguments, **environment)

    def test_a_good_run_ends_with_both_criteria_and_where_things_are(self):
        result = self.quickstart()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("ok      validation loss 1.9 nats/byte is below the trigram's 2.05", result.stdout)
        self.assertIn("ok      6 of the sample's 7 words occur in the text (85 %)", result.stdout)
        self.assertIn("runs/quickstart/metrics.jsonl", result.stdout)

    def test_verse_references_and_trailing_blanks_are_not_in_the_text(self):
        self.quickstart()
        self.assertEqual(
            (self.root / "data/quickstart/kjv.txt").read_text(),
            "In the beginning God created the heaven and the earth.\n"
            "Talk no more so exceeding proudly;\n")

    def test_a_loss_that_is_not_below_the_trigram_fails(self):
        for loss in ("2.05", "2.1e0", "NaN", "null"):
            with self.subTest(loss=loss):
                result = self.quickstart("--overwrite", FAKE_LOSS=loss)
                self.assertEqual(result.returncode, 1)
                self.assertIn(f"FAILED  validation loss {loss}", result.stdout)

    def test_a_sample_of_unknown_words_or_none_fails(self):
        for sample in ("the heaven xqz qzx zzz", "a b c"):
            with self.subTest(sample=sample):
                result = self.quickstart("--overwrite", FAKE_SAMPLE=sample)
                self.assertEqual(result.returncode, 1)
                self.assertIn("words occur in the text; 80 % must", result.stdout)

    def test_an_earlier_run_is_replaced_only_when_asked(self):
        self.assertEqual(self.quickstart().returncode, 0)
        again = self.quickstart()
        self.assertEqual(again.returncode, 2)
        self.assertIn("runs/quickstart exists; give --overwrite", again.stderr)
        self.assertEqual(self.quickstart("--overwrite").returncode, 0)

    def test_a_folder_that_is_no_run_is_never_overwritten(self):
        precious = self.root / "precious/letter.txt"
        precious.parent.mkdir()
        precious.write_text("dear")
        result = self.quickstart("--overwrite", "--run-dir", "precious")
        self.assertEqual(result.returncode, 2)
        self.assertTrue(precious.exists())

    def test_the_exit_code_for_a_bad_text_is_the_binary_s(self):
        result = self.quickstart("--text", "nowhere.txt")
        self.assertEqual(result.returncode, 2)
        self.assertIn("error: nowhere.txt is empty or missing", result.stderr)

    def test_own_text_steps_and_folders_reach_the_binary(self):
        (self.root / "mine.txt").write_text("the heaven created proudly earth and\n")
        result = self.quickstart("--text", "mine.txt", "--steps", "7", "--run-dir", "out")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        log = self.log.read_text()
        self.assertIn("data prepare --text mine.txt --output data/quickstart/tokens.bin", log)
        self.assertIn("--set run.dir=out --set train.steps=7", log)

    def test_the_baseline_scores_the_windows_that_the_run_validates_on(self):
        self.assertEqual(self.quickstart().returncode, 0)
        self.assertIn("data baseline --tokens data/quickstart/tokens.bin --seq-len 128 "
                      "--validation-fraction 0.1\n", self.log.read_text())

    def test_a_link_in_a_circle_is_no_part_of_the_text(self):
        (self.root / "books").mkdir()
        (self.root / "books/one").write_text("the heaven created proudly earth and\n")
        (self.root / "books/circle").symlink_to("circle")
        (self.root / "books/up").symlink_to("..")
        (self.root / "link").symlink_to("books")
        # The real program reads the folder; this one copies a file.
        self.command("fsdptrain", FSDPTRAIN.replace('cp "$4" "$6"', 'touch "$6"'))
        result = self.quickstart("--text", "link")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("6 of the sample's 7 words occur in the text", result.stdout)

    def test_the_whole_system_is_no_text(self):
        result = self.quickstart("--text", "/")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--text / is all of this system", result.stderr)
        self.assertFalse((self.root / "build").exists())

    def test_a_failed_build_shows_its_last_lines(self):
        result = self.quickstart(FAKE_BUILD="broken")
        self.assertEqual(result.returncode, 1)
        self.assertIn("model.cpp:1: error: expected a declaration", result.stderr)
        self.assertIn("the whole log is build/cpu/quickstart.log", result.stderr)

    def test_bad_usage_is_refused_before_anything_is_done(self):
        for arguments in (["--steps", "0"], ["--steps"], ["--text", ""], ["--frobnicate"]):
            with self.subTest(arguments=arguments):
                self.assertEqual(self.quickstart(*arguments).returncode, 2)
        self.assertFalse((self.root / "build").exists())


class Packages(Sandbox):
    def packages(self, *arguments, **environment):
        return self.run_script("tools/setup/packages.sh", *arguments, **environment)

    def setUp(self):
        super().setUp()
        # Everything but fmt is there, until apt-get has been called for it.
        self.command("dpkg-query", """#!/bin/sh
for package; do :; done
[ "$package" = libfmt-dev ] && [ ! -e "$FAKE_LOG.installed" ] && exit 1
printf installed
""")
        self.command("apt-cache", "#!/bin/sh\necho '  Candidate: 9.1.0'\n")
        self.command("apt-get", """#!/bin/sh
echo "$*" >>"$FAKE_LOG"
case "$*" in
  *" update") touch "$FAKE_LOG.updated" ;;
  *) [ -e "$FAKE_LOG.updated" ] || [ -z "$FAKE_STALE" ] || exit 100; touch "$FAKE_LOG.installed" ;;
esac
""")

    def test_no_install_prints_the_line_and_exits_2(self):
        result = self.packages("--no-install")
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r"apt-get install --yes --no-install-recommends libfmt-dev\n")
        self.assertFalse(self.log.exists())

    def test_a_missing_package_is_installed_without_an_update(self):
        result = self.packages()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("update", self.log.read_text())
        self.assertEqual(self.packages("--no-install").returncode, 0)

    def test_stale_lists_are_updated_once(self):
        result = self.packages(FAKE_STALE="1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.log.read_text().count(" update"), 1)

    def test_every_package_says_what_it_is_for(self):
        for line in self.packages("--list").stdout.splitlines():
            self.assertRegex(line, r"^\S+ +(build|lint) +\w.{8,}$")


if __name__ == "__main__":
    unittest.main()
