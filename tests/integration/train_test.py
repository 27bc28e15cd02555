"""Training and generation as a user meets them: files, messages and exit codes.

Usage: train_test.py FSDPTRAIN SOURCE_DIR
"""

import json
import signal
import struct
import subprocess

from cli_case import DONE, FAILED, FSDPTRAIN, REFUSED, CliTest, main

TEXT = b"In the beginning God created the heaven and the earth.\n" * 400
TINY = ["--set", "data.tokens=text.tok", "--set", "run.dir=run", "--set", "model.num_layers=1",
        "--set", "model.num_heads=2", "--set", "model.embed_dim=32", "--set",
        "model.max_seq_len=32", "--set", "train.seq_len=32", "--set", "train.global_batch=4",
        "--set", "train.micro_batch=2", "--set", "train.steps=12", "--set", "run.threads=2",
        "--set", "optimizer.lr=0.01", "--set", "log.every=5"]


class Train(CliTest):
    def metrics(self, run="run"):
        lines = (self.folder / run / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def weights(self, run):
        data = (self.folder / run / "weights.safetensors").read_bytes()
        return data[8 + int.from_bytes(data[:8], "little"):]

    def test_a_run_leaves_config_metrics_and_weights(self):
        self.prepare(TEXT)
        output = self.check_done("train", *TINY, "--set", "eval.every=6")
        self.assertRegex(output, r"(?m)^step +5/12  loss \d\.\d+  lr .* grad norm .* tok/s  left ")
        self.assertRegex(output, r"(?m)^step +12/12  validation loss \d\.\d+$")
        steps = [line["step"] for line in self.metrics() if "loss" in line]
        self.assertEqual(steps, [1, 5, 10, 12])
        losses = [line["loss"] for line in self.metrics() if "loss" in line]
        self.assertLess(losses[-1], losses[0] - 0.5)
        validated = [line["step"] for line in self.metrics() if "validation_loss" in line]
        self.assertEqual(validated, [6, 12])
        names = sorted(path.name for path in (self.folder / "run").iterdir())
        self.assertEqual(names, ["config.toml", "metrics.jsonl", "weights.safetensors"])
        # The configuration that was written gives the same run.
        self.check_done("train", "--config", "run/config.toml", "--set", "run.dir=again")
        self.assertEqual(self.weights("run"), self.weights("again"))

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

    def test_an_existing_run_is_never_touched(self):
        self.prepare(TEXT)
        self.write("run/metrics.jsonl", b"precious")
        self.check_error(REFUSED, "run.dir: run exists already: give another folder", "train", *TINY)
        self.assertEqual((self.folder / "run/metrics.jsonl").read_bytes(), b"precious")

    def test_input_that_cannot_be_used_leaves_no_run_behind(self):
        self.prepare(b"too short")
        cases = [
            ("fewer than one sequence", TINY),
            ("there is no such file", [*TINY, "--set", "data.tokens=nowhere.tok"]),
            ("model.vocab_size: 100 is less than the 257 of text.tok",
             [*TINY, "--set", "model.vocab_size=100"]),
        ]
        for message, arguments in cases:
            with self.subTest(message):
                if "vocab" in message:
                    self.prepare(TEXT)
                result = self.run_cli("train", *arguments)
                self.assertEqual(result.returncode, REFUSED, result.stderr)
                self.assertIn(message, result.stderr)
                self.assertFalse((self.folder / "run").exists())

    def test_training_needs_to_be_told_its_data(self):
        self.check_error(REFUSED, "data.tokens", "train")

    def test_a_loss_that_is_not_finite_stops_the_run_and_says_where(self):
        self.prepare(TEXT)
        wild = [*TINY, "--set", "optimizer.lr=1e30", "--set", "train.grad_clip=0", "--set",
                "schedule.name=constant", "--set", "data.validation_fraction=0"]
        result = self.run_cli("train", *wild)
        self.assertEqual(result.returncode, FAILED, result.stderr)
        self.assertRegex(result.stderr, r"train: step 2, micro-batch 0 \(samples 4\.\.5\), forward of "
                         r"\"layer_norm\" in h\.0\.ln_1: output has nan at .*: lower optimizer\.lr, .*; "
                         r"the weights from before the step are written")
        self.assertEqual([line["action"] for line in self.metrics() if "event" in line], ["stop"])
        # They are those that the first step made.
        self.check_done("train", *wild, "--set", "run.dir=one", "--set", "train.steps=1")
        self.assertEqual(self.weights("run"), self.weights("one"))

    def test_steps_that_are_not_finite_are_skipped_up_to_the_limit(self):
        self.prepare(TEXT)
        result = self.run_cli("train", *TINY, "--set", "optimizer.lr=1e30", "--set",
                              "train.grad_clip=0", "--set", "train.non_finite=skip", "--set",
                              "train.non_finite_limit=3")
        self.assertEqual(result.returncode, FAILED, result.stderr)
        self.assertEqual(result.stderr.count(": no update; "), 2)
        self.assertIn("this is skip 3 in a row", result.stderr)
        events = [(line["step"], line["action"]) for line in self.metrics() if "event" in line]
        self.assertEqual(events, [(2, "skip"), (3, "skip"), (4, "stop")])
        self.assertTrue((self.folder / "run/weights.safetensors").exists())

    def test_a_full_disk_while_writing_metrics_is_named_and_leaves_whole_lines(self):
        self.prepare(TEXT)
        # The folder, the configuration and some lines fit; the rest does not.
        command = " ".join(["train", *TINY, "--set", "run.dir=disk/run", "--set", "log.every=1",
                            "--set", "train.steps=400"])
        result = self.on_small_disk("12k", command + " >/dev/null; code=$?; cat disk/run/metrics.jsonl; (exit $code)")
        self.assertEqual(result.returncode, FAILED, result.stderr)
        self.assertRegex(result.stderr, r"fsdptrain: disk/run/metrics.jsonl: writing \d+ bytes at "
                         r"offset \d+ failed: No space left on device; free space there")
        lines = [line for line in result.stdout.splitlines() if not line.startswith("disk/")]
        self.assertGreater(len(lines), 3)
        for line in lines:
            json.loads(line)

    def test_a_full_disk_while_writing_weights_leaves_none(self):
        self.prepare(TEXT)
        command = " ".join(["train", *TINY, "--set", "run.dir=disk/run"]) + " >/dev/null"
        result = self.on_small_disk("40k", command)
        self.assertEqual(result.returncode, FAILED, result.stderr)
        self.assertRegex(result.stderr, r"weights\.safetensors.*No space left on device")
        self.assertEqual(result.stdout.split(), ["disk/run/config.toml", "disk/run/metrics.jsonl"])

    def test_a_signal_ends_the_run_after_the_step_with_weights_written(self):
        self.prepare(TEXT)
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                run = f"run{int(number)}"
                process = subprocess.Popen(
                    [FSDPTRAIN, "train", *TINY, "--set", f"run.dir={run}", "--set",
                     "train.steps=100000000", "--set", "log.every=1"],
                    cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                for line in process.stdout:
                    if line.startswith("step"):
                        break
                process.send_signal(number)
                _, errors = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 128 + number, errors)
                self.assertIn(f"stopped by signal {int(number)} after step", errors)
                self.assertTrue((self.folder / run / "weights.safetensors").exists())
                self.check_done("generate", "--run", run, "--prompt", "a", "--tokens", "1",
                                "--output", "sample.txt")

    def test_a_signal_during_validation_ends_the_run_behind_it(self):
        # After the only step comes a long validation, and nothing behind it.
        self.prepare(TEXT * 3)
        process = subprocess.Popen(
            [FSDPTRAIN, "train", *TINY, "--set", "train.steps=1", "--set", "run.threads=1", "--set",
             "data.validation_fraction=0.5"],
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in process.stdout:
            if line.startswith("step"):
                break
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM, errors)
        self.assertTrue((self.folder / "run" / "weights.safetensors").exists())

    def test_an_empty_folder_is_accepted(self):
        self.prepare(TEXT)
        (self.folder / "run").mkdir()
        self.check_done("train", *TINY)


    def test_output_that_cannot_be_written_is_a_failure_with_the_weights_written(self):
        self.prepare(TEXT)
        with open("/dev/full", "w", encoding="ascii") as full:
            result = subprocess.run([FSDPTRAIN, "train", *TINY], stdout=full, timeout=60, text=True,
                                    stderr=subprocess.PIPE, cwd=self.folder, check=False)
        self.assertEqual(result.returncode, FAILED, result.stderr)
        self.assertRegex(result.stderr, r"\Awarning: standard output cannot be written: No space left "
                         r"on device.*: the run goes on: see run/metrics.jsonl\n"
                         r"fsdptrain: standard output could not be written during the run: metrics "
                         r"and run/weights.safetensors are complete.*\n\Z")
        self.assertEqual([line["step"] for line in self.metrics() if "loss" in line], [1, 5, 10, 12])
        self.check_done("generate", "--run", "run", "--prompt", "a", "--tokens", "1", "--output",
                        "sample.txt")

    def test_a_step_without_targets_is_passed_over_with_a_warning(self):
        # Every second document is empty: half of all positions end one.
        self.prepare(TEXT)
        data = bytearray((self.folder / "text.tok").read_bytes())
        data[1024:] = b"\x00\x01" * ((len(data) - 1024) // 2)
        data[32:40] = data[16:24]  # as many documents as tokens
        (self.folder / "text.tok").write_bytes(data)
        result = self.run_cli("train", *TINY, "--set", "train.steps=2")
        self.assertEqual(result.returncode, DONE, result.stderr)
        for step in (1, 2):
            self.assertIn(f"warning: step {step} of 2 has no target", result.stderr)
        self.assertIn("warning: validation behind step 2 of 2 has no target", result.stderr)
        self.assertEqual(self.metrics(), [])
        self.assertTrue((self.folder / "run/weights.safetensors").exists())

    def test_tokens_that_are_cut_during_the_run_end_it_by_name(self):
        self.prepare(TEXT)
        process = subprocess.Popen(
            [FSDPTRAIN, "train", *TINY, "--set", "train.steps=100000000", "--set", "log.every=1"],
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in process.stdout:
            if line.startswith("step"):
                break
        with open(self.folder / "text.tok", "r+b") as tokens:
            tokens.truncate(1024)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, REFUSED, errors)
        self.assertIn("text.tok: was truncated while in use: 1024 of its", errors)


class Generate(CliTest):
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
        self.check_error(REFUSED, 'knows the tokenizer "byte" only, these weights are of "gpt2"',
                         "generate", "--run", "run", "--prompt", "a")

    def test_a_wrong_number_of_threads_is_refused(self):
        self.check_error(REFUSED, "--threads", "generate", "--run", "run", "--prompt", "a",
                         "--threads", "-1")

    def test_an_empty_prompt_and_bad_numbers_are_refused(self):
        self.prepare(TEXT)
        self.check_done("train", *TINY)
        self.check_error(REFUSED, "at least one token", "generate", "--run", "run", "--prompt", "")
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
            self.check_error(FAILED, f" holds {value}: the file is damaged", "generate", "--run",
                             "run", "--prompt", "a")

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
