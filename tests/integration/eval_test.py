"""Weights in use, and the data they were trained on: eval, generate from token numbers, several
sources, files larger than memory.

Usage: eval_test.py FSDPTRAIN SOURCE_DIR
"""

import json
import math
import os
import pathlib
import re
import struct
import subprocess
import time

from cli_case import FSDPTRAIN, REFUSED, CliTest, main

TINY = ["--set", "model.num_layers=1", "--set", "model.num_heads=2", "--set", "model.embed_dim=32",
        "--set", "model.max_seq_len=32", "--set", "train.seq_len=32", "--set",
        "train.global_batch=4", "--set", "train.micro_batch=2", "--set", "train.steps=10", "--set",
        "run.threads=2", "--set", "optimizer.lr=0.01"]
FAMILIES = {"gpt2": ["--set", "model.name=gpt2"],
            "llama": ["--set", "model.name=llama", "--set", "model.num_kv_heads=1"]}

HEADER_BYTES = 1024


def token_header(num_tokens, width, vocab_size, end, documents, tokenizer):
    header = struct.pack("<8sIIQIIQ32s", b"FSDPTOK1", 1, width, num_tokens, vocab_size, end, documents,
                         tokenizer)
    return header.ljust(HEADER_BYTES, b"\0")


def parse_safetensors(path):
    """A reader of its own: shapes and values by name, and the metadata."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    metadata = header.pop("__metadata__")
    values, covered = {}, 0
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        assert entry["dtype"] == "F32" and end - begin == 4 * math.prod(entry["shape"])
        values[name] = (entry["shape"],
                        struct.unpack(f"<{(end - begin) // 4}f", data[8 + size:][begin:end]))
        covered += end - begin
    assert covered == len(data) - 8 - size
    return values, metadata


class Eval(CliTest):
    def train(self, tokens, *more, run="run"):
        return self.check_done("train", *TINY, "--set", f"data.tokens={tokens}", "--set",
                               f"run.dir={run}", *more)

    def metrics(self, run="run"):
        lines = (self.folder / run / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def evaluate(self, *arguments):
        return json.loads(self.check_done("eval", "--json", *arguments))

    def folder_of_texts(self):
        for number in range(40):
            words = " ".join(str(number * index % 23) for index in range(60))
            self.write(f"texts/{number}.txt", words.encode())
        self.check_done("data", "prepare", "--text", "texts", "--output", "t.bin")

    def test_it_equals_the_last_validation_of_the_run(self):
        self.folder_of_texts()
        for family, model in FAMILIES.items():
            with self.subTest(family):
                self.train("t.bin", *model, run=family)
                result = self.evaluate("--run", family)
                self.assertEqual(result["loss"], self.metrics(family)[-1]["validation_loss"])
                self.assertAlmostEqual(result["perplexity"], math.exp(result["loss"]), places=9)
                self.assertEqual(result["weights"], f"{family}/weights.safetensors")
        # Every target is a byte or the end of a document.
        text = self.check_done("eval", "--run", "gpt2")
        loss, bits = (float(re.search(rf"{name} +([0-9.]+)", text)[1])
                      for name in ("loss", "bits per byte"))
        self.assertLess(loss / math.log(2), bits)
        self.assertLess(bits, 1.05 * loss / math.log(2))

    def test_tokens_of_its_own_and_weights_by_path(self):
        self.folder_of_texts()
        self.write("other.txt", b"17 5 3 " * 300)
        self.check_done("data", "prepare", "--text", "other.txt", "--output", "other.bin")
        self.train("t.bin", "--set", "train.ema_decay=0.5", "--set", "data.validation=other.bin")
        by_run = self.evaluate("--run", "run")
        self.assertEqual(by_run["loss"], self.metrics()[-1]["validation_loss"])
        by_path = self.evaluate("--weights", "run/weights.safetensors", "--tokens", "other.bin")
        self.assertEqual(by_path, by_run)
        average = self.evaluate("--run", "run", "--ema")
        self.assertNotEqual(average["loss"], by_run["loss"])
        self.assertEqual(
            average, self.evaluate("--weights", "run/weights_ema.safetensors", "--tokens", "other.bin"))
        # Of tokens that the run does not validate on, all whole windows count, but for what follows an end.
        content = (self.folder / "t.bin").read_bytes()[HEADER_BYTES:]
        tokens = struct.unpack(f"<{len(content) // 2}H", content)
        inputs = tokens[:(len(tokens) - 1) // 32 * 32]
        elsewhere = self.evaluate("--run", "run", "--tokens", "t.bin")
        self.assertEqual(elsewhere["targets"], len(inputs) - inputs.count(256))
        both = self.evaluate("--run", "run", "--tokens", "t.bin", "other.bin")
        self.assertEqual(both["targets"], elsewhere["targets"] + by_run["targets"])
        few = self.evaluate("--run", "run", "--batches", "1")
        self.assertEqual(few["targets"], 2 * 32)

    def test_mistakes_are_named(self):
        self.folder_of_texts()
        self.train("t.bin", "--set", "data.validation_fraction=0")
        for message, arguments in (
                ("--tokens: must be given: the run behind run/weights.safetensors held nothing back",
                 ["--run", "run"]),
                ("run/weights_ema.safetensors", ["--run", "run", "--ema"]),
                ("--ema: goes with --run", ["--weights", "run/weights.safetensors", "--ema"]),
                ("run", []),
                ("nowhere.bin", ["--run", "run", "--tokens", "nowhere.bin"]),
                ("holds no weights.safetensors", ["--run", "texts"]),
                ("--batches", ["--run", "run", "--tokens", "t.bin", "--batches", "-1"])):
            with self.subTest(message):
                self.check_error(REFUSED, message, "eval", *arguments)
        self.write("wide.bin", token_header(100, 2, 257, 256, 1, b"other") + bytes(200))
        self.check_error(REFUSED, "wide.bin: holds tokens of another vocabulary than run/weights.safetensors was "
                         "trained on: tokenizer other, 257 tokens, end of document 256, not tokenizer byte, 257 "
                         "tokens, end of document 256: prepare", "eval", "--run", "run", "--tokens", "wide.bin")
        # Smaller than the model's, larger, and with other ends: of one name all the same.
        for vocab_size, end, message in ((200, 199, "tokenizer byte, 200 tokens, end of document 199, not "),
                                         (300, 256, "tokenizer byte, 300 tokens, end of document 256, not "),
                                         (257, 0xffffffff, "257 tokens, end of document none, not ")):
            with self.subTest(message):
                self.write("like.bin", token_header(100, 2, vocab_size, end, 1, b"byte") + bytes(200))
                self.check_error(REFUSED, message, "eval", "--run", "run", "--tokens", "like.bin")
        # Nor may the tokens of the run become others.
        self.write("t.bin", (self.folder / "like.bin").read_bytes())
        self.check_error(REFUSED, "t.bin: holds tokens of another vocabulary than run/", "eval", "--run", "run")

    def test_weights_of_other_tokenizers_take_and_give_numbers(self):
        tokens = [number * number % 1000 for number in range(4000)]
        self.write("n.bin", token_header(len(tokens), 4, 70_000, 0xffffffff, 1, b"numbers") +
                   struct.pack(f"<{len(tokens)}I", *tokens))
        self.train("n.bin", "--set", "model.vocab_size=70000", "--set", "train.steps=2")
        arguments = ["generate", "--run", "run", "--prompt-ids", "1,2,69999", "--tokens", "5", "--seed", "3"]
        text = self.check_done(*arguments)
        numbers = [int(word) for word in text.split()]
        self.assertEqual(numbers[:3], [1, 2, 69999])
        self.assertEqual(len(numbers), 8)
        self.assertTrue(all(0 <= number < 70_000 for number in numbers))
        self.assertEqual(self.check_done(*arguments), text)
        for ids, place in (("1,,2", 2), ("1,2,", 3), (",1", 1), ("1,x", 2), ("1 2", 1), ("-1", 1),
                           ("1,2147483648", 2)):
            with self.subTest(ids):
                self.check_error(REFUSED, f'with one comma between two, got "{ids}": number {place} is none',
                                 "generate", "--run", "run", f"--prompt-ids={ids}")
        self.check_error(REFUSED, 'got "": number 1 is none', "generate", "--run", "run", "--prompt-ids", "")
        self.check_error(REFUSED, "--prompt-ids: 70000 is no token: the vocabulary has 70000", "generate",
                         "--run", "run", "--prompt-ids", "70000")
        self.check_error(REFUSED, 'these are of "numbers": give --prompt-ids', "generate", "--run", "run",
                         "--prompt", "a")
        self.check_error(REFUSED, "70000 is no token: the vocabulary has 70000", "generate", "--run", "run",
                         "--prompt-ids", "70000")
        self.assertNotIn("bits per byte", self.check_done("eval", "--run", "run"))

    def test_one_prompt_is_asked_for_and_top_p_narrows_the_choice(self):
        self.folder_of_texts()
        self.train("t.bin")
        self.check_error(REFUSED, "prompt", "generate", "--run", "run")
        self.check_error(REFUSED, "prompt", "generate", "--run", "run", "--prompt", "a", "--prompt-ids",
                         "1")
        self.check_error(REFUSED, "--top-p: must be a number from", "generate", "--run", "run",
                         "--prompt", "a", "--top-p", "0")
        sample = ["generate", "--run", "run", "--prompt", "1", "--tokens", "50", "--temperature"]
        greedy = self.check_done(*sample, "0")
        # So small a share leaves the likeliest token alone.
        self.assertEqual(self.check_done(*sample, "1", "--top-p", "0.000001"), greedy)
        self.assertEqual(self.check_done(*sample, "1", "--top-k", "1"), greedy)
        # Untrained as it is, the model may say bytes that are no text.
        self.check_done(*sample, "1", "--output", "sample.txt")
        self.assertNotEqual((self.folder / "sample.txt").read_bytes() + b"\n", greedy.encode())

    def test_several_sources_by_weight_are_one_run(self):
        self.folder_of_texts()
        self.write("other.txt", b"17 5 3 " * 300)
        self.check_done("data", "prepare", "--text", "other.txt", "--output", "other.bin")
        both = '["t.bin", "other.bin"]'
        self.train(both, "--set", "data.weights=[3, 1]")
        record = json.loads((self.folder / "run/run.json").read_text())
        self.assertEqual([file["path"] for file in record["data"]], ["t.bin", "other.bin"])
        for file in record["data"]:
            self.assertRegex(file["fingerprint"], r"\Axxh3")
        self.assertEqual(self.evaluate("--run", "run")["loss"],
                         self.metrics()[-1]["validation_loss"])
        # The order of samples, and so the losses, follow from the configuration alone.
        self.train(both, "--set", "data.weights=[3, 1]", "--set", "train.micro_batch=4", "--set",
                   "run.threads=1", run="again")
        for one, other in zip(self.metrics(), self.metrics("again")):
            for key in {"loss", "validation_loss"} & one.keys():
                self.assertAlmostEqual(one[key], other[key], places=4)
        self.check_error(REFUSED, "data.weights", "train", *TINY, "--set", f"data.tokens={both}", "--set",
                         "data.weights=[1, 0.00001]", "--set", "run.dir=third")
        self.write("alien.bin", token_header(100, 2, 257, 256, 1, b"other") + bytes(200))
        self.check_error(REFUSED, "alien.bin", "train", *TINY, "--set",
                         'data.tokens=["t.bin", "alien.bin"]', "--set", "run.dir=third")
        self.assertFalse((self.folder / "third").exists())

    def test_documents_are_kept_apart_or_not(self):
        self.folder_of_texts()
        self.train("t.bin", "--set", "data.mask_documents=false", run="joined")
        self.train("t.bin", run="masked")
        self.assertNotEqual(self.metrics("joined")[-1]["validation_loss"],
                            self.metrics("masked")[-1]["validation_loss"])

    def test_label_smoothing_and_z_loss_are_in_the_training_loss_only(self):
        self.folder_of_texts()
        for key in ("train.label_smoothing=0.2", "train.z_loss=0.1"):
            self.train("t.bin", "--set", key, run=key)
            self.train("t.bin", run="plain" + key)
            self.assertGreater(self.metrics(key)[0]["loss"], self.metrics("plain" + key)[0]["loss"])
            self.assertEqual(self.evaluate("--run", key)["loss"],
                             self.metrics(key)[-1]["validation_loss"])

    def test_weights_open_elsewhere(self):
        self.folder_of_texts()
        self.train("t.bin", *FAMILIES["llama"])
        path = self.folder / "run/weights.safetensors"
        values, metadata = parse_safetensors(path)
        self.assertEqual(values["model.embed_tokens.weight"][0], [257, 32])
        self.assertTrue(all(math.isfinite(value) for _, numbers in values.values() for value in numbers))
        self.assertEqual(metadata["config"], (self.folder / "run/config.toml").read_text())
        try:
            import safetensors.numpy
        except ImportError:
            print("the package safetensors is not installed: opened by the reader above alone")
            return
        arrays = safetensors.numpy.load_file(path)
        self.assertEqual(arrays.keys(), values.keys())
        for name, (shape, numbers) in values.items():
            self.assertEqual(list(arrays[name].shape), shape)
            self.assertEqual(arrays[name].reshape(-1).tolist(), list(numbers))

    def peak_anonymous_memory(self, tokens, run):
        """Of a run of 20 steps, in KiB; the files that are mapped do not count."""
        process = subprocess.Popen(
            [FSDPTRAIN, "train", *TINY, "--set", f"data.tokens={tokens}", "--set", f"run.dir={run}",
             "--set", "train.steps=20", "--set", "eval.batches=1"],
            cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        peak = 0
        status = pathlib.Path(f"/proc/{process.pid}/status")
        while process.poll() is None:
            found = re.search(r"RssAnon:\s+(\d+) kB", status.read_text())
            peak = max(peak, int(found[1]) if found else 0)
            time.sleep(0.002)
        self.assertEqual((process.returncode, process.communicate()[1]), (0, ""))
        self.assertGreater(peak, 1024)
        return peak

    def test_a_file_far_larger_than_memory_trains_in_the_memory_of_a_small_one(self):
        for name, nbytes in (("small.bin", 64 << 20), ("large.bin", 64 << 30)):
            path = self.write(name, token_header(nbytes // 2, 2, 257, 0xffffffff, 1, b"byte"))
            try:
                os.truncate(path, HEADER_BYTES + nbytes)
            except OSError as error:
                self.skipTest(f"no sparse file of {nbytes} bytes here: {error}")
            if path.stat().st_blocks * 512 > 1 << 20:
                self.skipTest("this file system fills holes")
        small = self.peak_anonymous_memory("small.bin", "small")
        large = self.peak_anonymous_memory("large.bin", "large")
        self.assertLess(large, small + (16 << 10), f"{small} and {large} KiB")


if __name__ == "__main__":
    main()
