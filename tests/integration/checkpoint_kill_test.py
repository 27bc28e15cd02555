"""Jobs of two processes that are killed at random moments, and go on by the same command.

Usage: checkpoint_kill_test.py FSDPTRAIN SOURCE_DIR
FSDPTRAIN_KILL_ROUNDS in the environment: how many kills (default: 30).
FSDPTRAIN_KILL_SEED: what moments and victims are drawn from (default: a new one, which is printed).
"""

import os
import pathlib
import random
import re
import secrets
import signal
import subprocess
import threading
import time

from cli_case import DONE, FSDPTRAIN, main
from train_case import COURSE, TEXT, TrainTest

ROUNDS = int(os.environ.get("FSDPTRAIN_KILL_ROUNDS", "30"))
SEED = os.environ.get("FSDPTRAIN_KILL_SEED") or secrets.token_hex(4)

STEPS = 40
ARGUMENTS = [*COURSE, "--set", f"train.steps={STEPS}"]
MODES = {"async": ["--set", "checkpoint.every=2"],
         "sync": ["--set", "checkpoint.every=1", "--set", "checkpoint.async=false"]}
# Then the run may come to its end, and another begins.
KILLS_OF_ONE_RUN = 6
SECONDS_TO_HANG = 60


class Moment:
    """When to kill, and whom: a time behind the start, or behind lines that hold a text."""

    def __init__(self, draw):
        kind = draw.choice(["start", "steps", "steps", "steps", "exit"])
        self.text, self.lines = {"start": ("", 0), "steps": ("  checkpoint in ", draw.randint(1, 12)),
                                 "exit": (f"/step-{STEPS:08}", 1)}[kind]
        self.seconds = draw.uniform(0, {"start": 0.4, "steps": 0.1, "exit": 0.03}[kind])
        self.victim = draw.choice(["rank 0", "rank 1", "launcher", "all"])

    def __str__(self):
        where = f"{self.lines} lines with '{self.text.strip()}'" if self.lines else "the start"
        return f"{self.victim}, {1000 * self.seconds:.0f} ms behind {where}"


