"""tools/gpu_check against fake commands: no build, no GPU."""

import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

FSDPTRAIN = r"""#!/bin/sh
echo "$*" >>"$FAKE_LOG"
case "$1" in
  version) echo "commit    0123456789ab"
           echo "libraries fmt 9.1.0, CUDA 13.0 (running 13.1), CUDA driver 13.1, NCCL 2.28.9" ;;
  train) echo "starting" >&2; echo "fsdptrain: $FAKE_TRAIN" >&2; exit 1 ;;
esac
"""

CMAKE = r"""#!/bin/sh
echo "cmake $*" >>"$FAKE_LOG"
[ "$1" = --preset ] && exit 0
[ "$FAKE_BUILD" = ok ] || { echo "x.cu(3): error: expected a declaration"; exit 1; }
mkdir -p build/cuda && cp "$FAKE_FSDPTRAIN" build/cuda/fsdptrain
"""

CTEST = r"""#!/bin/sh
for last; do :; done
cp "$FAKE_TESTS" "$last"
"""

SKIPPED = "<system-out>SKIPPED, nothing was tested: %s\n</system-out>"
CASE = '<testcase name="%s" time="0.25" status="%s">%s</testcase>'
STREAMS = CASE % ("streams", "run", "<system-out>fine</system-out>")
NO_GPU = CASE % ("without a GPU", "notrun", SKIPPED % "this machine has a CUDA device")


class GpuCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name) / "checkout"
        self.bin = pathlib.Path(folder.name) / "bin"
        self.log = pathlib.Path(folder.name) / "log"
        self.tests = pathlib.Path(folder.name) / "tests.xml"
        self.bin.mkdir()
        (self.root / "tools").mkdir(parents=True)
        for name in ("gpu_check", "gpu_check_report.py"):
            shutil.copy(ROOT / "tools" / name, self.root / "tools" / name)
        self.command("fsdptrain", FSDPTRAIN)
        self.command("cmake", CMAKE)
        self.command("ctest", CTEST)
        self.command("ninja", "#!/bin/sh\n")
        self.command("nvcc", "#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n")
        self.command("nvidia-smi", "#!/bin/sh\necho 'NVIDIA H200, 580.1, 143771, 9.0'\n")
        self.environment = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "FAKE_LOG": str(self.log),
            "FAKE_FSDPTRAIN": str(self.bin / "fsdptrain"),
            "FAKE_BUILD": "ok",
            "FAKE_TESTS": str(self.tests),
            "FAKE_TRAIN": "embedding: there is no CUDA kernel for it yet; run it on cpu",
        }
        self.write_tests(STREAMS, NO_GPU)

    def command(self, name, text):
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def write_tests(self, *cases):
        self.tests.write_text(f"<testsuite>{''.join(cases)}</testsuite>")

    def run_check(self, *arguments, **environment):
        return subprocess.run(
            ["tools/gpu_check", *arguments], cwd=self.root, env=self.environment | environment,
            text=True, stdin=subprocess.DEVNULL, capture_output=True, check=False)

    def report(self, exit_code, *arguments, **environment):
        result = self.run_check(*arguments, **environment)
        self.assertEqual(result.returncode, exit_code, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(report["passed"], exit_code == 0)
        return report

    def test_a_good_run_says_what_ran_where(self):
        report = self.report(0)
        self.assertEqual(report["bench"], "gpu_check")
        self.assertEqual(report["commit"], "0123456789ab")
        self.assertEqual(report["device"], {"name": "NVIDIA H200", "driver": "580.1",
                                            "memory_mib": 143771, "compute_capability": "9.0"})
        self.assertEqual(report["versions"],
                         {"fmt": "9.1.0", "CUDA": "13.0 (running 13.1)", "CUDA driver": "13.1",
                          "NCCL": "2.28.9", "nvcc": "13.0"})
        self.assertEqual(report["tests"][0], {"name": "streams", "passed": True, "seconds": 0.25})
        self.assertIn("there is no CUDA kernel for it yet", report["train"]["message"])
        log = self.log.read_text()
        self.assertIn("cmake --build --preset cuda --target fsdptrain tests_cuda", log)
        self.assertIn("--set run.device=cuda", log)

    def test_a_test_that_failed_or_was_skipped_for_want_of_a_device_fails(self):
        for case in (CASE % ("copies", "fail", ""),
                     CASE % ("copies", "notrun", SKIPPED % "CUDA says cudaErrorUnknown: x")):
            with self.subTest(case=case):
                self.write_tests(STREAMS, case)
                self.assertFalse(self.report(1)["tests"][1]["passed"])
        self.write_tests()
        self.report(1)

    def test_training_that_ends_in_another_way_fails(self):
        report = self.report(1, FAKE_TRAIN="cuda:0: CUDA says cudaErrorIllegalAddress")
        self.assertFalse(report["train"]["passed"])
        self.assertIn("cudaErrorIllegalAddress", report["train"]["message"])

    def test_a_machine_without_a_gpu_is_named_after_the_build(self):
        self.command("nvidia-smi", "#!/bin/sh\necho 'no devices were found'\nexit 6\n")
        result = self.run_check()
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stdout, "")
        self.assertIn("this machine has no GPU: no devices were found", result.stderr)
        self.assertTrue((self.root / "build/cuda/fsdptrain").exists())

    def test_a_dry_run_needs_no_gpu(self):
        self.command("nvidia-smi", "#!/bin/sh\nexit 6\n")
        self.write_tests(CASE % ("copies", "notrun", SKIPPED % "no device"))
        report = self.report(0, "--dry-run", FAKE_TRAIN="cuda:0: this machine has no CUDA driver")
        self.assertIsNone(report["device"])
        self.assertEqual(report["tests"][0]["skipped"], "no device")
        self.report(1, "--dry-run", FAKE_TRAIN="cuda:0: something else")

    def test_a_failed_build_shows_its_last_lines(self):
        result = self.run_check(FAKE_BUILD="broken")
        self.assertEqual(result.returncode, 1)
        self.assertIn("x.cu(3): error: expected a declaration", result.stderr)

    def test_bad_usage_is_refused_before_anything_is_done(self):
        self.assertEqual(self.run_check("--frobnicate").returncode, 2)
        result = self.run_check("--no-build")
        self.assertEqual(result.returncode, 2)
        self.assertIn("build/cuda/fsdptrain is missing", result.stderr)
        self.assertFalse(self.log.exists())
        self.assertEqual(self.run_check("--help").returncode, 0)


if __name__ == "__main__":
    unittest.main()
