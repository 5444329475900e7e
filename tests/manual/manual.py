#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the code blocks of a page of the manual, in order, in one shell and one new folder.

The first word behind the three backquotes says what a block is:

    sh             commands; each must succeed
    console        lines `$ COMMAND`, each followed by all that it writes; `...` stands for any text
    LANGUAGE FILE  the content of a file, which is written (yaml, c, cmake, python, text, ..)

and words behind it:

    exit=N         console: the status of the last command; of all others it is 0
    numbers=vary   console: numbers are compared as "some number": times, and what depends on the processor
    append         FILE: the block is added to the file
    part-of=FILE   nothing is run: the lines stand in this file of the repository, in this order and together
    skip="WHY"     not run (what needs a network, a package or another machine); the options of each `tfmc` are checked

The folder holds `tfmc`, a link to the repository; ~/opt/tfmc is an installed tfmc, and cc the compiler that built it.
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["TFMC_SOURCE"])
WIDEST = 130


class Block:
    def __init__(self, line, info, text):
        words = shlex.split(info)
        self.line, self.text, self.kind = line, text, words[0] if words else ""
        pairs = [word.partition("=") for word in words[1:]]
        self.options = {name: value for name, equals, value in pairs if equals or name == "append"}
        self.files = [name for name, equals, _ in pairs if not equals and name != "append"]


def blocks_of(page):
    """The blocks of a page; a block that is indented, as in a list, loses that indentation."""
    found, start = [], None
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = re.match(r"( *)```(.*)", line)
        if fence and start is None:
            start, indent, info, lines = number, len(fence[1]), fence[2].strip(), []
        elif fence:
            found.append(Block(start, info, "".join(text + "\n" for text in lines)))
            start = None
        elif start is not None:
            lines.append(line[indent:])
    return found


def commands_of(block):
    """Pairs of a command and what it writes. `> ` continues a command."""
    pairs = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            pairs.append([line[2:] + "\n", ""])
        elif line.startswith("> ") and pairs and not pairs[-1][1]:
            pairs[-1][0] += line[2:] + "\n"
        elif not pairs:
            raise ValueError("the block does not begin with a command")
        else:
            pairs[-1][1] += line + "\n"
    return pairs


def anchors_of(page):
    """The anchors of the headings of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    titles = re.findall(r"^#+ (.*)", text, flags=re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        if "://" not in target and (not file.exists() or anchor and anchor not in anchors_of(file)):
            yield target


def same(wanted, got, numbers_vary):
    def plain(text):
        lines = [line.rstrip() for line in text.strip("\n").splitlines()]
        text = "\n".join(lines)
        return re.sub(r"\d+(\.\d+)?(e[+-]?\d+)?", "0", re.sub(r" +", " ", text)) if numbers_vary else text
    parts = [re.escape(part) for part in plain(wanted).split("...")]
    return re.fullmatch(".*".join(parts), plain(got), re.S) is not None


def unknown_options(text):
    """Options of `tfmc` in commands that are not run, which its help does not have."""
    unknown = []
    for command in re.split(r"[\n;|]|&&", text.replace("\\\n", " ")):
        words = re.sub(r"^\$ ", "", command.strip()).split()
        if not words or words[0] != "tfmc":
            continue
        name = words[1] if len(words) > 1 and re.fullmatch("[a-z]+", words[1]) else "compile"
        text = subprocess.run([os.environ["TFMC"], "help", name], capture_output=True, text=True).stdout
        known = set(re.findall(r"(?<!\S)--?([A-Za-z][\w-]*)", text))
        for word in words[1:]:
            option = re.match(r"--?([A-Za-z][\w-]*)", word)
            if option and option[1] not in known:
                unknown.append(f"tfmc {name} has no option {word}")
    return unknown


class Page:
    def __init__(self, folder):
        self.folder = folder
        (folder / "tfmc").symlink_to(SOURCE)
        (folder / "bin").mkdir()
        compiler = f'#!/bin/sh\nexec {os.environ["CC"]} "$@" {os.environ.get("TFMC_LINK_FLAGS", "")}\n'
        (folder / "bin/cc").write_text(compiler)
        (folder / "bin/cc").chmod(0o755)
        subprocess.run(["cmake", "--install", os.environ["TFMC_BUILD"], "--prefix", folder / "opt/tfmc"],
                       check=True, stdout=subprocess.DEVNULL)
        environment = {**os.environ, "HOME": str(folder), "PATH": f"{folder}/bin:{os.environ['PATH']}"}
        self.shell = subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder,
                                      env=environment)

    def run(self, command):
        """Status and output of a command in the shell of the page."""
        (self.folder / ".command").write_text(command)
        self.shell.stdin.write("source ~/.command >~/.output 2>&1 </dev/null; echo $?\n")
        self.shell.stdin.flush()
        answer = self.shell.stdout.readline()
        return int(answer) if answer else -1, (self.folder / ".output").read_text(errors="replace")

    def do(self, block):
        """What is wrong with a block, or None."""
        options = block.options
        if "skip" in options:
            return "; ".join(unknown_options(block.text)) or None
        if "part-of" in options:
            return None if block.text in (SOURCE / options["part-of"]).read_text() else f"not in {options['part-of']}"
        if block.kind == "console":
            return self.console(block)
        if block.kind == "sh":
            status, output = self.run("set -e\n" + block.text + "set +e\n")
            return f"status {status}\n{output}" if status else None
        if not block.files:
            return "it is neither sh nor console and names no file"
        with open(self.folder / block.files[0], "a" if "append" in options else "w") as file:
            file.write(block.text)
        return None

    def console(self, block):
        pairs = commands_of(block)
        for number, (command, wanted) in enumerate(pairs, 1):
            last = number == len(pairs)
            status, output = self.run(command)
            if status != int(block.options.get("exit", 0) if last else 0):
                return f"{command}status {status}\n{output}"
            if not same(wanted, output, "numbers" in block.options):
                return f"{command}writes\n{output}"
        return None


def main():
    page = pathlib.Path(sys.argv[1])
    failed = 0
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if len(line) > WIDEST:
            failed += 1
            print(f"{page}:{number}: {len(line)} columns, at most {WIDEST}")
    for target in broken_links(page):
        failed += 1
        print(f"{page}: the link {target} leads nowhere")
    with tempfile.TemporaryDirectory() as folder:
        runner = Page(pathlib.Path(folder))
        blocks = blocks_of(page)
        for block in blocks:
            wrong = runner.do(block)
            if wrong:
                failed += 1
                print(f"{page}:{block.line}: {wrong}")
            if runner.shell.poll() is not None:
                break
        runner.shell.communicate()
    print(f"{page}: {len(blocks)} blocks, {failed} wrong")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
