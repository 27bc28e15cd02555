"""The kernels of one ISA variant, run by isa_digest on this CPU or on an emulated one.

usage: isa_test.py ISA_DIGEST VARIANT [EMULATED_CPU]

On this CPU the results must be those of the baseline up to rounding, and the same bits again. On
an emulated CPU, which has no instruction beyond the variant's, they must have the bits that this
CPU computes with the same variant, or, where it has none, be near those of the baseline.

exit code: 0 as it should be, 1 not, 77 the variant cannot be run here (the reason is printed).
"""

import os
import shutil
import subprocess
import sys

SKIPPED = 77
# What sums of results may differ by between variants, as a part of the sum of magnitudes.
TOLERANCE = {"float64": 1e-15, "float32": 1e-7, "bfloat16": 3e-5}
MOST_ULPS = 2.0


class Refused(Exception):
    """This CPU lacks the variant."""


def digests(command, variant):
    """What isa_digest prints, as {name: (digest, sum, scale)} and {name: ulps}."""
    run = subprocess.run(command, env={**os.environ, "FSDPTRAIN_ISA": variant}, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if run.returncode != 0:
        if "FSDPTRAIN_ISA: this CPU can run" in run.stderr:
            raise Refused(run.stderr.strip())
        sys.exit(f"{' '.join(command)} as {variant}: exit code {run.returncode}\n{run.stderr}")
    results, ulps = {}, {}
    for line in run.stdout.splitlines():
        fields = line.split()
        if fields[0] == "ulp":
            ulps[fields[1]] = float(fields[2])
        else:
            results[fields[0]] = (fields[1], float(fields[2]), float(fields[3]))
    return results, ulps


def differing_bits(results, expected):
    return [f"{name}: digest {results[name][0]} is not {expected[name][0]}"
            for name in expected if results[name][0] != expected[name][0]]


def far_apart(results, expected):
    for name, (_, expected_sum, scale) in expected.items():
        tolerance = TOLERANCE[name.rpartition("/")[2]] * scale
        actual = results[name][1]
        # So written that a NaN is found.
        if not abs(actual - expected_sum) <= tolerance:
            yield f"{name}: the sum {actual} is not within {tolerance:.2g} of {expected_sum}"


def skip(reason):
    print(reason)
    return SKIPPED


def main(arguments):
    if len(arguments) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    program, variant, *emulated = arguments
    baseline, _ = digests([program], "baseline")
    native = None
    try:
        native, ulps = digests([program], variant)
    except Refused:
        if not emulated:
            return skip(f"{variant}: this CPU has none, compiled but not run")
    problems = []
    if emulated:
        qemu = shutil.which("qemu-x86_64")
        if qemu is None:
            return skip(f"{variant} on an emulated {emulated[0]}: qemu-x86_64 is missing "
                        "(package qemu-user), compiled but not run")
        results, ulps = digests([qemu, "-cpu", emulated[0], program], variant)
    else:
        results, _ = digests([program], variant)
    if native is not None:
        problems += differing_bits(results, native)
    problems += far_apart(results, baseline)
    problems += [f"{name}: {error} ulp" for name, error in ulps.items() if not error <= MOST_ULPS]
    if not results or not ulps:
        problems.append("isa_digest printed no results")
    for problem in problems:
        print(problem)
    print(f"{variant}: {len(results)} results, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
