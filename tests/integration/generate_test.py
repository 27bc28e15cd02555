"""Generation as a user meets it: what is written, messages and exit codes.

Usage: generate_test.py FSDPTRAIN SOURCE_DIR
"""

import json
import struct
import subprocess

from cli_case import FAILED, FSDPTRAIN, REFUSED, CliTest, main
from train_case import TEXT, TINY


class Generate(CliTest):
    def test_generation_continues_the_prompt_and_is_repeatable(self):
        self.prepare(TEXT)
        self.check_done("train", *TINY)
        arguments = ["generate", "--run", "run", "--prompt", "In the ", "--tokens", "50"]
        # Bytes, not text: a young model need not write valid UTF-8.
        outputs = [subprocess.run([FSDPTRAIN, *arguments, "--seed", seed], capture_output=True,
                                  cwd=self.folder, check=True, timeout=60).stdout
                   for seed in ("7", "7", "8")]
        self.assertTrue(outputs[0].startswith(b"In the "))
        self.assertEqual(outputs[0], outputs[1])
        self.assertNotEqual(outputs[0], outputs[2])
        self.check_done(*arguments, "--seed", "7", "--output", "sample.txt")
        self.assertEqual((self.folder / "sample.txt").read_bytes() + b"\n", outputs[0])

    def test_runs_that_cannot_be_used(self):
        self.check_error(REFUSED, "nowhere: holds no weights.safetensors", "generate", "--run",
                         "nowhere", "--prompt", "a")
        self.write("run/weights.safetensors", b"no tensors")
        self.check_error(REFUSED, "weights.safetensors", "generate", "--run", "run", "--prompt", "a")

    def test_weights_that_do_not_fit_their_configuration_are_listed(self):
        self.prepare(TEXT)
        self.check_done("train", *TINY)
        path = self.folder / "run/weights.safetensors"
        data = path.read_bytes()
        self.assertEqual(data.count(b"ln_f.weight"), 1)
        path.write_bytes(data.replace(b"ln_f.weight", b"ln_g.weight"))
        self.check_error(REFUSED, "ln_f.weight is missing; ln_g.weight is no parameter", "generate",
                         "--run", "run", "--prompt", "a")

    def test_zero_bytes_reach_the_terminal(self):
        self.prepare(b"a\0" * 8000)
        self.check_done("train", *TINY, "--set", "train.steps=60")
        result = subprocess.run([FSDPTRAIN, "generate", "--run", "run", "--prompt", "a\n", "--tokens",
                                 "100", "--temperature", "0", "--threads", "1"], check=True,
                                capture_output=True, cwd=self.folder, timeout=60)
        self.assertEqual(len(result.stdout), 103)
        self.assertIn(b"\0", result.stdout)

    def test_output_that_cannot_be_written_is_a_failure(self):
        self.prepare(TEXT)
        self.check_done("train", *TINY)
        with open("/dev/full", "w", encoding="ascii") as full:
            result = subprocess.run([FSDPTRAIN, "generate", "--run", "run", "--prompt", "a"],
                                    stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
                                    cwd=self.folder, check=False)
        self.assertEqual(result.returncode, FAILED)
        self.assertIn("standard output cannot be written", result.stderr)

    def test_weights_over_other_tokens_are_refused_by_name(self):
        self.prepare(TEXT)
        self.check_done("train", *TINY)
        path = self.folder / "run/weights.safetensors"
        data = path.read_bytes()
        self.assertEqual(data.count(b'"tokenizer":"byte"'), 1)
        path.write_bytes(data.replace(b'"tokenizer":"byte"', b'"tokenizer":"gpt2"'))
        self.check_error(REFUSED, 'weights of the tokenizer "byte" only, these are of "gpt2"',
                         "generate", "--run", "run", "--prompt", "a")

    def test_a_wrong_number_of_threads_is_refused(self):
        self.check_error(REFUSED, "--threads", "generate", "--run", "run", "--prompt", "a",
                         "--threads", "-1")

    def test_an_empty_prompt_and_bad_numbers_are_refused(self):
        self.prepare(TEXT)
        self.check_done("train", *TINY)
        self.check_error(REFUSED, "--prompt: must have at least one byte", "generate", "--run", "run", "--prompt", "")
        self.check_error(REFUSED, "--temperature", "generate", "--run", "run", "--prompt", "a",
                         "--temperature", "-1")
        self.check_error(REFUSED, "--tokens", "generate", "--run", "run", "--prompt", "a", "--tokens",
                         "0")
        for option, value, allowed in (
                ("--temperature", "nan", "a number from 0 to 100"),
                ("--temperature", "inf", "a number from 0 to 100"),
                ("--top-k", "-1", "a whole number from 0 to 9223372036854775807"),
                ("--seed", "18446744073709551616", "a whole number from 0 to 18446744073709551615"),
                ("--seed", "-1", "a whole number from 0 to")):
            with self.subTest(option, value=value):
                self.check_error(REFUSED, f"{option}: must be {allowed}", "generate", "--run", "run",
                                 "--prompt", "a", option, value)
        self.check_error(REFUSED, "--output: must not be empty", "generate", "--run", "run",
                         "--prompt", "a", "--output", "")

    def test_weights_that_are_not_finite_are_refused_by_name(self):
        self.prepare(TEXT)
        self.check_done("train", *TINY)
        path = self.folder / "run/weights.safetensors"
        data = path.read_bytes()
        for value in (float("nan"), float("inf")):
            path.write_bytes(data[:-4] + struct.pack("<f", value))
            self.check_error(REFUSED, " holds a value that is not finite: the file is damaged",
                             "generate", "--run", "run", "--prompt", "a")
        # Finite, but their products are not.
        size = int.from_bytes(data[:8], "little")
        path.write_bytes(data[:8 + size] + struct.pack("<f", 3e38) * ((len(data) - 8 - size) // 4))
        self.check_error(FAILED, "its weights overflow", "generate", "--run", "run", "--prompt", "a",
                         "--output", "sample.txt")
        self.check_error(FAILED, "eval: the loss of run/weights.safetensors is", "eval", "--run", "run")

    def test_an_output_that_cannot_be_made_is_refused_before_the_work(self):
        self.prepare(TEXT)
        self.check_done("train", *TINY)
        (self.folder / "folder").mkdir()
        (self.folder / "circle").symlink_to("circle")
        before = self.files()
        for message, output in (
                ("folder: cannot write a file there: it is a folder", "folder"),
                ("none/x: creating the file failed: No such file or directory; create the folder first", "none/x"),
                ("text.txt/x: creating the file failed: Not a directory", "text.txt/x"),
                ("circle/x: creating the file failed: Too many levels of symbolic links", "circle/x"),
                (f"fsdptrain: {'n' * 300}: creating the file failed: File name too long", "n" * 300)):
            with self.subTest(output):
                # So many tokens take longer than this call may.
                self.check_error(REFUSED, message, "generate", "--run", "run", "--prompt", "a", "--tokens",
                                 1 << 30, "--output", output)
        self.assertEqual(self.files(), before)

    def test_the_weights_are_not_written_over(self):
        self.prepare(TEXT)
        self.check_done("train", *TINY)
        before = (self.folder / "run/weights.safetensors").read_bytes()
        self.check_error(REFUSED, "is the file of the weights", "generate", "--run", "run", "--prompt",
                         "a", "--output", "run/weights.safetensors")
        self.assertEqual((self.folder / "run/weights.safetensors").read_bytes(), before)

    def test_a_configuration_that_would_exhaust_the_parser_is_refused(self):
        self.prepare(TEXT)
        self.check_done("train", *TINY)
        path = self.folder / "run/weights.safetensors"
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + size])
        header["__metadata__"]["config"] = "a" + ".a" * 450_000 + " = 1"
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size:])
        self.check_error(REFUSED, "weights.safetensors:1: a key has at most 16 dots", "generate",
                         "--run", "run", "--prompt", "a")


if __name__ == "__main__":
    main()
