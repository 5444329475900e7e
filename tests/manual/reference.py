#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The language reference (frontend/manual/reference) against the tables of tfmc.

Every list that `tfmc language` prints stands in one of the pages, behind a line with its title; with TFMC_BLESS=1 the pages get the new lists. Every yaml block is compiled, and every entry of a list (a key, a parameter,
an operator, a function, ..) occurs in a block of its section. The word behind `yaml` says what a block is:

    model [FILE]   a model file; without `weights` its parameters are zeros
    sections       sections over the first example, small.yaml
    steps          steps behind `embed`; the values below are there
    statements     graph statements on the same values, x: f32[B, S, 32]
    map            entries of weights.map; words NAME[SIZES] are parameters, @NAME[SIZES] stored tensors
    FILE           a file for the blocks after it
"""
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

from manual import SOURCE, WIDEST, blocks_of, broken_links

PAGES = [SOURCE / f"frontend/manual/reference/{name}.md" for name in ("language", "steps", "statements", "weights")]
WITHOUT_EXAMPLES = {"Limits:"}
VALUES = """params: {d: 32}
dims: {B: 1..2, S: 4..8, T: 1..8}
inputs:
  ids: {shape: [B, S], dtype: i32, below: 100}
  memory: {shape: [B, T, d], dtype: f32}
  image: {shape: [B, 3, 32, 32], dtype: f32}
  n: {shape: [B], dtype: i32}
