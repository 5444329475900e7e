#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decodes GGUF files with tfmc and with llama.cpp: `files.py TFMC [MODEL:TYPE..]`, in turns, for 1 and 2 threads.

Files hold seeded weights in a type of llama.cpp's quantizer. Models: d2 GPT-2, d4 a Llama of 160 M weights, d3 of 1.1e9, m8 a
mixture of 8 experts with 2 for a token (Mixtral), m16 of 16 with 4 (Qwen3). A line: the least and the median time of a step behind
64 to 111 tokens (tfmc: 88), in ms, of both; llama.cpp / tfmc by least times; bytes of weights that a step of tfmc reads over those
that the file has for it; part of the machine's reading rate that the weights alone take. Needs the packages gguf and
llama-cpp-python of PyPI, and a quiet machine: --rounds, --slice, --threads, --out."""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "compare"))
sys.dont_write_bytecode = True

import gguf

import compare
import gguf_models
import rows

DEFAULT = [f"d4:{kind}" for kind in gguf_models.KINDS if kind not in ("f32", "F16", "MXFP4")]
DEFAULT += ["d2:Q4_K_M", "d2:Q5_K_M", "d3:Q4_K_M", "d3:Q5_K_M", "m8:Q4_K_M", "m16:Q4_K_M", "m8:Q8_0", "m16:MXFP4"]


def step_bytes(path, model):
    """Bytes of a file's matrices that one step reads: of experts the part that a token has; a table only as the head."""
    tensors = {t.name: t for t in gguf.GGUFReader(path).tensors}
    total = 0
    for name, t in tensors.items():
        if name == "token_embd.weight" and "output.weight" in tensors or name.startswith("position"):
            continue
        total += t.n_bytes * model.experts[1] // model.experts[0] if "_exps" in name else t.n_bytes
    return total


def bench(tfmc, path, row, threads, cpus):
    """The JSON of tfmc bench, one round."""
    command = [tfmc, "bench", path, "--entry=step", f"--past={row.length + row.steps // 2}", f"--threads={threads}", "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True,
                                     preexec_fn=lambda: os.sched_setaffinity(0, cpus)).stdout)


def measure(name, kind, threads, options):
    """One line of the table."""
    row, model = rows.FILES[name], rows.MODELS[name]
    cpus = sorted(os.sched_getaffinity(0), reverse=True)[:threads]
    path = gguf_models.path_of(model, options.out, kind)
    peer = compare.Worker("llama.cpp", [sys.executable, os.path.join(HERE, "compare/peer.py"), "llama.cpp " + kind, name, "file",
                                        str(threads), options.out], cpus)
    ours, theirs = [], []
    try:
        for _ in range(options.rounds):
            ours.append(bench(options.tfmc, path, row, threads, cpus))
            theirs.append([float(t) * 1e3 for t in peer.ask(f"slice {options.slice}").split()[1:]])
    finally:
        peer.close()
    least, peer_least = min(r["min_ms"] for r in ours), min(map(min, theirs))
    peak = max(r["peak_gbs"] for r in ours)
    read = ours[0]["weight_bytes"] / step_bytes(path, model)
    rate = ours[0]["weight_bytes"] / least / 1e6 / peak
    return (f"{name + ' ' + kind:<12} {threads} {least:8.3f} {statistics.median(r['median_ms'] for r in ours):8.3f} {peer_least:9.3f} "
            f"{statistics.median(map(statistics.median, theirs)):8.3f} {peer_least / least:6.2f} {read:6.3f} {100 * rate:4.0f} % "
            f"of {peak:.1f} GB/s")


def main():
    """Makes the files, prints the table."""
    p = argparse.ArgumentParser(prog="files.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("tfmc")
    p.add_argument("files", nargs="*", default=DEFAULT)
    p.add_argument("--out", default="build/perf/files")
    p.add_argument("--threads", default="1,2")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--slice", type=float, default=1.0, help="seconds of llama.cpp in a round")
    options = p.parse_intermixed_args()
    os.makedirs(options.out, exist_ok=True)
    os.environ["XDG_CACHE_HOME"] = os.path.abspath(os.path.join(options.out, "cache"))
    print("file       threads  tfmc ms   median llama.cpp   median  ratio   read  rate", flush=True)
    for name, kind in (f.split(":") for f in options.files):
        gguf_models.write(rows.MODELS[name], options.out, kind)
        for threads in options.threads.split(","):
            print(measure(name, kind, int(threads), options), flush=True)


if __name__ == "__main__":
    main()
