"""`fsdptrain model`, and the configurations in configs/, as a user meets them.

Usage: model_test.py FSDPTRAIN SOURCE_DIR
"""

import json
import os
import subprocess

from cli_case import DONE, FSDPTRAIN, REFUSED, SOURCE_DIR, CliTest, main

# What the published models have.
PUBLISHED = {
    "gpt2-124m": 124_439_808,
    "gpt2-350m": 354_823_168,
    "gpt2-774m": 774_030_080,
    "gpt2-1558m": 1_557_611_200,
    "llama3-1b": 1_235_814_400,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
}
CONFIGS = sorted((SOURCE_DIR / "configs").resolve().glob("*.toml"))


class Configs(CliTest):
    def test_every_file_parses_builds_and_is_answered_without_a_warning(self):
        self.assertLessEqual({f"{name}.toml" for name in PUBLISHED}, {path.name for path in CONFIGS})
        for path in CONFIGS:
            with self.subTest(path.name):
                self.check_done("config", "--config", path)
                summary = json.loads(self.check_done("model", "--config", path, "--json"))
                if path.stem in PUBLISHED:
                    self.assertEqual(summary["model"], path.stem)
                    self.assertEqual(summary["parameters"], PUBLISHED[path.stem])
                self.assertEqual(summary["trained"], summary["parameters"])

    def test_every_file_begins_with_what_it_is_and_keeps_to_the_width(self):
        for path in CONFIGS:
            text = path.read_text()
            with self.subTest(path.name):
                self.assertTrue(text.startswith("# "))
                self.assertLessEqual(max(map(len, text.splitlines())), 110)

    def test_the_llama_of_ten_million_is_one(self):
        path = SOURCE_DIR.resolve() / "configs" / "llama-10m-bytes.toml"
        summary = json.loads(self.check_done("model", "--config", path, "--json"))
        self.assertAlmostEqual(summary["parameters"] / 1e7, 1, delta=0.1)


class Model(CliTest):
    def test_seventy_billion_parameters_are_summed_up_without_their_memory(self):
        path = SOURCE_DIR.resolve() / "configs" / "llama3-70b.toml"
        with subprocess.Popen([FSDPTRAIN, "model", "--config", path, "--json"], cwd=self.folder,
                              stdout=subprocess.PIPE) as process:
            summary = json.load(process.stdout)
            # Of this process alone.
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, DONE)
        self.assertLess(usage.ru_maxrss, 256 * 1024)
        bytes_of = summary["memory"]["peak_bytes"]
        # Weights in float32, gradients, two moments.
        for category, least in (("parameter", 4), ("gradient", 4), ("optimizer", 8)):
            self.assertGreaterEqual(bytes_of[category], least * summary["parameters"])
            self.assertLess(bytes_of[category], least * summary["parameters"] * 9 / 8 + 1e6)
        self.assertLessEqual(summary["memory"]["peak_bytes_at_once"], sum(bytes_of.values()))
        # 6 for each weight but the embedding's, and the scores of 80 layers.
        weights = summary["parameters"] - 128256 * 8192 - (2 * 80 + 1) * 8192
        self.assertEqual(summary["flops_per_token"], 6 * weights + 12 * 80 * 64 * 128 * 8192)

    def test_the_table_folds_blocks_and_all_unfolds_them(self):
        table = self.check_done("model", "--set", "model.name=gpt2-124m")
        self.assertRegex(table, r"(?m)^h\.\{0-11\}\.attn\.c_attn\.weight +12 x \[2304, 768\] +21233664 +float32  decay$")
        self.assertRegex(table, r"(?m)^parameters +124439808 \(124439808 trained, 0 frozen\)$")
        self.assertRegex(table, r"(?m)^FLOPs per token  7\.69\d*e\+08: 6 x weights .*, seq_len 256$")
        # Two moments of 12 blocks of 27.04 MiB and the rest of 150.2 MiB, each in a size class: 28 and 160.
        self.assertRegex(table, r"(?m)^  optimizer +992\.00 MiB$")
        unfolded = self.check_done("model", "--set", "model.name=gpt2-124m", "--all")
        self.assertIn("\nh.11.mlp.c_proj.bias ", unfolded)
        self.assertNotIn("{", unfolded)
        self.assertEqual(unfolded.count("\n") - table.count("\n"), 11 * 12)

    def test_rules_show_and_mistakes_in_them_are_named(self):
        def model(rules, *arguments):
            self.write("run.toml", rules.encode())
            return ["model", "--config", "run.toml", *arguments]

        table = self.check_done(*model("[train]\ncompute_dtype = \"bfloat16\"\n"
                                       "[[rules]]\nmatch = \"h.0.*\"\ndecay = false\n"
                                       "[[rules]]\nmatch = \"wte.*\"\nfreeze = true\ndtype = \"bfloat16\"\n"
                                       "[[rules]]\nmatch = \"h.?.mlp.*\"\nlr_scale = 0.5\n"))
        self.assertRegex(table, r"(?m)^wte\.weight .* bfloat16  frozen$")
        self.assertRegex(table, r"(?m)^h\.0\.attn\.c_attn\.weight .* no decay$")
        self.assertRegex(table, r"(?m)^h\.\{1-5\}\.mlp\.c_fc\.weight .* decay, lr x 0\.5$")
        self.assertRegex(table, r"98688 frozen\)")
        self.check_error(REFUSED, '"h.*.atn.*" matches no parameter: did you mean h.*.attn.',
                         *model("[[rules]]\nmatch = \"h.*.atn.*\"\ndecay = false\n"))
        self.check_error(REFUSED, "leave one to train",
                         *model("[[rules]]\nmatch = \"*\"\nfreeze = true\n"))
        self.check_error(REFUSED, "recompute is for blocks",
                         *model("[[rules]]\nmatch = \"wte.*\"\nrecompute = \"full\"\n"))

    def test_help_teaches(self):
        output = self.check_done("model", "--help")
        self.assertIn("Examples:\n  fsdptrain model", output)
        self.assertIn("[[rules]]", output)


if __name__ == "__main__":
    main()
