"""The commands of `fsdptrain checkpoint` as a user meets them: what is said and written, and exit codes.

Usage: checkpoint_test.py FSDPTRAIN SOURCE_DIR
"""

import array
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

from cli_case import DONE, FAILED, FSDPTRAIN, REFUSED, main
from train_case import TEXT, TINY, TrainTest

SAVING = ["--set", "train.steps=6", "--set", "run.threads=1", "--set", "train.ema_decay=0.9", "--set",
          "checkpoint.every=2", "--set", "checkpoint.keep=0"]
STEPS = ["step-00000002", "step-00000004", "step-00000006"]
RANKS = ["rank-00000.safetensors", "rank-00001.safetensors"]
NEWEST = "run/checkpoints/step-00000006"


def read_safetensors(path):
    """The bytes of each tensor with its dtype and shape, and the metadata."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        tensors[name] = (entry["dtype"], entry["shape"], data[begin + first:begin + last])
    return tensors, metadata


def as_bfloat16(data):
    """Of float32, to the nearest, of two the even one."""
    words = array.array("I", data)
    return array.array("H", [(word + 0x7FFF + (word >> 16 & 1)) >> 16 for word in words]).tobytes()


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def flip(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def exchange(one, other):
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def edit(path, old, new):
    text = path.read_bytes()
    assert text.count(old) >= 1, (path, old)
    path.write_bytes(text.replace(old, new, 1))


class Checkpoint(TrainTest):
    trained = None

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="fsdptrain-cli-")
        cls.addClassCleanup(folder.cleanup)
        cls.trained = pathlib.Path(folder.name)

    def setUp(self):
        """A run of two ranks with three checkpoints: one for all tests, each of which gets a copy."""
        super().setUp()
        if not (self.trained / "run").exists():
            self.prepare(TEXT)
            self.check_done("train", *TINY, *SAVING, "--threads-as-ranks", "2")
            shutil.copytree(self.folder, self.trained, dirs_exist_ok=True)
        else:
            shutil.copytree(self.trained, self.folder, dirs_exist_ok=True)
        self.checkpoints = self.folder / "run/checkpoints"

    def checkpoint(self, *arguments):
        return self.check_done("checkpoint", *arguments)

    def json_of(self, *arguments):
        return json.loads(self.checkpoint(*arguments, "--json"))

    def steps(self):
        return sorted(path.name for path in self.checkpoints.glob("step-*"))

    def diff(self, code, *arguments):
        result = self.run_cli("checkpoint", "diff", *arguments)
        self.assertEqual((result.returncode, result.stderr), (code, ""))
        return result.stdout

    def generated(self, *arguments):
        """Bytes, not text: a young model need not write valid UTF-8."""
        return subprocess.run([FSDPTRAIN, "generate", *arguments], capture_output=True, cwd=self.folder, check=True,
                              timeout=60).stdout

    def test_a_checkpoint_is_described(self):
        text = self.checkpoint("inspect", NEWEST)
        for line in (rf"checkpoint +{NEWEST}", "step +6", "ranks +2", r"files +2, \d+ KiB",
                     "tensors +16 in 2 groups, 0.02 M elements", "updates +6",
                     "planes +parameters float32, exp_avg float32, exp_avg_sq float32, average float32"):
            self.assertRegex(text, rf"(?m)^{line}$")
        self.assertNotIn("wte.weight", text)
        tensors = self.checkpoint("inspect", "--tensors", NEWEST + "/")
        self.assertRegex(tensors, r"(?m)^wte\.weight +float32 +8224 +6 +\[257, 32\]$")
        self.assertEqual(tensors.count("h.0."), 12)
        (described,) = self.json_of("inspect", NEWEST)["checkpoints"]
        self.assertEqual((described["step"], described["ranks"], len(described["tensors"])), (6, 2, 16))
        self.assertEqual({file["name"]: file["nbytes"] for file in described["files"]},
                         {name: (self.folder / NEWEST / name).stat().st_size for name in RANKS})
        self.assertEqual(described["objects"]["progress"]["values"][0]["samples"], 6 * 4)

    def test_of_a_run_each_checkpoint_has_a_line_the_damaged_ones_too(self):
        lines = self.checkpoint("inspect", "run").splitlines()
        self.assertEqual([line.split()[0] for line in lines], [f"run/checkpoints/{step}" for step in STEPS])
        self.assertEqual(self.checkpoint("inspect", "run/checkpoints").splitlines(), lines)
        (self.checkpoints / STEPS[1] / RANKS[1]).unlink()
        truncate(self.checkpoints / STEPS[2] / "manifest.json")
        damaged = self.checkpoint("inspect", "run").splitlines()
        self.assertEqual(damaged[0], lines[0])
        self.assertRegex(damaged[1], rf"{STEPS[1]}  not valid: .*{RANKS[1]}")
        self.assertRegex(damaged[2], rf"{STEPS[2]}  not valid: .*manifest\.json")
        listed = self.json_of("inspect", "run")["checkpoints"]
        self.assertEqual([("step" in one, "problem" in one) for one in listed],
                         [(True, False), (False, True), (False, True)])
        self.check_error(REFUSED, RANKS[1], "checkpoint", "inspect", f"run/checkpoints/{STEPS[1]}")

    def test_what_is_whole_is_verified(self):
        text = self.checkpoint("verify", "run")
        self.assertEqual(text.count("  all right: 2 files, "), 3)
        self.assertEqual(self.checkpoint("verify", NEWEST, "run/checkpoints").count("all right"), 4)
        verified = self.json_of("verify", NEWEST)["checkpoints"]
        nbytes = sum((self.folder / NEWEST / name).stat().st_size for name in RANKS)
        self.assertEqual(verified, [{"path": NEWEST, "ok": True, "files": 2, "nbytes": nbytes, "problems": []}])

    def test_whatever_is_done_to_a_file_verifying_names_it(self):
        rank0, rank1 = RANKS
        older = self.checkpoints / STEPS[1]
        damages = {
            "a byte of values": (lambda at: flip(at / rank1, -100), [rank1]),
            "a byte of values in each": (lambda at: [flip(at / name, -1) for name in RANKS], RANKS),
            "a byte of the header": (lambda at: flip(at / rank0, 20), [rank0]),
            "a file that is cut": (lambda at: truncate(at / rank0), [rank0]),
            "a file that is longer": (lambda at: (at / rank0).write_bytes((at / rank0).read_bytes() + b"\0"), [rank0]),
            "a missing file": (lambda at: (at / rank1).unlink(), [rank1]),
            "files that changed places": (lambda at: exchange(at / rank0, at / rank1), [rank0]),
            "a file of another step": (lambda at: shutil.copy(older / rank0, at / rank0), [rank0]),
            "an edited manifest": (lambda at: edit(at / "manifest.json", b'"step":6', b'"step":7'), ["manifest.json"]),
            "a manifest that is cut": (lambda at: truncate(at / "manifest.json"), ["manifest.json"]),
            "a missing manifest": (lambda at: (at / "manifest.json").unlink(), ["manifest.json"]),
        }
        at = self.folder / NEWEST
        for name, (damage, named) in damages.items():
            with self.subTest(name):
                shutil.rmtree(at)
                shutil.copytree(self.trained / NEWEST, at)
                damage(at)
                result = self.run_cli("checkpoint", "verify", "run")
                self.assertEqual(result.returncode, REFUSED, result.stderr)
                self.assertIn("checkpoint verify: 1 of 3 checkpoints are damaged", result.stderr)
                self.assertEqual(result.stdout.count("all right"), 2)
                problems = result.stdout.split(f"{NEWEST}  DAMAGED\n")[1].splitlines()
                self.assertEqual(len(problems), len(named))
                for line, file in zip(problems, named):
                    self.assertIn(f"{NEWEST}/{file}", line)
                listed = json.loads(self.run_cli("checkpoint", "verify", "run", "--json").stdout)["checkpoints"]
                self.assertEqual([one["ok"] for one in listed], [True, True, False])
                self.assertEqual(listed[2]["problems"], [line.strip() for line in problems])

    def test_equal_checkpoints_do_not_differ(self):
        shutil.copytree(self.folder / "run", self.folder / "copy")
        self.assertEqual(self.diff(DONE, "run", "copy"), "64 of 64 tensors are equal bit for bit: no difference\n")
        self.assertEqual(json.loads(self.diff(DONE, "run", NEWEST, "--json")),
                         {"equal": True, "compared": 64, "differences": [], "values": []})

    def test_what_differs_is_listed(self):
        first, second = (f"run/checkpoints/{step}" for step in STEPS[:2])
        text = self.diff(FAILED, first, second)
        self.assertIn("wte.weight: updated 2 times and updated 4 times\n", text)
        self.assertIn("object progress: differs\n", text)
        self.assertRegex(text, r"parameters/ln_f\.weight: \d+ of 32 elements differ, by at most ")
        self.assertRegex(text, r"(?m)^\d+ of 64 tensors are equal bit for bit$")
        found = json.loads(self.diff(FAILED, first, second, "--json"))
        self.assertFalse(found["equal"])
        value = next(value for value in found["values"] if value["name"] == "parameters/ln_f.weight")
        self.assertEqual(value["elements"], 32)
        self.assertTrue(0 < value["different"] <= 32 and value["max_difference"] > 0)

    def test_what_cannot_be_read_is_not_compared(self):
        flip(self.folder / NEWEST / RANKS[0], -100)
        for pair in ((NEWEST, f"run/checkpoints/{STEPS[0]}"), (f"run/checkpoints/{STEPS[0]}", NEWEST)):
            self.check_error(REFUSED, f"{NEWEST}/{RANKS[0]}", "checkpoint", "diff", *pair)
        for command in (["reshard", "run", "--ranks", 2, "--output", "of-2"], ["export", "run", "--output", "out"],
                        ["diff", "run", f"run/checkpoints/{STEPS[0]}"], ["diff", f"run/checkpoints/{STEPS[0]}", "run"]):
            self.check_error(REFUSED, f"the one before it is run/checkpoints/{STEPS[1]}", "checkpoint", *command)
        self.check_error(REFUSED, "nowhere: there is no such folder", "checkpoint", "diff", "run", "nowhere")

    def test_another_number_of_ranks_has_the_same_bits(self):
        before = contents(self.folder / "run")
        for ranks in (1, 3, 5):
            made = self.json_of("reshard", "run", "--ranks", ranks, "--output", f"of-{ranks}")
            path = f"of-{ranks}/{STEPS[2]}"
            self.assertEqual((made["path"], made["ranks"]), (path, ranks))
            self.assertIn("no difference", self.diff(DONE, "run", path))
            self.assertIn(f"all right: {ranks} files", self.checkpoint("verify", path))
            (described,) = self.json_of("inspect", path)["checkpoints"]
            self.assertEqual((described["ranks"], described["step"]), (ranks, 6))
        # And back.
        self.assertRegex(self.checkpoint("reshard", "of-5", "--ranks", 2, "--output", "back"),
                         rf"\Aback/{STEPS[2]}: \d+ KiB of 2 ranks\n\Z")
        self.assertIn("no difference", self.diff(DONE, "run", "back"))
        self.assertEqual(contents(self.folder / "run"), before)

    def test_resharding_makes_the_folders_that_are_missing(self):
        self.checkpoint("reshard", "run", "--ranks", 3, "--output", "new/deep/of-3")
        self.assertIn("no difference", self.diff(DONE, "run", "new/deep/of-3"))

    def test_resharding_that_is_stopped_among_files_without_values_leaves_nothing(self):
        command = [FSDPTRAIN, "checkpoint", "reshard", "run", "--ranks", "1048576", "--output", "many"]
        process = subprocess.Popen(command, cwd=self.folder, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        # The values of this model end in file 100.
        while not list((self.folder / "many").glob(".staging/*/rank-00150.safetensors")):
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        process.terminate()
        self.assertEqual(process.wait(timeout=60), 128 + signal.SIGTERM)
        self.assertEqual(list((self.folder / "many/.staging").iterdir()), [])

    def test_resharding_replaces_nothing_and_leaves_nothing(self):
        self.checkpoint("reshard", "run", "--ranks", 3, "--output", "other")
        before = contents(self.folder / "other")
        self.check_error(REFUSED, f"other/{STEPS[2]}: is there already", "checkpoint", "reshard", "run", "--ranks", 2,
                         "--output", "other")
        self.check_error(REFUSED, f"{NEWEST}: is there already", "checkpoint", "reshard", "run", "--ranks", 2,
                         "--output", "run/checkpoints")
        self.assertEqual(contents(self.folder / "other"), before)
        flip(self.folder / NEWEST / RANKS[1], -100)
        self.check_error(REFUSED, RANKS[1], "checkpoint", "reshard", NEWEST, "--ranks", 2, "--output", "damaged")
        self.assertEqual(contents(self.folder / "damaged"), {})
        self.check_error(REFUSED, "--ranks", "checkpoint", "reshard", "run", "--ranks", 0, "--output", "none")

    def test_an_export_is_what_the_run_has_written(self):
        for plane, weights in (([], "weights"), (["--plane", "average"], "weights_ema")):
            self.assertEqual(self.checkpoint("export", "run", *plane, "--output", f"{weights}.out"), f"{weights}.out\n")
            exported, _ = read_safetensors(self.folder / f"{weights}.out")
            written, _ = read_safetensors(self.folder / f"run/{weights}.safetensors")
            self.assertEqual(len(exported), 16)
            self.assertEqual(exported, written)
        self.assertNotEqual(*(read_safetensors(self.folder / f"{name}.out")[0] for name in ("weights", "weights_ema")))
        sample = ["--prompt", "In the ", "--tokens", "20", "--temperature", "0"]
        self.assertEqual(*(self.generated( *of, *sample)
                           for of in (["--run", "run"], ["--weights", "weights.out"])))

    def test_an_export_is_rounded_on_demand(self):
        self.checkpoint("export", "run", "--dtype", "bfloat16", "--output", "rounded")
        rounded, _ = read_safetensors(self.folder / "rounded")
        written, _ = read_safetensors(self.folder / "run/weights.safetensors")
        self.assertEqual(rounded, {name: ("BF16", shape, as_bfloat16(data))
                                   for name, (_, shape, data) in written.items()})

    def test_an_export_is_cut_into_files_that_an_index_lists(self):
        made = self.json_of("export", "run", "--max-file-size", "20KB", "--output", "new/model")
        written, _ = read_safetensors(self.folder / "run/weights.safetensors")
        index_path = "new/model/model.safetensors.index.json"
        index = json.loads((self.folder / index_path).read_text())
        total = sum(len(data) for _, _, data in written.values())
        self.assertEqual((index["metadata"], made["nbytes"]), ({"total_size": total}, total))
        number = len(made["files"]) - 1
        self.assertEqual(made["files"], [f"new/model/model-{i + 1:05}-of-{number:05}.safetensors"
                                         for i in range(number)] + [index_path])
        self.assertEqual(sorted(path.name for path in (self.folder / "new/model").iterdir()),
                         sorted(pathlib.Path(path).name for path in made["files"]))
        found = {}
        for path in made["files"][:-1]:
            tensors, _ = read_safetensors(self.folder / path)
            for name in tensors:
                self.assertEqual(index["weight_map"].pop(name), pathlib.Path(path).name)
            self.assertTrue(len(tensors) == 1 or sum(len(data) for _, _, data in tensors.values()) <= 20000)
            found.update(tensors)
        self.assertEqual((found, index["weight_map"]), (written, {}))

    def test_exports_that_cannot_be_made_leave_no_file(self):
        refused = ["checkpoint", "export", "run", "--output", "out"]
        self.check_error(REFUSED, "no 'nothing': give one of average, exp_avg, exp_avg_sq, parameters", *refused,
                         "--plane", "nothing")
        self.check_error(REFUSED, "--dtype", *refused, "--dtype", "int64")
        self.check_error(REFUSED, "lots", *refused, "--max-file-size", "lots")
        for size in ("0", "0.5"):
            self.check_error(REFUSED, "--max-file-size: must be at least 1 byte", *refused, "--max-file-size", size)
        flip(self.folder / NEWEST / RANKS[1], -100)
        self.check_error(REFUSED, RANKS[1], "checkpoint", "export", NEWEST, "--plane", "average", "--output", "out")
        self.assertEqual(self.files(), ["run", "text.tok", "text.txt"])

    def test_an_export_writes_nothing_into_what_a_run_needs(self):
        before = contents(self.folder / "run")
        (self.folder / "link").symlink_to("run/checkpoints")
        for place in ("run/lock", "run/checkpoints/step-00000060", "run/checkpoints/deep/file", "link/file",
                      "run/checkpoints", "run/checkpoints/.trash/file", f"{NEWEST}/file"):
            for more in ([], ["--max-file-size", "20KB"]):
                with self.subTest(f"{place} {more}"):
                    self.check_error(REFUSED, "give another place", "checkpoint", "export", "run", "--output", place,
                                     *more)
        self.check_error(REFUSED, "give another place", "checkpoint", "reshard", "run", "--ranks", 1, "--output",
                         "run/lock")
        self.assertEqual(contents(self.folder / "run"), before)

    def test_a_dry_run_of_pruning_removes_nothing(self):
        before = contents(self.checkpoints)
        text = self.checkpoint("prune", "run", "--keep", 1, "--dry-run")
        self.assertEqual(text, f"would remove {STEPS[1]}\nwould remove {STEPS[0]}\nkept {STEPS[2]}\n")
        self.assertEqual(contents(self.checkpoints), before)

    def test_pruning_keeps_the_newest_valid_ones_and_what_is_not_valid(self):
        self.assertIn(f"removed {STEPS[0]}\n", self.checkpoint("prune", "run", "--keep", 2))
        self.assertEqual(self.steps(), STEPS[1:])
        truncate(self.folder / NEWEST / RANKS[0])
        text = self.checkpoint("prune", "run", "--keep", 1)
        self.assertRegex(text, rf"\Akept {STEPS[1]}\nnot valid, left alone: {STEPS[2]}: .*{RANKS[0]}")
        self.assertEqual(self.steps(), STEPS[1:])
        shutil.rmtree(self.folder / "run")
        shutil.copytree(self.trained / "run", self.folder / "run")
        pruned = self.json_of("prune", "run/checkpoints", "--keep", 1)
        self.assertEqual(pruned, {"kept": STEPS[2:], "removed": STEPS[1::-1], "invalid": [], "problems": []})
        self.assertEqual(self.steps(), STEPS[2:])
        self.checkpoint("verify", "run")
        self.check_error(REFUSED, "--keep", "checkpoint", "prune", "run", "--keep", 0)

    def test_pruning_is_refused_while_a_run_trains_there(self):
        process = self.start("--set", "run.dir=busy", *SAVING, "--set", "train.steps=1000000")
        seen = 0
        for line in process.stdout:
            seen += "  checkpoint in " in line
            if seen == 2:
                break
        busy = self.folder / "busy/checkpoints"
        for link, target in (("link", "busy/checkpoints"), ("run-link", "busy")):
            (self.folder / link).symlink_to(target)
        (self.folder / "other").mkdir()
        shutil.copy(self.folder / "run/run.json", self.folder / "other")
        (self.folder / "other/checkpoints").symlink_to("../busy/checkpoints")
        names = ("busy", "busy/checkpoints/.", "busy/checkpoints/", "link", "link/", busy, "run-link/checkpoints/./",
                 "busy/checkpoints/../checkpoints", "other", "other/checkpoints", f"link/{STEPS[0]}/..")
        for name in names:
            for command in (["prune", name, "--keep", 1], ["reshard", NEWEST, "--ranks", 1, "--output", name]):
                with self.subTest(" ".join(map(str, command))):
                    result = self.run_cli("checkpoint", *command)
                    self.assertIsNone(process.poll())
                    self.assertEqual(result.returncode, REFUSED, result.stderr)
                    self.assertIn(f"process {process.pid} ", result.stderr)
        inside = subprocess.run([FSDPTRAIN, "checkpoint", "prune", ".", "--keep", "1"], capture_output=True, text=True,
                                cwd=busy, check=False, timeout=60)
        self.assertEqual(inside.returncode, REFUSED, inside.stderr)
        self.assertTrue((busy / STEPS[0]).is_dir())
        process.kill()
        process.communicate()
        self.assertIn(f"removed {STEPS[0]}\n", self.checkpoint("prune", "busy", "--keep", 1))

    def test_paths_that_are_no_text_are_taken_and_replaced_in_json(self):
        bad = self.folder / os.fsdecode(b"bad\xff")
        shutil.copytree(self.folder / "run", bad)
        for command in (["inspect"], ["verify"], ["prune", "--keep", "3"],
                        ["reshard", "--ranks", "2", "--output", bad / "two"], ["export", "--output", bad / "x.st"]):
            with self.subTest(command[0]):
                result = self.run_cli("checkpoint", command[0], bad, *command[1:], "--json")
                self.assertEqual((result.returncode, result.stderr), (DONE, ""))
                self.assertTrue(command[0] == "prune" or "bad\ufffd" in json.dumps(json.loads(result.stdout), ensure_ascii=False))

    def test_wrong_paths_are_named(self):
        self.write("empty/file.txt", b"nothing")
        needed = {"inspect": [], "verify": [], "reshard": ["--ranks", 2, "--output", "out"],
                  "export": ["--output", "out"], "prune": ["--keep", 1]}
        for command, more in needed.items():
            with self.subTest(command):
                self.check_error(REFUSED, "nowhere: there is no such folder", "checkpoint", command, "nowhere", *more)
                self.check_error(REFUSED, "empty: holds no checkpoint", "checkpoint", command, "empty", *more)
                self.check_error(REFUSED, "text.txt: there is no such folder", "checkpoint", command, "text.txt", *more)
                self.check_error(REFUSED, "path", "checkpoint", command, *more)
        for command in (["reshard", "run", "--ranks", 2], ["export", "run"]):
            self.check_error(REFUSED, "--output: must not be empty", "checkpoint", *command, "--output", "")
        self.assertEqual(self.files(), ["empty", "run", "text.tok", "text.txt"])


if __name__ == "__main__":
    main()
