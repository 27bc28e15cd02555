"""A script that was written for torchrun, under our launcher.

Usage: pytorch_test.py FSDPTRAIN WORKER
FSDPTRAIN_PYTORCH in the environment: a Python that has PyTorch; without it the test is skipped.
"""

import os
import pathlib
import sys
import tempfile

from launch_case import SECONDS_OF_OTHERS, Job, LaunchTest, main

SCRIPT = str(pathlib.Path(__file__).with_name("pytorch_worker.py"))
PYTHON = os.environ.get("FSDPTRAIN_PYTORCH", "")


class PyTorch(LaunchTest):
    def test_a_script_for_torchrun_trains(self):
        for size in (1, 2, 4):
            with tempfile.TemporaryDirectory() as folder:
                # What PyTorch leaves in the folder for temporary files is its own affair.
                job = Job("--nproc-per-node", size, "--", PYTHON, SCRIPT,
                          env={"TORCHINDUCTOR_CACHE_DIR": folder})
                self.check_ended(job, 0, seconds=SECONDS_OF_OTHERS)
            self.assertIn(f"learned [1.0, -2.0, 3.0, 0.5] with {size}", job.out)

    def test_a_rank_that_fails_is_named_and_the_others_do_not_wait(self):
        # The others are in a collective of PyTorch's, which would wait for half an hour.
        script = ("import os, sys, torch, torch.distributed as dist\n"
                  "dist.init_process_group('gloo')\n"
                  "if dist.get_rank() == 1: raise ValueError('no such luck')\n"
                  "dist.all_reduce(torch.ones(1))\n")
        job = Job("--nproc-per-node", 3, "--", PYTHON, "-c", script)
        self.check_ended(job, 1, "rank 1 ", "ValueError: no such luck", seconds=SECONDS_OF_OTHERS)


if __name__ == "__main__":
    if not PYTHON:
        print("FSDPTRAIN_PYTORCH is not set: skipped")
        sys.exit(77)
    main()
