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
TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
SCRIPT = re.compile(r'(?:(?<=\s)|^)#[^\n]*|"""(?:.*?)"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S | re.M)
BLANKS = "".join(c if c.isalnum() or c == "_" else " " for c in map(chr, range(128)))
GAP = re.compile(r"\s*\n\s*\*?\s*")
NAME = re.compile(r"[A-Za-z_]\w*")
HASH = re.compile(r"(?:(?<=\s)|^)#[^\n]*", re.M)
SEMICOLON = re.compile(r"^; (?!RUN|CHECK|[A-Z-]+:)[^\n]*", re.M)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`|^    [^\n]*|\]\([^)\n]*\)", re.S | re.M)
PROSE = {".rule": HASH, ".yaml": HASH, ".sh": HASH, ".cmake": HASH, ".tir": SEMICOLON, ".test": HASH}


class Row:
    def __init__(self, line, number):
        found = ROW.fullmatch(line)
        if not found:
            sys.exit(f"words.txt:{number}: not WHERE [in PATH]: PATTERN -> USE [except FILE ...]")
        self.number = number
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


def split(path, text):
    """Comments (without line breaks) and strings of a file as (offset, piece), and its code with blanks for both."""
    end = os.path.splitext(path)[1]
    comments, strings, code = [], [], []
    if end in (".c", ".h", ".def", ".py"):
        last = 0
        for token in (SCRIPT if end == ".py" else TEXT).finditer(text):
            word, at = token[0], token.start()
            if word[0] in "/#" or word.startswith('"""'):
                comments.append((at, GAP.sub(lambda gap: " " * len(gap[0]), word) if "\n" in word else word))
            elif word[0] == '"':
                strings.append((at, word))
            code += [text[last:at], " " * len(word)]
            last = token.end()
        code.append(text[last:])
    elif end == ".md":
        comments = [(0, CODE.sub(lambda code: re.sub(r"[^\n]", "#", code[0]), text).replace("\n", " "))]
    elif end in PROSE:
        comments = [(comment.start(), comment[0]) for comment in PROSE[end].finditer(text)]
    return comments, *(([], "") if end == ".py" else (strings, "".join(code)))


def required(pattern):
    """An expression that some word of every match of the pattern matches: of each alternative a part between blanks, the
    one with the fewest alternatives of its own. "": there is none, as blanks are inside of a group."""
    if re.search(r"\\s|\.|\[|\(\?=", pattern):  # a blank may be inside of a match
        return ""
    parts, depth = [[""]], 0
    for c in re.sub(r"\(\?<[=!][^()]*\)", "", pattern):
        depth += (c == "(") - (c == ")")
        if depth == 0 and c == "|":
            parts.append([""])
        elif depth == 0 and c == " ":
            parts[-1].append("")
        else:
            parts[-1][-1] += c
    best = [min((p for p in of if " " not in p), key=lambda p: (p.count("|"), -len(p)), default="") for of in parts]
    return "|".join(best) if all(best) else ""


class Filter:
    """Rows by the words that may be a match of theirs. Every word is compared once, with one expression for all rows; a
    file is read row by row for the few rows that its words bring up."""

    def __init__(self, rows, inside, pattern):
        """inside: the characters of a word. Rows without a pattern for their words are always up."""
        of = [(row, pattern(row)) for row in rows if pattern(row)]
        self.rows = [(row, re.compile(f"(?<!{inside})(?:{p})(?!{inside})", re.I)) for row, p in of]
        self.any = re.compile(f"(?<!{inside})(?:{'|'.join(p for _, p in of)})(?!{inside})", re.I)
        self.listed, self.always = rows, [row for row in rows if not pattern(row)]
        self.seen, self.found = set(), {}

    def rows_of(self, words, path):
        """Row -> the words (of a set) that bring it up, of the rows for a path."""
        if not any(row.is_for(path) for row in self.listed):
            return {}
        for word in words - self.seen:
            if self.any.search(word):
                self.found[word] = [row for row, e in self.rows if e.search(word)]
        self.seen |= words
        up = {row: [""] for row in self.always if row.is_for(path)}
        for word in words & self.found.keys():
            for row in self.found[word]:
                if row.is_for(path):
                    up.setdefault(row, []).append(word)
        return up


class Table:
    def __init__(self, path):
        self.rows = list(rows(path))
        of = {kind: [r for r in self.rows if r.where in (kind, *also)]
              for kind, also in (("names", ["both"]), ("comments", ["both"]), ("strings", []))}
        self.names = Filter(of["names"], "[a-z0-9]", lambda row: row.pattern)
        self.texts = {kind: Filter(of[kind], r"[\w-]", lambda row: required(row.pattern))
                      for kind in ("comments", "strings")}

    def in_names(self, code, path):
        """(offset, word, row) of each name of a file that is not to be written."""
        for row in self.names.rows_of(set(code.translate(BLANKS).split()), path):
            for hit in NAME.finditer(code):
                if row.name.search(hit[0].lower()):
                    yield hit.start(), hit[0], row

    def in_texts(self, kind, pieces, path):
        """The same of its comments or strings."""
        words = set(" ".join(piece for _, piece in pieces).split())
        for row, up in self.texts[kind].rows_of(words, path).items():
            for offset, piece in pieces:
                for hit in row.phrase.finditer(piece) if any(word in piece for word in up) else ():
                    yield offset + hit.start(), hit[0], row


def places(path, text, table):
    """(line, text, row) of each word that is not to be written, in the order of the file."""
    for row in table.names.rows_of({path}, path):
        yield 1, row.name.search(path.lower())[0], row
    comments, strings, code = split(path, text)
    found = [*table.in_texts("comments", comments, path), *table.in_texts("strings", strings, path),
             *table.in_names(code, path)]
    for at, word, row in sorted(found, key=lambda hit: (hit[0], hit[2].number)):
        yield text.count("\n", 0, at) + 1, word, row


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
    table, count = Table(os.path.join(root, "tests/words.txt")), collections.Counter()
    for path in files_of(root):
        text = open(os.path.join(root, path), encoding="utf-8", errors="replace").read()
        for line, word, row in places(path, text, table):
            count[row] += 1
            if "--count" not in sys.argv:
                print(f"{path}:{line}: '{word}': {row.use}")
    if "--count" in sys.argv:
        for row in table.rows:
            print(f"{count[row]:6} {row.where} {row.pattern} -> {row.use}")
    return bool(count) and "--count" not in sys.argv


if __name__ == "__main__":
    sys.exit(main())
