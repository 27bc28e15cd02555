"""The command line as a user meets it: output, messages and exit codes.

Usage: cli_test.py FSDPTRAIN SOURCE_DIR
"""

import math
import os
import re
import resource
import signal
import struct
import subprocess

from cli_case import DONE, FAILED, FSDPTRAIN, REFUSED, SOURCE_DIR, CliTest, main


class General(CliTest):
    def test_help_teaches_at_every_level(self):
        for arguments in ([], ["data"], ["data", "prepare"], ["data", "inspect"],
                          ["data", "baseline"], ["config"], ["train"], ["version"]):
            with self.subTest(arguments):
                output = self.check_done(*arguments, "--help")
                self.assertIn("Examples:\n  ", output)
                self.assertIn("fsdptrain " + " ".join(arguments), output)

    def test_a_TMPDIR_that_is_not_there_ends_no_command_but_one_that_needs_it(self):
        environment = {**os.environ, "TMPDIR": "/nonexistent"}
        for arguments, code, text in ((["version"], DONE, "fsdptrain "),
                                      (["launch", "--", "true"], DONE, ""),
                                      (["bench", "data"], REFUSED, "set TMPDIR to one")):
            with self.subTest(arguments):
                run = subprocess.run([FSDPTRAIN, *arguments], env=environment, timeout=60,
                                     capture_output=True, text=True, check=False)
                self.assertEqual(run.returncode, code, run)
                self.assertIn(text, run.stdout + run.stderr)

    def test_version_names_what_it_was_built_from(self):
        output = self.check_done("version")
        for line in (r"fsdptrain \d+\.\d+\.\d+", r"commit +([0-9a-f]{12}(-dirty)?|unknown)",
                     r"compiler +\w+ [0-9.]+, \w*", r"gemm +(dnnl|eigen)",
                     r"libraries CLI11 2.*, Eigen 3.*, fmt .*, toml\+\+ 3.*",
                     r"isa +(baseline|avx2|avx512) \(this CPU can run baseline.*\)", r"threads +[1-9]\d*"):
            self.assertRegex(output, f"(?m)^{line}$")
        self.assertRegex(self.check_done("--version"), r"\Afsdptrain \d+\.\d+\.\d+\n\Z")

    def test_a_wrong_command_line_points_to_the_fitting_help(self):
        self.check_error(REFUSED, "subcommand is required: one of data, ")
        self.check_error(REFUSED, '"juggle" is no command: one of data, model, plan, train, launch, eval, '
                         "generate, checkpoint, config, flight, bench, version: see fsdptrain --help", "juggle")
        self.check_error(REFUSED, '"trian" is no command (did you mean train?): one of data, ', "trian", "--x")
        self.check_error(REFUSED, ": one of prepare, inspect, baseline: see fsdptrain data --help",
                         "data")
        self.check_error(REFUSED, '"bake" is no command: one of prepare, inspect, baseline: see fsdptrain data '
                         "--help", "data", "bake")
        self.check_error(REFUSED, '"stp" is no command (did you mean step?): one of step, ', "bench", "stp")
        self.check_error(REFUSED, "--text is required: see fsdptrain data prepare --help", "data",
                         "prepare", "--output", "x")
        self.check_error(REFUSED, "--colour: see fsdptrain config --help", "config", "--colour")
        self.check_error(REFUSED, "--seq-len", "data", "baseline", "--tokens", "x", "--seq-len",
                         "long")

    def test_a_wrong_isa_is_refused(self):
        self.check_error(REFUSED, 'FSDPTRAIN_ISA: this CPU can run', "version",
                         env={**os.environ, "FSDPTRAIN_ISA": "mmx"})

    def test_output_that_cannot_be_written_is_a_failure(self):
        self.prepare(b"some text " * 1000)
        for arguments in (["config"], ["config", "--markdown"], ["version"], ["--version"],
                          ["--help"], ["data", "--help"], ["data", "inspect", "text.tok"],
                          ["data", "baseline", "--tokens", "text.tok"],
                          ["data", "prepare", "--text", "text.txt", "--output", "again.tok"]):
            for closed in (False, True):
                with self.subTest(arguments, closed=closed), open("/dev/full", "wb") as full:
                    result = subprocess.run([FSDPTRAIN, *arguments], stdout=full, timeout=60,
                                            stderr=subprocess.PIPE, cwd=self.folder, text=True,
                                            preexec_fn=(lambda: os.close(1)) if closed else None,
                                            check=False)
                    self.assertEqual(result.returncode, FAILED, result.stderr)
                    self.assertRegex(result.stderr, r"\Afsdptrain: [^\n]+\n\Z")
                    self.assertIn("Bad file descriptor" if closed else "No space left on device",
                                  result.stderr)
        # What was made is whole, without what was printed in it.
        self.assertEqual((self.folder / "again.tok").read_bytes(),
                         (self.folder / "text.tok").read_bytes())


