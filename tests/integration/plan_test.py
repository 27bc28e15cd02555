"""`fsdptrain plan` as a user meets it.

Usage: plan_test.py FSDPTRAIN SOURCE_DIR
"""

import json
import os
import subprocess

from cli_case import DONE, FSDPTRAIN, REFUSED, SOURCE_DIR, CliTest, main

CONFIGS = SOURCE_DIR.resolve() / "configs"


class Plan(CliTest):
    def plan(self, *arguments):
        return json.loads(self.check_done("plan", *arguments, "--json"))

    def test_seventy_billion_parameters_on_a_thousand_ranks_are_planned_without_them(self):
        command = [FSDPTRAIN, "plan", "--config", CONFIGS / "llama3-70b.toml", "--world", "1024",
                   "--set", "train.global_batch=1024", "--memory", "80GiB", "--json"]
        with subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE) as process:
            plan = json.load(process.stdout)
            # Of this process alone.
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, DONE)
        self.assertLess(usage.ru_maxrss, 256 * 1024)
        self.assertEqual(plan["parameters"], 70_553_706_496)
        held = {item["name"]: item["held_bytes"] for item in plan["memory"]["items"]}
        for name, bytes_each in (("parameters", 4), ("gradients", 4), ("optimizer states", 8)):
            least = bytes_each * plan["parameters"] / 1024
            self.assertGreaterEqual(held[name], least)
            self.assertLess(held[name], least * 9 / 8 + 1e6)
        self.assertTrue(plan["limit"]["fits"])
        self.assertLess(plan["padding"]["percent"], 0.1)
        # All but its own thousandth: forward and backward in bfloat16, reduced in float32. The
        # embedding, the last block and the head are not gathered again.
        received = sum(each["received_bytes"] for each in plan["traffic"])
        self.assertLess(received, 8 * plan["parameters"])
        self.assertGreater(received, 7.8 * plan["parameters"])

    def test_every_configuration_is_planned_on_four_ranks(self):
        for path in sorted(CONFIGS.glob("*.toml")):
            with self.subTest(path.name):
                plan = self.plan("--config", path, "--world", 4, "--set", "train.micro_batch=1")
                self.assertGreater(plan["memory"]["peak_bytes"], 0)
                self.assertEqual(sum(item["at_peak_bytes"] for item in plan["memory"]["items"]),
                                 plan["memory"]["peak_bytes"])

    def test_the_table_says_what_the_object_says(self):
        arguments = ("--set", "model.name=gpt2-124m", "--world", 8, "--set", "train.micro_batch=4")
        table = self.check_done("plan", *arguments)
        plan = self.plan(*arguments)
        self.assertRegex(table, r"\Agpt2-124m on cpu: rank 0 of 8, 124\.44 M parameters\n")
        for item in plan["memory"]["items"]:
            self.assertRegex(table, rf"(?m)^  {item['name']}  ")
        self.assertRegex(table, rf"(?m)^  in use .*  in {plan['memory']['peak_phase']}$")
        self.assertRegex(table, r"(?m)^  the forward of h\.0-11  +[\d.]+ [MG]iB$")
        self.assertRegex(table, r"(?m)^  all_gather of the forward  +13 ")
        self.assertRegex(table, r"(?m)^  4  +[\d.]+ MiB  parameters of h\.0-11; gradients of")
        self.assertNotRegex(table, r"(?m)[ ]+$")
        self.assertLess(max(map(len, table.splitlines())), 110)

    def test_what_does_not_fit_is_refused_with_what_would(self):
        arguments = ("plan", "--set", "model.name=gpt2-124m", "--set", "train.micro_batch=8",
                     "--world", 2, "--memory")
        result = self.run_cli(*arguments, "1.5GiB")
        self.assertEqual(result.returncode, REFUSED)
        self.assertRegex(result.stderr, r"\Afsdptrain: plan: a rank needs [\d.]+ GiB, [\d.]+ [MG]iB"
                                        r" more than --memory 1\.5GiB")
        self.assertIn("\ndoes not fit: ", result.stdout)
        self.assertRegex(result.stdout,
                         r'(?m)^ +[\d.]+ [MG]iB        train\.recompute = "selective"\n +costs: a step comp')
        self.assertRegex(result.stdout.rstrip().splitlines()[-2], r"^ +[\d.]+ [MG]iB  fits  ")
        result = self.run_cli(*arguments, "1MiB", "--json")
        self.assertEqual(result.returncode, REFUSED)
        limit = json.loads(result.stdout)["limit"]
        self.assertFalse(limit["fits"])
        self.assertFalse(limit["tried"][-1]["fits"])
        self.assertIn("--world 32", limit["tried"][-1]["change"])
        self.assertIn("nothing that this command tries fits", self.run_cli(*arguments, "1MiB").stdout)

    def test_the_mesh_of_a_configuration_is_its_world(self):
        self.assertEqual(self.plan("--set", "mesh.shard=4")["world"], 4)
        self.assertEqual(self.plan()["world"], 1)

    def test_mistakes_are_named_with_their_cure(self):
        for message, arguments in (
                ("--memory: \"80 gib\" is no amount of memory: give a number and a unit, like 80GiB",
                 ("--memory", "80 gib")),
                ("--rank 4: with 4 ranks it must be 0 to 3", ("--world", 4, "--rank", 4)),
                ("5 ranks need as many micro-batches, but a step has 4", ("--world", 5)),
                ("--world: must be a whole number from 1 to 1048576, got 0", ("--world", 0)),
                ("mesh.shard = 4: with mesh.replicate = 1 this makes 4 ranks, and there are 2",
                 ("--world", 2, "--set", "mesh.shard=4")),
                ("none.toml: there is no such file", ("--config", "none.toml")),
                ("model.depth", ("--set", "model.depth=3"))):
            with self.subTest(message):
                self.check_error(REFUSED, message, "plan", *arguments)

    def test_help_teaches(self):
        output = self.check_done("plan", "--help")
        self.assertIn("Examples:\n  fsdptrain plan", output)
        self.assertIn("--memory", output)


if __name__ == "__main__":
    main()
