#!/usr/bin/env python3
"""Fails where an object of an ISA variant defines a symbol that another variant could define too.

The linker keeps one of several equal symbols: code compiled for AVX2 would run on a CPU without
it. Every symbol with linkage must name its variant, by namespace or by template argument.
"""

import re
import subprocess
import sys

# How the compiler refers to the personality routine of libstdc++; holds an address, no code.
HARMLESS = re.compile(r"DW\.ref\.")


def defined_symbols(path):
    """The demangled names of the global and weak symbols that an object defines."""
    listing = subprocess.run(
        ["nm", "--demangle", "--defined-only", "--extern-only", "--format=posix", path],
        check=True, capture_output=True, text=True).stdout
    for line in listing.splitlines():
        # A name may hold spaces; type, value and size follow it.
        match = re.fullmatch(r"(?P<name>.+) [A-Za-z](?: [0-9a-f]+){1,2}", line)
        if match and not HARMLESS.match(match["name"]):
            yield match["name"]


def main(arguments):
    if len(arguments) < 3:
        print("usage: check_isa_symbols.py VARIANT INDEX OBJECT...\n\n"
              "  VARIANT  the variant's namespace, for example avx2\n"
              "  INDEX    its value in enum Isa\n\n"
              "exit code: 0 clean, 1 something was found, 2 usage", file=sys.stderr)
        return 2
    variant, index, *objects = arguments
    # The last form is for names that nm cannot demangle.
    own = re.compile(rf"\bfsdptrain::kernels::{re.escape(variant)}::"
                     rf"|\(fsdptrain::Isa\){re.escape(index)}\b"
                     rf"|^_Z+N9fsdptrain7kernels{len(variant)}{re.escape(variant)}")
    status = 0
    for path in objects:
        names = list(defined_symbols(path))
        if not names:
            print(f"{path}: no symbol with linkage: is this an object of a kernel unit?")
            status = 1
        for name in names:
            if not own.search(name):
                print(f"{path}: not of variant {variant} alone: {name}")
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
