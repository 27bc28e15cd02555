"""How jobs of any programs start, are stopped and end; see launch_case.py."""

import contextlib
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time
import unittest

from launch_case import FSDPTRAIN, Job, LaunchTest, main, shell, signal

IGNORES_TERM = shell("trap '' TERM; echo ready; while :; do sleep 0.05; done")
WAITS = shell("echo ready; exec sleep 1000")


# Whatever group or session they are in.
OWN_GROUP = ("timeout 900 sleep 1000", "setsid sleep 1000",
             "setsid sh -c 'trap \"\" TERM INT; sleep 1000; true'")


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def unused_user():
    """Of whom nothing runs: not even processes that have ended and that nobody has waited for yet."""
    used = set()
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            used.add(folder.stat().st_uid)
        except OSError:
            pass
    return random.choice([user for user in range(20000, 60000) if user not in used])


def children_of(parent):
    """Their states, one letter each."""
    states = ""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            state, of = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        states += state if int(of) == parent else ""
    return states


class Start(LaunchTest):
    def test_ranks_have_their_environment_and_a_prefix(self):
        def run(size):
            job = Job("--nproc-per-node", size, "--", *shell(
                "echo out $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE; echo err $RANK >&2"))
            self.check_ended(job, 0)
            self.assertEqual(sorted(job.out.splitlines()),
                             [f"[rank {r}] out {r} {r} {size} {size}" for r in range(size)])
            self.assertEqual(sorted(job.err.splitlines()),
                             [f"[rank {r}] err {r}" for r in range(size)])
        self.each([(size,) for size in (1, 2, 3, 4)], run)

    def test_64_ranks_on_this_machine(self):
        job = Job("--nproc-per-node", 64, "--", *shell("echo $RANK"))
        self.check_ended(job, 0)
        self.assertEqual(len(job.out.splitlines()), 64)

    def test_a_program_that_cannot_be_started_is_exit_code_2_with_cause_and_cure(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "train.py"
            script.write_text("print(1)\n")
            broken = pathlib.Path(folder) / "broken"
            broken.write_text("#!/no/such/interpreter\n")
            broken.chmod(0o755)
            text = pathlib.Path(folder) / "text"
            text.write_text("no program\n")
            text.chmod(0o755)
            cases = [("nosuchprogram", "is in no folder of PATH; give its path"),
                     (f"{folder}/nosuch", "is not there"),
                     (script, "put the interpreter in front: python3"),
                     (folder, "may not be executed"),
                     (broken, "the interpreter of its first line is not"),
                     (text, "is no program of this machine")]

            def run(size, program, why):
                job = Job("--nproc-per-node", size, "--", program)
                self.check_ended(job, 2, why)
                # One line, and no report of a rank that never was.
                self.check(job.err.count("\n") == 1, job, "more is said")
            self.each([(size, *case) for size in (1, 4) for case in cases], run)

    def test_options_that_cannot_be_are_exit_code_2(self):
        cases = [(["--nproc-per-node", "0", "true"], "must be a number from 1 to 256"),
                 (["--nproc-per-node", "-1", "true"], "must be a number from 1 to 256"),
                 (["--nproc-per-node", "abc", "true"], "must be a number from 1 to 256"),
                 (["--nproc-per-node", "257", "true"], "must be a number from 1 to 256"),
                 (["--nnodes", "2", "true"], "--nnodes: not yet: one node, no restarts"),
                 (["--max_restarts=3", "true"], "--max-restarts: not yet: one node, no restarts"),
                 (["--rdzv_backend", "c10d", "true"], "--rdzv-backend: not yet"),
                 (["--rdzv-endpoint=h:1", "true"], "--rdzv-endpoint: not yet"),
                 (["-m", "module"], "put the interpreter in front: -- python3 -m MODULE"),
                 (["--tee", "true"], "--tee: there is no folder for the files"),
                 (["--tee", "7", "true"], "--tee"),
                 (["--unknown", "true"], "--unknown"),
                 ([], "no program was given"),
                 (["--"], "no program was given")]

        def run(arguments, why):
            self.check_ended(Job(*arguments), 2, why)
        self.each(cases, run)

    def test_torchruns_words_and_variables_are_understood(self):
        job = Job("--standalone", "--nnodes=1", "--max_restarts", "0", "--no_python",
                  "--monitor-interval", "1", *shell("echo $WORLD_SIZE"),
                  env={"PET_NPROC_PER_NODE": "2", "PET_NNODES": "1:1"})
        self.check_ended(job, 0)
        self.assertEqual(sorted(job.out.splitlines()), ["[rank 0] 2", "[rank 1] 2"])
        self.check_ended(Job("true", env={"PET_NNODES": "2"}), 2, "--nnodes: not yet")

    def test_our_commands_are_known_behind_a_mark(self):
        job = self.check_ended(Job("--nproc-per-node", "2", "--", "version"), 0)
        self.assertIn("[rank 1] fsdptrain", job.out)
        self.check_ended(Job("--", "train", "--no-such-option"), 1, "--no-such-option")

    def test_words_of_the_program_go_through(self):
        job = Job("--", "sh", "-c", 'printf "%s|" "$@"', "x", "[a,b]", "", "--", "--tee", "{}")
        self.check_ended(job, 0)
        self.assertEqual(job.out, "[rank 0] [a,b]||--|--tee|{}|\n")

    def test_descriptors_that_the_user_passes_go_through_to_each_rank(self):
        read, write = os.pipe()
        job = Job("--nproc-per-node", 2, "--", sys.executable, "-c",
                  f"import os; os.write({write}, os.environ['RANK'].encode())", pass_fds=(write,))
        os.close(write)
        self.check_ended(job, 0)
        self.assertEqual(sorted(os.read(read, 10)), sorted(b"01"))
        os.close(read)

    def test_too_few_descriptors_are_named_and_nothing_is_left(self):
        job = Job("--nproc-per-node", "64", "--", *WAITS,
                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)))
        self.check_ended(job, 1, "64 ranks need", "the limit is 100", "ulimit -n")
        # A limit that may be raised is.
        def run(*options):
            job = Job("--nproc-per-node", "64", *options, "--", "true",
                      preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 4000)))
            self.check_ended(job, 0)
        run()
        # Files need more.
        with tempfile.TemporaryDirectory() as folder:
            run("--log-dir", folder)

    @unittest.skipUnless(os.geteuid() == 0, "the limit of another user is lowered")
    def test_too_few_processes_are_named_and_nothing_is_left(self):
        # The launcher, its keeper, its thread and two ranks.
        def run(limit):
            user = unused_user()

            def lower():
                resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            job = Job("--nproc-per-node", 2, "--", "true", preexec_fn=lower)
            if limit < 5:
                self.check_ended(job, 1, "raise the limit of processes (ulimit -u)")
            else:
                self.check_ended(job, 0)
        self.each([(limit,) for limit in range(1, 6)], run, at_once=1)

    def test_ranks_hear_whether_they_are_bound_and_what_processors_all_have(self):
        all_processors = len(os.sched_getaffinity(0))
        cases = [(1, [], 0), (2, [], 1 if all_processors >= 2 else 0), (2, ["--bind", "none"], 0),
                 (all_processors + 1, [], 0)]
        for size, options, bound in cases:
            job = Job("--nproc-per-node", size, *options, "--", *shell("echo $FSDPTRAIN_WORKER"))
            self.check_ended(job, 0)
            said = [line.split()[-2:] for line in job.out.splitlines()]
            self.assertEqual(said, [[f"bound={bound}", f"processors={all_processors}"]] * size)

    def test_a_launcher_that_was_started_without_children_or_input(self):
        job = Job("--", *shell("cat; echo end"), stdin=subprocess.DEVNULL,
                  preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.check_ended(job, 0)
        self.assertEqual(job.out, "[rank 0] end\n")


class Ends(LaunchTest):
    def test_the_first_rank_that_fails_is_named_with_its_last_lines(self):
        def run(size, rank, how, said):
            job = Job("--nproc-per-node", size, "--", *shell(
                f"[ $RANK = {rank} ] || exec sleep 1000; echo last words; {how}"))
            self.check_ended(job, 1, f"rank {rank} failed first", f"it {said}", "  | last words")
        hows = [("exit 1", "ended with exit code 1"), ("kill -9 $$", "was ended by signal 9"),
                ("kill -SEGV $$", "was ended by signal 11 (SIGSEGV)"),
                ("kill -ABRT $$", "was ended by signal 6 (SIGABRT)"),
                ("exit 255", "ended with exit code 255")]
        self.each([(size, rank, *how) for size in (1, 2, 3, 4) for rank in {0, size - 1}
                   for how in hows], run)

    def test_of_two_ranks_that_fail_within_a_second_the_first_is_named(self):
        def run(first, second):
            # The second fails when it hears of the first.
            with tempfile.TemporaryDirectory() as folder:
                job = Job("--nproc-per-node", 3, "--", *shell(
                    f"[ $RANK = {second} ] && trap 'kill -9 $$' TERM && touch ready && "
                    "while :; do sleep 0.01; done; trap '' TERM; "
                    f"while [ ! -e ready ]; do sleep 0.01; done; [ $RANK = {first} ] && exit 3; "
                    "sleep 0.6"), cwd=folder)
                self.check_ended(job, 1, f"rank {first} failed first")
        self.each([(0, 1), (1, 0), (2, 0), (0, 2)], run)

    def test_the_exit_code_of_the_first_is_passed_on(self):
        for script, code in (("exit 85", 85), ("kill -9 $$", 137)):
            job = Job("--nproc-per-node", 2, "--propagate-exit-code", "--",
                      *shell(f"[ $RANK = 1 ] || exec sleep 1000; {script}"))
            self.check_ended(job, code, "rank 1 failed first")

    def test_a_rank_that_is_done_or_has_saved_is_waited_for(self):
        def run(early, late, code):
            job = Job("--nproc-per-node", 2, "--", *shell(
                f"[ $RANK = 0 ] && exit {early}; sleep 1; echo saved; exit {late}"))
            self.check_ended(job, code)
            self.assertEqual((job.out, job.err), ("[rank 1] saved\n", ""))
        self.each([(0, 0, 0), (75, 75, 75), (75, 0, 75), (0, 75, 75)], run)

    def test_what_a_rank_started_ends_with_the_job(self):
        def run(script, code):
            job = Job("--nproc-per-node", 2, "--", *shell(script))
            self.check_ended(job, code)
        self.each([("sleep 1000 & exit 0", 0), ("sleep 1000 & kill -9 $$", 1),
                   ("(trap '' TERM; sleep 1000) & sleep 0.2; exit 1", 1),
                   *((script, code) for start in OWN_GROUP for script, code in
                     ((f"{start} & sleep 0.2; exit 0", 0), (f"{start} & sleep 0.2; exit 1", 1)))],
                  run)

    def test_what_a_rank_started_ends_with_a_job_that_is_stopped(self):
        def run(start, number):
            job = Job("--nproc-per-node", 2, "--shutdown-timeout", "1", "--", *shell(
                f"{start} & echo ready; exec sleep 1001"))
            job.wait_for_line("ready", 2)
            job.wait_until(lambda: len(job.pids_of("sleep 1000")) >= 2, "the start of all")
            job.send(number)
            self.check_ended(job, 128 + number)
        self.each([(start, number) for start in OWN_GROUP
                   for number in (signal.SIGINT, signal.SIGTERM)], run)

    def test_what_the_shell_started_that_became_the_launcher_goes_on(self):
        script = f"sleep 1002 >/dev/null 2>&1 & echo $!; exec {FSDPTRAIN} launch -- true"
        run = subprocess.run(shell(script), stdout=subprocess.PIPE, timeout=60, check=False)
        before = int(run.stdout.split()[0])
        self.assertEqual(command_of(before), b"sleep\0" b"1002\0")
        os.kill(before, signal.SIGKILL)
        self.assertEqual(run.returncode, 0)

    def test_orphans_that_have_ended_are_waited_for_while_ranks_run(self):
        job = Job("--", *shell("for i in $(seq 100); do (sleep 0.01 &) ; done; echo ready; "
                               "exec sleep 1000"))
        job.wait_for_line("ready")
        job.wait_until(lambda: children_of(job.process.pid).count("Z") == 0 and
                       not job.pids_of("sleep 0.01"), "the end of all zombies")
        job.send(signal.SIGTERM)
        self.check_ended(job, 143)

    def test_nothing_outlives_a_launcher_that_is_killed(self):
        def run(size):
            job = Job("--nproc-per-node", size, "--", *shell(
                "trap '' TERM INT HUP; sleep 1000 & echo ready; while :; do sleep 1; done"))
            job.wait_for_line("ready", size)
            job.send(signal.SIGKILL)
            job.wait_until(lambda: not job.processes(), "the end of all")
            self.check_ended(job, -signal.SIGKILL)
        self.each([(size,) for size in (1, 2, 3, 4)], run)

    def test_nothing_that_ranks_started_outlives_a_launcher_that_is_killed(self):
        def run(start):
            job = Job("--nproc-per-node", 2, "--", *shell(
                f"{start} & ({start} &); echo ready; exec sleep 1001"))
            job.wait_for_line("ready", 2)
            job.wait_until(lambda: len(job.pids_of("sleep 1000")) >= 4, "the start of all")
            job.send(signal.SIGKILL)
            job.wait_until(lambda: not job.processes(), "the end of all")
            self.check_ended(job, -signal.SIGKILL)
        self.each([(start,) for start in OWN_GROUP], run)

    def test_a_keeper_that_is_stopped_holds_nobody_up(self):
        job = Job("--nproc-per-node", 2, "--", *WAITS)
        job.wait_for_line("ready", 2)
        os.kill(job.pids_of(" keeper ")[0], signal.SIGSTOP)
        job.send(signal.SIGTERM)
        self.check_ended(job, 143)

    def test_a_keeper_that_is_killed_is_replaced_and_that_is_said_once(self):
        job = Job("--nproc-per-node", 2, "--", *shell(f"{OWN_GROUP[0]} & {WAITS[2]}"))
        job.wait_for_line("ready", 2)
        for _ in range(2):
            (keeper,) = job.pids_of(" keeper ")
            os.kill(keeper, signal.SIGKILL)
            job.wait_until(lambda: job.pids_of(" keeper ") not in ([], [keeper]), "another keeper")
        job.send(signal.SIGKILL)
        job.wait_until(lambda: not job.processes(), "the end of all")
        self.check_ended(job, -signal.SIGKILL, "was ended by signal 9 (SIGKILL); another has its place")
        self.check(job.err.count("keeper") == 1, job, "it is said twice")

    def test_two_jobs_at_once_know_nothing_of_each_other(self):
        with tempfile.TemporaryDirectory() as folder:
            jobs = [Job("--nproc-per-node", 2, "--log-dir", folder, "--", *WAITS)
                    for _ in range(2)]
            for job in jobs:
                job.wait_for_line("ready", 2)
            os.kill(jobs[0].pids_of("sleep 1000")[0], signal.SIGKILL)
            self.check_ended(jobs[0], 1, "failed first")
            self.assertEqual(len(jobs[1].pids_of("sleep 1000")), 2)
            jobs[1].send(signal.SIGTERM)
            self.check_ended(jobs[1], 143)
            self.assertEqual(len(os.listdir(folder)), 2)


class Signals(LaunchTest):
    def test_a_signal_stops_the_job(self):
        def run(size, number):
            job = Job("--nproc-per-node", size, "--", *WAITS)
            job.wait_for_line("ready", size)
            job.send(number)
            self.check_ended(job, 128 + number, f"stopped by signal {int(number)}")
        self.each([(size, number) for size in (1, 2, 3, 4)
                   for number in (signal.SIGINT, signal.SIGTERM)] +
                  [(2, signal.SIGHUP), (2, signal.SIGQUIT)], run)

    def test_a_second_interrupt_ends_ranks_that_ignore_signals_at_once(self):
        def run(size):
            job = Job("--nproc-per-node", size, "--", *shell(
                "trap '' INT TERM; echo ready; while :; do sleep 0.05; done"))
            job.wait_for_line("ready", size)
            job.send(signal.SIGINT)
            time.sleep(0.2)
            self.assertIsNone(job.process.poll())
            job.send(signal.SIGINT)
            self.check_ended(job, 130, "signal 2 while the job ends: the ranks are killed",
                             seconds=10)
            self.check(job.err.count("waiting 30 s for the ranks") == 1, job, "what it waits for")
        self.each([(size,) for size in (1, 2, 4)], run)

    def test_ranks_that_ignore_SIGTERM_are_killed_after_the_shutdown_timeout(self):
        def run(size):
            job = Job("--nproc-per-node", size, "--shutdown-timeout", "0.7", "--", *IGNORES_TERM)
            job.wait_for_line("ready", size)
            begin = time.monotonic()
            job.send(signal.SIGTERM)
            time.sleep(0.1)
            job.send(signal.SIGTERM)
            ranks = "rank 0 had not ended and is" if size == 1 else \
                f"ranks 0-{size - 1} had not ended and are"
            self.check_ended(job, 143, f"{ranks} killed (SIGKILL)")
            self.assertGreater(time.monotonic() - begin, 0.7)
        self.each([(size,) for size in (1, 2, 4)], run)

    def test_a_rank_that_ignores_SIGTERM_is_killed_5_s_after_the_failure_of_another(self):
        with tempfile.TemporaryDirectory() as folder:
            job = Job("--nproc-per-node", 2, "--", *shell(
                "if [ $RANK = 0 ]; then trap '' TERM; touch ready; exec sleep 1000; fi; "
                "while [ ! -e ready ]; do sleep 0.01; done; exit 1"), cwd=folder)
            self.check_ended(job, 1, "rank 1 failed first", "then rank 0 was ended by signal 9")
        self.assertGreater(job.seconds, 5)

    def test_ranks_that_save_their_state_after_a_signal_make_it_75(self):
        job = Job("--nproc-per-node", 3, "--", *shell(
            "trap 'sleep 0.$RANK; echo saved; exit 75' TERM; echo ready; "
            "while :; do sleep 0.05; done"))
        job.wait_for_line("ready", 3)
        job.send(signal.SIGTERM)
        self.check_ended(job, 75)
        self.assertEqual(job.out.count("saved"), 3)

    def test_a_program_behind_a_shell_has_the_time_of_a_shutdown(self):
        # The shell dies of the signal at once; what it runs does not.
        script = "trap 'sleep 0.5; echo saved; exit 75' TERM; echo ready; while :; do sleep 0.05; done"
        job = Job("--nproc-per-node", 2, "--", *shell(f'sh -c "{script}"; true'))
        job.wait_for_line("ready", 2)
        job.send(signal.SIGTERM)
        self.check_ended(job, 143)
        self.assertEqual(job.out.count("saved"), 2)

    def test_a_signal_to_all_processes_is_no_failure(self):
        job = Job("--nproc-per-node", 3, "--", *WAITS)
        job.wait_for_line("ready", 3)
        for pid in job.pids_of("sleep 1000"):
            # The launcher may have ended it, for the end of another.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        job.send(signal.SIGTERM)
        self.check_ended(job, 143)

    def test_an_ignored_signal_stays_ignored_also_for_the_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            go = pathlib.Path(folder) / "go"
            os.mkfifo(go)
            job = Job("--", *shell("echo ready; read word <go; echo $word"), cwd=folder,
                      preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
            job.wait_for_line("ready")
            job.send(signal.SIGHUP)
            (rank,) = job.pids_of("sh -c")
            os.kill(rank, signal.SIGHUP)
            go.write_text("done\n")
            self.check_ended(job, 0)
        self.assertIn("done", job.out)

    def test_SIGUSR1_goes_through_and_SIGUSR2_ends_nothing(self):
        job = Job("--nproc-per-node", 2, "--", *shell(
            "trap 'echo got it; exit 0' USR1; echo ready; while :; do sleep 0.05; done"))
        job.wait_for_line("ready", 2)
        job.send(signal.SIGUSR2)
        job.send(signal.SIGUSR1)
        self.check_ended(job, 0, "no rank has joined the job, so where they are is not known")
        self.assertEqual(job.out.count("got it"), 2)


if __name__ == "__main__":
    main()