class Prepare(CliTest):
    def test_a_file_becomes_its_documented_bytes(self):
        path = self.prepare(b"ab\xff")
        expected = struct.pack("<8sIIQIIQ32s952s4H", b"FSDPTOK1", 1, 2, 4, 257, 256, 1, b"byte",
                               b"", 97, 98, 255, 256)
        self.assertEqual(path.read_bytes(), expected)
        self.assertEqual(self.files(), ["text.tok", "text.txt"])

    def test_a_folder_is_one_document_per_file(self):
        self.write("books/b/one", b"1")
        self.write("books/a", b"2")
        output = self.check_done("data", "prepare", "--text", "books", "--output", "books.tok")
        self.assertEqual(output, "wrote books.tok: 4 tokens, 2 documents, vocabulary 257\n")
        tokens = (self.folder / "books.tok").read_bytes()[1024:]
        self.assertEqual(struct.unpack("<4H", tokens), (ord("2"), 256, ord("1"), 256))

    def test_texts_that_cannot_be_used(self):
        self.write("empty.txt", b"")
        (self.folder / "hollow").mkdir()
        (self.folder / "circle").symlink_to("circle")
        for exit_code, message, text in (
                (REFUSED, "none.txt: no such file or folder", "none.txt"),
                (REFUSED, "empty.txt: the text is empty", "empty.txt"),
                (REFUSED, "hollow: the folder holds no regular file", "hollow"),
                (REFUSED, "circle: opening the text failed: Too many levels", "circle"),
                (REFUSED, "must be a regular file or a folder", "/dev/zero"),
                (FAILED, "/proc/self/mem: reading 8 bytes at offset 0 failed: Input/output error", "/proc/self/mem")):
            with self.subTest(text):
                self.check_error(exit_code, message, "data", "prepare", "--text", text, "--output",
                                 "x.tok")
                self.assertEqual(self.files(), ["circle", "empty.txt", "hollow"])

    def test_an_unreadable_text_is_refused(self):
        text = self.write("secret.txt", b"x")
        text.chmod(0)
        if os.access(text, os.R_OK):
            self.skipTest("this user may read every file")
        self.check_error(REFUSED, "secret.txt: opening for reading failed: Permission denied", "data", "prepare", "--text",
                         "secret.txt", "--output", "x.tok")

    def test_an_output_that_cannot_be_made(self):
        self.write("text.txt", b"x")
        self.write("folder/keep", b"x")
        (self.folder / "circle").symlink_to("circle")
        (self.folder / "dangling").symlink_to("gone")
        before = self.files()
        for message, output in (
                ("text.txt/no: creating the folder failed: Not a directory", "text.txt/no/x.tok"),
                ("text.txt: creating the folder failed: Not a directory", "text.txt/x.tok"),
                ("circle: creating the folder failed: Too many levels", "circle/x.tok"),
                ("dangling: creating the folder failed: it is a link to nothing", "dangling/x.tok"),
                ("folder: cannot write a file there: it is a folder", "folder"),
                ("/dev/null: cannot write a file there: it is a device", "/dev/null"),
                (f"fsdptrain: {'n' * 300}: creating the file failed: File name too long; give a shorter one",
                 "n" * 300),
                # It fits, but not its temporary name.
                (f"fsdptrain: {'n' * 250}: creating the file failed: File name too long", "n" * 250),
                ("folder/keep: is there already and no token file", "folder/keep")):
            with self.subTest(output):
                self.check_error(REFUSED, message, "data", "prepare", "--text", "text.txt", "--output", output)
                self.assertEqual(self.files(), before)
        self.assertEqual((self.folder / "folder/keep").read_bytes(), b"x")
        self.check_error(REFUSED, "--output: must not be empty", "data", "prepare", "--text",
                         "text.txt", "--output", "")
        self.check_error(REFUSED, "--output text.txt: is part of the text", "data", "prepare",
                         "--text", "text.txt", "--output", "text.txt")

    def test_a_limit_on_file_sizes_is_an_error_and_leaves_nothing_behind(self):
        self.write("text.txt", b"word " * 2000)
        self.check_error(
            FAILED, "File too large", "data", "prepare", "--text", "text.txt", "--output", "out.tok",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)))
        self.assertEqual([path.name for path in self.folder.iterdir()], ["text.txt"])

    def test_a_full_disk_is_named_and_leaves_nothing_behind(self):
        self.write("text.txt", b"x" * 200_000)
        result = self.on_small_disk("64k", "data prepare --text text.txt --output disk/x.tok")
        self.assertEqual(result.returncode, FAILED, result.stderr)
        self.assertRegex(result.stderr,
                         r"\Afsdptrain: disk/x.tok: writing \d+ bytes at offset \d+ failed: "
                         r"No space left on device; free space there, or write to another disk .*\n\Z")
        self.assertEqual(result.stdout, "")

    def test_a_signal_stops_it_and_leaves_nothing_behind(self):
        self.write("text.txt", b"x")
        for number in (signal.SIGINT, signal.SIGTERM):
            def already_pending(number=number):
                signal.signal(number, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_BLOCK, [number])
                os.kill(os.getpid(), number)
            with self.subTest(number):
                self.check_error(128 + number, f"stopped by {number.name}", "data", "prepare",
                                 "--text", "text.txt", "--output", "x.tok",
                                 preexec_fn=already_pending)
                self.assertEqual(self.files(), ["text.txt"])


