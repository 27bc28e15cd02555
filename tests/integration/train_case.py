"""What the tests of training share: a text, a tiny model, and what a run leaves behind."""

import json
import subprocess

from cli_case import FSDPTRAIN, CliTest

TEXT = b"In the beginning God created the heaven and the earth.\n" * 400
TINY = ["--set", "data.tokens=text.tok", "--set", "run.dir=run", "--set", "model.num_layers=1",
        "--set", "model.num_heads=2", "--set", "model.embed_dim=32", "--set",
        "model.max_seq_len=32", "--set", "train.seq_len=32", "--set", "train.global_batch=4",
        "--set", "train.micro_batch=2", "--set", "train.steps=12", "--set", "run.threads=2",
        "--set", "optimizer.lr=0.01", "--set", "log.every=5"]


class TrainTest(CliTest):
    def metrics(self, run="run"):
        lines = (self.folder / run / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def record(self, run="run"):
        return json.loads((self.folder / run / "run.json").read_text())

    def start(self, *arguments, **options):
        """Starts a run and waits for its first line."""
        process = subprocess.Popen([FSDPTRAIN, "train", *TINY, *arguments], cwd=self.folder, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        self.addCleanup(process.kill)
        process.stdout.readline()
        return process
