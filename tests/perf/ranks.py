#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Ranks of a model: measured, and predicted for links and numbers of ranks that this machine does not have.

    ranks.py predict [d4 ..]      a step and a prompt over stated links: predicted beside ranks that wait for the links
    ranks.py shapes [8B 70B]      a step and a prompt of Llama's shapes on 1 .. 512 ranks, predicted
    ranks.py beside [d3 d4]       two ranks beside two workers of one process, in turns
    ranks.py prompts [d4]         a prompt of several calls on two stages over stated links, beside one process

A prediction is the time of one rank that takes the values of all others to be its own and waits for the link where it
has a message (tfmc bench --one-rank --latency --link-rate): a core that waited 100 us finds its caches cold and computes
at half the speed, so the time of the messages (tfmc plan) cannot be added to that of a rank that never waits. predict
runs as many such ranks at once as the model has, since ranks of one machine share its memory and clock. BUILD_DIR is the
build (default build), OUT the scratch folder; --formats, --rounds, --threads narrow or repeat a measurement.
"""
import argparse
import concurrent.futures
import dataclasses
import json
import os
import re
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/perf/compare"))
import language  # noqa: E402
import rows  # noqa: E402
import seeded  # noqa: E402

BUILD = os.path.join(ROOT, os.environ.get("BUILD_DIR", "build"))
OUT = os.environ.get("OUT", os.path.join(BUILD, "perf"))
TFMC = os.path.join(BUILD, "frontend/driver/tfmc")
PROMPT, LONG_PROMPT, PAST = 128, 512, 64  # tokens; the long one is of shapes
STAGE_CALLS, STAGE_CALL_TOKENS = 8, 128  # of prompts; the latter as tfmc generate reads them with stages
LINKS = ((1, 10), (5, 12.5), (50, 1.25), (200, 1.25))  # microseconds, GB/s
STATED = ((50, 1.25), (5, 12.5), (1, 10))
SLOW = ((5, 10), (1000, 0.125), (20000, 0.02))  # of prompts
STREAMED = 400e6  # bytes of weights that a rank reads at least, or they would be in its caches

LLAMA = {
    "8B": rows.Model("llama8b", "llama", 32, 4096, 32, 8, 14336, 128256, "silu", 1e-5, ctx=1024),
    "70B": rows.Model("llama70b", "llama", 80, 8192, 64, 8, 28672, 128256, "silu", 1e-5, ctx=1024),
}


class Refused(Exception):
    """tfmc does not divide the model among this number of ranks."""


def tfmc(arguments, launcher=(), env=None):
    """What the command prints."""
    command = [*launcher, TFMC, *arguments, "--progress=never"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **(env or {})})
    if done.returncode:
        raise Refused(" ".join(command) + "\n" + done.stderr[-600:])
    return done.stdout


def bench(model, options, launcher=()):
    """The report of tfmc bench."""
    return json.loads(tfmc(["bench", model, "--json", "--no-cache", *options], launcher).splitlines()[-1])


def bench_at_once(model, options, copies):
    """
    The report of the slowest of processes that run at once, each on a processor of its own where there are enough. Each
    packs its weights into memory of its own: those of a mapped file would be in the last cache for all of them.
    """
    cpus = sorted(os.sched_getaffinity(0))
    with concurrent.futures.ThreadPoolExecutor(copies) as pool:
        reports = pool.map(lambda i: bench(model, options, ("taskset", "-c", str(cpus[i % len(cpus)]))), range(copies))
    return max(reports, key=lambda r: r["median_ms"])


def entry_options(entry, prompt=PROMPT):
    """Of a step behind PAST tokens, or a prompt."""
    return ["--entry=step", f"--past={PAST}"] if entry == "step" else ["--entry=prefill", f"--dim=S={prompt}"]


def link_options(link):
    """Of bench and plan."""
    return [f"--latency={link[0]}", f"--link-rate={link[1]}"]


def message_ms(model, ranks, entry, link, prompt=PROMPT):
    """What messages of one call take by the plan of the model."""
    if ranks == 1:
        return 0.0
    dims = ["--dim=B=1"] + ([f"--dim=S={prompt}"] if entry == "prefill" else [])
    text = tfmc(["plan", model, f"--shards={ranks}", *dims, *link_options(link)])
    name = r"^decode\.step\b" if entry == "step" else r"^decode\b(?!\.)"
    part = re.split(name, text, maxsplit=1, flags=re.M)[1]
    return float(re.search(r"exchanges .*; ([0-9.e+-]+) ms", part).group(1))


def decoder(name, precision, prompt=PROMPT):
    """The model file of d3, d4, .. with seeded weights."""
    m = rows.MODELS[name]
    m = dataclasses.replace(m, ctx=max(m.ctx, prompt))
    seeded.write_safetensors(m, os.path.join(OUT, m.name + ".safetensors"))
    path = os.path.join(OUT, f"ranks_{name}_{precision}_{prompt}.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(language.causal(m, f"ranks_{name}", prompt) + rows.PRECISIONS[precision].section)
    return path


def predict(c):
    """Predicted and measured, of each link."""
    print("| model | entry | ranks | link | messages ms | predicted min, median ms | measured min, median ms | differs |")
    print("|---|---|---|---|---|---|---|---|")
    for name in c.models or ["d4"]:
        for precision in c.formats:
            model = decoder(name, precision)
            for entry in c.entries:
                for ranks in c.ranks or (2, 4):
                    for link in LINKS:
                        predict_row(c, (f"{name} {precision}", model, entry), ranks, link)


def predict_row(c, case, ranks, link):
    """Rounds in turns, the least of each."""
    title, model, entry = case
    options = [*entry_options(entry), "--threads=1", f"--shards={ranks}", *link_options(link)]
    reports = {"predicted": [], "measured": []}
    for _ in range(c.rounds):
        reports["predicted"].append(bench_at_once(model, [*options, "--one-rank"], ranks))
        reports["measured"].append(bench(model, options))
    (p_min, p_median), (m_min, m_median) = (
        (min(r["min_ms"] for r in rs), min(r["median_ms"] for r in rs)) for rs in reports.values())
    print(f"| {title} | {entry} | {ranks} | {link[0]} us {link[1]} GB/s | {message_ms(model, ranks, entry, link):.3f} "
          f"| {p_min:.3f}, {p_median:.3f} | {m_min:.3f}, {m_median:.3f} "
          f"| {100 * (p_min / m_min - 1):+.1f}, {100 * (p_median / m_median - 1):+.1f} % |", flush=True)


def write_sparse(path, tensors):
    """A safetensors file of zeros that takes no disk."""
    header, offset = {}, 0
    for name, shape in tensors:
        count = 1
        for size in shape:
            count *= size
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + 2 * count]}
        offset += 2 * count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.truncate(8 + len(text) + offset)


def layers_model(m, layers, vocab, precision):
    """A decoder of a Llama's layers, all of them the stored layer 0."""
    shape = rows.Model(m.name, m.kind, layers, m.hidden, m.heads, m.kv_heads, m.ff, vocab, m.act, m.eps, ctx=m.ctx)
    one = rows.Model(m.name, m.kind, 1, m.hidden, m.heads, m.kv_heads, m.ff, vocab, m.act, m.eps, ctx=m.ctx)
    name = f"{m.name}_{layers}_{vocab}_{precision}"
    write_sparse(os.path.join(OUT, name + ".safetensors"), seeded.tensors(one))
    text = language.causal(shape, m.name, LONG_PROMPT).replace(f"{m.name}.safetensors", f"{name}.safetensors")
    alike = "layer{i:" + ",".join(f"{i}=0" for i in range(layers)) + "}"
    places = ["attn.norm.weight", "attn.attention.{r}.weight", "mlp.norm.weight", "mlp.ffn.{r}.weight"]
    maps = {f"layers.{{i}}.{p}": f"{alike}.{p}".replace("layer{", "layers.{") for p in places}
    maps.update({f"{p}.weight": f"{p}.weight" for p in ("word", "final", "head")})
    text = text.replace("  map: identity\n", "  map:\n" + "".join(f'    "{a}": "{b}"\n' for a, b in maps.items()))
    return write_model(name, text + rows.PRECISIONS[precision].section)


