"""The benchmarks as a user meets them, at tiny sizes: that they run and say what was asked. No
figure is judged: that is what they are for on a quiet machine.

Usage: bench_test.py FSDPTRAIN SOURCE_DIR
"""

import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import types

from cli_case import DONE, FAILED, FSDPTRAIN, REFUSED, SOURCE_DIR, CliTest, main

TINY_WIDTHS = ("--model", "gpt2", "--seq-len", 32, "--set", "model.num_heads=2", "--set",
               "model.embed_dim=32", "--set", "model.vocab_size=61")
TINY = (*TINY_WIDTHS, "--set", "model.num_layers=2")
TINY_LLAMA = (*TINY, "--set", "model.name=llama", "--set", "model.num_kv_heads=1", "--set",
              "model.ffn_dim=48")
HEADER = ["bench", "commit", "machine", "isa", "threads", "figures"]


class BenchTest(CliTest):
    def setUp(self):
        super().setUp()
        self.has_library = "gemm      dnnl" in self.check_done("version")

    def bench(self, *arguments):
        """The figures of a run by name."""
        # The ranks of collectives have one thread each.
        is_comm = arguments[0] == "comm"
        threads = 1 if is_comm else 2
        result = self.run_cli("bench", *arguments, "--json",
                              *([] if is_comm else ["--threads", threads]))
        self.assertEqual(result.returncode, DONE, result.stderr)
        if self.has_library or is_comm:
            self.assertEqual(result.stderr, "")
        else:
            self.assertIn("the library's roof is missing", result.stderr)
        self.assertRegex(result.stdout, r"\A[^\n]+\n\Z")
        report = json.loads(result.stdout)
        self.assertEqual(list(report), HEADER)
        self.assertEqual((report["bench"], report["threads"]), (arguments[0], threads))
        self.assertRegex(report["commit"], r"\A([0-9a-f]{12}(-dirty)?|unknown)\Z")
        for figure in report["figures"]:
            self.assertLessEqual(set(figure), {"name", "value", "unit", "floor", "ceiling"})
            self.assertLessEqual({"name", "value", "unit"}, set(figure))
            self.assertTrue(math.isfinite(figure["value"]), figure)
        figures = {figure["name"]: figure for figure in report["figures"]}
        self.assertEqual(len(figures), len(report["figures"]), "names are unique")
        return figures

    def check_positive(self, figures, names):
        for name in names:
            with self.subTest(name):
                self.assertGreater(figures[name]["value"], 0)


