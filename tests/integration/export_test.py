"""An exported model computes in PyTorch what it does here.

Usage: export_test.py FSDPTRAIN SOURCE_DIR
FSDPTRAIN_PYTORCH in the environment: a Python that has PyTorch and safetensors; without it the test is skipped.
"""

import json
import os
import pathlib
import subprocess
import sys

from cli_case import FSDPTRAIN, main
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
PROMPT = b"In the be"
COUNT = 12


class Export(TrainTest):
    def test_an_exported_model_has_the_losses_and_likeliest_tokens_that_it_has_here(self):
        self.prepare(TEXT)
        windows = [[*window, 256] for window in WINDOWS]
        question = json.dumps({"windows": windows, "prompt": list(PROMPT), "count": COUNT})
        for model, keys in MODELS.items():
            with self.subTest(model):
                self.check_done("train", *TINY, *SHAPE, *keys, "--threads-as-ranks", "2", "--set", f"run.dir={model}")
                weights = f"{model}.safetensors"
                self.check_done("checkpoint", "export", model, "--output", weights)
                asked = subprocess.run([PYTHON, MODULE, model, weights, str(HEADS)], input=question, text=True,
                                       capture_output=True, cwd=self.folder, timeout=300, check=False)
                self.assertEqual(asked.returncode, 0, asked.stderr)
                answer = json.loads(asked.stdout)
                for window, expected in zip(WINDOWS, answer["losses"]):
                    self.prepare(window, "window.tok")
                    found = json.loads(self.check_done("eval", "--weights", weights, "--tokens", "window.tok", "--json"))
                    self.assertEqual(found["targets"], len(window))
                    self.assertAlmostEqual(found["loss"] / expected, 1, delta=2e-6)
                made = subprocess.run(
                    [FSDPTRAIN, "generate", "--weights", weights, "--prompt", PROMPT, "--tokens", str(COUNT),
                     "--temperature", "0"], capture_output=True, cwd=self.folder, timeout=60, check=True).stdout
                self.assertEqual(list(made.rstrip(b"\n")), [*PROMPT, *answer["tokens"]])


if __name__ == "__main__":
    if not PYTHON:
        print("FSDPTRAIN_PYTORCH is not set: skipped")
        sys.exit(77)
    main()
