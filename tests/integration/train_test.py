"""Training as a user meets it: files, messages and exit codes.

Usage: train_test.py FSDPTRAIN SOURCE_DIR
"""

import fcntl
import json
import os
import pty
import re
import resource
import select
import shutil
import signal
import struct
import subprocess
import termios

from cli_case import DONE, FAILED, FSDPTRAIN, REFUSED, main
from train_case import TEXT, TINY, TrainTest


def limit_file_size(nbytes):
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, resource.RLIM_INFINITY))


def tensors(path):
    """The bytes of a safetensors file behind its header, which names the configuration."""
    data = path.read_bytes()
    return data[8 + int.from_bytes(data[:8], "little"):]


def floats(path):
    data = tensors(path)
    return struct.unpack(f"<{len(data) // 4}f", data)


class Train(TrainTest):
    def test_a_run_leaves_config_metrics_and_weights(self):
        self.prepare(TEXT)
        output = self.check_done("train", *TINY, "--set", "eval.every=6")
        self.assertRegex(output, r"(?m)^rate measured at start: \d+\.\d GFLOP/s of float32 "
                         r"multiply-add; a token counts [\d.]+ MFLOP: 6 x weights .* seq_len$")
        self.assertRegex(output, r"(?m)^step +5/12  loss \d\.\d+  lr .* grad norm .* tok/s  "
                         r"\d+\.\d % of rate  memory \d+/\d+ MiB  left \d+:\d\d$")
        self.assertRegex(output, r"(?m)^step +12/12  validation loss \d\.\d+$")
        steps = [line["step"] for line in self.metrics() if "loss" in line]
        self.assertEqual(steps, [1, 5, 10, 12])
        losses = [line["loss"] for line in self.metrics() if "loss" in line]
        self.assertLess(losses[-1], losses[0] - 0.5)
        validated = [line["step"] for line in self.metrics() if "validation_loss" in line]
        self.assertEqual(validated, [6, 12])
        names = sorted(path.name for path in (self.folder / "run").iterdir())
        self.assertEqual(names, ["checkpoints", "config.toml", "lock", "metrics.jsonl", "run.json",
                                 "weights.safetensors"])
        record = self.record()
        self.assertEqual((record["status"], record["exit_code"], record["steps"]), ("done", 0, 12))
        self.assertEqual(record["command_line"][1:4], ["train", "--set", "data.tokens=text.tok"])
        size = (self.folder / "text.tok").stat().st_size
        self.assertEqual([(file["path"], file["bytes"], file["tokens"]) for file in record["data"]],
                         [("text.tok", size, (size - 1024) // 2)])
        for line in self.metrics():
            self.assertEqual(line["attempt"], 1)
            if "loss" in line:
                # What the line says of itself fits together.
                rate = record["machine"]["measured_flops_per_second"]
                self.assertAlmostEqual(
                    line["utilization"] / (line["tokens_per_second"] * record["flops_per_token"] / rate),
                    1, places=9)
                self.assertGreaterEqual(line["memory_peak_bytes"], line["memory_live_bytes"])
                # Weights, gradients and two moments, float32.
                self.assertGreater(line["memory_live_bytes"], 16 * record["parameters"])
        # The configuration that was written gives the same run.
        self.check_done("train", "--config", "run/config.toml", "--set", "run.dir=again")
        self.assertEqual(*[tensors(self.folder / run / "weights.safetensors") for run in ("run", "again")])

    def test_an_existing_run_is_never_touched(self):
        self.prepare(TEXT)
        self.write("run/metrics.jsonl", b"precious")
        self.check_error(REFUSED, "run.dir: run is there and is not the folder of a run (it holds no run.json of "
                         "fsdptrain): give another folder, or move it away", "train", *TINY)
        self.assertEqual((self.folder / "run/metrics.jsonl").read_bytes(), b"precious")
        self.check_error(REFUSED, "so --overwrite leaves it alone", "train", *TINY, "--overwrite")
        self.assertEqual((self.folder / "run/metrics.jsonl").read_bytes(), b"precious")

    def test_overwrite_moves_a_run_away_but_not_for_bad_input(self):
        self.prepare(TEXT)
        self.check_done("train", *TINY)
        files = {path: path.read_bytes() for path in (self.folder / "run").iterdir() if path.is_file()}
        self.write("bad.safetensors", b"no weights")
        for wrong in ("data.tokens=none.tok", "model.vocab_size=100", "model.num_heads=3",
                      "model.init_from=bad.safetensors", "model.init_from=run/weights.safetensors"):
            result = self.run_cli("train", *TINY, "--overwrite", "--set", wrong)
            self.assertEqual(result.returncode, REFUSED, result.stderr)
            self.assertEqual({path: path.read_bytes() for path in (self.folder / "run").iterdir() if path.is_file()},
                             files)
        self.assertFalse((self.folder / "run.old-1").exists())
        self.check_done("train", *TINY, "--overwrite", "--set", "train.steps=5")
        self.assertEqual([line["step"] for line in self.metrics()], [1, 5, 5])
        self.assertEqual(len(self.metrics("run.old-1")), 5)

    def test_overwrite_keeps_the_old_run_where_the_new_one_cannot_begin(self):
        self.prepare(TEXT)
        self.check_done("train", *TINY)
        before = {path.name: path.read_bytes() for path in (self.folder / "run").iterdir() if path.is_file()}
        tokens = bytearray((self.folder / "text.tok").read_bytes())
        tokens[1024:] = b"\xff" * (len(tokens) - 1024)
        self.write("bad.tok", bytes(tokens))
        weights = before["weights.safetensors"]
        self.write("nan.safetensors", weights[:-4] + struct.pack("<f", float("nan")))
        for message, change in (
                ("token 65535", "data.tokens=bad.tok"), ("token 65535", "data.validation=bad.tok"),
                ("nan.safetensors", "model.init_from=nan.safetensors"),
                ("model.init_from: run/weights.safetensors would be moved",
                 "model.init_from=run/weights.safetensors"),
                ("data.tokens: run/metrics.jsonl would be moved", "data.tokens=run/metrics.jsonl"),
                ("data.validation: run/run.json would be moved", "data.validation=run/run.json")):
            with self.subTest(change):
                self.check_error(REFUSED, message, "train", "--overwrite", *TINY, "--set", change)
                after = {path.name: path.read_bytes() for path in (self.folder / "run").iterdir() if path.is_file()}
                self.assertEqual(after, before)

    def test_a_reader_that_goes_away_does_not_end_the_run(self):
        self.prepare(TEXT)
        process = subprocess.Popen([FSDPTRAIN, "train", *TINY, "--set", "train.steps=300", "--set",
                                    "log.every=1"], cwd=self.folder, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
        process.stderr.close()
        self.assertEqual(process.wait(timeout=60), FAILED, errors)
        self.assertIn("standard output cannot be written: Broken pipe", errors)
        self.assertEqual(self.metrics()[-1]["step"], 300)
        self.assertTrue((self.folder / "run/weights.safetensors").exists())

    def test_a_run_that_another_process_has_is_left_to_it(self):
        self.prepare(TEXT)
        process = self.start("--set", "train.steps=100000000")
        for more in (["--overwrite"], ["--set", "train.steps=100000000"]):
            self.check_error(REFUSED, "run.dir: run/lock: the folder is in use by process "
                             f"{process.pid} on host", "train", *TINY, *more)
        process.kill()
        process.communicate(timeout=60)
        self.assertEqual(self.record()["status"], "running")
        self.check_done("train", *TINY, "--overwrite")
        self.assertEqual(self.record()["status"], "done")

    def test_weights_of_another_run_are_where_training_begins(self):
        self.prepare(TEXT)
        self.check_done("train", *TINY)
        begin = ["--set", "model.init_from=run/weights.safetensors"]
        # Without a step, what comes out is what went in.
        self.check_done("train", *TINY, *begin, "--set", "run.dir=same", "--set", "train.steps=0")
        self.assertEqual(*[tensors(self.folder / run / "weights.safetensors") for run in ("run", "same")])
        self.check_done("train", *TINY, *begin, "--set", "run.dir=next", "--set", "run.seed=2")
        self.assertLess(self.metrics("next")[0]["loss"], self.metrics()[0]["loss"] - 0.5)

    def test_initial_weights_that_do_not_fit_are_listed_in_one_error(self):
        self.prepare(TEXT)
        self.check_done("train", *TINY)
        self.check_error(
            REFUSED, "run/weights.safetensors: does not fit the model: wte.weight is float32 [257, 32], "
            "not float32 [300, 32]; h.1.ln_1.weight is missing", "train", *TINY, "--set", "run.dir=next",
            "--set", "model.init_from=run/weights.safetensors", "--set", "model.vocab_size=300",
            "--set", "model.num_layers=2")
        self.assertFalse((self.folder / "next").exists())

    def test_samples_are_those_of_generate_and_leave_the_training_as_it_is(self):
        self.prepare(TEXT)
        self.check_done("train", *TINY, "--set", "run.dir=plain", "--set", "eval.every=6",
                        "--set", "model.dropout=0.1")
        output = self.check_done(
            "train", *TINY, "--set", "eval.every=6", "--set", "model.dropout=0.1", "--set",
            'eval.prompts=["In the ", "\\u00E9"]', "--set", "eval.sample_tokens=20", "--set",
            "eval.sample_temperature=1", "--set", "run.seed=1")
        lines = [json.loads(line) for line in
                 (self.folder / "run/samples.jsonl").read_text(encoding="utf-8").splitlines()]
        self.assertEqual([(line["attempt"], line["step"], line["prompt"], line["seed"]) for line in lines],
                         [(1, step, prompt, 1) for step in (6, 12) for prompt in ("In the ", "\u00e9")])
        self.assertEqual(output.count("  sample "), 4)
        for line in lines[2:]:
            self.check_done("generate", "--run", "run", "--prompt", line["prompt"], "--tokens", "20",
                            "--temperature", "1", "--seed", "1", "--output", "sample.txt")
            text = (self.folder / "sample.txt").read_bytes()[len(line["prompt"].encode()):]
            self.assertEqual(line["text"], text.decode(errors="replace"))
        self.assertEqual(*[tensors(self.folder / run / "weights.safetensors") for run in ("plain", "run")])

    def test_the_average_of_the_weights_is_that_of_each_step(self):
        self.prepare(TEXT)
        # Runs of 0, 1, 2 and 3 steps at a constant rate: the weights behind each step of the last.
        constant = ["--set", "schedule.name=constant"]
        weights = []
        for steps in range(4):
            self.check_done("train", *TINY, *constant, "--overwrite", "--set", f"train.steps={steps}",
                            "--set", "train.ema_decay=0.75")
            weights.append(floats(self.folder / "run/weights.safetensors"))
        average = weights[0]
        for step in weights[1:]:
            average = [a + 0.25 * (w - a) for a, w in zip(average, step)]
        path = self.folder / "run/weights_ema.safetensors"
        error = max(abs(a - w) for a, w in zip(average, floats(path)))
        self.assertLess(error, 1e-6)  # rounding of three float32 updates of values below 2
        self.assertGreater(max(abs(a - w) for a, w in zip(average, weights[3])), 1e-3)
        # It has the form of the weights.
        path.rename(self.folder / "run/weights.safetensors")
        self.check_done("generate", "--run", "run", "--prompt", "a", "--tokens", "1", "--output",
                        "sample.txt")

    def test_samples_need_byte_tokens(self):
        tokens = self.prepare(TEXT)
        data = bytearray(tokens.read_bytes())
        data[40:44] = b"gpt2"
        tokens.write_bytes(data)
        self.check_error(REFUSED, 'eval.prompts: samples are of the tokenizer "byte" only', "train",
                         *TINY, "--set", 'eval.prompts=["a"]')
        self.assertFalse((self.folder / "run").exists())

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

    def test_a_program_without_cuda_names_the_key_that_asked_for_it(self):
        if "NCCL not built" not in self.check_done("version"):
            self.skipTest("this program is built for CUDA")
        self.prepare(TEXT)
        self.check_error(FAILED, 'run.device = "cuda": NCCL: this program was built without CUDA',
                         "train", *TINY, "--set", "run.device=cuda")
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
        record = self.record()
        self.assertEqual((record["status"], record["exit_code"]), ("failed", FAILED))
        self.assertIn(record["error"], result.stderr)
        # They are those that the first step made.
        self.check_done("train", *wild, "--set", "run.dir=one", "--set", "train.steps=1")
        self.assertEqual(*[tensors(self.folder / run / "weights.safetensors") for run in ("run", "one")])

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

    def test_metrics_and_samples_that_cannot_be_written_do_not_end_the_run(self):
        self.prepare(TEXT)
        # Weights of 16 KiB and a checkpoint fit; 300 lines of metrics and of samples do not.
        result = self.run_cli(
            "train", *TINY, "--set", "model.embed_dim=8", "--set", "model.max_seq_len=8", "--set",
            "train.seq_len=8", "--set", "log.every=1", "--set", "train.steps=300", "--set",
            "eval.every=2", "--set", "eval.batches=1", "--set", 'eval.prompts=["' + 200 * "a" + '"]',
            "--set", "eval.sample_tokens=1", "--set", "optimizer.name=sgd", preexec_fn=lambda: limit_file_size(32 << 10))
        self.assertEqual(result.returncode, FAILED, result.stderr)
        warnings = result.stderr.splitlines()
        self.assertEqual(len(warnings), 3, result.stderr)
        for name, warning in zip(("metrics", "samples"), sorted(warnings[:2])):
            self.assertRegex(warning, rf"\Awarning: run/{name}.jsonl: writing \d+ bytes at offset \d+ "
                             r"failed: File too large; raise .*: the run goes on\Z")
        self.assertIn("fsdptrain: run/metrics.jsonl and run/samples.jsonl could not be written in full "
                      "during the run: run/weights.safetensors is complete", warnings[2])
        for name in ("metrics", "samples"):
            lines = (self.folder / f"run/{name}.jsonl").read_text().splitlines()
            self.assertGreater(len(lines), 30)
            for line in lines:
                json.loads(line)
        self.assertEqual(self.record()["status"], "failed")
        self.check_done("generate", "--run", "run", "--prompt", "a", "--tokens", "1", "--output",
                        "sample.txt")

    def test_a_full_disk_while_writing_weights_leaves_none(self):
        self.prepare(TEXT)
        command = " ".join(["train", *TINY, "--set", "run.dir=disk/run"]) + " >/dev/null"
        result = self.on_small_disk("40k", command)
        self.assertEqual(result.returncode, FAILED, result.stderr)
        self.assertRegex(result.stderr, r"weights\.safetensors.*No space left on device")
        names = [name for name in result.stdout.split() if "/lock/" not in name]
        self.assertEqual(names, ["disk/run/config.toml", "disk/run/metrics.jsonl", "disk/run/run.json"])

    def test_a_terminal_shows_progress_that_fits_and_goes_away(self):
        self.prepare(TEXT)
        for columns, expected in ((100, "] train: "), (30, "train: "), (5, "trai")):
            with self.subTest(columns):
                main_end, process_end = pty.openpty()
                fcntl.ioctl(process_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
                result = subprocess.run(
                    [FSDPTRAIN, "train", *TINY, "--overwrite", "--set", "train.steps=300", "--set",
                     "log.every=50"], cwd=self.folder, stderr=process_end, stdout=subprocess.PIPE,
                    timeout=60, check=False)
                os.close(process_end)
                shown = b""
                while select.select([main_end], [], [], 0)[0]:
                    try:
                        shown += os.read(main_end, 65536)
                    except OSError:
                        break
                os.close(main_end)
                self.assertEqual(result.returncode, DONE)
                self.assertNotIn(b"\r", result.stdout)
                self.assertIn(expected, shown.decode())
                self.assertTrue(shown.endswith(b"\r\x1b[K"), shown[-80:])
                for line in shown.replace(b"\x1b[K", b"").split(b"\r"):
                    self.assertLess(len(line), columns)

    def test_a_folder_that_cannot_be_made_is_refused(self):
        self.prepare(TEXT)
        (self.folder / "circle").symlink_to("circle")
        (self.folder / "dangling").symlink_to("gone")
        before = self.files()
        for message, run in (
                ("run.dir: text.txt/run: creating the folder failed: Not a directory", "text.txt/run"),
                ("run.dir: circle: creating the folder failed: Too many levels of symbolic links", "circle"),
                ("run.dir: dangling: creating the folder failed: it is a link to nothing", "dangling"),
                ("run.dir: dangling: creating the folder failed: it is a link to nothing", "dangling/run"),
                ("creating the folder failed: File name too long; give a shorter one", "n" * 300)):
            for more in ([], ["--overwrite"]):
                with self.subTest(run, more=more):
                    self.check_error(REFUSED, message, "train", *TINY, "--set", f"run.dir={run}", *more)
        self.assertEqual(self.files(), before)

    def test_a_folder_that_goes_away_during_the_run_is_a_failure(self):
        self.prepare(TEXT)
        process = self.start("--set", "train.steps=100000000", "--set", "log.every=1")
        for line in process.stdout:
            if line.startswith("step"):
                break
        shutil.rmtree(self.folder / "run")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, FAILED, errors)
        self.assertRegex(errors, r"(?m)^fsdptrain: run/lock: there is no such folder[^\n]*\n\Z")

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
                         r"fsdptrain: standard output could not be written in full during the run: "
                         r"run/weights.safetensors is complete.*\n\Z")
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
        # What was learned before is not lost.
        step = int(re.search(r"warning: the run fails after step (\d+): its weights are in "
                             r"run/weights.safetensors", errors)[1])
        self.assertEqual(self.record()["steps"], step)
        self.check_done("generate", "--run", "run", "--prompt", "a", "--tokens", "1", "--output",
                        "sample.txt")


if __name__ == "__main__":
    main()
