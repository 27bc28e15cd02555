"""Training on ranks that are processes, and what a job that hangs says about itself.

Usage: train_test.py FSDPTRAIN JOB_WORKER STRAGGLER_WORKER
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import time

from launch_case import FSDPTRAIN, SECONDS_TO_HANG, WORKER, Job, main, signal
from train_case import NO_LAUNCHER, TrainCase, endless, tensors, train

# Ranks that were stopped by a signal with their state saved.
SAVED = 75
STRAGGLER = str(pathlib.Path(sys.argv[3]).resolve())


class Rank:
    """A process of a job, as one sees it from outside."""

    def __init__(self, pid, variables):
        self.pid, self.rank = pid, int(variables["RANK"])
        numbers = dict(part.split("=") for part in variables["FSDPTRAIN_WORKER"].split()[1:])
        self.ring = f"/proc/{pid}/fd/{numbers['flight']}"

    def send(self, number):
        os.kill(self.pid, number)

    def state(self):
        return pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]

    def flight(self):
        result = subprocess.run([FSDPTRAIN, "flight", "show", "--json", "--last", "100", self.ring],
                                capture_output=True, text=True, check=True, timeout=SECONDS_TO_HANG)
        return json.loads(result.stdout)["ranks"][0]


class LaunchTrain(TrainCase):
    def start(self, num_ranks, *arguments, options=(), **more):
        job = Job("--nproc-per-node", num_ranks, *options, *arguments, cwd=self.folder, **more)
        self.addCleanup(job.process.kill)
        return job

    def ranks(self, job, num_ranks):
        """By rank, when all of them have begun to write their rings."""
        found = {}

        def all_there():
            for pid, _ in job.processes():
                try:
                    environ = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
                    variables = dict(entry.split("=", 1) for entry in environ if "=" in entry)
                    rank = Rank(pid, variables)
                    if os.path.exists(rank.ring) and pid != job.process.pid and rank.flight()["written"] > 20:
                        found[rank.rank] = rank
                except (OSError, KeyError, subprocess.CalledProcessError):
                    pass
            return len(found) == num_ranks

        job.wait_until(all_there, "all ranks at work")
        return found

    def test_two_processes_train_the_bits_of_two_threads(self):
        self.check_ended(self.start(2, "--", *train(run__dir="processes")), 0)
        self.run_cli(*train(run__dir="threads"), "--threads-as-ranks", "2")
        runs = [self.folder / run for run in ("processes", "threads")]
        self.assertEqual(*[tensors(run / "weights.safetensors") for run in runs])
        losses = [[line.get("loss") for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())]
                  for run in runs]
        self.assertEqual(*losses)
        self.assertEqual(json.loads((runs[0] / "run.json").read_text())["ranks"], 2)

    def test_an_environment_that_was_set_by_hand_trains_the_same(self):
        processes = [subprocess.Popen([FSDPTRAIN, *train(run__dir="hand")], cwd=self.folder, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      env={**NO_LAUNCHER, "RANK": str(rank), "WORLD_SIZE": "2",
                                           "XDG_RUNTIME_DIR": str(self.folder)})
                     for rank in range(2)]
        outputs = [process.communicate(timeout=SECONDS_TO_HANG) for process in processes]
        self.assertEqual([process.returncode for process in processes], [0, 0], outputs)
        # On a busy machine one may have waited for the other.
        said = [[line for line in output[1].splitlines() if ": waiting for rank" not in line] for output in outputs]
        self.assertEqual(said, [["fsdptrain: rank 0 of 2, by torchrun (RANK, WORLD_SIZE)"], []])
        self.assertEqual(outputs[1][0], "")
        self.run_cli(*train(run__dir="threads"), "--threads-as-ranks", "2")
        self.assertEqual(*[tensors(self.folder / run / "weights.safetensors") for run in ("hand", "threads")])
        self.assertEqual([path.name for path in self.folder.glob("fsdptrain-*")], [])

    def test_ranks_wait_for_each_other_to_come_for_as_long_as_in_a_collective(self):
        result = self.run_cli(*train(comm__timeout=1), code=1, env={**NO_LAUNCHER, "RANK": "0", "WORLD_SIZE": "2",
                                                                    "XDG_RUNTIME_DIR": str(self.folder)})
        self.assertIn("not all ranks have come in 1 s, missing: rank 1", result.stderr)

    def test_a_rank_that_waits_for_the_others_to_come_ends_with_the_first_signal(self):
        for rank in (0, 1):
            process = subprocess.Popen([FSDPTRAIN, *train(run__dir="alone")], cwd=self.folder, text=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       env={**NO_LAUNCHER, "RANK": str(rank), "WORLD_SIZE": "2",
                                            "XDG_RUNTIME_DIR": str(self.folder)})
            self.addCleanup(process.kill)
            # Its signals are held back before it waits.
            status = pathlib.Path(f"/proc/{process.pid}/status")
            end = time.monotonic() + SECONDS_TO_HANG
            while not int(status.read_text().split("SigBlk:")[1].split()[0], 16) >> (signal.SIGTERM - 1) & 1:
                self.assertLess(time.monotonic(), end)
            process.send_signal(signal.SIGTERM)
            self.assertRegex(process.communicate(timeout=SECONDS_TO_HANG)[1], "stopped by SIGTERM")
            self.assertEqual(process.returncode, 143)
            self.assertEqual([path.name for path in self.folder.glob("fsdptrain-*")], [])

    def test_what_is_no_work_of_ranks_is_refused_by_name(self):
        job = self.start(2, "--", "data", "inspect", "text.tok")
        self.check_ended(job, 1, "fsdptrain: data: runs on one rank, but this process is rank")
        job = self.start(2, "--", *train(), "--threads-as-ranks", "2")
        self.check_ended(job, 1, "--threads-as-ranks: this process is a rank itself (rank ")
        job = self.start(5, "--", *train())
        self.check_ended(job, 1, "fsdptrain launch: 5 ranks need as many micro-batches, but a step has 4")
        # Nobody is to blame for what the others do then.
        job = self.start(3, "--", *train(data__tokens="none.tok"))
        self.check_ended(job, 1, "none.tok: there is no such file")
        self.assertNotIn("\nculprit", job.err)

    def test_a_rank_that_stops_between_parameters_of_layer_3_is_named_with_all_that_it_holds_up(self):
        job = self.start(4, WORKER, "layers", options=["--log-dir", "logs"])
        ranks = self.ranks_of_worker(job)
        job.wait_until(lambda: ranks[2].state() == "T", "rank 2 stops")
        # All others are there, or soon will be.
        job.wait_until(lambda: all((ranks[rank].flight()["waits_in"] or {}).get("name") == "h.3.mlp.weight"
                                   for rank in (0, 1, 3)), "the others wait")
        job.send(signal.SIGUSR2)
        job.wait()
        report = (": rank 2 (process {} on {}): has not arrived in all_reduce seq 9 of group 'world' for "
                  "h.3.mlp.weight; waiting nowhere\n").format(ranks[2].pid, os.uname().nodename)
        waiting = ("ranks 0-1, 3 {} in all_reduce seq 9 of group 'world' for h.3.mlp.weight (tag root 0 group 7 "
                   "invocation 0 backward, float32 x 64, sum)")
        # By SIGUSR2 while it ran, then behind the failure.
        self.assertRegex(job.err, r"nothing is overdue: the longest wait is [\d.]+ s, of 4 s at most\n"
                         + re.escape("so far" + report))
        self.assertIn("culprit" + report, job.err)
        self.assertIn(waiting.format("wait"), job.err)
        # The timeout of a rank says the same by itself.
        self.assertRegex(job.err, r"rank \d: all_reduce of float32\[64\], sequence 9 of group 'world', tag root 0 group "
                         r"7 invocation 0 backward, for h\.3\.mlp\.weight did not end in 4 s, missing: rank 2\b")
        self.assertRegex(job.err, r"rank 2 ended all_reduce of float32\[64\], sequence 8 of group 'world', tag root 0 "
                         r"group 6 invocation 0 backward, for h\.3\.attn\.weight [\d.]+ s ago")
        rings = sorted((self.folder / "logs").glob("*/flight/*.ring"))
        self.assertEqual(len(rings), 4)
        shown = self.run_cli("flight", "show", *rings).stdout
        self.assertIn("culprit" + report, shown)
        self.assertIn("rank 2 has not arrived: the last is all_reduce seq 8, completed", shown)
        self.assertRegex(shown, r"(?m)^rank 2 \(process \d+ on [^)]+\) waits for nobody\n(  completed .*\n)*"
                         r"  completed +[\d.]+ s ago  all_reduce seq 8 of group 'world' for h\.3\.attn\.weight ")
        parsed = json.loads(self.run_cli("flight", "show", "--json", *rings).stdout)
        self.assertEqual((parsed["culprits"], parsed["missing"]), ([2], []))
        without = self.run_cli("flight", "show", rings[0], rings[2]).stdout
        self.assertIn("no ring: ranks 1, 3\n", without)
        self.check_ended(job, 1)

    def ranks_of_worker(self, job):
        found = {}

        def all_there():
            for pid, command in job.processes():
                try:
                    environ = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
                    if command.startswith(WORKER):
                        rank = Rank(pid, dict(entry.split("=", 1) for entry in environ if "=" in entry))
                        found[rank.rank] = rank
                except (OSError, KeyError):
                    pass
            return len(found) == 4

        job.wait_until(all_there, "all workers")
        return found

    def test_files_that_are_no_rings_are_named(self):
        (self.folder / "short.ring").write_bytes(b"FSDPFLT1")
        (self.folder / "other.ring").write_bytes(b"x" * 4096)
        for name, text in (("short.ring", "not a whole flight ring"), ("other.ring", "not a flight ring"),
                           ("none.ring", "there is no such file")):
            result = self.run_cli("flight", "show", name, code=2)
            self.assertIn(f"{name}: ", result.stderr)
            self.assertIn(text, result.stderr)
        self.run_cli("flight", "show", code=2)

    def test_of_ranks_that_go_on_none_is_blamed(self):
        job = self.start(4, "--", *endless(comm__timeout=100))
        ranks = self.ranks(job, 4)
        for _ in range(20):
            shown = json.loads(self.run_cli("flight", "show", "--json", *(rank.ring for rank in ranks.values())).stdout)
            self.assertEqual(shown["culprits"], [], shown["report"])
            self.assertRegex(shown["report"], r"\n(nobody waits|nothing is overdue: the longest wait is [\d.]+ s, of 100 s "
                             r"at most)\n")
            job.send(signal.SIGUSR2)
        job.send(signal.SIGTERM)
        job.wait()
        self.assertNotIn("culprit", job.err)
        self.check_ended(job, SAVED)

    def test_a_rank_that_is_stopped_in_training_is_named_with_layer_and_operation(self):
        job = self.start(4, "--", *endless(comm__timeout=3))
        ranks = self.ranks(job, 4)
        for _ in range(1000):
            ranks[2].send(signal.SIGSTOP)
            job.wait_until(lambda: ranks[2].state() == "T", "rank 2 stops")
            flight = ranks[2].flight()
            names = [operation["name"] or "" for operation in flight["operations"]
                     if operation["state"] in ("started", "posted")]
            if names and names[0] == "h.3":
                break
            ranks[2].send(signal.SIGCONT)
            time.sleep(0.002)
        else:
            self.fail("rank 2 was never met in layer 3")
        job.wait()
        self.assertRegex(job.err, r"culprit: rank 2 \(process \d+ on [^)]+\): (has|is) [^\n]*(all_gather|reduce_scatter) seq "
                         r"\d+ of group 'world' for h\.\d[;,] ")
        # The rank that has looked has a line for each; in the lines of others the first of them is told. They may have
        # what they need from rank 2 in layer 3, and wait behind it: then its own line names the layer.
        said = r"(h\.\d: )?rank \d: [^\n]* for h\.\d did not end in 3 s, missing: [^\n]*\n"
        self.assertRegex(job.err, rf"\[rank \d\] fsdptrain: {said}\[rank \d\]   rank 0 ")
        self.assertRegex(job.err, r"( for h\.3 did not end|\[rank \d\]   rank 2 [^\n]* for h\.3[ ,;])")
        self.assertRegex(job.err, rf"launch: rank \d failed first, [^\n]*: it failed: {said}")
        self.assertNotIn("\\n", job.err)
        self.check_ended(job, 1)

    def test_a_break_point_holds_three_times_the_timeout_and_goes_on(self):
        job = self.start(2, "--", *train(comm__timeout=2), env={"FSDPTRAIN_BREAK_RANK": "1@3"})
        line = ""
        while "waits for a debugger before step 3: gdb -p " not in line:
            line = job.process.stderr.readline()
            self.assertTrue(line, "the job ended")
        pid = int(re.search(r"gdb -p (\d+)", line)[1])
        begin = time.monotonic()
        while time.monotonic() < begin + 6.5:
            time.sleep(0.1)
            self.assertIsNone(job.process.poll(), "the job did not wait")
        os.kill(pid, signal.SIGCONT)
        job.wait()
        self.assertIn("goes on: it was told to", job.err)
        self.check_ended(job, 0)

    def test_a_break_point_that_is_none_is_refused(self):
        for value, text in (("2", "the rank must be one of 0 to 1, got 2"), ("x", "must be RANK or RANK@STEP")):
            job = self.start(2, "--", *train(), env={"FSDPTRAIN_BREAK_RANK": value})
            self.check_ended(job, 1, text)

    def test_a_rank_that_is_slower_by_a_fifth_is_the_straggler(self):
        job = self.start(4, STRAGGLER)
        self.check_ended(job, 0)
        self.assertEqual(job.out, "[rank 0] straggler 2 of 4\n")

    def test_metrics_have_the_waits_of_all_processes(self):
        self.check_ended(self.start(3, "--", *train(run__dir="waits")), 0)
        lines = [json.loads(line) for line in (self.folder / "waits/metrics.jsonl").read_text().splitlines()]
        for line in (line for line in lines if "loss" in line):
            waits, waited_for = line["wait_seconds"], line["waited_for_seconds"]
            self.assertEqual((len(waits), len(waited_for)), (3, 3))
            self.assertEqual(waited_for[line["straggler"]], max(waited_for))

    def test_a_signal_to_the_launcher_ends_all_ranks_after_one_step_with_all_saved(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            run = f"run{int(number)}"
            job = self.start(2, "--", *endless(run__dir=run, log__every=1))
            job.wait_for_line("step")
            job.send(number)
            job.wait()
            record = json.loads((self.folder / run / "run.json").read_text())
            self.assertEqual((record["status"], record["exit_code"]), ("stopped", SAVED))
            self.assertTrue((self.folder / run / "weights.safetensors").exists())
            self.assertEqual([path.name for path in (self.folder / run / "checkpoints").glob("step-*")],
                             [f"step-{record['steps']:08}"])
            self.assertIn(f"stopped by signal {int(number)} after step", job.err)
            self.check_ended(job, SAVED)


if __name__ == "__main__":
    main()
