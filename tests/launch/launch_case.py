"""What the tests of the launcher share: a job, and that nothing of it is left.

Usage of each: TEST.py FSDPTRAIN WORKER
FSDPTRAIN_LAUNCH_ROUNDS in the environment: how often all of it runs (default: once).
"""

import concurrent.futures
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

FSDPTRAIN, WORKER = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:3])
ROUNDS = int(os.environ.get("FSDPTRAIN_LAUNCH_ROUNDS", "1"))

# Far beyond what anything takes that does not hang.
SECONDS_TO_HANG = 60
# The same of programs of others, which need many seconds of a busy machine to begin and to end.
SECONDS_OF_OTHERS = 300

MARK = "FSDPTRAIN_TEST_MARK"


def shell(script):
    return ["sh", "-c", script]


class Job:
    """A launcher that runs, marked in the environment of all that comes of it."""

    def __init__(self, *arguments, env=None, launcher=(FSDPTRAIN, "launch"), **options):
        self.mark = uuid.uuid4().hex
        self.folder = tempfile.TemporaryDirectory(prefix="fsdptrain-launch-")
        self.begin = time.monotonic()
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        environment = {**os.environ, "TMPDIR": self.folder.name, MARK: self.mark, **(env or {})}
        self.process = subprocess.Popen([*map(str, launcher), *map(str, arguments)],
                                        env=environment, text=True, errors="replace", **options)
        self.code, self.out, self.err = None, "", ""

    def wait(self, seconds=SECONDS_TO_HANG):
        """Until it has ended: the exit code, and all that it printed."""
        try:
            self.out, self.err = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.out, self.err = self.process.communicate()
            raise AssertionError(f"the launcher hangs\n{self}") from None
        self.code = self.process.returncode
        self.seconds = time.monotonic() - self.begin
        return self

    def processes(self):
        """(pid, command line) of all that carry the mark and are no zombies."""
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if f"{MARK}={self.mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append((int(folder.name),
                                  (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()))
            except (OSError, ValueError):
                pass
        return found

    def pids_of(self, text):
        return sorted(pid for pid, command in self.processes()
                      if text in command and pid != self.process.pid)

    def wait_for_line(self, text, times=1):
        """Until standard output has had lines with this text, however long that takes."""
        while times > 0:
            line = self.process.stdout.readline()
            if not line:
                raise AssertionError(f"the job ended before '{text}'\n{self.process.stderr.read()}")
            times -= text in line

    def wait_until(self, condition, what):
        end = time.monotonic() + SECONDS_TO_HANG
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"not in time: {what}\n{self}")
            time.sleep(0.01)

    def send(self, number):
        self.process.send_signal(number)

    def __str__(self):
        return (f"{' '.join(map(str, self.process.args))}\nexit code {self.code}\n--- stdout\n"
                f"{self.out}--- stderr\n{self.err}---")


class LaunchTest(unittest.TestCase):
    def setUp(self):
        self.shared_before = set(os.listdir("/dev/shm"))

    def check(self, condition, job, what):
        if not condition:
            self.fail(f"{what}\n{job}")

    def check_nothing_left(self, job):
        # Whoever was killed may take a moment to go.
        job.wait_until(lambda: not job.processes(), f"the end of all processes: {job.processes()}")
        self.assertEqual(os.listdir(job.folder.name), [], str(job))
        job.folder.cleanup()

    def check_ended(self, job, code, *texts, seconds=20):
        """It has this exit code, says all of this on standard error, and leaves nothing."""
        if job.code is None:
            job.wait(max(seconds, SECONDS_TO_HANG))
        self.check(job.code == code, job, f"the exit code is {job.code}, wanted {code}")
        for text in texts:
            self.check(text in job.err, job, f"'{text}' is not said")
        self.check(job.seconds < seconds, job, f"it took {job.seconds:.1f} s")
        self.check_nothing_left(job)
        return job

    def each(self, scenarios, test, at_once=3):
        """test(*scenario) for each, several at once; all failures."""
        failures = []
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            runs = [(scenario, pool.submit(test, *scenario)) for scenario in scenarios]
            for scenario, run in runs:
                try:
                    run.result()
                except AssertionError as error:
                    failures.append(f"{scenario}: {error}")
        if failures:
            self.fail(f"{len(failures)} of {len(runs)} failed:\n" + "\n".join(failures[:3]))
        self.assertEqual(set(os.listdir("/dev/shm")), self.shared_before)


def main():
    for _ in range(ROUNDS):
        run = unittest.main(argv=sys.argv[:1], verbosity=2, exit=False)
        if not run.result.wasSuccessful():
            sys.exit(1)


__all__ = ["FSDPTRAIN", "SECONDS_OF_OTHERS", "WORKER", "Job", "LaunchTest", "main", "shell", "signal"]
