#!/usr/bin/env python3
"""Fails where an object of an ISA variant uses registers that the variant has not, or none of its own.

A baseline object must run on any x86-64, and a variant without arithmetic on its widest vectors
is not worth its compilation. Non-temporal stores without a fence, which nothing else orders, fail too.
"""

import os
import re
import subprocess
import sys

# By variant: what its instructions may not name, and what some must. (A baseline need not be fast.)
RULES = {
    "baseline": (re.compile(r"%[yz]mm|%k[0-7]\b"), None),
    "avx2": (re.compile(r"%zmm|%k[0-7]\b|%[xy]mm(1[6-9]|2\d|3[01])\b"), re.compile(r"%ymm")),
    "avx512": (None, re.compile(r"%zmm")),
}
# The instructions that arithmetic on a register's whole width is made of.
ARITHMETIC = re.compile(r"\t(v?mul|v?add|v?sub|v?fn?m(add|sub)\d*)p[sd]\s")
# Units that compute with integers alone, and what on.
INTEGER_ARITHMETIC = {"checksum.cpp.o": re.compile(r"\tv?pmuludq\s")}

# Stores past the caches (movntdqa is a load), and what orders them.
STREAM = re.compile(r"\tv?movnt(i|q|dq|p[sd])\s")
FENCE = re.compile(r"\t[sm]fence\b")

# Units that pick their elements one by one, or do not compute with them.
WITHOUT_VECTORS = {"copy_bytes.cpp.o", "gather.cpp.o", "segments.cpp.o"}


def check(disassembly, variant, arithmetic=ARITHMETIC):
    """The forbidden instructions, and whether there is arithmetic that the variant must have."""
    forbidden, own = RULES[variant]
    found = [line for line in disassembly if forbidden and forbidden.search(line)]
    return found, own is None or any(
        own.search(line) and arithmetic.search(line) for line in disassembly)


def fenced(disassembly):
    """Whether there is a fence where there are non-temporal stores."""
    return not any(map(STREAM.search, disassembly)) or any(map(FENCE.search, disassembly))


def main(arguments):
    if len(arguments) < 2 or arguments[0] not in RULES:
        print("usage: check_isa_registers.py VARIANT OBJECT...\n\n"
              f"  VARIANT  {', '.join(RULES)}\n\n"
              "exit code: 0 clean, 1 something was found, 2 usage", file=sys.stderr)
        return 2
    variant, *objects = arguments
    status = 0
    for path in objects:
        listing = subprocess.run(["objdump", "--disassemble", "--no-show-raw-insn", path],
                                 check=True, capture_output=True, text=True).stdout
        instructions = listing.splitlines()
        forbidden, own = check(instructions, variant,
                               INTEGER_ARITHMETIC.get(os.path.basename(path), ARITHMETIC))
        if forbidden:
            print(f"{path}: {len(forbidden)} instructions that {variant} has not, the first:\n"
                  f"{forbidden[0]}")
            status = 1
        if not own and os.path.basename(path) not in WITHOUT_VECTORS:
            print(f"{path}: no arithmetic on the widest registers of {variant}")
            status = 1
        if not fenced(instructions):
            print(f"{path}: non-temporal stores and no fence")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
