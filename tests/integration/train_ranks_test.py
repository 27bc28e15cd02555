"""Training on several ranks, which are threads of the process.

Usage: train_ranks_test.py FSDPTRAIN SOURCE_DIR
"""

import pathlib
import signal

from cli_case import FAILED, REFUSED, SAVED, main
from train_case import TEXT, TINY, TrainTest

# Six micro-batches a step; on four ranks two of them have one less.
SPREAD = [*TINY, "--set", "train.global_batch=12"]


def on(num_ranks):
    return ["--threads-as-ranks", str(num_ranks), "--set", f"run.dir=run{num_ranks}"]


class TrainRanks(TrainTest):
    def test_any_number_of_ranks_has_the_losses_and_the_files_of_one(self):
        self.prepare(TEXT)
        arguments = [*SPREAD, "--set", "eval.every=6", "--set", "model.dropout=0.1", "--set",
                     "train.ema_decay=0.9", "--set", 'eval.prompts=["In the"]', "--set", "eval.sample_tokens=3"]
        for num_ranks in (1, 2, 3, 4):
            with self.subTest(num_ranks):
                run = f"run{num_ranks}"
                output = self.check_done("train", *arguments, *on(num_ranks))
                self.assertRegex(output, rf"(?m)\A.*, {num_ranks} ranks x {max(2 // num_ranks, 1)} threads$")
                self.assertEqual(output.count("validation loss"), 2)
                expected, actual = self.metrics("run1"), self.metrics(run)
                self.assertEqual([line["step"] for line in actual], [1, 5, 6, 10, 12, 12])
                for one, line in zip(expected, actual):
                    for key in ("loss", "grad_norm", "validation_loss"):
                        if key in one:
                            self.assertAlmostEqual(line[key] / one[key], 1, delta=1e-5)
                names = [[path.name for path in sorted((self.folder / folder).iterdir())]
                         for folder in ("run1", run)]
                self.assertEqual(*names)
                record = self.record(run)
                self.assertEqual((record["status"], record["ranks"]), ("done", num_ranks))
                rate = record["machine"]["measured_flops_per_second"]
                for line in actual:
                    if "loss" in line:
                        self.assertAlmostEqual(line["utilization"] / (
                            line["tokens_per_second"] * record["flops_per_token"] / rate), 1, places=9)
                        # Weights, gradients, two moments and an average, of which each rank has a part; and what it
                        # computes with.
                        self.assertGreater(line["memory_live_bytes"], 20 * record["parameters"])
                        self.assertLess(line["memory_live_bytes"], (20 + 12 * num_ranks) * record["parameters"])
                        self.check_waits(line, num_ranks)
                for weights, text in ((run, f"sample{num_ranks}"), ("run1", "sample1")):
                    self.check_done("generate", "--run", weights, "--ema", "--prompt", "In the", "--tokens", "9",
                                    "--temperature", "0", "--output", text)
                self.assertEqual(*[(self.folder / text).read_bytes() for text in ("sample1", f"sample{num_ranks}")])

    def test_exact_accumulation_gives_1_2_and_4_ranks_the_same_weights(self):
        self.prepare(TEXT)
        arguments = [*SPREAD, "--set", "train.grad_clip=0", "--set", "train.ema_decay=0.9"]
        values = {}
        for accumulate in ("exact", "sharded", "unsharded"):
            for num_ranks in (1, 2, 4):
                run = f"{accumulate}{num_ranks}"
                self.check_done("train", *arguments, "--threads-as-ranks", str(num_ranks), "--set", f"run.dir={run}",
                                "--set", f"shard.accumulate={accumulate}")
                # Behind the header, which holds the configuration.
                values[run] = [(self.folder / run / name).read_bytes()[-4 * self.record(run)["parameters"]:]
                               for name in ("weights.safetensors", "weights_ema.safetensors")]
        for num_ranks in (2, 4):
            self.assertEqual(values["exact1"], values[f"exact{num_ranks}"])
            self.assertNotEqual(values["sharded1"], values[f"sharded{num_ranks}"])
            self.assertNotEqual(values["unsharded1"], values[f"unsharded{num_ranks}"])

    def test_how_a_model_is_shared_out_changes_no_loss(self):
        self.prepare(TEXT)
        expected = None
        for change in ("run.seed=1", "shard.reshard_after_forward=no", "shard.reshard_after_forward=yes",
                       "shard.prefetch=0", "shard.prefetch=3", "shard.accumulate=unsharded", "mesh.shard=3",
                       "mesh.replicate=3", "train.recompute=full"):
            with self.subTest(change):
                self.check_done("train", *SPREAD, *on(3), "--overwrite", "--set", change)
                losses = [line["loss"] for line in self.metrics("run3") if "loss" in line]
                expected = expected or losses
                for one, other in zip(expected, losses, strict=True):
                    self.assertAlmostEqual(one / other, 1, delta=1e-5)

    def test_a_mesh_that_is_not_that_of_the_ranks_is_refused(self):
        self.prepare(TEXT)
        for message, change in (
                ("mesh.replicate = 2: must divide the number of ranks, which is 3", ["mesh.replicate=2"]),
                ("mesh.shard = 2: with mesh.replicate = 1 this makes 2 ranks, and there are 3: leave mesh.shard out, "
                 "or start 2 ranks", ["mesh.shard=2"])):
            result = self.run_cli("train", *SPREAD, *on(3), *[word for one in change for word in ("--set", one)])
            self.assertEqual(result.returncode, REFUSED)
            self.assertIn(message, result.stderr)
            self.assertFalse((self.folder / "run3").exists())
        result = self.run_cli("train", *SPREAD, *on(4), "--set", "mesh.replicate=2")
        self.assertEqual(result.returncode, REFUSED)
        self.assertIn("mesh.replicate = 2 and mesh.shard = 2: models that are both replicated and shared out cannot be "
                      "trained yet", result.stderr)

    def check_waits(self, line, num_ranks):
        waits, waited_for = line["wait_seconds"], line["waited_for_seconds"]
        self.assertEqual((len(waits), len(waited_for)), (num_ranks, num_ranks))
        if num_ranks == 1:
            self.assertEqual((waits, waited_for, line["straggler"]), ([0], [0], None))
        else:
            self.assertEqual(waited_for[line["straggler"]], max(waited_for))
            self.assertAlmostEqual(sum(waits), sum(waited_for))

    def test_a_number_of_ranks_that_makes_no_sense_is_refused(self):
        self.prepare(TEXT)
        for number in (0, -1, 65, "two"):
            self.check_error(REFUSED, f"--threads-as-ranks: must be a whole number from 1 to 64, got {number}",
                             "train", *SPREAD, "--threads-as-ranks", number)
        self.check_error(REFUSED, "--threads-as-ranks: 7 ranks need as many micro-batches, but a step has 6 "
                         "(train.global_batch / train.micro_batch): take no more ranks than that, lower",
                         "train", *SPREAD, "--threads-as-ranks", "7")
        self.assertFalse((self.folder / "run").exists())

    def test_input_that_cannot_be_used_is_named_once_and_leaves_no_run_behind(self):
        self.prepare(TEXT)
        for message, change in (("there is no such file", "data.tokens=nowhere.tok"),
                                ("model.vocab_size: 100 is less", "model.vocab_size=100"),
                                ("none.safetensors", "model.init_from=none.safetensors")):
            self.check_error(REFUSED, message, "train", *SPREAD, "--threads-as-ranks", "3", "--set", change)
            self.assertFalse((self.folder / "run").exists())

    def test_a_signal_ends_all_ranks_after_one_step(self):
        self.prepare(TEXT)
        process = self.start("--threads-as-ranks", "2", "--set", "train.steps=100000000", "--set", "log.every=1")
        for line in process.stdout:
            if line.startswith("step"):
                break
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, SAVED, errors)
        self.assertRegex(errors, r"\Awarning: \[rank 0\] stopped by signal 15 after step \d+ of [^\n]*\n\Z")
        record = self.record()
        self.assertEqual((record["status"], record["exit_code"]), ("stopped", SAVED))
        self.assertEqual(record["steps"], self.metrics()[-1]["step"])
        self.check_done("generate", "--run", "run", "--prompt", "a", "--tokens", "1", "--output", "sample.txt")

    def test_all_ranks_make_samples_together(self):
        self.prepare(TEXT)
        output = self.check_done("train", *SPREAD, *on(2), "--set", "train.steps=2", "--set", "eval.every=1",
                                 "--set", 'eval.prompts=["a", "b"]', "--set", "eval.sample_tokens=300")
        self.assertEqual(output.count("  sample "), 4)

    def test_a_loss_that_is_not_finite_stops_all_ranks_and_says_where(self):
        self.prepare(TEXT)
        wild = [*SPREAD, *on(3), "--set", "optimizer.lr=1e30", "--set", "train.grad_clip=0", "--set",
                "schedule.name=constant", "--set", "data.validation_fraction=0"]
        result = self.run_cli("train", *wild)
        self.assertEqual(result.returncode, FAILED, result.stderr)
        self.assertRegex(result.stderr, r"\Afsdptrain: (rank \d failed: )?train: step 2, micro-batch 0 "
                         r"\(samples 12\.\.13\), forward of \"layer_norm\" in h\.0\.ln_1: output has nan at "
                         r".*; the weights from before the step are written[^\n]*\n\Z")
        events = [line for line in self.metrics("run3") if "event" in line]
        self.assertEqual([(line["action"], line["located"]["micro_batch"]) for line in events], [("stop", 0)])
        record = self.record("run3")
        self.assertEqual((record["status"], record["exit_code"]), ("failed", FAILED))
        # They are those that the first step made.
        self.check_done("train", *wild, "--set", "run.dir=one", "--set", "train.steps=1")
        self.assertEqual(*[(self.folder / run / "weights.safetensors").read_bytes()[-4000:]
                           for run in ("run3", "one")])

    def test_what_one_rank_meets_in_its_data_ends_all_with_the_weights_written(self):
        tokens = self.prepare(TEXT)
        data = bytearray(tokens.read_bytes())
        # One window after the other, so that some are of each rank.
        for window in (100, 200, 300, 400):
            with self.subTest(window):
                bad = bytearray(data)
                bad[1024 + 64 * window + 10] = 0xff
                bad[1024 + 64 * window + 11] = 0xff
                tokens.write_bytes(bad)
                # Every window is read in the first 60 steps.
                result = self.run_cli("train", *SPREAD, *on(3), "--overwrite", "--set", "train.steps=60")
                self.assertEqual(result.returncode, REFUSED, result.stderr)
                lines = result.stderr.splitlines()
                self.assertRegex(lines[-1], r"\Afsdptrain: text\.tok: token 65535 ")
                record = self.record("run3")
                self.assertEqual((record["status"], record["exit_code"]), ("failed", REFUSED))
                self.assertIn("text.tok: token 65535 ", record["error"])
                self.assertGreater(record["steps"], 0)
                self.assertEqual(lines[:-1], [f"warning: [rank 0] the run fails after step {record['steps']}: "
                                              "its weights are in run3/weights.safetensors"])
                self.check_done("generate", "--run", "run3", "--prompt", "a", "--tokens", "1", "--output",
                                "sample.txt")

    def test_a_full_disk_behind_bad_data_holds_nobody_up(self):
        tokens = self.prepare(TEXT)
        data = bytearray(tokens.read_bytes())
        data[1024 + 64 * 300 + 10:1024 + 64 * 300 + 12] = b"\xff\xff"
        tokens.write_bytes(data)
        # Neither the weights nor their average can be written.
        command = " ".join(["train", *SPREAD, "--threads-as-ranks", "3", "--set", "run.dir=disk/run", "--set",
                            "train.steps=60", "--set", "train.ema_decay=0.9", "--set", "comm.timeout=30"])
        result = self.on_small_disk("40k", command + " >/dev/null")
        self.assertEqual(result.returncode, REFUSED, result.stderr)
        self.assertRegex(result.stderr, r"warning: \[rank 0\] [^\n]*No space left on device")
        self.assertRegex(result.stderr, r"(?m)^fsdptrain: text\.tok: token 65535 ")

    def test_weights_that_rank_0_cannot_write_fail_the_run(self):
        self.prepare(TEXT)
        command = " ".join(["train", *TINY, "--threads-as-ranks", "2", "--set", "run.dir=disk/run"]) + " >/dev/null"
        result = self.on_small_disk("40k", command)
        self.assertEqual(result.returncode, FAILED, result.stderr)
        self.assertRegex(result.stderr, r"\Awarning: [^\n]*the last checkpoint failed: step \d+ was not saved: ")
        self.assertRegex(result.stderr, r"\nfsdptrain: [^\n]*weights\.safetensors.*No space left on device")
        self.assertEqual([pathlib.Path(path).name for path in result.stdout.split() if "/lock/" not in path],
                         ["config.toml", "metrics.jsonl", "run.json"])

    def test_help_says_what_ranks_that_are_threads_are_for(self):
        output = self.check_done("train", "--help")
        self.assertIn("--threads-as-ranks", output)
        self.assertIn("to see and test training", output)


if __name__ == "__main__":
    main()
