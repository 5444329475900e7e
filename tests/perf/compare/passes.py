# SPDX-License-Identifier: Apache-2.0
"""Leaves passes of O2 out, one at a time, and times what is left on the rows of rows.py and on small models.

Prints a Markdown table: time without the pass over time with all passes, by the least time of each slice and by its median,
both the median over the rounds, and the bytes of the largest arena where they differ. All objects of a row are processes
that take turns, as in compare.py. `=`: code and weights are the same bytes without the pass. Called by passes.sh.
"""
import argparse
import dataclasses
import filecmp
import os
import re
import shutil
import statistics
import subprocess

import compare
import prepare
import rows
import seeded

rows.MODELS["d4i"] = dataclasses.replace(rows.MODELS["d4"], rope="interleaved")
rows.MODELS["d5i"] = dataclasses.replace(rows.MODELS["d5"], rope="interleaved")
rows.MODELS["d6i"] = rows.Model("d6", "llama", 2, 256, 4, 4, 1024, 512, "silu", 1e-5, ctx=256, rope="interleaved")
INTERLEAVED = (rows.Row("D4-i", "d4i", "decode", 64, steps=48), rows.Row("D4-i-p128", "d4i", "prefill", 128),
               rows.Row("D5-i", "d5i", "decode", 1, steps=256), rows.Row("D6-i-p48", "d6i", "prefill", 48))
rows.ROWS.update({r.name: r for r in INTERLEAVED})
SMALL = ("E5", "D5", "D5-i", "D6-i-p48")


def pipeline(places, without):
    """O2 without some passes, as a list for --passes."""
    listed = subprocess.run([places.tfmc, "passes"], check=True, stdout=subprocess.PIPE, text=True).stdout
    steps = re.search(r"^O2\s+(\S+)$", listed, re.M).group(1).split(",")
    missing = [name for name in without if name not in steps]
    if missing:
        raise SystemExit(f"passes.sh: O2 does not have {', '.join(missing)}; it is {','.join(steps)}")
    return ",".join(s for s in steps if s not in without)


def variants(options, places):
    """{name: pipeline}: O2 first, then what --without names; '+' leaves several out together."""
    named = {"O2": pipeline(places, [])}
    for text in options.without.split(","):
        named[text] = pipeline(places, text.split("+"))
    return named


def largest_arena(places, model, passes):
    """Bytes of the largest arena of a model at its largest dims, from the formulas of `tfmc plan`."""
    text = subprocess.run([places.tfmc, "plan", model, "--passes=" + passes], check=True, stdout=subprocess.PIPE,
                          text=True).stdout
    best, dims = 0, {}
    for line in text.splitlines():
        if " at " in line and not line.startswith(" "):
            dims = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+) of", line)}
        found = re.match(r"  arena +(.*) = ", line)
        if found:
            best = max(best, eval(found.group(1), {"max": max, "min": min, **dims}))  # pylint: disable=eval-used
    return best


class Compiled:
    """One row compiled in one precision with one pipeline: its folder, its arena, its process."""

    def __init__(self, places, row, precision, name, passes):
        folder = os.path.join(places.folder, prepare.symbol(row, precision) + "." + name.replace("+", "."))
        shutil.rmtree(folder, ignore_errors=True)
        self.places = prepare.Places(folder, places.build, places.cpu, None)
        self.row, self.precision, self.name, self.twin, self.worker = row, precision, name, None, None
        weights = rows.MODELS[row.model].name + ".safetensors"
        os.symlink(places.at(weights), self.places.at(weights))
        prepare.compile_tfmc(self.places, row, precision, "--passes=" + passes)
        self.arena = largest_arena(places, self.file(".yaml"), passes)

    def file(self, suffix):
        """A file of the compiled row."""
        return self.places.at(prepare.symbol(self.row, self.precision) + suffix)

    def is_like(self, other):
        """Whether code and weights are the same bytes."""
        return all(filecmp.cmp(self.file(s), other.file(s), shallow=False) for s in (".o", ".weights"))

    def start(self, cpus):
        """The process that times it, with a thread for each of the processors."""
        row = self.row
        source = int(rows.MODELS[row.model].kind == "seq2seq")
        command = [prepare.worker_path(self.places, row, self.precision), row.mode, self.file(".weights"), str(len(cpus)),
                   str(row.steps), str(source), prepare.input_file(self.places, row)]
        self.worker = compare.Worker(self.name, command, cpus)

    def forget(self):
        """Ends the process and removes the files."""
        if self.worker:
            self.worker.close()
        shutil.rmtree(self.places.folder)


