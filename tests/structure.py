#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""structure.py [ROOT [BUILD [MODEL]]]: the size and shape of the tree in one table; `git worktree add OLD REVISION` gives an
older tree to compare with. Lines and functions are those of C files beside tests. With a build: calls between modules
that go up (shell/calls.py). With a model: the modules that its compilation enters, by valgrind (a minute). None of the
numbers is a target."""
import collections
import os
import re
import subprocess
import sys
import tempfile

STAGES = ("ir", "frontend", "passes", "backends", "runtime")


def read(root, path):
    return open(os.path.join(root, path), encoding="utf-8", errors="replace").read()


def tracked(root):
    return subprocess.check_output(["git", "-C", root, "ls-files"], text=True).split()


def without_comments(text):
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
    return re.sub(r'"(\\.|[^"\\])*"', '""', text)


def included_rooms(root, sources):
    """Room -> rooms whose headers it includes; the includes of other rooms' internal headers."""
    arrows, internal = collections.defaultdict(set), 0
    for path in sources:
        room = os.path.dirname(path)
        for target in re.findall(r'^#include "([^"]+)"', read(root, path), flags=re.M):
            other = os.path.dirname(target)
            if target not in sources or other == room:
                continue
            arrows[room].add(other)
            internal += target.endswith("internal.h") and not room.startswith(other + "/")
    return arrows, internal


def reachable(arrows, start):
    seen, open_rooms = set(), [start]
    while open_rooms:
        for room in arrows[open_rooms.pop()] - seen:
            seen.add(room)
            open_rooms.append(room)
    return seen


def cycles(arrows):
    """Sets of modules that reach each other."""
    reach = {room: reachable(arrows, room) for room in list(arrows)}
    return {frozenset(r for r in reach if r in reach[room] and room in reach[r]) for room in reach if room in reach[room]}


def fields(body):
    """Declared names in the body of a struct, those of structs inside it included."""
    n = 0
    for declaration in re.sub(r"\([^()]*\)", "", re.sub(r"\[[^\]]*\]", "", body)).replace("{", ";").replace("}", ";").split(";"):
        words = re.sub(r"\bstruct\s*$|\bunion\s*$", "", declaration.strip()).strip()
        if re.search(r"\w\s+\**\w|\w\s*\*+\s*\w", words):
            n += 1 + words.count(",")
    return n


def structs(text):
    for found in re.finditer(r"^(?:typedef )?struct (\w+) \{$(.*?)^\}", text, flags=re.S | re.M):
        yield found[1], fields(found[2])


def functions(text):
    """Lengths of the bodies of functions."""
    return [f[1].count("\n") for f in re.finditer(r"^\{\n(.*?)^\}", text, flags=re.S | re.M)]


def short_with_one_caller(text):
    """Static functions of at most 5 lines that are named once more in their file."""
    found = re.finditer(r"^static [^;{}()]*?(\w+)\([^;{}]*\)\n\{\n(.*?)^\}", text, flags=re.S | re.M)
    return sum(f[2].count("\n") <= 5 and len(re.findall(rf"\b{f[1]}\b", text)) == 2 for f in found)


def entered(root, build, model):
    """Module -> functions of it that the compilation of a model executes; those of a name that two modules have count in
    neither."""
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "shell"))
    import calls
    module_of = {path: module for module, path in calls.object_files(root, build)}
    owners = collections.defaultdict(set)
    for line in subprocess.check_output(["nm", "-A", "-P", *module_of], text=True).splitlines():
        path, symbol = line.split(": ", 1)
        if symbol.split()[1] in "Tt":
            owners[symbol.split()[0]].add(module_of[path])
    with tempfile.TemporaryDirectory() as folder:
        profile = os.path.join(folder, "calls")
        subprocess.run(["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={profile}",
                        os.path.join(build, "frontend/driver/tfmc"), model, "--no-cache", "-o", f"{folder}/model.o"],
                       check=True, stderr=subprocess.DEVNULL)
        executed = set(re.findall(r"^c?fn=\(\d+\) (\w+)", read("", profile), flags=re.M))
    return collections.Counter(min(owners[name]) for name in executed if len(owners[name]) == 1)


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    files = tracked(root)
    c_files = [f for f in files if f.split("/")[0] in STAGES and f.endswith((".c", ".h", ".def"))]
    texts = {f: without_comments(read(root, f)) for f in c_files}
    count = collections.Counter(os.path.dirname(f) for f in c_files)
    arrows, internal = included_rooms(root, set(c_files))
    largest = max((n, name, f) for f, text in texts.items() if f not in ("runtime/abi.h", "runtime/tfmc_rt.h")
                  for name, n in structs(text))
    lengths = [n for text in texts.values() for n in functions(text)]
    calls = ""
    if len(sys.argv) > 2:
        here = os.path.join(os.path.dirname(__file__), "shell", "calls.py")
        calls = subprocess.run([sys.executable, "-B", here, root, sys.argv[2]], capture_output=True, text=True).stdout.strip()
    rows = [("lines of C beside tests", sum(read(root, f).count("\n") for f in c_files), ""),
            ("C files beside tests", sum(f.endswith((".c", ".h")) for f in c_files), ""),
            ("modules", len(count), ""),
            ("cycles of includes between modules", len(cycles(arrows)), " ".join(sorted(min(cycles(arrows), default=[])))),
            ("includes of another module's internal header", internal, calls),
            ("static functions, one caller, at most 5 lines", sum(map(short_with_one_caller, texts.values())), ""),
            ("fields of the largest private struct", largest[0], "struct %s, %s" % largest[1:]),
            ("functions", len(lengths), "mean %.1f lines, %d above 50" % (sum(lengths) / len(lengths), sum(n > 50 for n in lengths)))]
    for name, value, where in rows:
        print("%-46s %7d  %s" % (name, value, where))
    if len(sys.argv) > 3:
        modules = entered(*sys.argv[1:4])
        print("%-46s %7d  %s" % ("modules that a compilation enters", len(modules),
                                 ", ".join("%s %d" % m for m in modules.most_common())))


if __name__ == "__main__":
    main()