"""
ZEROS = "\nweights: {files: [none.safetensors], map: zeros.yaml}\n"
BEGIN = "model:\n  - embed: {id: begin, vocab: 100, dim: d}\n"


def entries_of(title, text):
    """What the entries of a list are called, with their text; those that are not built yet need no example."""
    for item in re.findall(r"^ *- .*(?:\n +[^ -].*)*", text, flags=re.M):
        item = re.sub(r"\n +", " ", item.lstrip(" -"))
        for part in re.split("; (?=`)", item) if not title.startswith("Parameters") else [item]:
            name = re.match(r"`(\w+)`?(?=[ (:])", part)
            if name and "not supported yet" not in part:
                yield name[1], part


def lists():
    text = subprocess.run([os.environ["TFMC"], "language"], capture_output=True, text=True, check=True).stdout
    return {part.split("\n")[0]: part.strip("\n") + "\n" for part in text.split("\n\n")}


def bless(name, part):
    for page in PAGES:
        text = page.read_text()
        new = re.sub(rf"^{re.escape(name)}\n(?:[- ].*\n)*", lambda _: part, text, flags=re.M)
        if new != text:
            page.write_text(new)


class Section:
    """A heading with the text up to the next one."""

    def __init__(self, page, text):
        self.page, self.text, self.examples, self.parameters = page, text, "", {}


def sections():
    for page in PAGES:
        for text in re.split(r"^(?=#+ )", page.read_text(), flags=re.M):
            yield Section(page, text)


def indented(text, by):
    return "".join(" " * by + line + "\n" for line in text.splitlines())


def shape(text):
    return [int(size) for size in text.split(",") if size]


def write_tensors(path, tensors):
    header, at = {}, 0
    for name, sizes in tensors.items():
        count = 4
        for size in sizes:
            count *= size
        header[name] = {"dtype": "F32", "shape": sizes, "data_offsets": [at, at + count]}
        at += count
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))


def write_pieces(path, pieces):
    """A SentencePiece model: messages with a text, a score and, where it is not a usual piece, a kind."""
    model = b""
    for text, kind in pieces:
        piece = b"\n" + bytes([len(text)]) + text.encode() + b"\x15" + struct.pack("<f", -1.0) + bytes([0x18, kind])
        model += b"\n" + bytes([len(piece)]) + piece
    path.write_bytes(model)


class Runner:
    def __init__(self, folder):
        self.folder = folder
        (folder / "tfmc").symlink_to(SOURCE)
        write_tensors(folder / "none.safetensors", {})
        write_pieces(folder / "tiny.spm", [("<unk>", 2), ("<s>", 3), ("</s>", 3), ("a", 1), ("b", 1), ("ab", 1)])
        names = [".".join(f"{{p{i}}}" for i in range(n)) for n in range(1, 10)]
        (folder / "zeros.yaml").write_text("".join(f'"{n}": {{from: "-{n}", optional: zeros}}\n' for n in names))

    def model_of(self, block):
        kind, words = block.files[0], block.files[1:]
        start = "tfmc: 1\nname: example\n"
        if kind == "sections":
            return start + "base: small.yaml\n" + block.text
        if kind == "steps":
            return start + VALUES + BEGIN + indented(block.text, 2) + "outputs: {y: x}" + ZEROS
        if kind == "statements":
            return start + VALUES + BEGIN + "  - graph:\n" + indented(block.text, 4) + "outputs: {y: x}" + ZEROS
        if kind == "map":
            named = [re.fullmatch(r"(@?)([^\[]*)\[(.*)\]", word).groups() for word in words]
            write_tensors(self.folder / "map.safetensors", {n: shape(s) for stored, n, s in named if stored})
            reads = [f'  - x = x + sum(param("{n}", [{s}]) * 1.0, axis={list(range(len(shape(s))))})'
                     for stored, n, s in named if not stored]
            return (start + "dims: {B: 1}\ninputs: {a: {shape: [B], dtype: f32}}\ngraph:\n  - x = a\n" + "\n".join(reads)
                    + "\noutputs: {y: x}\nweights:\n  files: [map.safetensors]\n  map:\n" + indented(block.text, 4))
        return block.text + ("" if re.search("^(weights|base|preset):", block.text, flags=re.M) else ZEROS)

    def run(self, block):
        """What is wrong with a block, or None; and the weights of its model: name, shape of the parameter."""
        if block.files[0] not in ("model", "sections", "steps", "statements", "map"):
            (self.folder / block.files[0]).write_text(block.text)
            return None, []
        name = block.files[1] if block.files[0] == "model" and len(block.files) > 1 else "model.yaml"
        (self.folder / name).write_text(self.model_of(block))
        command = [os.environ["TFMC"], name, "--emit=tir=-", "-O0", "--stop-after=encode"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder)
        weights = re.findall(r"^weight @(\S+) .*?full\(0\.0, \[([^\]]*)\]\)", done.stdout, flags=re.M)
        return (done.stderr or f"status {done.returncode}") if done.returncode else None, weights


def has_parameter(section, entry):
    """Weights of examples are called as the entry says, N a number, with as many axes."""
    for name, sizes in re.findall(r"`([^`]*)` `\[(.*?)\]`", entry.replace("\n ", "")):
        pattern = rf"(^|\.){re.escape(name)}(\.|$)".replace(r"\.N\.", r"\.(\d+|all|\{\*\})\.")
        rank = len([size for size in sizes.split(",") if size])
        if not any(re.search(pattern, weight) and len(shape(given)) == rank for weight, given in section.parameters):
            return False
    return True


def has_example(section, title, name, entry):
    if title.startswith("Parameters"):
        return has_parameter(section, entry)
    if title.startswith(("Operators", "Functions", "Scalings")):
        return re.search(rf"\b{name}\(", section.examples)
    if title.startswith(("Activations", "The steps")):
        return re.search(rf"\b{name}\b", section.examples)
    return re.search(rf"\b{name}:", section.examples)


def main():
    failed, found = [], lists()
    if os.environ.get("TFMC_BLESS"):
        for name, part in found.items():
            bless(name, part)
    all_sections = list(sections())
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(pathlib.Path(folder))
        n_blocks = 0
        for page in PAGES:
            lines = page.read_text().splitlines()
            failed += [f"{page}: the link {target} leads nowhere" for target in broken_links(page)]
            failed += [f"{page}:{n}: more than {WIDEST} columns" for n, line in enumerate(lines, 1) if len(line) > WIDEST]
            for block in blocks_of(page):
                if block.kind not in ("yaml", "text"):
                    continue
                heading = max(i for i in range(block.line) if re.match("#+ ", lines[i]))
                section = next(s for s in all_sections if s.page == page and s.text.startswith(lines[heading] + "\n"))
                wrong, weights = runner.run(block)
                n_blocks += 1
                section.examples += block.text
                for name, given in weights:
                    section.parameters[(name, given)] = True
                if wrong:
                    failed.append(f"{page}:{block.line}: {wrong}")
    n_entries = 0
    for name, part in found.items():
        section = next((s for s in all_sections if part in s.text), None)
        if section is None:
            failed.append(f"no page has the list '{name}' as it is; TFMC_BLESS=1 {' '.join(sys.argv)} writes it")
            continue
        if name == "The steps:":
            section.examples = "\n".join(s.examples for s in all_sections)
        for entry, text in entries_of(name, part) if name not in WITHOUT_EXAMPLES else ():
            n_entries += 1
            if not has_example(section, name, entry, text):
                failed.append(f"{section.page}: no example has '{entry}' ({name})")
    print("\n".join(failed))
    print(f"{len(found)} lists, {n_entries} entries, {n_blocks} examples, {len(failed)} wrong")
    return len(failed) > 0


sys.exit(main())
