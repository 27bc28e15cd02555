#!/usr/bin/env python3
"""Fails on process state: variables of static or thread storage that are not constant.

Ranks can be threads of one process, so everything that a rank owns is in its RankContext. A
variable that must differ carries `NOLINT(check): reason`, or has NOLINTNEXTLINE so above it.
"""

import re
import sys

import sources

NOLINT_HERE = re.compile(r"NOLINT\([^)]+\): *\w")
NOLINT_NEXT = re.compile(r"NOLINTNEXTLINE\([^)]+\): *\w")

DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
# From the keyword to what ends the declarator. `(` ends a function, or a variable if a literal
# follows.
MARKED = re.compile(r"\b(?:static|thread_local)\b(?P<rest>[^;={(]*)(?P<end>[;={(])\s*(?P<after>\S?)")
BEFORE_KEYWORD = re.compile(r"[^;{}]*\Z")

NO_VARIABLE = re.compile(
    r"(?:\[\[[^\]]*\]\]\s*)*(?:typedef|using|namespace|class|struct|enum|union|template|friend"
    r"|static_assert|concept|static|thread_local|asm|extern\s+template|operator)\b")
# Type, then name, with nothing but an initialiser behind.
VARIABLE = re.compile(
    r"(?:(?:inline|extern|volatile|constinit|alignas\s*\([^)]*\)|\[\[[^\]]*\]\])\s*)*"
    r"[A-Za-z_][\w:]*(?:\s*<.*>)?(?:::\w+)?(?:\s+(?:const|int|long|char|double))*[\s*&]+"
    r"(?:const\s+)?[A-Za-z_][\w:]*\s*(?:\[[^\]]*\]\s*)*(?:=.*|\(\s*[\d\"'].*)?\Z", re.DOTALL)
HEAD_OF_CODE = re.compile(r"(?:\)|\b(?:else|do|try|const|noexcept|override|final)|->[^=]*)\s*\Z")
HEAD_OF_TYPE = re.compile(r"\b(?:class|struct|union|enum)\b[^=()]*\Z")
HEAD_OF_NAMESPACE = re.compile(r'\bnamespace\b[\w:\s]*\Z|\bextern\s*"\s*"\s*\Z')


def is_constant(declaration):
    """Whether the object itself cannot change: behind a `*`, only a later const counts."""
    if re.search(r"\bconstexpr\b", declaration):
        return True
    declarator = re.split(r"[={]", declaration, maxsplit=1)[0]
    return bool(re.search(r"\bconst\b", declarator.rsplit("*", 1)[-1]))


def marked(code):
    """(position, declaration) of the variables declared static or thread_local, at any depth."""
    for match in MARKED.finditer(code):
        if match["end"] == "(" and not re.match(r"[\d\"']", match["after"]):
            continue
        before = BEFORE_KEYWORD.search(code, 0, match.start())[0]
        declaration = before + match["rest"]
        if not re.search(r"\b(?:template|operator)\b", declaration):
            yield match.start(), declaration


def at_namespace_scope(code):
    """(position, declaration) of the variables outside all functions and types."""
    depth = 0  # open braces that are no namespace
    namespaces = []
    parens = 0
    begin = 0
    for position, char in enumerate(code):
        parens += (char in "([") - (char in ")]")
        if parens > 0 or char not in "{};":
            continue
        text = code[begin:position]
        start = begin + len(text) - len(text.lstrip())
        text = text.strip()
        begin = position + 1
        if char == "}":
            if depth > 0:
                depth -= 1
            elif namespaces:
                namespaces.pop()
        elif char == "{" and depth == 0 and HEAD_OF_NAMESPACE.search(text):
            namespaces.append(text)
        else:
            block = HEAD_OF_CODE.search(text) or HEAD_OF_TYPE.search(text)
            declares = char == ";" or not block
            if depth == 0 and declares and VARIABLE.match(text) and not NO_VARIABLE.match(text):
                yield start, text
            depth += char == "{"


def check(name, text):
    code = sources.code_of(text)
    code = DIRECTIVE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), code)
    lines = text.splitlines()
    for position, declaration in sorted([*marked(code), *at_namespace_scope(code)]):
        if is_constant(declaration):
            continue
        line = code.count("\n", 0, position) + 1
        above = lines[line - 2] if line > 1 else ""
        if not NOLINT_HERE.search(lines[line - 1]) and not NOLINT_NEXT.search(above):
            yield (f"{name}:{line}: '{' '.join(declaration.split())[:60]}' is state of the process;"
                   " put it into RankContext or make it const")


def main():
    problems = []
    for name in sources.cpp_files(sources.ROOT):
        problems += check(name, (sources.ROOT / name).read_text())
    return sources.report("check_statics", problems)


if __name__ == "__main__":
    sys.exit(main())
