"""An exported model computes in PyTorch what it does here.

Usage: export_test.py FSDPTRAIN SOURCE_DIR
FSDPTRAIN_PYTORCH in the environment: a Python that has PyTorch and safetensors; without it the test is skipped.
FSDPTRAIN_LOGITS: the program that prints logits.
"""

import json
import os
import pathlib
import subprocess
import sys

from cli_case import main
from train_case import TEXT, TINY, TrainTest

PYTHON = os.environ.get("FSDPTRAIN_PYTORCH", "")
MODULE = pathlib.Path(__file__).parent / "export_pytorch.py"
HEADS = 4
SHAPE = ["--set", f"model.num_heads={HEADS}", "--set", "model.num_layers=2", "--set", "train.steps=20"]
MODELS = {"gpt2": [], "llama": ["--set", "model.name=llama", "--set", "model.num_kv_heads=2", "--set",
                                "model.ffn_dim=48"]}
# Each as long as the model's sequence; with the end of the document one token more.
WINDOWS = [b"In the beginning God created the", b"he earth.\nIn the beginning God c", b"words that have never been there",
           bytes(range(32)), bytes(range(97, 129))]
# Of float32 against float64, of the largest logit of a window.
TOLERANCE = 1e-5


class Export(TrainTest):
    def logits(self, weights):
        """Of all windows, as this project computes them."""
        lines = "".join(" ".join(map(str, window)) + "\n" for window in WINDOWS)
        printed = subprocess.run([os.environ["FSDPTRAIN_LOGITS"], weights], input=lines, text=True, capture_output=True,
                                 cwd=self.folder, timeout=60, check=True).stdout
        return [list(map(float, line.split())) for line in printed.splitlines()]

    def in_pytorch(self, model, weights):
        """Losses and logits of all windows."""
        asked = subprocess.run([PYTHON, MODULE, model, weights, str(HEADS)],
                               input=json.dumps([[*window, 256] for window in WINDOWS]), text=True,
                               capture_output=True, cwd=self.folder, timeout=300, check=False)
        self.assertEqual(asked.returncode, 0, asked.stderr)
        return json.loads(asked.stdout)

    def test_an_exported_model_has_the_losses_and_logits_that_it_has_here(self):
        self.prepare(TEXT)
        for model, keys in MODELS.items():
            with self.subTest(model):
                self.check_done("train", *TINY, *SHAPE, *keys, "--threads-as-ranks", "2", "--set", f"run.dir={model}")
                weights = f"{model}.safetensors"
                self.check_done("checkpoint", "export", model, "--output", weights)
                answers = zip(WINDOWS, self.in_pytorch(model, weights), self.logits(weights), strict=True)
                for window, expected, logits in answers:
                    self.prepare(window, "window.tok")
                    found = json.loads(self.check_done("eval", "--weights", weights, "--tokens", "window.tok", "--json"))
                    self.assertEqual(found["targets"], len(window))
                    self.assertAlmostEqual(found["loss"] / expected["loss"], 1, delta=2e-6)
                    largest = max(map(abs, expected["logits"]))
                    difference = max(abs(ours - theirs) for ours, theirs in zip(logits, expected["logits"], strict=True))
                    self.assertLessEqual(difference, TOLERANCE * largest)


if __name__ == "__main__":
    if not PYTHON:
        print("FSDPTRAIN_PYTORCH is not set: skipped")
        sys.exit(77)
    main()
