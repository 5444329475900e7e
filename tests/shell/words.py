#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""words.py [ROOT]: words and phrases that are not written in this tree, with the word of the field (tests/words.txt).

A row of words.txt is `WHERE: PATTERN -> USE [except FILE ...]`. WHERE is `names` (parts of identifiers between
underscores), `comments` or `both`; PATTERN is a regular expression that matches a whole part of an identifier, or whole
words of a comment.
Prints each place, and exits 1 if there is one. `--count` prints the number of places of each row.
"""
import collections
import os
import re
import sys

import rooms

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|[A-Za-z_]\w*', re.S)


def rows(path):
    for n, line in enumerate(open(path, encoding="utf-8"), 1):
        line = line.strip()
        if line and not line.startswith("#"):
            found = re.fullmatch(r"(names|comments|both): (.+?) -> (.+?)(?: except (.+))?", line)
            if not found:
                sys.exit(f"{path}:{n}: not WHERE: PATTERN -> USE [except FILE ...]")
            where, pattern, use, files = found.groups()
            yield where, pattern, use, (files or "").split()


def places(path, names, comments):
    """(line, text, row) of each word that is not to be written."""
    text = open(path, encoding="utf-8", errors="replace").read()
    for token in TOKEN.finditer(text):
        word = token[0]
        if word[0] in "\"'":
            continue
        if word[0] == "/":
            flat = re.sub(r"\s*\n\s*\*?\s*", lambda gap: " " * len(gap[0]), word)
            for pattern, row in comments:
                for hit in pattern.finditer(flat):
                    yield text.count("\n", 0, token.start()) + word.count("\n", 0, hit.start()) + 1, hit[0].strip(), row
        else:
            for part in word.lower().split("_"):
                for pattern, row in names:
                    if pattern.fullmatch(part):
                        yield text.count("\n", 0, token.start()) + 1, word, row


def main():
    arguments = [a for a in sys.argv[1:] if a != "--count"]
    root = arguments[0] if arguments else os.path.join(os.path.dirname(__file__), "../..")
    names, comments = [], []
    table = list(rows(os.path.join(root, "tests/words.txt")))
    for where, pattern, use, excepted in table:
        row = (pattern, use, tuple(excepted))
        if where != "comments":
            names.append((re.compile(pattern), row))
        if where != "names":
            comments.append((re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])", re.I), row))
    count, failed = collections.Counter(), False
    for path in rooms.files_of(root, (*rooms.STAGES, "tests", "examples")):
        for line, word, row in places(os.path.join(root, path), names, comments):
            if path in row[2]:
                continue
            count[row] += 1
            failed = True
            if "--count" not in sys.argv:
                print(f"{path}:{line}: '{word}': {row[1]}")
    if "--count" in sys.argv:
        for _, pattern, use, excepted in table:
            print(f"{count[pattern, use, tuple(excepted)]:6} {pattern} -> {use}")
    return failed and "--count" not in sys.argv


if __name__ == "__main__":
    sys.exit(main())