class Inspect(CliTest):
    def test_it_says_what_the_file_holds(self):
        self.prepare(b'Say "hi"\n\x00')
        output = self.check_done("data", "inspect", "--full", "text.tok")
        for line in ("tokenizer        byte", "vocabulary       257", "end of document  256",
                     "tokens           11", "documents        1",
                     'begins with      Say "hi"\\n\\x00<end of document>',
                     "checked          all tokens are in the vocabulary"):
            self.assertIn(line + "\n", output)

    def test_damage_is_refused(self):
        path = self.prepare(b"x" * 1000)
        bytes_before = path.read_bytes()
        path.write_bytes(bytes_before[:-1])
        self.check_error(REFUSED, "the file is damaged or was cut short", "data", "inspect", path)
        self.check_error(REFUSED, "text.txt: 1000 bytes are less than the 1024", "data", "inspect",
                         "text.txt")
        damaged = bytearray(bytes_before)
        damaged[1024 + 2 * 900 + 1] = 7
        path.write_bytes(damaged)
        self.check_done("data", "inspect", path)
        result = self.run_cli("data", "inspect", "--full", path)
        self.assertEqual(result.returncode, REFUSED)
        self.assertIn("token 1912 at offset 900 is outside the vocabulary of 257", result.stderr)
        wrong = bytearray(bytes_before)
        wrong[32] = 2
        path.write_bytes(wrong)
        self.check_done("data", "inspect", path)
        result = self.run_cli("data", "inspect", "--full", path)
        self.assertEqual(result.returncode, REFUSED)
        self.assertIn("text.tok: the header counts 2 documents, but its tokens are 1", result.stderr)


def trigram_nats(tokens, num_train, seq_len):
    """The baseline once more, by dictionaries and from the formula alone."""
    counts = [{}, {}, {}]
    for t in range(1, num_train):
        if tokens[t - 1] != 256:
            for order in range(3):
                if t >= order:
                    following = counts[order].setdefault(tuple(tokens[t - order:t]), {})
                    following[tokens[t]] = following.get(tokens[t], 0) + 1

    def probability(history, token):
        shorter = probability(history[1:], token) if history else 1 / 257
        following = counts[len(history)].get(tuple(history), {})
        total, distinct = sum(following.values()), len(following)
        return (following.get(token, 0) + distinct * shorter) / (total + distinct) if total \
            else shorter

    num_windows = (len(tokens) - num_train - 1) // seq_len
    targets = [t for t in range(num_train + 1, num_train + num_windows * seq_len + 1)
               if tokens[t - 1] != 256]
    nats = -sum(math.log(probability(tokens[max(num_train, t - 2):t], tokens[t])) for t in targets)
    return nats / len(targets), len(targets)


