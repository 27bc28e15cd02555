"""What the tests of training share: a text, a tiny model, and what a run leaves behind."""

import hashlib
import json
import subprocess

from cli_case import FSDPTRAIN, CliTest

TEXT = b"In the beginning God created the heaven and the earth.\n" * 400
TINY = ["--set", "data.tokens=text.tok", "--set", "run.dir=run", "--set", "model.num_layers=1",
        "--set", "model.num_heads=2", "--set", "model.embed_dim=32", "--set",
        "model.max_seq_len=32", "--set", "train.seq_len=32", "--set", "train.global_batch=4",
        "--set", "train.micro_batch=2", "--set", "train.steps=12", "--set", "run.threads=2",
        "--set", "optimizer.lr=0.01", "--set", "log.every=5"]
# Everything that a run must not forget: dropout, an average, moments, validations, a schedule.
COURSE = [*TINY, "--set", "log.every=1", "--set", "eval.every=7", "--set", "eval.batches=2", "--set", "model.dropout=0.1",
          "--set", "train.ema_decay=0.999", "--set", "train.global_batch=8", "--set", "run.threads=1"]


class TrainTest(CliTest):
    def metrics(self, run="run"):
        lines = (self.folder / run / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def record(self, run="run"):
        return json.loads((self.folder / run / "run.json").read_text())

    def course(self, run):
        """What a run has computed, by step: of a step that was done twice, the last."""
        values = {}
        for line in self.metrics(run):
            for key in ("loss", "grad_norm", "lr", "validation_loss"):
                if key in line:
                    values[line["step"], key] = line[key]
        return values

    def weights(self, run):
        """Digests of the bytes of the tensors: the header holds the configuration."""
        number = self.record(run)["parameters"]
        return [hashlib.sha256(path.read_bytes()[-4 * number:]).hexdigest()
                for path in sorted((self.folder / run).glob("weights*.safetensors"))]

    def checkpoints(self, run="run"):
        return sorted(path.name for path in (self.folder / run / "checkpoints").glob("step-*"))

    def check_same(self, run, whole):
        self.assertEqual(self.course(run), self.course(whole))
        self.assertEqual(self.weights(run), self.weights(whole))
        self.assertEqual(len(self.weights(run)), 2)

    def start(self, *arguments, **options):
        """Starts a run and waits for its first line."""
        process = subprocess.Popen([FSDPTRAIN, "train", *TINY, *arguments], cwd=self.folder, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        self.addCleanup(process.kill)
        process.stdout.readline()
        return process
