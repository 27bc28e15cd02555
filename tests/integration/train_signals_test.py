"""Signals to a training run: what it still writes, and how it ends.

Usage: train_signals_test.py FSDPTRAIN SOURCE_DIR
"""

import pathlib
import signal
import time

from cli_case import SAVED, main
from train_case import TEXT, TrainTest

ENDLESS = ["--set", "train.steps=100000000"]
SECONDS_TO_HANG = 60


class TrainSignals(TrainTest):
    def wait_until(self, condition, process):
        """Until it holds; a run that ends before, or hangs, is a failure."""
        end = time.monotonic() + SECONDS_TO_HANG
        while not condition():
            self.assertIsNone(process.poll(), "the run has ended")
            self.assertLess(time.monotonic(), end, "the run hangs")
            time.sleep(0.01)

    def send(self, process, number):
        """Sends a signal and waits until the run has noted it."""
        def is_noted():
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            pending = int(status.split("ShdPnd:")[1].split()[0], 16)
            return not pending >> (int(number) - 1) & 1

        process.send_signal(number)
        self.wait_until(is_noted, process)

    def wait_for_work(self, process):
        """Until the process has computed for 50 ms more."""
        def ticks():
            stat = pathlib.Path(f"/proc/{process.pid}/stat").read_text()
            return int(stat.rsplit(")", 1)[1].split()[11])

        begin = ticks()
        self.wait_until(lambda: ticks() >= begin + 5, process)

    def test_a_signal_ends_the_run_after_the_step_with_weights_written(self):
        self.prepare(TEXT)
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                run = f"run{int(number)}"
                process = self.start(*ENDLESS, "--set", f"run.dir={run}", "--set", "log.every=1")
                for line in process.stdout:
                    if line.startswith("step"):
                        break
                process.send_signal(number)
                _, errors = process.communicate(timeout=SECONDS_TO_HANG)
                self.assertEqual(process.returncode, SAVED, errors)
                self.assertIn(f"stopped by signal {int(number)} after step", errors)
                record = self.record(run)
                self.assertEqual((record["status"], record["exit_code"]), ("stopped", SAVED))
                self.assertEqual(record["steps"], self.metrics(run)[-1]["step"])
                self.check_done("generate", "--run", run, "--prompt", "a", "--tokens", "1",
                                "--output", "sample.txt")

    def test_a_second_signal_ends_the_run_at_once_within_a_step(self):
        self.prepare(TEXT)
        for numbers in ((signal.SIGINT, signal.SIGINT), (signal.SIGINT, signal.SIGTERM)):
            with self.subTest(numbers):
                # One step that takes minutes: a run that waits for its end is stopped or hangs.
                process = self.start("--overwrite", "--set", "train.global_batch=200000")
                while "rate measured" not in process.stdout.readline():
                    self.assertIsNone(process.poll())
                self.wait_for_work(process)
                self.send(process, numbers[0])
                self.wait_for_work(process)
                process.send_signal(numbers[1])
                _, errors = process.communicate(timeout=SECONDS_TO_HANG)
                self.assertEqual((process.returncode, errors), (128 + numbers[1], ""))
                self.assertEqual(self.record()["status"], "running")
                self.assertFalse((self.folder / "run/weights.safetensors").exists())

    def test_an_ignored_signal_stays_ignored(self):
        self.prepare(TEXT)
        process = self.start(*ENDLESS,
                             preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
        # If the first one counted, the second one would end the run without a word.
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=SECONDS_TO_HANG)
        self.assertEqual(process.returncode, SAVED, errors)
        self.assertIn(f"stopped by signal {int(signal.SIGTERM)} after step", errors)
        self.assertEqual(self.record()["status"], "stopped")

    def test_a_signal_among_samples_ends_the_run_without_the_rest(self):
        # The samples behind the only step are more than a pipe holds: they cannot end unread.
        self.prepare(TEXT)
        prompts = ['"' + 1000 * "a" + '"'] * 300
        self.write("run.toml", f"[eval]\nprompts = [{', '.join(prompts)}]\n".encode())
        process = self.start("--config", "run.toml", "--set", "train.steps=1", "--set",
                             "eval.sample_tokens=1")
        for line in process.stdout:
            if "  sample " in line:
                break
        self.send(process, signal.SIGTERM)
        _, errors = process.communicate(timeout=SECONDS_TO_HANG)
        self.assertEqual(process.returncode, SAVED, errors)
        self.assertIn(f"stopped by signal {int(signal.SIGTERM)} after step 1 of 1", errors)
        self.assertIn("validation_loss", self.metrics()[-1])
        samples = (self.folder / "run/samples.jsonl").read_text().splitlines()
        self.assertLess(len(samples), len(prompts))
        self.assertTrue((self.folder / "run/weights.safetensors").exists())


if __name__ == "__main__":
    main()