class Checkpoint(BenchTest):
    def test_saves_and_loads_are_timed_beside_what_they_cannot_do_without(self):
        with tempfile.TemporaryDirectory() as folder:
            figures = self.bench("checkpoint", *TINY, "--folder", folder)
            self.assertEqual(os.listdir(folder), [])
        self.check_positive(figures, ("write", "save", "memcpy", "stall", "read", "load", "read_through", "verify"))
        self.assertEqual({name for name, figure in figures.items() if "floor" in figure},
                         {"save_of_write", "load_of_read", "verify_of_read_through"})
        self.assertEqual({name for name, figure in figures.items() if "ceiling" in figure},
                         {"stall_over_memcpy", "largest_stall_over_memcpy", "memory_of_save"})
        self.assertLess(figures["staging"]["value"] * 2**20 - figures["size"]["value"] * 1e9, 1e6)

    def test_they_serve_four_times_a_line(self):
        with tempfile.TemporaryDirectory() as folder:
            result = subprocess.run(
                [FSDPTRAIN, "bench", "checkpoint", *map(str, TINY), "--folder", folder, "--serve", "--json"],
                input="go\ngo\n", capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(result.returncode, DONE, result.stderr)
        ready, first, second, report = result.stdout.splitlines()
        self.assertEqual(ready, "ready")
        for line in (first, second):
            self.assertEqual(len([seconds for seconds in line.split() if float(seconds) > 0]), 4, line)
        self.assertEqual([figure["name"] for figure in json.loads(report)["figures"]], ["size"])


class Step(BenchTest):
    def test_it_says_how_fast_a_step_is_and_where_the_time_goes(self):
        figures = self.bench("step", *TINY)
        self.check_positive(figures, ("step", "tokens_per_second", "fma_peak", "fma_peak_1_thread",
                                      "step_of_fma_peak", "peak_memory", "part_pool"))
        self.assertAlmostEqual(figures["tokens_per_second"]["value"] * figures["step"]["value"], 32)
        parts = ["attention", "head", "linears", "elementwise", "norm", "optimizer", "embedding"]
        self.check_positive(figures, [f"part_{part}" for part in parts])
        parts.append("other")
        self.assertIn("ceiling", figures["peak_memory"])
        self.assertEqual(figures["raw_allocations_from_step_2"],
                         {"name": "raw_allocations_from_step_2", "value": 0, "unit": "blocks",
                          "ceiling": 0})
        if self.has_library:
            self.check_positive(figures, ("linears_roof", "step_of_linears_roof"))
            self.assertLessEqual({f"gap_{part}" for part in parts}, set(figures))
        # The demands are made for GPT-2 124M alone.
        self.assertFalse(any("floor" in figure for figure in figures.values()))

    def test_two_kinds_of_steps_are_compared(self):
        figures = self.bench("step", *TINY, "--compare", "dtype")
        self.assertEqual(figures["bfloat16_over_float32"]["floor"], 0.85)
        self.assertAlmostEqual(figures["bfloat16_over_float32"]["value"],
                               figures["float32_step"]["value"] / figures["bfloat16_step"]["value"])
        figures = self.bench("step", *TINY, "--compare", "batch")
        self.assertEqual(figures["time_per_sequence_8_over_1"]["ceiling"], 1.05)
        self.assertAlmostEqual(
            figures["time_per_sequence_8_over_1"]["value"],
            figures["step_8_sequences"]["value"] / 8 / figures["step_1_sequence"]["value"])

    def test_it_runs_in_bfloat16_on_several_sequences(self):
        figures = self.bench("step", *TINY, "--dtype", "bfloat16", "--batch", 3, "--steps", 6)
        self.assertAlmostEqual(figures["tokens_per_second"]["value"] * figures["step"]["value"], 96)

    def test_a_llama_has_the_same_parts(self):
        figures = self.bench("step", *TINY_LLAMA, "--set", "model.window=8", "--set",
                             "model.tie_embeddings=true")
        parts = ["attention", "head", "linears", "elementwise", "norm", "optimizer", "embedding"]
        self.check_positive(figures, ["step_of_fma_peak"] + [f"part_{part}" for part in parts])

    def test_it_serves_one_step_a_line(self):
        command = [FSDPTRAIN, "bench", "step", *map(str, TINY), "--serve", "--json"]
        result = subprocess.run(command, input="go\ngo\n", capture_output=True, text=True,
                                timeout=60, check=True)
        ready, first, second, report = result.stdout.splitlines()
        self.assertEqual(ready, "ready")
        self.assertGreater(float(first), 0)
        self.assertGreater(float(second), 0)
        self.assertEqual([figure["name"] for figure in json.loads(report)["figures"]],
                         ["step", "peak_memory"])

    def test_steps_that_nobody_can_read_are_not_served(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            result = subprocess.run([FSDPTRAIN, "bench", "step", *map(str, TINY), "--serve"],
                                    input="go\n", stdout=full, stderr=subprocess.PIPE, text=True,
                                    timeout=60, check=False)
        self.assertEqual(result.returncode, FAILED)
        self.assertIn("standard output cannot be written: No space left on device", result.stderr)

    def ranks_bench(self, *arguments, ranks=2):
        """The report of `bench step --ranks`, and its figures by name."""
        result = self.run_cli("bench", "step", *TINY, "--ranks", ranks, "--json", *arguments)
        self.assertEqual((result.returncode, result.stderr), (DONE, ""))
        # Without the "[rank 0]" that a launcher puts in front.
        self.assertRegex(result.stdout, r"\A\{[^\n]+\n\Z")
        report = json.loads(result.stdout)
        self.assertEqual(list(report)[:len(HEADER)], HEADER)
        self.assertEqual((report["bench"], report["threads"]), ("step", 1))
        figures = {figure["name"]: figure for figure in report["figures"]}
        self.assertEqual(len(figures), len(report["figures"]), "names are unique")
        return report, figures

    def test_ranks_step_together_beside_no_communication_and_one_process(self):
        _, figures = self.ranks_bench("--steps", 5)
        self.check_positive(figures, ("step_sharded", "step_no_comm", "step_one_process",
                                      "copy_rate", "peak_memory"))
        value = {name: figure["value"] for name, figure in figures.items()}
        self.assertAlmostEqual(value["tokens_per_second"] * value["step_sharded"], 64)
        self.assertAlmostEqual(value["sharded_of_one_process"],
                               value["step_one_process"] / value["step_sharded"])
        self.assertAlmostEqual(value["comm"], value["step_sharded"] - value["step_no_comm"])
        self.assertAlmostEqual(value["comm_floor"],
                               value["bytes_received"] * 2**20 / (value["copy_rate"] * 1e9))
        self.assertAlmostEqual(value["comm_over_copy"], value["comm"] / value["comm_floor"])
        parts = ("gather_forward", "gather_backward", "reduce", "norm", "loss")
        self.check_positive(figures, [f"comm_{part}" for part in parts])
        self.assertAlmostEqual(sum(value[f"comm_{part}"] for part in parts) +
                               value["comm_outside"], value["comm"])
        # Weights forward, most of them again backward, and their gradients, half of each: the model
        # has 27.6 thousand numbers.
        self.assertGreater(value["bytes_received"] * 2**20, 2 * 4 * 27_600 / 2)
        self.assertLess(value["bytes_received"] * 2**20, 3.2 * 4 * 27_600 / 2)
        # The demands are made for GPT-2 124M alone.
        self.assertFalse(any("floor" in figure or "ceiling" in figure
                             for figure in figures.values()))

    def test_parameters_that_stay_gathered_are_not_received_again(self):
        received = [self.ranks_bench("--steps", 5, "--set",
                                     f"shard.reshard_after_forward=\"{word}\"")[1]
                    ["bytes_received"]["value"] for word in ("yes", "no")]
        self.assertLess(received[1], 0.8 * received[0])

    def test_ranks_step_without_communication_alone(self):
        _, figures = self.ranks_bench("--steps", 5, "--no-comm")
        self.check_positive(figures, ("step_no_comm", "peak_memory"))
        self.assertEqual(list(figures), ["step_no_comm", "peak_memory"])

    def test_ranks_without_processors_of_their_own_are_warned_about(self):
        too_many = len(os.sched_getaffinity(0)) + 1
        report, _ = self.ranks_bench("--steps", 5, "--no-comm", ranks=too_many)
        self.assertEqual(list(report), [*HEADER, "warnings"])
        self.assertRegex(report["warnings"][0], rf"\A{too_many} ranks .* fewer processors")

    def test_ranks_serve_one_step_a_line(self):
        command = [FSDPTRAIN, "bench", "step", *map(str, TINY), "--ranks", "2", "--serve", "--json"]
        result = subprocess.run(command, input="go\ngo\n", capture_output=True, text=True,
                                timeout=60, check=True)
        ready, first, second, report = result.stdout.splitlines()
        self.assertEqual(ready, "ready")
        self.assertGreater(float(first), 0)
        self.assertGreater(float(second), 0)
        self.assertEqual([figure["name"] for figure in json.loads(report)["figures"]],
                         ["step", "peak_memory"])

    def test_ranks_that_cannot_be_are_refused(self):
        for arguments, message in (
                (("--ranks", 1), "must be a whole number from 2"),
                (("--ranks", 2, "--compare", "batch"), "--compare batch"),
                (("--ranks", 2, "--serve", "--no-comm"), "--no-comm"),
                (("--no-comm",), "give --ranks"),
                (("--set", "shard.prefetch=2"), "does not read shard.prefetch"),
                (("--ranks", 2, "--set", "model.num_heads=5"), "num_heads")):
            self.check_error(REFUSED, message, "bench", "step", *TINY, *arguments)

    def test_ranks_of_another_launcher_are_counted(self):
        result = self.run_cli("launch", "--nproc-per-node", 3, "--", "bench", "step", *TINY,
                              "--ranks", 2)
        self.assertEqual(result.returncode, FAILED)
        self.assertIn("--ranks 2: this process is rank", result.stderr)

    def test_recomputation_saves_memory(self):
        # Activations outweigh all else.
        sizes = ("--model", "gpt2", "--seq-len", 256, "--batch", 8, "--set", "model.num_layers=8",
                 "--set", "model.num_heads=2", "--set", "model.embed_dim=64", "--set",
                 "model.vocab_size=61")
        peaks = [self.bench("step", *sizes, "--set", f"train.recompute={policy}")
                 ["peak_memory"]["value"] for policy in ("none", "full")]
        self.assertLess(peaks[1], 0.8 * peaks[0])


class Others(BenchTest):
    def test_gemm_has_every_product_of_a_step_and_their_sum(self):
        for model, linears in (
                (TINY, ("c_attn", "attn_proj", "c_fc", "mlp_proj", "head")),
                (TINY_LLAMA, ("qkv_proj", "o_proj", "gate_up_proj", "down_proj", "head"))):
            figures = self.bench("gemm", *model)
            names = [f"{linear}.{form}" for linear in linears
                     for form in ("forward", "dx", "dw")] + ["step"]
            kinds = ["ours", "of_fma_peak"] + ["library", "of_library"] * self.has_library
            self.check_positive(figures, [f"{name}.{kind}" for name in names for kind in kinds])

    def test_memory_compares_with_a_copy(self):
        figures = self.bench("memory", "--megabytes", 1)
        for name in ("memcpy", "copy", "triad", "fill", "adamw", "cast_float32_to_bfloat16",
                     "cast_bfloat16_to_float32", "sum_of_squares"):
            self.check_positive(figures, (name, name + ".of_copy"))

    def test_data_compares_with_reading_and_writing(self):
        figures = self.bench("data", "--megabytes", 1, "--folder", self.folder, "--rounds", 5)
        self.check_positive(figures, ("prepare_text", "prepare_jsonl", "loader", "step"))
        for kind in ("text", "jsonl"):
            self.assertEqual(figures[f"prepare_ratio_{kind}"]["floor"], 0.8)
        share = figures["loader_share_of_step"]
        self.assertEqual(share["ceiling"], 0.01)
        self.assertAlmostEqual(share["value"], figures["loader"]["value"] / figures["step"]["value"])
        self.assertEqual(self.files(), [])
        self.check_error(REFUSED, "none: creating a folder in --folder failed: No such file", "bench", "data", "--folder", "none",
                         "--megabytes", 1)

    def test_ops_have_their_roofs(self):
        for dtype in ("float32", "bfloat16"):
            figures = self.bench("ops", *TINY_WIDTHS, "--dtype", dtype)
            for name in ("gelu", "gelu_backward", "layer_norm", "layer_norm_backward", "softmax",
                         "cross_entropy_forward_backward", "dropout", "embedding", "rms_norm",
                         "silu_mul", "rotary"):
                self.check_positive(figures, (name, name + ".of_copy"))
            self.check_positive(figures, ("attention", "attention.of_fma_peak",
                                          "attention_backward.of_fma_peak", "pool_region"))


class Comm(BenchTest):
    TINY = ("comm", "--megabytes", 1, "--rounds", 5)

    def test_collectives_compare_with_their_floors(self):
        figures = self.bench(*self.TINY)
        for memory, floor in (("allocated", 0.8), ("plain", 0.45)):
            for op in ("all_gather", "reduce_scatter"):
                name = f"{op}.{memory}.1MiB"
                self.check_positive(figures, (name, name + ".of_floor",
                                              name + ".4_over_2_ranks"))
                self.assertEqual(figures[name]["unit"], "GB/s")
                if len(os.sched_getaffinity(0)) >= 2:
                    self.assertEqual(figures[name + ".of_floor"]["floor"], floor)
                    self.assertEqual(figures[name + ".4_over_2_ranks"]["floor"], 0.4)
        library = "gloo.reduce_scatter.allocated.1MiB.of_library_all_gather"
        for name, floor in (("all_gather.allocated.1MiB.over_gloo", 3),
                            ("reduce_scatter.allocated.1MiB.over_gloo", 3), (library, 0.75)):
            self.check_positive(figures, (name,))
            if len(os.sched_getaffinity(0)) >= 2:
                self.assertEqual(figures[name]["floor"], floor)
        # One rate is over the other.
        self.assertAlmostEqual(figures[library]["value"] / (
            figures["gloo.reduce_scatter.allocated.1MiB"]["value"] /
            figures["gloo.library_all_gather.allocated.1MiB"]["value"]), 1, places=9)
        self.check_positive(figures, ("all_reduce.allocated.1MiB", "broadcast.allocated.1MiB",
                                      "barrier"))
        self.assertEqual(figures["barrier"]["unit"], "us")

    def test_demands_are_made_for_two_ranks_and_three_sizes_alone(self):
        figures = self.bench(*self.TINY, "--ranks", 3)
        self.check_positive(figures, ("all_gather.plain.1MiB.6_over_3_ranks",))
        self.assertFalse(any("floor" in figure for figure in figures.values()))
        figures = self.bench("comm", "--megabytes", "3,2", "--rounds", 5)
        self.check_positive(figures, ("all_gather.plain.2MiB", "all_gather.plain.3MiB.of_floor"))
        self.assertFalse(any("floor" in figure for figure in figures.values()))

    def ranks_of(self, parent):
        """2 ranks, 4 on the same processors and 2 on gloo."""
        path = pathlib.Path(f"/proc/{parent}/task/{parent}/children")
        deadline = time.monotonic() + 30
        while True:
            ranks = [int(child) for child in path.read_text(encoding="ascii").split()]
            if len(ranks) == 8:
                return ranks
            self.assertLess(time.monotonic(), deadline, ranks)
            time.sleep(0.05)

    def test_a_rank_that_is_killed_ends_the_benchmark_and_all_ranks(self):
        command = [FSDPTRAIN, "bench", "comm", "--megabytes", "16", "--rounds", "1000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as process:
            ranks = self.ranks_of(process.pid)
            time.sleep(1)
            os.kill(ranks[1], signal.SIGKILL)
            output, errors = process.communicate(timeout=60)
        self.assertEqual((process.returncode, output), (FAILED, ""))
        self.assertIn("bench comm: of 2 ranks, rank 1 was ended by signal 9", errors)
        for rank in ranks:
            self.assertFalse(pathlib.Path(f"/proc/{rank}").exists(), rank)

    def test_ranks_end_with_the_benchmark(self):
        command = [FSDPTRAIN, "bench", "comm", "--megabytes", "1", "--rounds", "1000"]
        # A benchmark that is killed while its ranks meet leaves a folder.
        environment = {**os.environ, "TMPDIR": str(self.folder)}
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              env=environment) as process:
            ranks = self.ranks_of(process.pid)
            process.kill()
        deadline = time.monotonic() + 30
        while any(is_running(rank) for rank in ranks) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual([rank for rank in ranks if is_running(rank)], [])

    def test_a_rank_alone_is_refused(self):
        self.check_error(REFUSED, "--rank is required", "bench", "comm-rank")
        self.check_error(REFUSED, "descriptor 0 is not that of this version's ranks", "bench",
                         "comm-rank", "--rank", 0, "--ranks", 2, "--segment", 0, "--parent", os.getpid(),
                         "--core", -1, "--spins", "true", "--bytes", 4)


def is_running(process):
    """Whether it is there and not only waits to be waited for."""
    try:
        status = pathlib.Path(f"/proc/{process}/stat").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


class CommandLine(BenchTest):
    def test_a_table_is_for_people(self):
        result = self.run_cli("bench", "memory", "--megabytes", 1)
        self.assertEqual(result.returncode, DONE)
        self.assertRegex(result.stdout, r"(?m)\Amemory: .*, isa \w+, \d+ threads, commit ")
        self.assertRegex(result.stdout, r"(?m)^  adamw +[\d.]+ GB/s *$")
        self.assertRegex(result.stdout, r"(?m)^  adamw.of_copy +[\d.]+ share +[█·]{20}$")

    def test_help_teaches(self):
        for arguments in ([], ["comm"], ["data"], ["gemm"], ["memory"], ["ops"], ["step"]):
            output = self.check_done("bench", *arguments, "--help")
            self.assertIn("Examples:\n  fsdptrain bench", output)

    def test_mistakes_are_refused(self):
        self.check_error(REFUSED, "see fsdptrain bench --help", "bench")
        self.check_error(REFUSED, "see fsdptrain bench --help", "bench", "speed")
        self.check_error(REFUSED, "--steps", "bench", "step", "--steps", 4)
        self.check_error(REFUSED, "--threads", "bench", "ops", "--threads", -1)
        self.check_error(REFUSED, "--threads", "bench", "ops", "--threads", 4097)
        self.check_error(REFUSED, "--threads", "bench", "ops", "--threads", "nan")
        self.check_error(REFUSED, "--rounds", "bench", "gemm", "--rounds", "nan")
        self.check_error(REFUSED, "--megabytes", "bench", "memory", "--megabytes", "1.5")
        self.check_error(REFUSED, "--compare", "bench", "step", "--compare", "speed")
        self.check_error(REFUSED, "--megabytes", "bench", "memory", "--megabytes", 0)
        self.check_error(REFUSED, "--ranks", "bench", "comm", "--ranks", 1)
        self.check_error(REFUSED, "--rounds", "bench", "comm", "--rounds", 4)
        self.check_error(REFUSED, "--threads", "bench", "comm", "--threads", 2)
        self.check_error(REFUSED, "--megabytes", "bench", "comm", "--megabytes", "1,two")
        self.check_error(REFUSED, "--megabytes: a size is there twice: 4,1,4", "bench", "comm",
                         "--megabytes", "4,1,4")
        # What only the program itself starts is in no list.
        self.assertNotIn("comm-rank", self.check_done("bench", "--help"))
        self.assertNotIn("comm-rank", self.run_cli("bench", "speed").stderr)
        self.check_error(REFUSED, "model.name", "bench", "step", "--model", "gpt9")
        self.check_error(REFUSED, "train.compute_dtype", "bench", "step", "--dtype", "int8")
        self.check_error(REFUSED, "train.seq_len", "bench", "gemm", "--seq-len", 2048)

    def test_keys_that_a_benchmark_does_not_read_are_refused(self):
        for benchmark, setting in (("step", "train.steps=5"), ("step", "schedule.warmup_steps=2"),
                                   ("step", "train.micro_batch=2"), ("step", "run.threads=1"),
                                   ("ops", "optimizer.lr=0.1"), ("gemm", "train.recompute=full"),
                                   ("step", "model.init_from=w.safetensors"),
                                   ("gemm", "model.init_from=w.safetensors"),
                                   ("ops", "model.init_from=w.safetensors"),
                                   ("ops", "model.num_layers=2"), ("gemm", "model.window=8"),
                                   ("gemm", "train.compute_dtype=bfloat16")):
            key = setting.split("=")[0]
            self.check_error(REFUSED, f"--set: {setting}: this benchmark does not read {key}, only "
                             "model.name, ", "bench", benchmark, "--set", setting)
        self.check_error(REFUSED, "unknown key", "bench", "step", "--set", "train.stepps=5")

    def comparison(self):
        path = SOURCE_DIR / "tools" / "bench" / "compare_pytorch"
        script = types.ModuleType("compare_pytorch")
        script.__file__ = str(path)
        exec(compile(path.read_text(encoding="utf-8"), path, "exec"), script.__dict__)
        return script

    def test_the_comparison_with_pytorch_demands_speed_of_one_step_alone(self):
        script = self.comparison()
        sides = [types.SimpleNamespace(name=name, seconds=[(1.0,)]) for name in ("fsdptrain", "eager")]
        reports = {side.name: {"figures": [{"name": "peak_memory", "value": 1}]} for side in sides}
        for batch, seq_len, has_floor in ((1, 1024, True), (1, 512, False), (2, 1024, False)):
            arguments = types.SimpleNamespace(batch=batch, seq_len=seq_len)
            speed = script.figures_of(arguments, sides, reports)[-1]
            self.assertEqual(speed["name"], "speed_over_eager")
            self.assertEqual("floor" in speed, has_floor, (batch, seq_len))

    def test_the_comparison_of_checkpoints_demands_a_short_stall_and_fast_loads(self):
        script = self.comparison()
        sides = [types.SimpleNamespace(name="fsdptrain", seconds=[(4.0, 0.5, 0.6, 1.0)]),
                 types.SimpleNamespace(name="dcp", seconds=[(5.0, 2.0, 3.0)])]
        reports = {side.name: {"figures": [{"name": "size", "value": 2.0}]} for side in sides}
        figures = {figure["name"]: figure for figure in script.checkpoint_figures_of(sides, reports)}
        self.assertEqual(figures["fsdptrain_save"]["value"], 0.5)
        self.assertEqual(figures["dcp_load"]["value"], 2 / 3)
        self.assertAlmostEqual(figures["fsdptrain_stall_over_memcpy"]["value"], 1.2)
        self.assertEqual(figures["stall_over_dcp"]["value"], 0.3)
        self.assertEqual(figures["stall_over_dcp"]["ceiling"], 0.4)
        self.assertEqual((figures["load_over_dcp"]["value"], figures["load_over_dcp"]["floor"]), (3.0, 2.0))

    def test_the_comparison_with_fsdp_demands_speed_of_two_steps_alone(self):
        script = self.comparison()
        names = ("fsdptrain", "fsdp2", "fsdptrain_one_process", "pytorch_one_process")
        sides = [types.SimpleNamespace(name=name, seconds=[(seconds,)])
                 for name, seconds in zip(names, (2.0, 5.0, 1.0, 4.0))]
        reports = {name: {"figures": [{"name": "peak_memory", "value": 1}]} for name in names}
        for batch, seq_len, floor in ((1, 1024, 1.35), (1, 128, 2.0), (1, 512, None),
                                      (2, 1024, None)):
            arguments = types.SimpleNamespace(batch=batch, seq_len=seq_len)
            *_, ours, theirs, speed = script.fsdp_figures_of(arguments, sides, reports)
            self.assertEqual((ours["name"], ours["value"]),
                             (f"fsdptrain_of_one_process.{batch}x{seq_len}", 0.5))
            self.assertEqual((theirs["name"], theirs["value"]),
                             (f"fsdp2_of_one_process.{batch}x{seq_len}", 0.8))
            self.assertEqual((speed["name"], speed["value"]),
                             (f"speed_over_fsdp2.{batch}x{seq_len}", 2.5))
            self.assertEqual(speed.get("floor"), floor)

    def test_the_comparison_with_pytorch_refuses_bad_arguments(self):
        script = SOURCE_DIR / "tools" / "bench" / "compare_pytorch"
        for arguments in (["--threads", "0"], ["--seq-len", "1025"], ["--fsdptrain", "/none"],
                          ["--fsdp", "--threads", "4"], ["--colour"]):
            result = subprocess.run([sys.executable, script, *arguments], capture_output=True,
                                    text=True, timeout=60, check=False)
            self.assertEqual(result.returncode, REFUSED)
            self.assertTrue(re.search("error: ", result.stderr))
            self.assertEqual(result.stdout, "")


class Launch(BenchTest):
    def test_it_says_what_the_launcher_adds(self):
        figures = self.bench("launch", "--rounds", 5)
        self.check_positive(figures, ("launched", "bare"))
        self.assertAlmostEqual(figures["overhead"]["value"],
                               figures["launched"]["value"] - figures["bare"]["value"], places=4)
        self.assertEqual(figures["overhead"]["ceiling"], 0.3)
        # The demand is made for 4 ranks.
        self.assertNotIn("ceiling", self.bench("launch", "--rounds", 5, "--ranks", 2)["overhead"])


if __name__ == "__main__":
    main()
