# SPDX-License-Identifier: Apache-2.0
"""Times tfmc and the peers on the rows of rows.py, in turns in one run, beside the machine's peaks.

Every system is a process that stays alive and times calls for a slice of time on command. A round gives
each one slice, in an order that rotates; all but the one at work are stopped. Called by compare.sh.
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys

import numpy as np

import prepare
import report
import rows

HERE = os.path.dirname(os.path.abspath(__file__))


class Worker:
    """A process that answers lines with lines."""

    def __init__(self, name, command, cpus):
        self.name = name
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cpus))
        if self.read() != "ready":
            raise RuntimeError(f"{name} did not start: {' '.join(command)}")
        self.pause()

    def read(self):
        """One line of the process."""
        return self.process.stdout.readline().strip()

    def pause(self):
        """Stops the process, spinning threads included."""
        self.process.send_signal(signal.SIGSTOP)

    def ask(self, line):
        """The answer to a line; the process runs only for it."""
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.read()
        self.pause()
        if not answer:
            raise RuntimeError(f"{self.name} ended")
        return answer

    def close(self):
        """Ends the process."""
        self.process.kill()
        self.process.wait()


class Stories:
    """The plain C program of D5: a process for each slice, which repeats the generation itself."""

    name = "plain C"

    def __init__(self, places, row, threads, cpus):
        self.command = [places.at(f"stories-{threads}"), places.at("d5.bin"), places.at("d5.tok"), str(row.steps)]
        self.cpus, self.steps = cpus, row.steps
        self.environment = dict(os.environ, OMP_NUM_THREADS=str(threads))

    def run(self, repeats, *more):
        """What the program prints."""
        done = subprocess.run(self.command + [str(repeats), *more], env=self.environment, check=True,
                              stdout=subprocess.PIPE, text=True,
                              preexec_fn=lambda: os.sched_setaffinity(0, self.cpus))
        return done.stdout

    def ask(self, line):
        """Answers like a worker: seconds of a token, the median and the best of its repetitions."""
        command, argument = line.split(None, 1)
        if command == "output":
            ids = [int(t) for t in self.run(1, "print").split("\n")[0].split()]
            np.array(ids[: self.steps], np.int32).tofile(argument)
            return "ok"
        text = self.run(max(1, int(float(argument) / (self.steps * 1e-4)))).split()
        median, best = float(text[text.index("median") + 1]), float(text[text.index("best") + 1])
        return f"times {1 / best} {1 / median} {1 / median}"

    def close(self):
        """Nothing is left running."""


def open_workers(places, row, precision, threads, options):
    """tfmc first, then the peers."""
    cpus = options.cpus[:threads]
    model = rows.MODELS[row.model]
    folder = places.folder
    weights = places.at(prepare.symbol(row, precision) + ".weights")
    command = [prepare.worker_path(places, row, precision), row.mode, weights, str(threads), str(row.steps),
               str(int(model.kind == "seq2seq")), prepare.input_file(places, row)]
    workers = [Worker("tfmc", command, cpus)]
    for peer in prepare.peers_of(places, row, precision):
        if options.peers and peer not in options.peers:
            continue
        if peer == "plain C":
            workers.append(Stories(places, row, threads, cpus))
            continue
        try:
            workers.append(Worker(peer, [sys.executable, os.path.join(HERE, "peer.py"), peer, row.name, precision.type,
                                         str(threads), folder], cpus))
        except RuntimeError:
            print(f"{row.name} in {precision.name}: {peer} does not run it here", file=sys.stderr, flush=True)
    size = rows.token_bytes(row, precision)
    peaks = Worker("peaks", [places.at("peaks"), "--serve", str(threads), str(size), precision.peak], cpus)
    return workers, peaks


def check_outputs(places, row, precision, workers):
    """{peer: largest difference}. Raises when outputs differ; ids of generations in f32 must be equal."""
    kind = np.int32 if row.mode == "decode" else np.float32
    found = {}
    for w in workers:
        path = places.at("output.raw")
        w.ask("output " + path)
        found[w.name] = np.fromfile(path, kind)
    ours, errors = found["tfmc"], {}
    for name, theirs in found.items():
        if name == "tfmc":
            continue
        if theirs.shape != ours.shape:
            raise RuntimeError(f"{row.name}: {name} gives {theirs.shape}, tfmc {ours.shape}")
        if row.mode == "decode":
            errors[name] = float((theirs != ours).sum())
            limit = 0 if precision.name == "f32" else row.steps
        else:
            seen = theirs > -1e30  # logits of ids that a peer must not choose are the lowest number
            errors[name] = float(np.abs(theirs - ours)[seen].max() / np.abs(ours).max())
            limit = precision.tolerance
        if not errors[name] <= limit:
            raise RuntimeError(f"{row.name}: {name} and tfmc differ by {errors[name]}")
    return errors


def measure(row, workers, peaks, options):
    """Per system a list of rounds, each the least and the median time of its slice; the best peaks of the rounds."""
    rounds = {w.name: [] for w in workers}
    best = [0.0, 0.0]
    for k in range(options.rounds):
        rates = [float(v) for v in peaks.ask(f"slice {options.slice / 2}").split()[1:]]
        best = [max(a, b) for a, b in zip(best, rates)]
        for i in range(len(workers)):
            w = workers[(i + k) % len(workers)]
            times = [float(t) for t in w.ask(f"slice {options.slice}").split()[1:]]
            rounds[w.name].append((min(times), statistics.median(times)))
    return rounds, best


def run_row(places, row, precision, threads, options):
    """One row of the table."""
    workers, peaks = [], None
    try:
        workers, peaks = open_workers(places, row, precision, threads, options)
        errors = check_outputs(places, row, precision, workers)
        rounds, best = measure(row, workers, peaks, options)
    finally:
        for w in workers + ([peaks] if peaks else []):
            w.close()
    return report.result(row, precision, threads, rounds, best, errors)


def arguments():
    """The command line."""
    p = argparse.ArgumentParser(prog="compare.sh", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("rows", nargs="*", help="rows to run (default: all but the large ones, D3 and D3-p128)")
    p.add_argument("--threads", default="1,2", help="numbers of threads (default 1,2)")
    p.add_argument("--precisions", default="f32", help="f32, bf16, int8, int8_row, q4, separated by commas (default f32)")
    p.add_argument("--rounds", type=int, default=8)
    p.add_argument("--slice", type=float, default=0.3, help="seconds each system times in a round")
    p.add_argument("--peers", default="", help="only these, separated by commas")
    p.add_argument("--cpus", default="", help="processors to use (default: the last first)")
    p.add_argument("--json", help="write the table to this file")
    p.add_argument("--prepare", action="store_true", help="make everything, time nothing")
    p.add_argument("--reuse", action="store_true", help="do not compile with tfmc again")
    p.add_argument("--keep", action="store_true", help="keep the files of large rows")
    for name in ("out", "build", "mcpu", "stories"):
        p.add_argument("--" + name, help=argparse.SUPPRESS)
    options = p.parse_args()
    options.peers = [name for name in options.peers.split(",") if name]
    for name in options.precisions.split(","):
        if name not in rows.PRECISIONS:
            p.error(f"no precision {name}; there are {', '.join(rows.PRECISIONS)}")
    options.precisions = [rows.PRECISIONS[name] for name in options.precisions.split(",")]
    known = sorted(os.sched_getaffinity(0), reverse=True)
    options.cpus = [int(c) for c in options.cpus.split(",")] if options.cpus else known
    for name in options.rows:
        if name not in rows.ROWS:
            p.error(f"no row {name}; rows are {', '.join(rows.ROWS)}")
    options.rows = options.rows or [r.name for r in rows.ROWS.values() if not r.large]
    return options


def main():
    """Prepares, runs, prints."""
    options = arguments()
    places = prepare.Places(options.out, options.build, options.mcpu, options.stories)
    prepare.build_peaks(places)
    results, failed = [], 0
    print(report.HEAD, flush=True)
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        if "amx_tile" not in f.read():
            print("matrix tiles (AMX): not run, this processor has none", flush=True)
    for name in options.rows:
        row = rows.ROWS[name]
        for precision in options.precisions:
            prepare.prepare(places, row, precision, options.reuse)
            for threads in [] if options.prepare else [int(t) for t in options.threads.split(",")]:
                try:
                    results.append(run_row(places, row, precision, threads, options))
                    print(report.line(results[-1]), flush=True)
                except RuntimeError as problem:
                    print(f"{row.name} in {precision.name} with {threads} threads failed: {problem}", flush=True)
                    failed = 1
                if options.json:
                    with open(options.json, "w", encoding="utf-8") as f:
                        json.dump({"rows": results}, f, indent=1)
        if row.large and not options.keep:
            prepare.forget(places, row)
    sys.exit(failed)


if __name__ == "__main__":
    main()