class Job:
    """A launcher with its ranks, the only processes that work in that folder."""

    def __init__(self, folder, arguments):
        self.folder = folder
        self.process = subprocess.Popen(
            [FSDPTRAIN, "launch", "--nproc-per-node", "2", "--", FSDPTRAIN, "train", *arguments], cwd=folder,
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.lines, self.errors = [], []
        self.changed, self.ended = threading.Condition(), False
        self.readers = [threading.Thread(target=self.read, args=pipe, daemon=True) for pipe in
                        ((self.process.stdout, self.lines), (self.process.stderr, self.errors))]
        for reader in self.readers:
            reader.start()

    def read(self, pipe, lines):
        for line in pipe:
            with self.changed:
                lines.append(line)
                self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def wait_for(self, text, number):
        """Until so many lines hold it, or the job has ended: whether that came to be in time."""
        with self.changed:
            return self.changed.wait_for(lambda: self.ended or sum(text in line for line in self.lines) >= number,
                                  SECONDS_TO_HANG)

    def pids(self):
        """Of all that work in the folder, the launcher too, and are no zombies."""
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(process / "cwd") == str(self.folder):
                    found.append(int(process.name))
            except OSError:
                pass
        return sorted(found)

    def ranks(self):
        """The process of each, as far as it has begun."""
        found = {}
        for pid in self.pids():
            try:
                environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            found.update({rank: pid for rank in (0, 1) if f"RANK={rank}".encode() in environment})
        return found

    def kill(self, victim):
        """Whether the job was still there. Of one without that rank, the launcher."""
        launcher, ranks = self.process.pid, self.ranks()
        pids = {"launcher": [launcher], "all": [launcher, *(pid for pid in self.pids() if pid != launcher)],
                "rank 0": [ranks.get(0, launcher)], "rank 1": [ranks.get(1, launcher)]}[victim]
        if self.process.poll() is not None:
            return False
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return True

    def wait(self):
        self.process.wait(SECONDS_TO_HANG)
        for reader in self.readers:
            reader.join(SECONDS_TO_HANG)
        end = time.monotonic() + SECONDS_TO_HANG
        while self.pids() and time.monotonic() < end:
            time.sleep(0.01)
        for pipe in (self.process.stdout, self.process.stderr):
            pipe.close()
        return self.process.returncode

    def output(self):
        return "".join(self.lines), "".join(self.errors)


class Kill(TrainTest):
    # Of runs: the newest checkpoint that an attempt has said to be there.
    said = 0

    def newest(self, run):
        """The step of the last committed checkpoint, by its name; none where there is none."""
        names = self.checkpoints(run)
        return int(names[-1][len("step-"):]) if names else None

    def check_attempt(self, job, before):
        """What an attempt says of the one before it, killed or not: it went on with the newest."""
        output, errors = job.output()
        for text in ("a sign of life", "is in use", "not taken", "damaged"):
            self.assertNotIn(text, output + errors)
        chosen = re.search(r"goes on from run\w*/checkpoints/step-(\d+)", output)
        if chosen:
            self.assertEqual(int(chosen[1]), before)
        if "begins anew" in output:
            self.assertIsNone(before)
        self.assertEqual(job.pids(), [], "processes are left")

    def check_committed(self, run, job):
        said = [int(step) for step in re.findall(r"checkpoint in run\w*/checkpoints/step-(\d+)", job.output()[0])]
        self.said = max([self.said, *said])
        newest = self.newest(run)
        self.assertGreaterEqual(newest or 0, self.said, "a checkpoint that was there is lost")
        if newest is not None:
            self.check_done("checkpoint", "verify", run)

    def start(self, arguments):
        job = Job(self.folder, arguments)
        self.addCleanup(job.kill, "all")
        return job

    def attempt(self, run, arguments, moment=None):
        """The exit code of one, which is killed if there is a moment, and whether it was."""
        before = self.newest(run)
        job = self.start(arguments)
        is_killed = False
        if moment:
            self.assertTrue(job.wait_for(moment.text, moment.lines), f"it hangs: {job.output()}")
            time.sleep(moment.seconds)
            is_killed = job.kill(moment.victim)
        code = job.wait()
        self.check_attempt(job, before)
        self.check_committed(run, job)
        if not is_killed:
            self.assertEqual((code, job.output()[1]), (DONE, ""))
        return is_killed and code != DONE, code == DONE

    def check_end(self, run):
        """As if nobody had been killed, and nothing is left of those that were."""
        self.check_same(run, "whole")
        for leftovers in (".staging", ".trash"):
            folder = self.folder / run / "checkpoints" / leftovers
            self.assertEqual(list(folder.iterdir()) if folder.exists() else [], [])

    def one_run(self, number, draw, kills_left):
        """Kills a run until it has had enough of it; how often."""
        run = f"run{number}"
        mode = list(MODES)[number % len(MODES)]
        arguments = [*ARGUMENTS, *MODES[mode], "--set", f"run.dir={run}"]
        kills, is_done, self.said = 0, False, 0
        while not is_done and kills < min(KILLS_OF_ONE_RUN, kills_left):
            moment = Moment(draw)
            print(f"{run} {mode}: {moment}", end=": ", flush=True)
            is_killed, is_done = self.attempt(run, arguments, moment)
            kills += is_killed
            print(f"{'killed' if is_killed else 'had ended'}, newest checkpoint: {self.newest(run)}", flush=True)
        self.attempt(run, arguments)
        self.check_end(run)
        return kills

    def test_whoever_is_killed_whenever_the_same_command_goes_on_to_the_same_weights(self):
        print(f"again: FSDPTRAIN_KILL_SEED={SEED} FSDPTRAIN_KILL_ROUNDS={ROUNDS} ctest -R integration/checkpoint_kill",
              flush=True)
        draw = random.Random(SEED)
        self.prepare(TEXT)
        whole = self.start([*ARGUMENTS, "--set", "run.dir=whole"])
        self.assertEqual(whole.wait(), DONE, whole.output())
        kills, number = 0, 0
        while kills < ROUNDS:
            kills += self.one_run(number, draw, ROUNDS - kills)
            number += 1
        print(f"{kills} kills of {number} runs", flush=True)


if __name__ == "__main__":
    main()
