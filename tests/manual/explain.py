#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the examples of frontend/manual/reference/diagnostics.md, which `tfmc explain` prints. Every code of
diagnostics.def has one.

An example is a list. One with a `wrong` line is a change of the first yaml or tir block of the page. A line takes the place
of the line that begins with the same words; where there is none, it follows the line above it, or the last one. The file with
the `wrong` lines must fail with the code of the section and no other, and must say what `says` has (`...` is any text); the
file with the `right` lines must succeed; a line `with` is in both. The command is COMPILE, unless the list has one (`run`).
A list without `wrong` has commands and what they say.

`explain.py PAGE --write` puts the messages of this compiler into the page, where those of `says` differ.
"""
import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import tempfile

from manual import WIDEST, broken_links

SOURCE = pathlib.Path(os.environ["TFMC_SOURCE"])
# The machine code of the short run is made without optimization, in a third of the time.
COMPILE = "tfmc model.yaml -o model.o" + ("" if os.environ.get("TFMC_ALL") else " -O0 --passes=O2")
WITHOUT_EXAMPLE = {"E900"}  # a mistake of tfmc
SECTION = re.compile(r"^## (E\d+): ([^\n]+)\n(.*?)(?=^## |\Z)", re.S | re.M)
EXAMPLE = re.compile(r"(?:^- \w+: `.*`\n)+", re.M)
ITEM = re.compile(r"^- (\w+): `(.*)`$", re.M)

d, ff, vocab, ctx = 8, 12, 11, 6
WEIGHTS = {"embed.weight": [vocab, d], "positions.weight": [ctx, d], "norm.weight": [d], "norm.bias": [d],
           **{f"attention.{role}.weight": [d, d] for role in "qkvo"}, **{f"attention.{role}.bias": [d] for role in "qkvo"},
           "ffn.up.weight": [ff, d], "ffn.up.bias": [ff], "ffn.down.weight": [d, ff], "ffn.down.bias": [d],
           "head.weight": [vocab, d], "head.bias": [vocab]}


def write_tensors(path, tensors):
    """A safetensors file of the tensors {name: (dtype, shape, bytes)}."""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def zeros(shape):
    n = 4
    for size in shape:
        n *= size
    return ("F32", shape, bytes(n))


def files_of(folder, bases):
    """What an example finds in its folder."""
    for name, text in bases.items():
        (folder / name).write_text(text)
    weights = {name: zeros(shape) for name, shape in WEIGHTS.items()}
    weights["ffn.up.weight"] = ("F32", [ff, d], struct.pack("<f", 70000.0) * (ff * d))
    write_tensors(folder / "model.safetensors", weights)
    write_tensors(folder / "more.safetensors", {"more": zeros([d])})
    write_tensors(folder / "complex.safetensors", {"phase": ("C64", [vocab], bytes(8 * vocab))})
    write_tensors(folder / "cases.safetensors", {"one.ids": ("I32", [1, 2], bytes(8)),
                                                "one.logits": ("F32", [1, 2, vocab], struct.pack("<f", 1.0) * (2 * vocab)),
                                                "right.ids": ("I32", [1, 2], bytes(8)), "right.logits": zeros([1, 2, vocab])})


def head_of(line):
    return re.match(r"\s*(- )?[%@\w.]*( [@%\w\"]+)?", line)[0]


def changed(base, lines, dropped):
    """The base with these lines; lines that begin as one of `dropped` are left out."""
    result = base.splitlines()
    place = len(result) - 1
    for line in lines:
        places = [i for i, old in enumerate(result) if head_of(old) == head_of(line)]
        place = places[0] if places else place + 1
        result[place:place + len(places[:1])] = [line]
    heads = {head_of(line) for line in dropped} - {head_of(line) for line in lines}
    return "".join(line + "\n" for line in result if head_of(line) not in heads)


def run(command, bases, name=None, text=None):
    with tempfile.TemporaryDirectory() as folder:
        files_of(pathlib.Path(folder), bases)
        if name:
            (pathlib.Path(folder) / name).write_text(text)
        environment = {**os.environ, "PATH": f"{os.path.dirname(os.environ['TFMC'])}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, encoding="utf-8", errors="replace")
        return done.returncode, done.stdout


def says(output, line):
    parts = [re.escape(part) for part in line.split("...")]
    return re.search("^" + ".*".join(parts) + "$", output, re.M) is not None


def errors_of(output):
    return [line for line in output.splitlines() if re.search(r"(^|: )error: .*\[E\d+\]$", line)]


def codes_of(output):
    return {line[line.rindex("[") + 1:-1] for line in errors_of(output)}


def try_example(code, block, bases):
    """What is wrong with an example, as a list; the block with the message that came."""
    items = ITEM.findall(block)
    of = {kind: [text for k, text in items if k == kind] for kind in ("run", "with", "wrong", "says", "right")}
    if {kind for kind, _ in items} - set(of) or not of["says"]:
        return ["a line is run, with, wrong, says or right, and there is one that says something"], block
    if of["wrong"]:
        return try_change(code, items, of, block, bases)
    return try_commands(code, of, items[-1][0] == "run", bases), block


def try_change(code, items, of, block, bases):
    command = "".join(of["run"]) or COMPILE
    name = next(name for name in bases if name in command)
    wrong, right = ([text for kind, text in items if kind in ("with", sign)] for sign in ("wrong", "right"))
    status, output = run(command, bases, name, changed(bases[name], wrong, right))
    faults = [f"not said: {message}" for message in of["says"] if not says(output, message)]
    if status == 0 or codes_of(output) != {code}:
        faults.append(f"the wrong one: status {status}\n{output}")
    cured, output_of_right = run(command, bases, name, changed(bases[name], right, wrong))
    if cured != 0 or not of["right"]:
        faults.append(f"the right one: status {cured}\n{output_of_right}")
    if faults and codes_of(output) == {code}:
        block = block.replace(f"- says: `{of['says'][0]}`", f"- says: `{errors_of(output)[0]}`")
    return faults, block


def try_commands(code, of, ends_well, bases):
    status, output = run_limited("\n".join(of["run"]), bases)
    missing = [line for line in of["says"] if not says(output, line)]
    if missing or codes_of(output) != {code} or ends_well and status != 0:
        return [f"status {status}, not said: {missing}\n{output}"]
    return []


def run_limited(commands, bases):
    """As run; a limit on memory is tried larger, since what tfmc needs to begin differs between machines."""
    for more in range(0, 600000, 20000):
        status, output = run(commands.replace("ulimit -v 200000", f"ulimit -v {200000 + more}"), bases)
        if "ulimit" not in commands or codes_of(output):
            break
    return status, output


def try_section(code, body, bases):
    faults, new = [], body
    if code in WITHOUT_EXAMPLE:
        return faults, body
    examples = EXAMPLE.findall(body)
    if not examples:
        faults.append("no example")
    for example in examples:
        more, said = try_example(code, example, bases)
        new = new.replace(example, said)
        faults += more
    return faults, new


def check_command(sections, faults):
    """`tfmc explain` prints every section, and errors on a terminal name it."""
    status, listed = run("tfmc explain", {})
    for code, title, body in sections:
        if f"{code}  {title}" not in listed.splitlines():
            faults.append(f"{code}: not listed")
        status, output = run(f"tfmc explain {code}", {})
        if not output.startswith(f"{code}: {title}\n\n{body}"):
            faults.append(f"{code}: printed as\n{output}")
    outer, inner = pty.openpty()
    subprocess.run([os.environ["TFMC"], "absent.yaml", "-o", "m.o"], stderr=inner, check=False)
    if b"tfmc explain E701" not in os.read(outer, 4096):
        faults.append("a terminal is not told of tfmc explain")


def main():
    path = pathlib.Path(sys.argv[1])
    page = path.read_text()
    bases = {name: re.search(rf"^```{kind}\n(.*?)^```", page, re.S | re.M)[1]
             for name, kind in (("model.yaml", "yaml"), ("small.tir", "tir"))}
    sections, faults, new = SECTION.findall(page), [], page
    rows = (SOURCE / "ir/support/diagnostics.def").read_text()
    wanted = [f"E{number}" for number in re.findall(r"^DIAG\(\w+, (\d+)\)", rows, re.M)]
    if [code for code, _, _ in sections] != wanted:
        faults.append(f"the sections and diagnostics.def differ: {set(wanted) ^ {code for code, _, _ in sections}}, or the order")
    if "sanitize" in os.environ.get("TFMC_LINK_FLAGS", ""):  # takes terabytes of addresses
        WITHOUT_EXAMPLE.add("E705")
    for code, _, body in sections:
        more, said = try_section(code, body, bases)
        new = new.replace(body, said)
        faults += [f"{code}: {fault}" for fault in more]
    if "--write" in sys.argv:
        path.write_text(new)
    check_command(sections, faults)
    faults += [f"wider than {WIDEST}: {line}" for line in page.splitlines() if len(line) > WIDEST]
    faults += [f"the link {target} leads nowhere" for target in broken_links(path)]
    for base in bases:
        status, output = run(COMPILE if base == "model.yaml" else "tfmc opt small.tir", bases)
        faults += [f"{base}: {output}"] if status else []
    print(*faults, sep="\n", file=sys.stderr)
    print(f"{len(sections)} codes, {len(faults)} faults")
    sys.exit(bool(faults) or len(sections) < 50)


main()