def compile_row(places, row, precision, pipelines):
    """The objects of a row; one that is like the first, O2, is not timed."""
    seeded.write_safetensors(rows.MODELS[row.model], places.at(rows.MODELS[row.model].name + ".safetensors"))
    done = []
    for name, passes in pipelines.items():
        one = Compiled(places, row, precision, name, passes)
        one.twin = done[0] if done and one.is_like(done[0]) else None
        done.append(one)
    return done


def time_row(compiled, options):
    """{name: [(least, median) of each round]} in seconds."""
    timed = [c for c in compiled if c.twin is None]
    for c in timed:
        c.start(set(sorted(os.sched_getaffinity(0))[-options.threads:]))
    rounds = {c.name: [] for c in timed}
    size = options.slice / (4 if compiled[0].row.name in SMALL else 1)
    for k in range(options.rounds):
        for i in range(len(timed)):
            c = timed[(i + k) % len(timed)]
            times = [float(t) for t in c.worker.ask(f"slice {size}").split()[1:]]
            rounds[c.name].append((min(times), statistics.median(times)))
    return rounds


def ratio(ours, base, column):
    """Median over the rounds of time without the pass over time with it: 0 of the least times, 1 of the medians."""
    return statistics.median(a[column] / b[column] for a, b in zip(ours, base))


def cell(one, base, rounds):
    """Least times without over with; median times the same; the arena where it differs."""
    if one.twin is not None:
        return "="
    ours, theirs = rounds[one.name], rounds[base.name]
    text = f"{ratio(ours, theirs, 0):.3f} / {ratio(ours, theirs, 1):.3f}"
    return text if one.arena == base.arena else f"{text}, arena {one.arena / base.arena:.2f}"


def run_row(places, row, pipelines, options):
    """One line of the table."""
    compiled = []
    try:
        compiled = compile_row(places, row, rows.PRECISIONS[options.precision], pipelines)
        rounds = time_row(compiled, options)
        base = compiled[0]
        least = 1e3 * min(t[0] for t in rounds[base.name])
        cells = [f"{least:.4g}", f"{base.arena / 1e6:.3g}"] + [cell(c, base, rounds) for c in compiled[1:]]
        print(f"| {row.name} | " + " | ".join(cells) + " |", flush=True)
    finally:
        for c in compiled:
            c.forget()


def arguments():
    """The command line."""
    p = argparse.ArgumentParser(prog="passes.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("rows", nargs="*", help="rows to run (default: all but the large ones, D3 and D3-p128)")
    p.add_argument("--without", default="merge-heads,demand-rows,merge-linear,block-logits,specialize",
                   help="passes to leave out, separated by commas; P+Q: both at once")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--slice", type=float, default=0.2, help="seconds each object is timed in a round")
    p.add_argument("--threads", type=int, default=1, help="of the last processors")
    p.add_argument("--precision", default="f32", choices=rows.PRECISIONS)
    for name in ("out", "build", "mcpu"):
        p.add_argument("--" + name, help=argparse.SUPPRESS)
    options = p.parse_args()
    for name in options.rows:
        if name not in rows.ROWS:
            p.error(f"no row {name}; rows are {', '.join(rows.ROWS)}")
    options.rows = options.rows or [r.name for r in rows.ROWS.values() if not r.large]
    return options


def main():
    """Compiles, times, prints."""
    options = arguments()
    places = prepare.Places(options.out, options.build, options.mcpu, None)
    pipelines = variants(options, places)
    names = list(pipelines)[1:]
    print("| row | O2 ms | arena MB | " + " | ".join(names) + " |")
    print("|---" * (len(names) + 3) + "|", flush=True)
    for name in options.rows:
        run_row(places, rows.ROWS[name], pipelines, options)


main()