def head_model(m, precision):
    """Hidden states to logits."""
    name = f"{m.name}_head_{precision}"
    write_sparse(os.path.join(OUT, name + ".safetensors"), [("head.weight", (m.vocab, m.hidden))])
    return write_model(name, f"""tfmc: 1
name: {m.name}_head
dims: {{B: 1, S: 1}}
inputs:
  h: {{shape: [B, S, {m.hidden}], dtype: f32}}
model:
  - linear: {{id: head, out: {m.vocab}, bias: false}}
outputs: {{logits: x}}
weights:
  files: [{name}.safetensors]
  map: identity
""" + rows.PRECISIONS[precision].section)


def write_model(name, text):
    """Its path."""
    path = os.path.join(OUT, name + ".yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def least(c, model, options):
    """Milliseconds of the rounds."""
    return min(bench(model, options)["min_ms"] for _ in range(c.rounds))


def shapes(c):
    """A table for each shape, format and entry: ms of a call over the stated links (of which messages)."""
    links = " | ".join(f"{us} us {rate} GB/s" for us, rate in STATED)
    for name in c.models or ["8B", "70B"]:
        m = LLAMA[name]
        for precision in c.formats:
            whole, head = layers_model(m, m.layers, m.vocab, precision), head_model(m, precision)
            for entry in c.entries:
                what = "step" if entry == "step" else f"prompt of {LONG_PROMPT}"
                print(f"\nLlama {name}, {precision}, {what}, {c.threads} workers a rank\n")
                print(f"| ranks | {links} |\n|---|" + "---|" * len(STATED), flush=True)
                for ranks in c.ranks or [2**i for i in range(10)]:
                    shape_row(c, m, precision, entry, ranks, (whole, head))


def shape_row(c, m, precision, entry, ranks, models):
    """Layers that fill the caches, times their number, and the head, which has one row; each over the link."""
    whole, head = models
    one = rows.layer_weights(m) * rows.PRECISIONS[precision].bytes / ranks
    layers = min(m.layers, int(STREAMED / one) + 1)
    options = [f"--threads={c.threads}"] + ([f"--shards={ranks}", "--one-rank"] if ranks > 1 else [])
    cells = []
    try:
        some = layers_model(m, layers, 256, precision)
        for link in STATED if ranks > 1 else STATED[:1]:
            over = [*options, *(link_options(link) if ranks > 1 else [])]
            body = m.layers / layers * least(c, some, [*over, *entry_options(entry, LONG_PROMPT)])
            cells.append(f"{body + least(c, head, over):.2f} ({message_ms(whole, ranks, entry, link, LONG_PROMPT):.2f})")
    except Refused as e:
        cells = [str(e).splitlines()[-1]]
    print(f"| {ranks} | {' | '.join(cells)} |", flush=True)


def beside(c):
    """Two workers of one process, two ranks as threads, two processes of an MPI job, in turns."""
    print("load", os.getloadavg())
    mpirun = ["mpirun.openmpi", "-n", "2", "--bind-to", "core", "--allow-run-as-root"]
    kinds = {"two workers": (["--threads=2"], ()), "two threads as ranks": (["--shards=2", "--threads=1"], ()),
             "two processes": (["--threads=1"], mpirun)}
    print("| model | entry | | min ms | median ms | beside two workers: min, median | exchanges |\n|---|---|---|---|---|---|---|")
    for name in c.models or ["d4", "d3"]:
        for precision in c.formats:
            model = decoder(name, precision)
            for entry in ("step", "prefill"):
                times = {k: [] for k in kinds}
                for _ in range(c.rounds):
                    for kind, (options, launcher) in kinds.items():
                        times[kind].append(bench(model, [*entry_options(entry), *options], launcher))
                print_beside(f"{name} {precision}", entry, times)
    print("load", os.getloadavg())


def print_beside(title, entry, times):
    """Lines of a table."""
    base = None
    for kind, reports in times.items():
        low, middle = min(r["min_ms"] for r in reports), statistics.median(r["median_ms"] for r in reports)
        base = base or (low, middle)
        share = min(r.get("exchanges_ms", 0) / r["median_ms"] for r in reports)
        print(f"| {title} | {entry} | {kind} | {low:.3f} | {middle:.3f} | {base[0] / low:.2f}x, {base[1] / middle:.2f}x "
              f"| {100 * share:.1f} % |", flush=True)


def prompt_ms(model, tokens, options):
    """Until the first new token of tfmc generate."""
    command = [TFMC, "generate", model, "--tokens=" + tokens, "--max-tokens=1", "--ignore-stop", "--threads=1", "-v",
               "--progress=never", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return 1000 * float(re.search(r"prompt \d+ tokens in ([0-9.]+) s", done.stderr).group(1))


def prompts(c):
    """Stages in turns with one process, the least of each; theory: (calls + 1) / (2 calls) of it, and the messages."""
    tokens = STAGE_CALLS * STAGE_CALL_TOKENS
    ids = ",".join(str(2 + i * i % 97) for i in range(tokens - 1))
    print("load", os.getloadavg())
    print("| model | link | message ms | one process ms | two stages ms | beside | theory |\n|---|---|---|---|---|---|---|")
    for name in c.models or ["d4"]:
        for precision in c.formats:
            model = decoder(name, precision, tokens)
            for us, rate in SLOW:
                link = ["--shards=1x2", f"--latency={us}", f"--link-rate={rate}"]
                times = [(prompt_ms(model, ids, []), prompt_ms(model, ids, link)) for _ in range(c.rounds)]
                one, two = map(min, zip(*times))
                message = us / 1e3 + 4 * STAGE_CALL_TOKENS * rows.MODELS[name].hidden / rate / 1e6
                theory = (STAGE_CALLS + 1) / (2 * STAGE_CALLS) * one + STAGE_CALLS * message
                print(f"| {name} {precision} | {us} us {rate} GB/s | {message:.1f} | {one:.0f} | {two:.0f} | {two / one:.2f} "
                      f"| {theory / one:.2f} |", flush=True)
    print("load", os.getloadavg())


def main():
    """The command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("predict", "shapes", "beside", "prompts"))
    p.add_argument("models", nargs="*")
    p.add_argument("--formats", default="bf16,q4", type=lambda s: s.split(","))
    p.add_argument("--rounds", default=2, type=int)
    p.add_argument("--threads", default=2, type=int, help="workers of a rank of shapes")
    p.add_argument("--entries", default="step,prefill", type=lambda s: s.split(","))
    p.add_argument("--ranks", type=lambda s: [int(n) for n in s.split(",")])
    c = p.parse_args()
    os.makedirs(OUT, exist_ok=True)
    {"predict": predict, "shapes": shapes, "beside": beside, "prompts": prompts}[c.what](c)


main()
