"""What the tests of training under launchers share; see launch_case.py."""

import os
import pathlib
import struct
import subprocess
import tempfile

from launch_case import FSDPTRAIN, SECONDS_TO_HANG, LaunchTest

TEXT = b"In the beginning God created the heaven and the earth.\n" * 400
TINY = {"data.tokens": "text.tok", "model.num_layers": 4, "model.num_heads": 2, "model.embed_dim": 32,
        "model.max_seq_len": 32, "train.seq_len": 32, "train.global_batch": 4, "train.micro_batch": 1,
        "train.steps": 12, "run.threads": 1, "optimizer.lr": 0.01, "log.every": 5}
ENDLESS = {"train.steps": 100000000, "data.validation_fraction": 0}
NO_LAUNCHER = {name: value for name, value in os.environ.items()
               if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")}


def train(**settings):
    keys = {**TINY, **{name.replace("__", "."): value for name, value in settings.items()}}
    return ["train", *(word for key, value in keys.items() for word in ("--set", f"{key}={value}"))]


def endless(**settings):
    return train(**{name.replace(".", "__"): value for name, value in ENDLESS.items()}, **settings)


def tensors(path):
    """The bytes of a safetensors file behind its header, which names the run's folder."""
    data = path.read_bytes()
    return data[8 + struct.unpack("<Q", data[:8])[0]:]


class TrainCase(LaunchTest):
    """Runs are made in a folder of their own, with a text to train on."""

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="fsdptrain-launch-train-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "text.txt").write_bytes(TEXT)
        self.run_cli("data", "prepare", "--text", "text.txt", "--output", "text.tok")

    def run_cli(self, *arguments, code=0, **options):
        result = subprocess.run([FSDPTRAIN, *map(str, arguments)], capture_output=True, text=True,
                                cwd=self.folder, timeout=SECONDS_TO_HANG, check=False, **options)
        self.assertEqual(result.returncode, code, result.stderr)
        return result
