"""Runs that end before their time and go on: the same command, the same numbers.

Usage: train_resume_test.py FSDPTRAIN SOURCE_DIR
"""

import json
import os
import shutil
import signal
import subprocess

from cli_case import DONE, FAILED, FSDPTRAIN, REFUSED, SAVED, main
from train_case import COURSE, TEXT, TINY, TrainTest

# More than a run can do before it is told to end.
LONG = ["--set", "train.steps=500"]


class Resume(TrainTest):
    def run_until(self, text, number, arguments, lines=1):
        """Starts a run and sends a signal when so many lines that hold `text` have come; its exit code and errors."""
        process = subprocess.Popen([FSDPTRAIN, "train", *arguments], cwd=self.folder, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        for line in process.stdout:
            lines -= text in line
            if lines == 0:
                process.send_signal(number)
                break
        _, errors = process.communicate(timeout=120)
        return process.returncode, errors

    def test_a_run_that_is_stopped_and_goes_on_computes_what_one_does_that_is_not(self):
        self.prepare(TEXT)
        for ranks in (1, 2):
            with self.subTest(ranks):
                whole, run = f"whole{ranks}", f"run{ranks}"
                arguments = [*COURSE, *LONG, "--threads-as-ranks", str(ranks)]
                self.check_done("train", *arguments, "--set", f"run.dir={whole}")
                arguments += ["--set", f"run.dir={run}"]
                for attempt, line in ((1, "step     10/"), (2, "validation loss")):
                    code, errors = self.run_until(line, signal.SIGTERM, arguments)
                    self.assertEqual(code, SAVED, errors)
                    self.assertIn("weights and metrics are written, and a checkpoint: the same command goes on", errors)
                    record = self.record(run)
                    self.assertEqual((record["attempt"], record["status"], record["exit_code"]),
                                     (attempt, "stopped", SAVED))
                    self.assertEqual(self.checkpoints(run)[-1], f"step-{record['steps']:08}")
                steps = record["steps"]
                output = self.check_done("train", *arguments)
                self.assertIn(f"attempt 3 goes on from {run}/checkpoints/step-{steps:08}, which {ranks} rank", output)
                self.assertEqual(self.record(run)["resumed_step"], steps)
                self.check_same(run, whole)

    def test_a_run_that_is_killed_goes_on_from_its_last_checkpoint(self):
        self.prepare(TEXT)
        every = [*COURSE, *LONG, "--set", "checkpoint.every=5"]
        self.check_done("train", *every, "--set", "run.dir=whole")
        for name, more in (("sync", ["--set", "checkpoint.async=false"]), ("async", [])):
            with self.subTest(name):
                arguments = [*every, *more, "--set", f"run.dir={name}"]
                for attempt in (1, 2, 3):
                    code, errors = self.run_until("checkpoint in", signal.SIGKILL, arguments, lines=2)
                    self.assertEqual((code, errors), (-signal.SIGKILL, ""))
                    self.assertEqual(self.record(name)["attempt"], attempt)
                    self.assertEqual(self.record(name)["status"], "running")
                self.check_done("train", *arguments)
                self.check_same(name, "whole")
                self.assertEqual(list((self.folder / name / "checkpoints/.staging").iterdir()), [])
                resumed = [line for line in self.metrics(name) if line.get("event") == "resume"]
                self.assertEqual([line["attempt"] for line in resumed], [2, 3, 4])
                earlier = self.record(name)["earlier"]
                self.assertEqual([attempt["status"] for attempt in earlier], ["running"] * 3)
                self.assertEqual([line["step"] for line in resumed],
                                 [*[attempt["resumed_step"] for attempt in earlier[1:]],
                                  self.record(name)["resumed_step"]])
                for line in resumed:
                    self.assertEqual(line["checkpoint"], f"step-{line['step']:08}")
                    self.assertGreaterEqual(line["step"], 10)

    def test_a_run_that_is_killed_before_its_first_checkpoint_begins_anew(self):
        self.prepare(TEXT)
        self.check_done("train", *COURSE, *LONG, "--set", "run.dir=whole")
        code, errors = self.run_until("step     10/", signal.SIGKILL, [*COURSE, *LONG])
        self.assertEqual((code, errors), (-signal.SIGKILL, ""))
        # Half a line, as a write that was cut short leaves it.
        with open(self.folder / "run/metrics.jsonl", "ab") as metrics:
            metrics.write(b'{"attempt":1,"st')
        output = self.check_done("train", *COURSE, *LONG)
        self.assertIn("attempt 2 begins anew: no checkpoint was there", output)
        self.check_same("run", "whole")
        resumed = [line for line in self.metrics() if line.get("event") == "resume"]
        self.assertEqual(resumed, [{"attempt": 2, "step": 0, "event": "resume", "checkpoint": None}])

    def test_any_number_of_ranks_goes_on_with_what_another_saved(self):
        self.prepare(TEXT)
        # Sums are exact, so that a rank more or less changes no bit of the weights.
        arguments = [*COURSE, *LONG, "--set", "shard.accumulate=exact", "--set", "train.grad_clip=0"]
        self.check_done("train", *arguments, "--set", "run.dir=whole")
        for ranks in (2, 4, 1):
            code, errors = self.run_until("  loss ", signal.SIGTERM, [*arguments, "--threads-as-ranks", str(ranks)],
                                          lines=3)
            self.assertEqual(code, SAVED, errors)
        self.check_done("train", *arguments, "--threads-as-ranks", "2")
        self.assertEqual([attempt["ranks"] for attempt in self.record()["earlier"]], [2, 4, 1])
        self.assertEqual(self.weights("run"), self.weights("whole"))
        whole = self.course("whole")
        for key, value in self.course("run").items():
            self.assertAlmostEqual(value / whole[key], 1, delta=1e-5)

    def test_a_finished_run_says_so_and_is_left_alone(self):
        self.prepare(TEXT)
        self.check_done("train", *COURSE)
        before = {path: path.read_bytes() for path in (self.folder / "run").iterdir() if path.is_file()}
        for more in ([], ["--threads-as-ranks", "2"], ["--set", "log.every=7", "--set", "run.threads=1"]):
            output = self.check_done("train", *COURSE, *more)
            self.assertEqual(output, "run: the run is done, after 12 steps: weights in run/weights.safetensors; for "
                             "another give another run.dir, or --overwrite\n")
        after = {path: path.read_bytes() for path in (self.folder / "run").iterdir() if path.is_file()}
        self.assertEqual(after, before)
        # Without its weights it has not left what it should.
        weights = (self.folder / "run/weights.safetensors").read_bytes()
        (self.folder / "run/weights.safetensors").unlink()
        self.check_done("train", *COURSE)
        self.assertEqual((self.folder / "run/weights.safetensors").read_bytes(), weights)

    def test_another_configuration_is_refused_naming_every_key_with_both_values(self):
        self.prepare(TEXT)
        self.check_done("train", *COURSE)
        before = {path: path.read_bytes() for path in (self.folder / "run").iterdir() if path.is_file()}
        for ranks in ("1", "2"):
            self.check_error(
                REFUSED, "run.dir: the run in run was begun with another configuration: train.steps: 12 is now 14; "
                "optimizer.lr: 0.01 is now 0.02; give another run.dir, --overwrite, or, to go on with it changed, "
                "--allow-change=train.steps,optimizer.lr", "train", *COURSE, "--threads-as-ranks", ranks, "--set",
                "train.steps=14", "--set", "optimizer.lr=0.02")
        self.check_error(REFUSED, "train.steps: 12 is now 14; give", "train", *COURSE, "--set", "train.steps=14",
                         "--set", "optimizer.lr=0.02", "--allow-change=lr")
        self.check_error(REFUSED, "--allow-change: name may be model.name or optimizer.name or schedule.name", "train",
                         *COURSE, "--allow-change=name")
        self.check_error(REFUSED, "--allow-change: stepss is no key of a configuration: did you mean train.steps?",
                         "train", *COURSE, "--allow-change=lr,stepss")
        after = {path: path.read_bytes() for path in (self.folder / "run").iterdir() if path.is_file()}
        self.assertEqual(after, before)

    def test_what_is_allowed_to_change_changes_and_is_noted(self):
        self.prepare(TEXT)
        constant = ["--set", "schedule.name=constant"]
        self.check_done("train", *COURSE, *constant, "--set", "run.dir=whole", "--set", "train.steps=20")
        self.check_done("train", *COURSE, *constant)
        output = self.check_done("train", *COURSE, *constant, "--set", "train.steps=20", "--allow-change=steps")
        self.assertIn("changed: train.steps: 12 is now 20\n", output)
        self.assertEqual(self.record()["changes"], [{"key": "train.steps", "before": "12", "now": "20"}])
        whole, run = self.course("whole"), self.course("run")
        # The validation at the end of the shorter one is the longer one's of no step.
        self.assertEqual({key: run[key] for key in whole}, whole)
        self.assertEqual(self.weights("run"), self.weights("whole"))
        # From now on it is the configuration of the run.
        self.assertIn("the run is done, after 20 steps", self.check_done("train", *COURSE, *constant, "--set",
                                                                        "train.steps=20"))
        self.check_error(REFUSED, "train.steps: 20 is now 12", "train", *COURSE, *constant)
        output = self.check_done("train", *COURSE, *constant, "--set", "train.steps=24", "--set", "train.global_batch=4",
                                 "--set", "optimizer.lr=0.005", "--set", "train.seq_len=16",
                                 "--allow-change=steps,global_batch,lr,seq_len")
        self.assertEqual(output.count("changed: "), 4)
        # Samples go on where they were.
        manifest = json.loads((self.folder / "run/checkpoints/step-00000024/manifest.json").read_text())
        progress = manifest["objects"]["progress"]["values"][0]
        self.assertEqual((progress["samples"], progress["tokens"]), (20 * 8 + 4 * 4, 20 * 8 * 32 + 4 * 4 * 16))
        self.assertEqual(progress["lr"], 0.005)

    def test_an_average_or_an_optimizer_may_be_changed_and_what_is_missing_is_said(self):
        self.prepare(TEXT)
        self.check_done("train", *TINY)
        result = self.run_cli("train", *TINY, "--set", "train.steps=15", "--set", "train.ema_decay=0.5", "--set",
                              "optimizer.name=sgd", "--allow-change=train,optimizer")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertIn("exp_avg", result.stderr)
        self.assertTrue((self.folder / "run/weights_ema.safetensors").exists())

    def test_a_change_stays_allowed_where_its_attempt_left_no_checkpoint(self):
        self.prepare(TEXT)
        self.check_done("train", *TINY)
        changed = [*TINY, *LONG, "--set", "train.ema_decay=0.5", "--set", "log.every=1"]
        code, errors = self.run_until("  loss ", signal.SIGKILL, [*changed, "--allow-change=steps,ema_decay"])
        self.assertEqual(code, -signal.SIGKILL, errors)
        self.assertEqual(self.checkpoints(), ["step-00000012"])
        result = self.run_cli("train", *changed)
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertIn("attempt 3 goes on from run/checkpoints/step-00000012", result.stdout)
        self.assertEqual([attempt["changes"] == [] for attempt in self.record()["earlier"]], [True, False])

    def test_checkpoints_come_by_the_clock_too(self):
        self.prepare(TEXT)
        for ranks in (1, 2):
            output = self.check_done("train", *TINY, "--overwrite", "--threads-as-ranks", str(ranks), "--set",
                                     "train.steps=1000", "--set", "checkpoint.every_minutes=0.003", "--set",
                                     "checkpoint.keep=0")
            steps = [int(name[5:]) for name in self.checkpoints()]
            self.assertGreater(len(steps), 2)
            self.assertEqual(steps[-1], 1000)
            self.assertEqual(output.count("checkpoint in"), len(steps))

    def test_as_many_checkpoints_stay_as_are_to_be_kept(self):
        self.prepare(TEXT)
        for keep, names in ((1, [12]), (2, [10, 12]), (0, [2, 4, 6, 8, 10, 12])):
            self.check_done("train", *TINY, "--overwrite", "--set", "checkpoint.every=2", "--set",
                            f"checkpoint.keep={keep}")
            self.assertEqual(self.checkpoints(), [f"step-{step:08}" for step in names])

    def test_a_run_cannot_be_made_shorter_than_it_is(self):
        self.prepare(TEXT)
        self.check_done("train", *TINY)
        before = (self.folder / "run/run.json").read_bytes()
        for ranks in ("1", "2"):
            self.check_error(REFUSED, "train.steps = 11: the run has done 12 steps already", "train", *TINY, "--set",
                             "train.steps=11", "--allow-change=steps", "--threads-as-ranks", ranks)
        self.assertEqual((self.folder / "run/run.json").read_bytes(), before)

    def test_replicas_that_are_stopped_and_go_on_compute_what_others_do(self):
        self.prepare(TEXT)
        arguments = [*COURSE, *LONG, "--threads-as-ranks", "2", "--set", "mesh.replicate=2", "--set", "mesh.shard=1"]
        self.check_done("train", *arguments, "--set", "run.dir=whole")
        code, errors = self.run_until("step     10/", signal.SIGTERM, arguments)
        self.assertEqual(code, SAVED, errors)
        self.assertIn("goes on from", self.check_done("train", *arguments))
        self.check_same("run", "whole")

    def test_a_link_to_a_checkpoint_is_not_followed_and_that_is_said(self):
        self.prepare(TEXT)
        self.check_done("train", *COURSE, "--set", "checkpoint.every=5")
        checkpoints = self.folder / "run/checkpoints"
        (checkpoints / "step-00000012").rename(self.folder / "elsewhere")
        (checkpoints / "step-00000012").symlink_to(self.folder / "elsewhere")
        (self.folder / "run/weights.safetensors").unlink()
        self.assertIn("step-00000012  not valid: ", self.check_done("checkpoint", "inspect", "run"))
        result = self.run_cli("train", *COURSE, "--set", "checkpoint.every=5")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertRegex(result.stderr, r"not taken: [^\n]*step-00000012: is a link, which is not followed")
        self.assertIn("goes on from run/checkpoints/step-00000010", result.stdout)
        self.assertTrue((self.folder / "elsewhere/manifest.json").exists())

    def test_a_signal_whose_checkpoint_cannot_be_written_does_not_ask_to_come_again(self):
        self.prepare(TEXT)
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                process = self.start(*LONG, "--set", "train.steps=100000000", "--overwrite", "--set", "log.every=1")
                while "  loss " not in process.stdout.readline():
                    self.assertIsNone(process.poll())
                # Where checkpoints would go.
                self.write("run/checkpoints", b"")
                process.send_signal(number)
                _, errors = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 128 + number, errors)
                self.assertRegex(errors, r"a checkpoint failed, [^\n]*run/checkpoints/\.staging")
                self.assertNotIn("the same command goes on", errors)
                self.assertEqual(self.record()["exit_code"], 128 + number)
                self.assertTrue((self.folder / "run/weights.safetensors").exists())

    def test_other_data_under_the_same_name_are_refused(self):
        self.prepare(TEXT)
        self.check_done("train", *TINY)
        self.prepare(TEXT[::-1])
        longer = ["--set", "train.steps=14", "--allow-change=steps"]
        for ranks in ("1", "2"):
            result = self.run_cli("train", *TINY, *longer, "--threads-as-ranks", ranks)
            self.assertEqual(result.returncode, REFUSED, result.stderr)
            self.assertIn("data.tokens: text.tok is not the file that the run has read so far", result.stderr)
        self.check_done("train", *TINY, *longer, "--allow-change=data")

    def test_two_runs_differ_in_the_keys_that_decide_about_numbers_and_in_no_others(self):
        self.prepare(TEXT)
        diff = ["checkpoint", "diff", "run", "run2"]
        self.check_done("train", *TINY)
        self.check_done("train", *TINY, "--set", "run.dir=run2", "--set", "log.every=3")
        self.assertIn(": no difference", self.check_done(*diff))
        self.check_done("train", *TINY, "--set", "run.dir=run2", "--overwrite", "--set", "optimizer.lr=0.02")
        result = self.run_cli(*diff)
        self.assertEqual(result.returncode, FAILED, result.stderr)
        self.assertIn("configuration optimizer.lr: 0.01 and 0.02\n", result.stdout)
        self.assertNotIn("run.dir", result.stdout)
        self.assertNotIn("object configuration", result.stdout)

    def test_overwrite_moves_the_old_run_aside(self):
        self.prepare(TEXT)
        self.check_done("train", *TINY)
        self.write("run/notes.txt", b"mine")
        for number in (1, 2):
            before = {path.name: path.read_bytes() for path in (self.folder / "run").iterdir() if path.is_file()}
            output = self.check_done("train", *TINY, "--overwrite", "--set", f"train.steps={number}")
            self.assertIn(f"the run that was in run is in run.old-{number}\n", output)
            old = self.folder / f"run.old-{number}"
            self.assertEqual({path.name: path.read_bytes() for path in old.iterdir() if path.is_file()}, before)
            self.assertEqual(self.record()["attempt"], 1)
        self.assertTrue((self.folder / "run.old-1/notes.txt").exists())
        self.assertEqual(self.checkpoints("run.old-1"), ["step-00000012"])
        # It goes on where it is.
        self.assertIn("the run is done", self.check_done("train", *TINY, "--set", "run.dir=run.old-1"))

    def test_a_run_begins_from_the_parameters_of_a_checkpoint(self):
        self.prepare(TEXT)
        self.check_done("train", *TINY)
        begin = ["--set", "model.init_from=run/checkpoints/step-00000012"]
        self.check_done("train", *TINY, *begin, "--set", "run.dir=same", "--set", "train.steps=0")
        self.assertEqual(self.weights("same"), self.weights("run"))
        self.check_done("train", *TINY, *begin, "--set", "run.dir=ranks", "--set", "train.steps=0",
                        "--threads-as-ranks", "2")
        self.assertEqual(self.weights("ranks"), self.weights("run"))
        result = self.run_cli("train", *TINY, *begin, "--set", "run.dir=deeper", "--set", "model.num_layers=2")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertIn("warning: model.init_from: ", result.stderr)
        self.assertIn("h.1.ln_1.weight", result.stderr)
        self.check_error(REFUSED, "wte.weight", "train", *TINY, *begin, "--set", "run.dir=next", "--set",
                         "model.vocab_size=300")
        for folder in ("run", "run/checkpoints"):
            self.check_error(REFUSED, "(give one checkpoint, such as run/checkpoints/step-00000012)", "train", *TINY,
                             "--set", f"model.init_from={folder}", "--set", "run.dir=next")
        self.assertFalse((self.folder / "next").exists())

    def test_a_damaged_checkpoint_is_passed_over_with_the_reason(self):
        self.prepare(TEXT)
        self.check_done("train", *COURSE, "--set", "checkpoint.every=5")
        self.assertEqual(self.checkpoints(), ["step-00000010", "step-00000012"])
        shutil.copytree(self.folder / "run", self.folder / "whole")
        rank = next((self.folder / "run/checkpoints/step-00000012").glob("rank-*"))
        data = bytearray(rank.read_bytes())
        data[-100] ^= 1
        rank.write_bytes(data)
        (self.folder / "run/weights.safetensors").unlink()
        result = self.run_cli("train", *COURSE, "--set", "checkpoint.every=5")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertRegex(result.stderr, r"warning: not taken: [^\n]*step-00000012[^\n]*rank-00000\.safetensors")
        self.assertIn("goes on from run/checkpoints/step-00000010", result.stdout)
        self.check_same("run", "whole")

    def test_a_signal_to_a_job_of_processes_saves_and_the_same_command_goes_on(self):
        self.prepare(TEXT)
        arguments = [*COURSE, *LONG]
        self.check_done("train", *arguments, "--set", "run.dir=whole", "--threads-as-ranks", "2")

        def job():
            process = subprocess.Popen([FSDPTRAIN, "launch", "--nproc-per-node", "2", "--", FSDPTRAIN, "train",
                                        *arguments], cwd=self.folder, text=True, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE)
            self.addCleanup(process.kill)
            return process

        process = job()
        for line in process.stdout:
            if "step     10/" in line:
                process.send_signal(signal.SIGTERM)
                break
        _, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, SAVED, errors)
        # One rank is killed: the job fails, and what was saved is there.
        process = job()
        children = f"/proc/{process.pid}/task/{process.pid}/children"
        for line in process.stdout:
            if "  loss " in line:
                with open(children, encoding="ascii") as pids:
                    os.kill(int(pids.read().split()[-1]), signal.SIGKILL)
                break
        _, errors = process.communicate(timeout=120)
        self.assertNotIn(process.returncode, (DONE, SAVED), errors)
        process = job()
        _, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, DONE, errors)
        self.check_same("run", "whole")

    def test_a_checkpoint_that_cannot_be_written_warns_or_ends_the_run(self):
        self.prepare(TEXT)
        small = ["train", *TINY, "--set", "run.dir=disk/run", "--set", "checkpoint.every=2"]
        # Room for weights, not for three times as much.
        for policy, warnings in (("continue", 5), ("stop", 0)):
            with self.subTest(policy):
                command = " ".join([*small, "--set", f"checkpoint.on_error={policy}", "--set",
                                    "checkpoint.error_limit=99"])
                result = self.on_small_disk("280k", command)
                # Without its last one a run has not come to its end.
                self.assertEqual(result.returncode, FAILED, result.stderr)
                self.assertEqual(result.stderr.count("a checkpoint failed, "), warnings)
                self.assertRegex(result.stderr, r"No space left on device")
                self.assertIn("disk/run/weights.safetensors", result.stdout.split())
        command = " ".join([*small, "--set", "checkpoint.error_limit=3", "--set", "checkpoint.async=false"])
        result = self.on_small_disk("280k", command)
        self.assertEqual(result.returncode, FAILED, result.stderr)
        self.assertEqual(result.stderr.count("a checkpoint failed, "), 2)


if __name__ == "__main__":
    main()
