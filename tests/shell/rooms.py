#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rooms.py ROOT [--table]: checks the includes of the tree under ROOT against tests/shell/rooms.txt.

A room is a folder with C files. It is a row of the table, and its files include headers of their own room, of the rooms in its row, and of those that any row may use. A row names
only rooms above it, so that no cycle can be written down. A header whose name ends with internal.h is for its own
room and the rooms inside it. A room that a row names and does not use is an error. --table prints what is used.
"""
import collections
import os
import re
import sys

STAGES = ("ir", "frontend", "passes", "backends", "runtime")


def files_of(root, tops=STAGES):
    """Paths of the C files, headers and tables below the folders `tops` of root."""
    for stage in tops:
        for folder, _, names in os.walk(os.path.join(root, stage)):
            for name in sorted(names):
                if name.endswith((".c", ".h", ".def")):
                    yield os.path.relpath(os.path.join(folder, name), root)


def used_rooms(root, complain):
    """Room -> room -> an including file, and the set of rooms."""
    used, rooms = collections.defaultdict(dict), set()
    for path in files_of(root):
        room = os.path.dirname(path)
        rooms.add(room)
        for line in open(os.path.join(root, path), encoding="utf-8"):
            found = re.match(r'#include "([^"]+)"', line)
            if not found or not os.path.exists(os.path.join(root, found[1])):
                continue
            other = os.path.dirname(found[1])
            if other != room:
                used[room][other] = path
                if found[1].endswith("internal.h") and not room.startswith(other + "/"):
                    complain("%s includes %s, which is internal to its room" % (path, found[1]))
    return used, rooms


def read_rows(path):
    """Rows of the table in order, ROOM -> [rooms that it may include], and the set of rooms that all may include."""
    rows, everywhere = {}, set()
    for line in open(path, encoding="utf-8"):
        if line.startswith("#") or not line.strip():
            continue
        room, _, names = line.partition(":")
        everywhere.update([room[1:]] if room.startswith("*") else [])
        rows[room.lstrip("*")] = names.split()
    return rows, everywhere


def main():
    root, failed = sys.argv[1], []
    used, rooms = used_rooms(root, failed.append)
    rows, everywhere = read_rows(os.path.join(root, "tests/shell/rooms.txt"))
    above = set()
    for room, names in rows.items():
        failed += ["rooms.txt: %s names %s, which is no row above it" % (room, name) for name in names if name not in above]
        above.add(room)
    if "--table" in sys.argv:
        for room in rows:
            print("%s: %s" % (room, " ".join(r for r in rows if r in used[room] and r not in everywhere)))
    for room in sorted(rooms):
        if room not in rows:
            failed.append("%s is no row of rooms.txt" % room)
            continue
        for other, path in used[room].items():
            if other not in rows[room] and other not in everywhere:
                failed.append("%s includes a header of %s, which %s may not use" % (path, other, room))
        for other in rows[room]:
            if other not in used[room]:
                failed.append("rooms.txt: %s does not use %s" % (room, other))
    for room in rows:
        if room not in rooms:
            failed.append("rooms.txt: %s is no room" % room)
    print("\n".join(failed), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
