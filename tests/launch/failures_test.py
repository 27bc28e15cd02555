"""Jobs of ranks that meet in collectives, and of which some end; see launch_case.py."""

import os
import re
import struct
import sys
import time

from launch_case import WORKER, Job, LaunchTest, main, signal

# In which the others wait for a rank that ends then.
PLACES = {"start": None, "before": "all_reduce", "inside": "all_reduce", "after": "barrier",
          "exit": None}
SAID = {"kill": "was ended by signal 9 (SIGKILL)", "segv": "was ended by signal 11 (SIGSEGV)",
        "exit": "ended with exit code 1"}


def started(size, when, how, ranks, *seconds, options=(), env=None):
    return Job("--nproc-per-node", size, *options, "--", WORKER, when, how, ranks, *seconds,
               env=env)


class Failures(LaunchTest):
    def check_explained(self, job, rank, size, when):
        """The report names the rank, and the operation in which the others wait for it."""
        self.check(f"rank {rank} failed first" in job.err, job, "another rank is named")
        place = PLACES[when]
        if place is None or size == 1:
            return
        self.check("hang report: rings of" in job.err, job, "there is no hang report")
        sequence = {"before": 2, "inside": 2, "after": 3}[when]
        wanted = rf"{place} seq {sequence} of group '?world'? \(tag [^)]*"
        self.check(re.search(wanted, job.err), job, f"no '{wanted}'")
        self.check("nothing is overdue" not in job.err, job, "it reads like a job that goes on")
        self.check("\nculprit: " not in job.err, job, "a rank is blamed beside the one that failed")

    def test_all_is_well(self):
        def run(size):
            job = started(size, "never", "kill", "0")
            self.check_ended(job, 0)
            self.assertNotIn("launch:", job.err)
        self.each([(size,) for size in (1, 2, 3, 4)], run)

    def test_a_rank_that_ends_is_named_with_what_the_others_wait_in(self):
        def run(size, rank, when, how):
            job = self.check_ended(started(size, when, how, rank), 1, SAID[how], seconds=10)
            self.check_explained(job, rank, size, when)
        self.each([(size, rank, when, how) for size in (1, 2, 3, 4) for rank in range(size)
                   for when in PLACES for how in SAID if how == "kill" or rank in (0, size - 1)],
                  run)

    def test_a_rank_that_throws_is_named_with_its_own_words(self):
        def run(size, rank, when):
            job = started(size, when, "throw", rank)
            self.check_ended(job, 1, f"[rank {rank}] error: no more tokens", seconds=10)
            self.check_explained(job, rank, size, when)
        self.each([(size, rank, when) for size in (1, 2, 3, 4) for rank in {0, size - 1}
                   for when in PLACES], run)

    def test_the_others_are_told_wherever_they_wait(self):
        # They ignore SIGTERM: only what they are told ends them before SIGKILL.
        def run(when):
            job = Job("--nproc-per-node", 3, "--", "sh", "-c",
                      f"trap '' TERM; exec {WORKER} {when} kill 1")
            self.check_ended(job, 1, "then ranks 0, 2 ended with exit code 1", seconds=5)
            if when == "start":
                self.check(job.err.count("error: rank 1 failed: it was ended by signal 9 "
                                         "(SIGKILL)") == 2, job, "the others are not told")
        self.each([("start",), ("before",), ("inside",), ("after",)], run)

    def test_of_two_ranks_that_end_at_once_one_is_named(self):
        def run(size, how, ranks):
            job = self.check_ended(started(size, "inside", how, ranks), 1)
            self.check(re.search(rf"rank [{ranks}] failed first", job.err), job, "none is named")
        self.each([(size, how, ranks) for size in (3, 4) for how in SAID
                   for ranks in ("0,2", "1,2")], run)

    def test_a_rank_that_leaves_without_a_farewell_has_failed(self):
        def run(size, when, said):
            self.check_ended(started(size, when, "leave", size - 1), 1,
                             f"rank {size - 1} failed first", said, seconds=10)
        self.each([(size, when, "without a farewell") for size in (1, 2, 4)
                   for when in ("before", "inside", "after")] +
                  [(size, "start", "left early") for size in (2, 4)], run)

    def test_a_ring_that_its_rank_damages_ends_no_launcher(self):
        # Its header then is none, is of another rank, or says that there is more than there is.
        damages = [(0, b"garbage!"), (24, struct.pack("<iiQ", 1, 2, 7)), (16, b"\xff" * 100),
                   (0, b"\xff" * 4096)]

        def run(offset, damage):
            script = (f"import os, time; spec = os.environ['FSDPTRAIN_WORKER']\n"
                      f"ring = int(spec.split('flight=')[1].split()[0])\n"
                      f"if os.environ['RANK'] == '1': time.sleep(1000)\n"
                      f"os.pwrite(ring, {damage!r}, {offset}); print('ready', flush=True)\n"
                      f"time.sleep(2); os._exit(3)\n")
            job = Job("--nproc-per-node", 2, "--", sys.executable, "-c", script)
            job.wait_for_line("ready")
            job.send(signal.SIGUSR2)
            self.check_ended(job, 1, "rank 0 failed first", "it ended with exit code 3",
                             "so where they are is not known")
        self.each(damages, run)

    def test_a_rank_that_saves_while_others_wait_for_it_is_no_cause(self):
        # It has said that its state is saved; the others find that it is gone.
        job = started(2, "exit", "saved", "1")
        self.check_ended(job, 75)


