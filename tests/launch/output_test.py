"""What ranks print: lines, files, terminals, and readers that are gone; see launch_case.py."""

import fcntl
import os
import pathlib
import pty
import resource
import struct
import subprocess
import tempfile
import termios
import threading
import time

from launch_case import FSDPTRAIN, Job, LaunchTest, main, shell, signal


def read_all(terminal):
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:  # the end of a terminal
        pass


class Output(LaunchTest):
    def files(self, folder):
        (job,) = pathlib.Path(folder).iterdir()
        return {str(path.relative_to(job)): path.read_bytes()
                for path in job.rglob("*") if path.is_file()}

    def test_partial_lines_long_lines_and_bytes_come_through(self):
        job = Job("--", *shell("printf partial; printf 'bin\\000\\377\\n' >&2; "
                               "head -c 100000 /dev/zero | tr '\\0' x; echo; printf end"))
        self.check_ended(job, 0)
        text = "".join(line.removeprefix("[rank 0] ") for line in job.out.splitlines())
        self.assertEqual(text, "partial" + "x" * 100000 + "end")
        self.assertEqual(job.err, "[rank 0] bin\0\ufffd\n")

    def test_much_output_of_several_ranks_is_whole(self):
        job = Job("--nproc-per-node", 3, "--", *shell("seq 1 100000"))
        self.check_ended(job, 0)
        for rank in range(3):
            mine = [line.removeprefix(f"[rank {rank}] ") for line in job.out.splitlines()
                    if line.startswith(f"[rank {rank}]")]
            self.check(mine == [str(i) for i in range(1, 100001)], rank, "lines are lost")

    def test_logs_are_the_bytes_and_go_where_they_are_sent(self):
        cases = [([], True, {"rank-0.out": b"o0", "rank-0.err": b"e0", "rank-1.out": b"o1",
                             "rank-1.err": b"e1"}),
                 (["--redirect"], False, {"rank-0.out": b"o0", "rank-0.err": b"e0",
                                          "rank-1.out": b"o1", "rank-1.err": b"e1"}),
                 (["-t", "1"], True, {"rank-0.out": b"o0", "rank-1.out": b"o1"}),
                 (["-r", "1:1"], None, {"rank-1.out": b"o1"})]
        for options, is_shown, files in cases:
            with self.subTest(options), tempfile.TemporaryDirectory() as folder:
                job = Job("--nproc-per-node", 2, "--log-dir", folder, *options, "--",
                          *shell("printf o$RANK; printf e$RANK >&2"))
                self.check_ended(job, 0)
                self.assertEqual(self.files(folder), files)
                if is_shown is not None:
                    self.assertEqual("o0" in job.out, is_shown)

    def test_a_failure_leaves_report_and_rings_in_the_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            job = Job("--nproc-per-node", 2, "--log-dir", folder, "--", *shell("exit $RANK"))
            self.check_ended(job, 1)
            files = self.files(folder)
            self.assertIn(b"rank 1 failed first", files["report.txt"])
            for rank in range(2):
                self.assertTrue(files[f"flight/rank-{rank}.ring"].startswith(b"FSDPFLT1"))

    def test_a_folder_that_cannot_be_written_is_exit_code_2_before_any_rank(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "file"
            file.write_text("")
            for path in (file, file / "logs", "/proc/logs"):
                job = Job("--nproc-per-node", 2, "--log-dir", path, "--", *shell(
                    f"echo started > {folder}/started"))
                self.check_ended(job, 2, str(path))
                self.assertFalse((pathlib.Path(folder) / "started").exists())

    def test_a_job_whose_name_is_taken_has_a_folder_of_its_own(self):
        with tempfile.TemporaryDirectory() as folder:
            def take():
                for later in range(5):
                    name = time.strftime("%Y%m%d-%H%M%S", time.localtime(time.time() + later))
                    taken = pathlib.Path(folder) / f"{name}-{os.getpid()}"
                    taken.mkdir()
                    (taken / "rank-0.out").write_text("of another")
            job = Job("--log-dir", folder, "--", *shell("echo $TORCHELASTIC_RUN_ID"),
                      preexec_fn=take)
            self.check_ended(job, 0)
            name = job.out.split()[-1]
            self.assertTrue(name.endswith("-2"), name)
            self.assertEqual((pathlib.Path(folder) / name / "rank-0.out").read_text(), name + "\n")

    def test_limits_of_the_shell_are_named_with_their_cure(self):
        for limit, option in ((resource.RLIMIT_AS, "ulimit -v"),
                              (resource.RLIMIT_FSIZE, "ulimit -f")):
            def lower(limit=limit):
                resource.setrlimit(limit, (400_000_000, 400_000_000))
            job = Job("--nproc-per-node", 2, "--", "true", preexec_fn=lower)
            self.check_ended(job, 1, f"raise it ({option})")
            self.assertNotIn("micro_batch", job.err)

    def test_only_ranks_that_are_asked_for_are_shown(self):
        job = Job("--nproc-per-node", 3, "--local-ranks-filter", "0,2", "--", *shell("echo x"))
        self.check_ended(job, 0)
        self.assertEqual(sorted(job.out.splitlines()), ["[rank 0] x", "[rank 2] x"])

    def test_standard_output_that_is_gone_does_not_end_the_job(self):
        with tempfile.TemporaryDirectory() as folder:
            done = pathlib.Path(folder) / "done"
            work = shell(f"echo some; sleep 0.3; echo more; sleep 0.3; touch {done}")
            with open("/dev/full", "w", encoding="ascii") as full:
                for name, options in (
                        ("full", {"stdout": full}),
                        ("closed", {"preexec_fn": lambda: os.close(1), "stdout": None})):
                    with self.subTest(name):
                        job = Job("--", *work, **options)
                        self.check_ended(job, 1, "standard output takes nothing more")
                        self.check(job.err.count("nothing more") == 1, job, "it is said twice")
                        self.assertTrue(done.exists())
                        done.unlink()
            read, write = os.pipe()
            job = Job("--", *work, stdout=write)
            os.close(write)
            os.read(read, 1)
            os.close(read)
            self.check_ended(job, 1, "standard output takes nothing more: Broken pipe")
            self.assertTrue(done.exists())

    def test_a_failure_is_noticed_while_nobody_reads_the_output(self):
        read, write = os.pipe()
        job = Job("--nproc-per-node", 2, "--", *shell(
            "[ $RANK = 0 ] && exec seq 1 10000000; sleep 0.5; exit 3"), stdout=write)
        os.close(write)
        job.wait_until(lambda: job.pids_of("seq"), "the start of rank 0")
        job.wait_until(lambda: not job.pids_of("seq"), "the end of rank 0")
        reader = threading.Thread(target=lambda: [None for _ in iter(lambda: os.read(read, 65536),
                                                                     b"")])
        reader.start()
        self.check_ended(job, 1, "rank 1 failed first")
        reader.join()
        os.close(read)

    def test_a_failure_and_signals_are_noticed_while_nobody_reads_the_terminal(self):
        def run(script, number, said):
            terminal, end = pty.openpty()
            job = Job("--nproc-per-node", 2, "--", *shell(
                f"[ $RANK = 0 ] && exec yes 'line with some text'; sleep 1; {script}"), stdout=end)
            os.close(end)
            job.wait_until(lambda: job.pids_of("yes"), "the start of rank 0")
            if number:
                job.wait_until(lambda: job.pids_of("sleep 1000"), "the start of rank 1")
                job.send(number)
            job.wait_until(lambda: not job.pids_of("yes"), "the end of rank 0")
            reader = threading.Thread(target=read_all, args=(terminal,))
            reader.start()
            self.check_ended(job, 128 + number if number else 1, said)
            reader.join()
            os.close(terminal)
        self.each([("exit 3", 0, "rank 1 failed first"),
                   ("exec sleep 1000", signal.SIGTERM, "stopped by signal 15")], run)

    def test_progress_of_rank_0_stays_below_the_lines_on_a_terminal(self):
        terminal, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        job = Job("--nproc-per-node", 2, "--", *shell(
            'echo "columns $FSDPTRAIN_TERMINAL"; [ $RANK = 0 ] && printf "\\r10 %%\\033[K" >&2; '
            'sleep 0.3; echo line $RANK; sleep 0.3'), stdout=end, stderr=end)
        os.close(end)
        seen = b""
        try:
            while part := os.read(terminal, 65536):
                seen += part
        except OSError:  # the end of a terminal
            pass
        os.close(terminal)
        self.check_ended(job, 0)
        text = seen.decode()
        self.assertIn("[rank 0] columns 80\r\n", text)
        self.assertIn("[rank 1] columns \r\n", text)
        # Shown, erased before each line, and shown again; at the end it is gone.
        for rank in range(2):
            self.assertIn(f"10 %\r\x1b[K[rank {rank}] line {rank}\r\n10 %", text)
        self.assertTrue(text.endswith("\r\x1b[K"), repr(text))

    def test_a_full_disk_for_logs_is_said_once_and_becomes_exit_code_1(self):
        with tempfile.TemporaryDirectory() as folder:
            script = (f"mount -t tmpfs -o size=64k tmpfs {folder} || exit 77; {FSDPTRAIN} launch "
                      f"--nproc-per-node 2 --log-dir {folder} --redirect -- seq 1 100000")
            namespace = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
            result = subprocess.run([*namespace, "sh", "-c", script], capture_output=True, text=True,
                                    timeout=60, check=False)
            if result.returncode == 77 or result.stderr.startswith("unshare:"):
                self.skipTest("this user may not mount a small file system")
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertEqual(result.stderr.count("the job goes on"), 1, result.stderr)


if __name__ == "__main__":
    main()
