#!/usr/bin/env python3
"""Fails on text that must not be in the repository: placeholders, silenced errors, paths of a
machine, and the few C++ constructs that no compiler warning catches."""

import pathlib
import re
import sys

import sources

MAX_LINES = 600

# Spelt in pieces, so that this file passes itself.
PLACEHOLDER = re.compile(r"\b(?:" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK"))
                         + r")\b")
MACHINE_PATH = re.compile(r"(?<![\w.$}/-])/(?:home/\w|root/|Users/\w|work/\w)")

# (what, where it applies, why): matched on code without comments and literals.
CODE_RULES = [
    (re.compile(r"(?<![\w.])assert\s*\("), lambda name: True,
     "assert() is compiled out of the cpu preset; use check()"),
    (re.compile(r"#\s*include\s*<(?:cassert|assert\.h)>"), lambda name: True,
     "assert() is compiled out of the cpu preset; use check()"),
    (re.compile(r"#\s*pragma\s+omp\b|\b_Pragma\s*\(\s*\"\s*omp"), lambda name: True,
     "OpenMP is not used; ThreadPool is the one place that makes compute threads"),
    (re.compile(r"\b__shared__\b"),
     lambda name: name != "kernels/cuda/simt.h", "only simt.h may name __shared__"),
    (re.compile(r"\bcatch\s*\(\s*\.\.\.\s*\)\s*\{\s*\}"), lambda name: True,
     "an exception is swallowed"),
    (re.compile(r"\bcheck\s*(?:<[\w:]+>)?\s*\((?=[^;]*(?<![\w>])::\w+\()[^;]*\berrno\b"), lambda name: True,
     "arguments are evaluated in any order: call the system before check(), errno is of an older call"),
    (re.compile(r"\bstd\s*::\s*(?:exp2?|expm1|log(?:2|10|1p)?|pow|sqrt|cbrt|hypot|a?(?:sin|cos|tan)h?"
                r"|atan2|erfc?|[lt]gamma|fma|fabs|abs|floor|ceil|l?l?round|trunc|rint|nearbyint"
                r"|fmod|fmin|fmax|isnan|isinf|isfinite|copysign)\s*\("),
     lambda name: name.startswith("kernels/functors/"),
     "functors use functors/math.h: a scalar std:: function stops vectorisation"),
]


def line_of(text, match):
    return text.count("\n", 0, match.start()) + 1


def check(name, text):
    suffix = pathlib.PurePath(name).suffix
    for pattern, why in ((PLACEHOLDER, "a placeholder"), (MACHINE_PATH, "a path of one machine")):
        for match in pattern.finditer(text):
            yield f"{name}:{line_of(text, match)}: '{match[0]}' is {why}"
    if suffix in sources.CPP_SUFFIXES:
        code = sources.code_of(text)
        for pattern, applies, why in CODE_RULES:
            for match in pattern.finditer(code) if applies(name) else ():
                yield f"{name}:{line_of(code, match)}: {why}"
    if suffix in sources.CPP_SUFFIXES | {".py", ".sh", ".cmake"}:
        lines = text.count("\n")
        if lines > MAX_LINES:
            yield f"{name}:{MAX_LINES}: {lines} lines; more than {MAX_LINES} are two ideas"


def main():
    problems = []
    for name in sources.listed(sources.ROOT):
        content = (sources.ROOT / name).read_bytes()
        # Golden files and other data: no text of ours.
        if b"\0" not in content[:4096]:
            problems += check(name, content.decode(errors="replace"))
    return sources.report("check_text", problems)


if __name__ == "__main__":
    sys.exit(main())
