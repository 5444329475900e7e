#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Misspelt names in model files: misspelt.py [MODEL.yaml ..], by hand, with TFMC in the environment; minutes.

Every word of every file (keys, values, names in expressions, parts of paths) is misspelt where it stands, one at a time. Then tfmc

  refuses    or warns
  renames    accepts it, and its expansion is that of the file with the name in place of the word: the name was free
  ignores    accepts it and says the same: the word was text for people
  CHANGES    accepts it as something else; the script ends with the count of those that HARMLESS does not explain
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# (pattern of the line, word) that may change the model: reason
HARMLESS = [
    (r"^outputs: ", r"\w+", "an output may have any name, and a saved value is then assigned to it"),
    (r"^\s*- save: ", r"\w+", "the same"),
]


def call(*args, **more):
    return subprocess.run([os.path.abspath(os.environ["TFMC"]), *args], capture_output=True, text=True, errors="replace", cwd=tempfile.gettempdir(), **more)


def words(text):
    """(begin, end, line) of words outside of comments."""
    at = 0
    for number, line in enumerate(text.split("\n")):
        code = re.sub(r"(^|\s)#.*", "", line)
        for m in WORD.finditer(code):
            yield at + m.start(), at + m.end(), number + 1
        at += len(line) + 1


def said(path, text):
    """Whether it is accepted without a warning, and the expansion."""
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    result = call("expand", path)
    if result.returncode == 0 and "warning" not in result.stderr:
        whole = call("plan", path)
        result.returncode, result.stderr = whole.returncode, result.stderr + whole.stderr
    if result.returncode not in (0, 1, 3):
        return "CRASH", result.stderr
    return result.returncode == 0 and "warning" not in result.stderr, result.stdout


def one(job):
    path, base, text, (begin, end, line) = job
    word = text[begin:end]
    other = word[:-1] + "qz" + word[-1]
    with tempfile.NamedTemporaryFile(dir=os.path.dirname(path), prefix="misspelt-", suffix=".yaml") as f:
        accepted, out = said(f.name, text[:begin] + other + text[end:])
    if accepted == "CRASH":
        return path, line, word, "CHANGES", out
    if not accepted:
        return path, line, word, "refuses", ""
    mine = os.path.basename(f.name)
    out = out.replace(mine, "FILE")
    if out == base:
        return path, line, word, "ignores", ""
    if out.replace(other, word) == base:
        return path, line, word, "renames", ""
    return path, line, word, "CHANGES", "\n".join(l for l in out.split("\n") if l not in base.split("\n"))[:400]


def main():
    root = os.path.dirname(HERE)
    files = sys.argv[1:] or sorted(glob.glob(os.path.join(root, "examples", "*", "*.yaml")) + glob.glob(os.path.join(HERE, "golden", "torch_*", "*.yaml")) +
                                   glob.glob(os.path.join(HERE, "text", "frontend", "*.yaml")))
    with tempfile.TemporaryDirectory() as tmp:
        sys.exit(sweep(files, tmp, root))


def sweep(files, tmp, root):
    """Files are misspelt in copies of their folders."""
    jobs, sources = [], {}
    for path in map(os.path.abspath, files):
        folder = os.path.join(tmp, os.path.relpath(os.path.dirname(path), root).replace(os.sep, "+"))
        if not os.path.isdir(folder):
            shutil.copytree(os.path.dirname(path), folder)
        with open(path, encoding="utf-8") as f:
            text = f.read()
        copy = os.path.join(folder, os.path.basename(path))
        sources[copy] = (os.path.relpath(path, root), text.split("\n"))
        with tempfile.NamedTemporaryFile(dir=folder, prefix="misspelt-", suffix=".yaml") as f:
            accepted, base = said(f.name, text)
        if accepted is True:
            jobs += [(copy, base.replace(os.path.basename(f.name), "FILE"), text, w) for w in words(text)]
    counted = {}
    with ThreadPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
        for path, line, word, verdict, more in pool.map(one, jobs):
            if verdict == "CHANGES":
                if any(re.search(p, sources[path][1][line - 1]) and re.fullmatch(w, word) for p, w, _ in HARMLESS):
                    verdict = "explained"
            counted[verdict] = counted.get(verdict, 0) + 1
            if verdict == "CHANGES" or (os.environ.get("SHOW") and verdict != "refuses"):
                print(f"{verdict} {sources[path][0]}:{line}: {word}: {more}", flush=True)
    print(f"{len(jobs)} words: " + ", ".join(f"{n} {v}" for v, n in sorted(counted.items())))
    return int(counted.get("CHANGES", 0) > 0)


if __name__ == "__main__":
    main()
