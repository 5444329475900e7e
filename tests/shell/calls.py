#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""calls.py ROOT BUILD [ROOMS]: calls between modules go one way, as the symbols of the object files show.

rooms.py checks #include; a prototype in one module of a function that another defines gets past it. Here each undefined
symbol of an object file is looked up where it is defined: that module must be the file's own or a row above it in
ROOMS (tests/shell/rooms.txt), so that modules have no cycles of calls. Several libraries contain some runtime files;
each counts once. Prints the calls that go up, and exits 1 if there is one.
"""
import collections
import os
import subprocess
import sys

import rooms


def object_files(root, build):
    """(module, path) of each object file of the product, but for those of sources that are no more."""
    for top in rooms.STAGES:
        for folder, _, names in os.walk(os.path.join(build, top)):
            _, cut, inside = folder.partition(".dir")
            if cut:
                library = os.path.relpath(folder, build).split("/CMakeFiles/")[0]
                module = os.path.normpath(os.path.join(library, inside.lstrip("/").replace("__", "..")))
                for name in sorted(names):
                    source = os.path.join(module, name[:-2])
                    if name.endswith(".c.o") and any(os.path.exists(os.path.join(r, source)) for r in (root, build)):
                        yield module, os.path.join(folder, name)


def main():
    root, build = sys.argv[1:3]
    table = sys.argv[3] if len(sys.argv) > 3 else os.path.join(root, "tests/shell/rooms.txt")
    order = {room: n for n, room in enumerate(rooms.read_rows(table)[0])}
    # A build keeps objects of former layouts: the newest definition of a symbol counts.
    files = sorted(object_files(root, build), key=lambda f: os.path.getmtime(f[1]))
    listing = subprocess.run(["nm", "-A", "-P", "--no-demangle", *[path for _, path in files]], capture_output=True, text=True, check=True)
    module_of = {path: module for module, path in files}
    defined, needed = {}, collections.defaultdict(set)
    for line in listing.stdout.splitlines():
        path, rest = line.split(": ", 1)
        name, kind = rest.split()[:2]
        module = module_of[path]
        if kind in "TDBRCW":
            defined[name] = module
        elif kind == "U":
            needed[name].add((module, os.path.basename(path)))
    failed, edges = [], set()
    for name in sorted(needed):
        owner = defined.get(name)
        for module, file in sorted(needed[name]):
            if owner is None or owner == module:
                continue
            edges.add((module, owner))
            if module not in order or owner not in order:
                failed.append(f"{module} or {owner} is no row of rooms.txt ({name})")
            elif order[owner] > order[module]:
                failed.append(f"{module}/{file[:-2]} calls {name}, which {owner} defines, a row below {module}")
    print("\n".join(failed), file=sys.stderr)
    print(f"{len(edges)} pairs of modules, {len(failed)} calls that go up")
    return 1 if failed or not edges else 0


if __name__ == "__main__":
    sys.exit(main())
