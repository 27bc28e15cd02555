"""What processes of a job hold, beside what `fsdptrain plan` says.

Usage: plan_memory_test.py FSDPTRAIN SOURCE_DIR
"""

import json
import pathlib
import re
import subprocess
import time

from cli_case import DONE, FSDPTRAIN, CliTest, main

NUM_RANKS = 2
MIB = 1 << 20
# Parameters that take much more than a process needs anyway, and few tokens.
MODEL = {"data.tokens": "text.tok", "data.validation_fraction": 0, "model.num_layers": 6, "model.num_heads": 12,
         "model.embed_dim": 768, "model.max_seq_len": 32, "train.seq_len": 32, "train.global_batch": 4,
         "train.micro_batch": 1, "train.steps": 4, "run.threads": 1}


def words(settings):
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def size(text, name):
    found = re.search(rf"(?m)^{name}:\s+(\d+) kB$", text)
    return int(found[1]) << 10 if found else 0


def ranks_of(launcher):
    """The processes that the launcher has started and that are training by now."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            command = stat.with_name("cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if parent == launcher and command[1:2] == [b"train"]:
            found.append(stat.parent)
    return found


class Memory:
    """The largest that was seen of a job."""

    def __init__(self):
        self.anonymous = {}
        self.shared = 0

    def look(self, ranks):
        shared = 0
        for rank in ranks:
            try:
                anonymous = size((rank / "status").read_text(), "RssAnon")
                # A page that several have mapped counts for each in part: all together, what ranks
                # have allocated for others to read.
                shared += size((rank / "smaps_rollup").read_text(), "Pss_Shmem")
            except OSError:
                return
            self.anonymous[rank] = max(self.anonymous.get(rank, 0), anonymous)
        self.shared = max(self.shared, shared)


class PlanMemory(CliTest):
    def measure(self, settings):
        command = [FSDPTRAIN, "launch", "--nproc-per-node", str(NUM_RANKS), "--", "train", *words(settings)]
        memory = Memory()
        with open(self.folder / "output", "wb") as output:
            process = subprocess.Popen(command, cwd=self.folder, stdout=output, stderr=subprocess.STDOUT)
            self.addCleanup(process.kill)
            while process.poll() is None:
                ranks = ranks_of(process.pid)
                if len(ranks) == NUM_RANKS:
                    memory.look(ranks)
                time.sleep(0.02)
        self.assertEqual(process.returncode, DONE, (self.folder / "output").read_text())
        self.assertEqual(len(memory.anonymous), NUM_RANKS)
        return memory

    def test_ranks_hold_what_was_planned(self):
        self.prepare(b"In the beginning God created the heaven and the earth.\n" * 400)
        for reshard in ("auto", "no"):
            settings = {**MODEL, "shard.reshard_after_forward": f'"{reshard}"'}
            planned = json.loads(self.check_done("plan", "--world", NUM_RANKS, *words(settings), "--json"))["memory"]
            wanted = planned["kept_bytes"] + planned["process_base_bytes"]
            self.assertGreater(wanted, 400 * MIB)
            memory = self.measure({**settings, "run.dir": reshard})
            for rank, anonymous in memory.anonymous.items():
                # Ranks hold the same to within a few elements.
                held = anonymous + memory.shared / NUM_RANKS
                self.assertLessEqual(abs(held - wanted), max(0.03 * wanted, 64 * MIB),
                                     f"{reshard}: {rank} holds {held / MIB:.0f} MiB, planned {wanted / MIB:.0f} MiB")


if __name__ == "__main__":
    main()
