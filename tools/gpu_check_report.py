#!/usr/bin/env python3
"""The last part of tools/gpu_check: what its steps left in a folder, as one JSON object.

Exit code: 0 all is as it should be, 1 something is not.
"""

import json
import os
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

# How tests that need a GPU, or none, say that they were not run.
SKIPPED = re.compile(r"SKIPPED, nothing was tested: (.*)")
HAS_GPU = "this machine has a CUDA device"
NO_KERNEL = "there is no CUDA kernel for it yet"
NO_DRIVER = "this machine has no CUDA driver"
NO_DEVICE = "this machine has 0 CUDA devices"


def read(path):
    return path.read_text(errors="replace") if path.exists() else ""


def steps_of(text):
    """Exit code and seconds of each step, by its name."""
    return {name: {"exit_code": int(code), "seconds": int(seconds)}
            for name, code, seconds in (line.split() for line in text.splitlines())}


def device_of(text):
    """The first GPU by nvidia-smi, or None."""
    fields = text.splitlines()[0].split(", ") if text else []
    if len(fields) != 4:
        return None
    return {"name": fields[0], "driver": fields[1], "memory_mib": int(fields[2]),
            "compute_capability": fields[3]}


def versions_of(version, nvcc):
    """What fsdptrain was built from and runs with, by library."""
    line = re.search(r"^libraries (.*)$", version, re.MULTILINE)
    entries = line[1].split(", ") if line else []
    versions = dict(entry.rsplit(" ", 1) if "(" not in entry else re.split(r" (?=\d)", entry, maxsplit=1)
                    for entry in entries)
    release = re.search(r"release ([0-9.]+)", nvcc)
    return versions | {"nvcc": release[1] if release else "none"}


def tests_of(text):
    """Every test, in the order of its run; a skipped one has not passed."""
    tests = []
    for case in ElementTree.fromstring(text).iter("testcase") if text else []:
        reason = SKIPPED.search(case.findtext("system-out") or "")
        test = {"name": case.get("name"), "passed": case.get("status") == "run" and not reason,
                "seconds": float(case.get("time", 0))}
        tests.append(test | ({"skipped": reason[1]} if reason else {}))
    return tests


def is_fine(test, dry_run):
    """Where there is a GPU, only what needs a machine without one may be skipped."""
    reason = test.get("skipped")
    return test["passed"] or (reason is not None and (dry_run or reason == HAS_GPU))


def train_of(text, exit_code, has_device):
    """How a step of training ended: no part of the model but with its CUDA kernels runs."""
    message = text.strip().splitlines()[-1] if text.strip() else ""
    wanted = [NO_KERNEL] if has_device else [NO_DRIVER, NO_DEVICE]
    return {"exit_code": exit_code, "message": message,
            "passed": exit_code == 1 and any(part in message for part in wanted)}


def main(folder, dry_run, seconds):
    steps = steps_of(read(folder / "steps"))
    logs = {name: read(folder / f"{name}.log") for name in steps}
    has_device = steps["nvidia-smi"]["exit_code"] == 0
    device = device_of(logs["nvidia-smi"]) if has_device else None
    tests = tests_of(read(folder / "tests.xml"))
    train = train_of(logs["train"], steps["train"]["exit_code"], device is not None)
    processor = re.search(r"^model name\s*: (.*)$", read(pathlib.Path("/proc/cpuinfo")), re.MULTILINE)
    commit = re.search(r"^commit +(\S+)", logs["version"], re.MULTILINE)
    passed = (bool(tests) and all(is_fine(test, dry_run) for test in tests) and train["passed"]
              and steps["version"]["exit_code"] == 0 and (dry_run or device is not None))
    print(json.dumps({
        "bench": "gpu_check",
        "commit": commit[1] if commit else "unknown",
        "machine": f"{processor[1] if processor else 'unknown'}, {os.cpu_count()} processors",
        "device": device,
        "versions": versions_of(logs["version"], logs["nvcc"]),
        "dry_run": dry_run,
        "passed": passed,
        "seconds": seconds,
        "steps": steps,
        "train": train,
        "tests": tests,
    }, indent=1))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), os.environ["DRY_RUN"] == "true",
                  int(os.environ["TOTAL_SECONDS"])))
