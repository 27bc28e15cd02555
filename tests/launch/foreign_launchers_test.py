"""Training under launchers of others: torchrun, and mpirun of Open MPI.

Usage: foreign_launchers_test.py FSDPTRAIN WORKER
FSDPTRAIN_PYTORCH in the environment: a Python that has PyTorch, with torchrun beside it. Without it all is
skipped, and so is what needs a launcher that is not there.
"""

import json
import os
import pathlib
import re
import shutil
import sys
import unittest

from launch_case import FSDPTRAIN, SECONDS_OF_OTHERS, Job, main, shell, signal
from train_case import TrainCase, endless, tensors, train

PYTHON = os.environ.get("FSDPTRAIN_PYTORCH", "")
TORCHRUN = shutil.which(str(pathlib.Path(PYTHON).with_name("torchrun"))) if PYTHON else None
MPIRUN = shutil.which("mpirun")
AS_ROOT = ["--allow-run-as-root"] if os.geteuid() == 0 else []
# To end after a signal. mpirun waits for as long before it sends one, too.
SECONDS_TO_STOP = 30


def environment_of(pid):
    environ = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(entry.split("=", 1) for entry in environ if "=" in entry)


class Foreign:
    """What holds under each; a class below names `launcher`, `said` and `rank_variable`."""

    def start(self, num_ranks, *arguments):
        # Ranks meet in the job's own folder for temporary files.
        job = Job(num_ranks, *arguments, launcher=self.launcher, cwd=self.folder, env={"XDG_RUNTIME_DIR": ""})
        self.addCleanup(job.process.kill)
        return job

    def check_all_ended(self, job):
        job.wait_until(lambda: not job.processes(), f"the end of all processes: {job.processes()}")
        # What else the launcher leaves there is its own affair.
        self.assertEqual(list(pathlib.Path(job.folder.name).glob("fsdptrain-*")), [])
        job.folder.cleanup()

    def pid_of(self, job, rank):
        for pid, _ in job.processes():
            try:
                if (os.readlink(f"/proc/{pid}/exe") == FSDPTRAIN
                        and environment_of(pid).get(self.rank_variable) == str(rank)):
                    return pid
            except OSError:
                pass
        raise AssertionError(f"there is no rank {rank}\n{job}")

    def test_ranks_train_the_bits_of_threads_and_say_who_started_them(self):
        for size in (1, 3):
            job = self.start(size, FSDPTRAIN, *train(run__dir=f"run{size}")).wait(SECONDS_OF_OTHERS)
            self.check(job.code == 0, job, f"the exit code is {job.code}")
            said = f"fsdptrain: rank 0 of {size}, by {self.said}\n"
            # On a busy machine ranks may have waited for each other.
            num_others = job.err.count("fsdptrain: ") - job.err.count(": waiting for rank")
            self.check(num_others == job.err.count(said) == 1, job, f"no '{said}'")
            self.check_all_ended(job)
            self.run_cli(*train(run__dir=f"threads{size}"), "--threads-as-ranks", size)
            self.assertEqual(*[tensors(self.folder / f"{run}{size}/weights.safetensors") for run in ("run", "threads")])

    def test_a_rank_that_is_killed_ends_all_and_is_named(self):
        job = self.start(3, FSDPTRAIN, *endless(run__dir="killed"))
        job.wait_for_line("step")
        os.kill(self.pid_of(job, 1), signal.SIGKILL)
        job.wait(SECONDS_OF_OTHERS)
        self.check(job.code != 0, job, "the launcher says that all is well")
        # Behind the layer, where it was in one.
        named = re.search(r"fsdptrain: (\S+: )?(rank \d failed: )?rank 1 (died|failed)", job.err)
        self.check(named, job, "rank 1 is not named")
        self.check_all_ended(job)

    def test_a_rank_that_ends_before_it_has_joined_ends_all(self):
        job = self.start(3, *shell(f'[ "${self.rank_variable}" = 1 ] && exit 3; exec "$0" "$@"'),
                         FSDPTRAIN, *endless(run__dir="early"))
        job.wait(SECONDS_OF_OTHERS)
        self.check(job.code != 0, job, "the launcher says that all is well")
        self.check_all_ended(job)

    def test_a_signal_to_the_launcher_leaves_the_weights(self):
        def run(number):
            # mpirun reads nothing while it waits: who prints much would wait for it.
            job = self.start(2, FSDPTRAIN, *endless(run__dir=number.name, log__every=1000000))
            job.wait_for_line("step")
            job.send(number)
            job.wait(SECONDS_OF_OTHERS)
            folder = self.folder / number.name
            record = json.loads((folder / "run.json").read_text())
            self.check(record["status"] == "stopped", job, f"the run is {record['status']}")
            self.check((folder / "weights.safetensors").exists(), job, "the weights are not written")
            self.check_all_ended(job)
        self.each([(signal.SIGTERM,), (signal.SIGINT,)], run)


@unittest.skipUnless(TORCHRUN, "there is no torchrun")
class Torchrun(Foreign, TrainCase):
    launcher = (TORCHRUN, "--no-python", "--shutdown-timeout", SECONDS_TO_STOP, "--nproc-per-node")
    said = "torchrun (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE)"
    rank_variable = "RANK"


@unittest.skipUnless(MPIRUN, "there is no mpirun")
class OpenMpi(Foreign, TrainCase):
    launcher = (MPIRUN, *AS_ROOT, "--oversubscribe", "--mca", "odls_base_sigkill_timeout", SECONDS_TO_STOP, "-n")
    said = ("Open MPI (OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK, "
            "OMPI_COMM_WORLD_LOCAL_SIZE)")
    rank_variable = "OMPI_COMM_WORLD_RANK"


if __name__ == "__main__":
    if not PYTHON:
        print("FSDPTRAIN_PYTORCH is not set: skipped")
        sys.exit(77)
    main()
