#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""words.py [ROOT]: words and phrases that are not written in this tree, with the word of the field (tests/words.txt).

A row of words.txt is `WHERE [in PATH,PATH]: PATTERN -> USE [except FILE ...]`. PATTERN is a regular expression. WHERE:
  names     whole parts (between underscores) of identifiers of C, and of file names; any case
  comments  whole words of comments of C, and of prose: Markdown outside of code, and comments of rules, YAML, shell, Python,
            CMake and tests; any case
  strings   whole words of C string literals
  both      names and comments
`in` limits a row to files whose path begins with one of PATH: there the word has the meaning that is not written.
Prints each place, and exits 1 if there is one. `--count` prints the number of places of each row.
"""
import collections
import os
import re
import sys

import rooms

ROW = re.compile(r"(names|comments|strings|both)(?: in ([^:\s]+))?: (.+?) -> (.+?)(?: except (.+))?")
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|[A-Za-z_]\w*', re.S)
SCRIPT = re.compile(r'(?:(?<=\s)|^)#[^\n]*|"""(?:.*?)"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[A-Za-z_]\w*', re.S | re.M)
HASH = re.compile(r"(?:(?<=\s)|^)#[^\n]*", re.M)
SEMICOLON = re.compile(r"^; (?!RUN|CHECK|[A-Z-]+:)[^\n]*", re.M)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`|^    [^\n]*|\]\([^)\n]*\)", re.S | re.M)
PROSE = {".rule": HASH, ".yaml": HASH, ".sh": HASH, ".cmake": HASH, ".tir": SEMICOLON, ".test": HASH}


class Row:
    def __init__(self, line, number):
        found = ROW.fullmatch(line)
        if not found:
            sys.exit(f"words.txt:{number}: not WHERE [in PATH]: PATTERN -> USE [except FILE ...]")
        self.where, under, self.pattern, self.use, excepted = found.groups()
        self.under = tuple((under or "").split(","))
        self.excepted = (excepted or "").split()
        self.name = re.compile(rf"(?<![a-z0-9])(?:{self.pattern})(?![a-z0-9])")
        self.phrase = re.compile(rf"(?<![\w-])(?:{self.pattern})(?![\w-])", re.I)

    def is_for(self, path):
        return path.startswith(self.under) and path not in self.excepted


def rows(path):
    for n, line in enumerate(open(path, encoding="utf-8"), 1):
        line = line.strip()
        if line and not line.startswith("#"):
            yield Row(line, n)


def pieces(path, text):
    """(kind, offset, piece) of a file: names, comments (without line breaks) and strings."""
    end = os.path.splitext(path)[1]
    if end in (".c", ".h", ".def", ".py"):
        for token in (SCRIPT if end == ".py" else TOKEN).finditer(text):
            word = token[0]
            if word[0] in "/#" or word.startswith('"""'):
                yield "comments", token.start(), re.sub(r"\s*\n\s*\*?\s*", lambda gap: " " * len(gap[0]), word)
            elif word[0] == '"' and end != ".py":
                yield "strings", token.start(), word
            elif word[0] not in "\"'" and end != ".py":
                yield "names", token.start(), word
    elif end == ".md":
        prose = CODE.sub(lambda code: re.sub(r"[^\n]", "#", code[0]), text)
        yield "comments", 0, prose.replace("\n", " ")
    elif end in PROSE:
        for comment in PROSE[end].finditer(text):
            yield "comments", comment.start(), comment[0]


def places(path, text, table):
    """(line, text, row) of each word that is not to be written."""
    for row in table["names"]:
        if found := row.name.search(path.lower()):
            if row.is_for(path):
                yield 1, found[0], row
    for kind, offset, piece in pieces(path, text):
        for row in table[kind] if kind != "names" else matching(piece.lower(), table):
            if row.is_for(path):
                for hit in [None] if kind == "names" else row.phrase.finditer(piece):
                    at = offset + (hit.start() if hit else 0)
                    yield text.count("\n", 0, at) + 1, hit[0] if hit else piece, row


def matching(name, table, known={}):
    if name not in known:
        known[name] = [row for row in table["names"] if row.name.search(name)]
    return known[name]


def files_of(root):
    """Files of the table of rooms and of the other folders with text of ours."""
    for top in (*rooms.STAGES, "tests", "examples"):
        for folder, folders, names in os.walk(os.path.join(root, top)):
            folders[:] = sorted(f for f in folders if f not in ("build", "__pycache__"))
            for name in sorted(names):
                if os.path.splitext(name)[1] in (".c", ".h", ".def", ".py", ".md", *PROSE):
                    yield os.path.relpath(os.path.join(folder, name), root)


def main():
    arguments = [a for a in sys.argv[1:] if a != "--count"]
    root = arguments[0] if arguments else os.path.join(os.path.dirname(__file__), "../..")
    table = collections.defaultdict(list)
    listed = list(rows(os.path.join(root, "tests/words.txt")))
    for row in listed:
        for kind in ("names", "comments") if row.where == "both" else (row.where,):
            table[kind].append(row)
    count = collections.Counter()
    for path in files_of(root):
        text = open(os.path.join(root, path), encoding="utf-8", errors="replace").read()
        for line, word, row in places(path, text, table):
            count[row] += 1
            if "--count" not in sys.argv:
                print(f"{path}:{line}: '{word}': {row.use}")
    if "--count" in sys.argv:
        for row in listed:
            print(f"{count[row]:6} {row.where} {row.pattern} -> {row.use}")
    return bool(count) and "--count" not in sys.argv


if __name__ == "__main__":
    sys.exit(main())