class Baseline(CliTest):
    def test_it_is_the_published_formula(self):
        documents = [bytes(97 + (i * i * k) % 11 for i in range(200 + k)) for k in range(1, 12)]
        for k, document in enumerate(documents):
            self.write(f"text/{k:02}", document)
        self.check_done("data", "prepare", "--text", "text", "--output", "text.tok")
        tokens = [token for document in documents for token in [*document, 256]]
        for fraction, seq_len in ((0.2, 256), (0.3, 7)):
            output = self.check_done("data", "baseline", "--tokens", "text.tok", "--seq-len",
                                     seq_len, "--validation-fraction", fraction)
            nats, num_targets = trigram_nats(tokens, len(tokens) - int(len(tokens) * fraction),
                                             seq_len)
            self.assertEqual(re.findall(r"trigram_nats_per_byte +(\S+)\nvalidation_targets +(\d+)",
                                        output), [(f"{nats:.6f}", str(num_targets))])

    def test_a_text_shorter_than_a_sequence_is_refused(self):
        self.prepare(b"x" * 1000)
        self.check_error(REFUSED, "the 100 tokens [901, 1001) are fewer than one sequence of "
                         "seq_len + 1 = 257", "data", "baseline", "--tokens", "text.tok")
        self.check_error(REFUSED, "--validation-fraction: must be a number from 0 to 1, got 1.5", "data",
                         "baseline", "--tokens", "text.tok", "--validation-fraction", "1.5")


class Configuration(CliTest):
    def test_what_it_prints_it_reads(self):
        printed = self.check_done("config", "--set", "train.steps=7", "--set", "run.dir=here")
        self.assertIn('[run]\ndir = "here"\n', printed)
        self.assertIn("\nsteps = 7\n", printed)
        self.write("run.toml", printed.encode())
        self.assertEqual(self.check_done("config", "--config", "run.toml"), printed)

    def test_the_documentation_is_what_the_program_says(self):
        documented = (SOURCE_DIR / "docs" / "config.md").read_text(encoding="utf-8")
        self.assertEqual(self.check_done("config", "--markdown"), documented,
                         "write it anew: fsdptrain config --markdown > docs/config.md")

    def test_mistakes_are_named(self):
        self.write("run.toml", b"[train]\nstepz = 5\n")
        self.check_error(REFUSED, "run.toml:2: train.stepz = 5: unknown key: did you mean "
                         "train.steps?", "config", "--config", "run.toml")
        self.check_error(REFUSED, "none.toml: the configuration cannot be read", "config", "--config",
                         "none.toml")
        self.check_error(REFUSED, "must be of type integer, got string", "config", "--set",
                         'train.steps="5"')
        self.check_error(REFUSED, "must read section.key=value", "config", "--set", "train.steps")

    def test_a_key_that_would_exhaust_the_parser_is_refused(self):
        self.write("run.toml", b"[train]\na" + b".a" * 450_000 + b" = 1\n")
        self.check_error(REFUSED, "run.toml:2: a key has at most 16 dots", "config", "--config",
                         "run.toml")
        self.write("run.toml", b"#" * 10_000_000)
        self.check_error(REFUSED, "run.toml: a configuration has at most 1048576 bytes", "config",
                         "--config", "run.toml")

    def test_text_that_is_not_utf8_is_refused_at_once(self):
        for key in ("run.dir", "data.tokens"):
            self.check_error(REFUSED, "--set: " + key, "config", "--set",
                             os.fsdecode(key.encode() + b"=a\xff"), errors="surrogateescape")

    def test_a_key_without_effect_is_warned_of(self):
        result = self.run_cli("config", "--set", "optimizer.name=sgd", "--set",
                              "optimizer.beta1=0.5")
        self.assertEqual(result.returncode, DONE)
        self.assertEqual(result.stderr, "warning: --set: optimizer.beta1 = 0.5 has no effect with "
                         "optimizer.name = \"sgd\"\n")
        self.assertNotIn("beta1", result.stdout)


if __name__ == "__main__":
    main()