class Hangs(LaunchTest):
    def test_a_rank_that_is_stopped_is_blamed_at_the_timeout(self):
        def run(size, rank, when):
            job = started(size, when, "stop", rank, 1)
            self.check_ended(job, 1, seconds=30)
            if when == "start":
                return
            self.check(f"culprit: rank {rank} " in job.err, job, "another rank is blamed")
            self.check(PLACES[when] in job.err, job, "the operation is not named")
        self.each([(size, rank, when) for size in (2, 3, 4) for rank in {0, size - 1}
                   for when in ("start", "before", "inside", "after")], run, at_once=12)

    def test_a_rank_that_is_stopped_when_nobody_waits_for_it_ends_with_the_job(self):
        def run(size, when):
            job = started(size, when, "stop", 0, options=("--shutdown-timeout", "0.5"))
            job.wait_for_line("ends at")
            time.sleep(0.5)
            job.send(signal.SIGTERM)
            self.check_ended(job, 143)
        self.each([(1, when) for when in PLACES] + [(2, "exit"), (4, "exit")], run)

    def test_a_rank_that_does_not_give_up_at_its_deadline_is_ended(self):
        # Rank 1 never comes; rank 0 waits for it, and is stopped there.
        job = started(2, "before", "sleep", 1, 1)
        job.wait_for_line("ends at")
        time.sleep(0.5)
        (pid,) = [pid for pid in job.pids_of(WORKER) if rank_of(pid) == "0"]
        os.kill(pid, signal.SIGSTOP)
        self.check_ended(job, 1, "rank 0 failed first", "has been in all_reduce seq 2 of group",
                         "with a deadline of 1 s, and does not give up", seconds=30)

    def test_SIGUSR2_says_where_all_ranks_are_and_ends_none(self):
        job = started(3, "before", "sleep", 1)
        job.wait_for_line("ends at")
        time.sleep(0.5)
        job.send(signal.SIGUSR2)
        lines = []
        while not any(line.startswith("group 'control'") for line in lines):
            lines.append(job.process.stderr.readline())
            self.assertTrue(lines[-1], lines)
        self.assertTrue(any(line.startswith("so far: rank 1 ") for line in lines), lines)
        self.assertRegex("".join(lines), r"nothing is overdue: the longest wait is [\d.]+ s, of 60 s at most\n")
        self.assertTrue(any("all_reduce seq 2" in line and "ranks 0, 2" in line
                            for line in lines), lines)
        job.send(signal.SIGINT)
        self.check_ended(job, 130)


class Kills(LaunchTest):
    def test_nothing_outlives_a_launcher_that_is_killed(self):
        def run(size, when):
            job = started(size, when, "sleep", 0)
            job.wait_for_line("ends at")
            job.send(signal.SIGKILL)
            job.wait_until(lambda: not job.processes(), "the end of all")
            self.check_ended(job, -signal.SIGKILL)
        self.each([(size, when) for size in (1, 2, 3, 4) for when in PLACES], run)

    def test_two_jobs_at_once_have_memory_of_their_own(self):
        jobs = [started(2, "inside", "kill", 1), started(2, "never", "kill", 1),
                started(3, "never", "kill", 1)]
        self.check_ended(jobs[0], 1, "rank 1 failed first")
        self.check_ended(jobs[1], 0)
        self.check_ended(jobs[2], 0)

    def test_a_signal_ends_ranks_within_a_collective(self):
        def run(size, number):
            job = started(size, "before", "sleep", size - 1)
            job.wait_for_line("ends at")
            job.send(number)
            self.check_ended(job, 128 + number)
        self.each([(size, number) for size in (1, 2, 3, 4)
                   for number in (signal.SIGINT, signal.SIGTERM)], run)


def rank_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        variables = dict(entry.split(b"=", 1) for entry in file.read().split(b"\0") if b"=" in entry)
    return variables[b"RANK"].decode()


if __name__ == "__main__":
    main()
