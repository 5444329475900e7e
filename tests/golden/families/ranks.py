#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every family, example and shared model on several ranks: ranks.py [FAMILY..], with TFMC and TFMC_SOURCE in the environment.

A model compiled with --shards=N, whose ranks run as threads, gives the bits of the one object that computes the parts of
all ranks and adds them in the same order (pass shard, reference=1), and passes the checks of the family. With
--shards=NxP, P stages of a pipeline, it has the bits of N ranks, or of one process (N = 1). Models that cannot be divided
are refused by name. Families whose layers alternate get more of them, so that the period repeats. The short run takes the
examples and some families with 3 and 1x2; the long run all families and the shared models, too, with 2, 3, 4, 1x2, 1x3 and
2x2.
"""
import functools
import json
import os
import re
import shutil
import sys
import tempfile

import seeded
from command import call

HERE = os.path.dirname(os.path.abspath(__file__))
ALL = bool(os.environ.get("TFMC_ALL"))
COUNTS = ((2, 1), (3, 1), (4, 1), (1, 2), (1, 3), (2, 2)) if ALL else ((3, 1), (1, 2))
SHORT = ["llama3", "falcon_new", "gpt_bigcode", "mixtral", "gemma3", "phi3", "flan_t5", "mbart", "gpt_oss", "smollm3", "albert_classes"]
PERIOD = 2
ALTERNATE = {"cohere2", "gemma3_linear", "gpt_oss", "ministral", "qwen2_moe", "qwen3_moe", "smollm3"}
LAYERS = 3 * PERIOD + 1 # three periods, which two stages divide unevenly, and a layer behind them
FIRST = "canonicalize,fuse-softmax,fuse-attention,merge-heads,"
LAST = "demand-rows,merge-linear,encode,block-logits,specialize,group,select,plan-memory"
REFUSED = ("can be divided among the ranks", "stages: its layers ")


def pipeline(n, stages, setting):
    """The passes of O2 for n ranks a stage."""
    shard = f"shard{{ranks={n} {setting}}}," if n > 1 else ""
    return FIRST + shard + (f"stages{{ranks={n} stages={stages}}}," if stages > 1 else "") + LAST


# The machine code is made without optimization, in a third of the time.
COMMON = ["--progress=never", "-mcpu=native", "-O0"]


def prefixes(path):
    """Cases of the checks in a file that entry `run` computes: the names before the dot."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    found = []
    for line in text.splitlines():
        if "cases:" in line and not re.search("call: (generate|encode)", line):
            found += re.findall(r"[\w.]+", line.split("cases:")[-1].split("]")[0])
    return list(dict.fromkeys(found))


def result(*args):
    """What a command computes, the file of outputs or the text; None: the model is refused by name."""
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as out:
        to_file = ["--outputs", out.name] if args[0] == "run" else []
        made = call(*args, *to_file, *COMMON, timeout=600)
        if made.returncode == 1 and any(text in made.stderr for text in REFUSED):
            return None
        if made.returncode != 0:
            sys.exit(f"{' '.join(args)}: {made.stdout}{made.stderr}")
        with open(out.name, "rb") as f:
            return f.read() if to_file else made.stdout


@functools.cache
def reference(n, *args):
    """The result of one object that computes the parts of n ranks, whatever the number of stages."""
    return result(*args, "--passes=" + pipeline(n, 1, "reference=1"))


def same(what, shape, *args):
    """Whether N x P ranks give the bits of one object; None: the model is refused by name."""
    n, stages = shape
    # gather=1: all matrices that cannot be cut have their columns divided.
    outputs = [reference(n, *args),
               result(*args, "--passes=" + pipeline(n, stages, "reference=0 gather=1"), f"--shards={n}x{stages}")]
    if None in outputs:
        return None
    if outputs[0] != outputs[1]:
        sys.exit(f"{what}: {n}x{stages} ranks do not give the bits of one object")
    return True


def compare(model, checks, n):
    """The number of cases with equal bits; None: the model is refused by name."""
    cases = os.path.join(os.path.dirname(model), "cases.safetensors")
    equal = [same(f"{model}, {prefix}", n, "run", model, "--inputs", cases, "--prefix", prefix + ".") for prefix in prefixes(checks)]
    return None if None in equal else len(equal)


def count(counts, name, n, equal):
    if equal is None:
        counts["refused"].append(f"{name}/{n[0]}x{n[1]}")
    else:
        counts["equal"] += equal


def test_models(counts):
    """Models with checks of their own, and what is generated from some: whole texts depend on every bit."""
    examples = os.path.join(os.environ["TFMC_SOURCE"], "examples")
    roots = [examples] + ([os.path.join(os.environ["TFMC_SHARED"], "models")] if ALL and os.environ.get("TFMC_SHARED") else [])
    folders = [at for root in roots for at, _, names in sorted(os.walk(root)) if {"model.yaml", "cases.safetensors"} <= set(names)]
    texts = [("dates/model.yaml", "3/3/21", "--beam=3"), ("hub/tales", "Once there was"), ("hub/tales", "Once", "--dtype=cache=int8", "--quantize=q4"),
             ("names/model.yaml", "Ma", "--temperature=0.8", "--samples=3")]
    for n in COUNTS:
        for folder in folders:
            model = os.path.join(folder, "model.yaml")
            count(counts, os.path.basename(folder), n, compare(model, model, n))
        for model, prompt, *options in texts:
            path = os.path.join(examples, model)
            count(counts, model, n, same(f"{path}, generate {options}", n, "generate", path, "--prompt", prompt, "--max-tokens=32", *options))


def repeat_layers(config, tensors):
    """Layers of the same kinds in turn, behind those that are there: in lists of the configuration, and their tensors."""
    n = config["num_hidden_layers"]
    longer = {key: [value[i if i < n else n - PERIOD + (i - n) % PERIOD] for i in range(LAYERS)] if isinstance(value, list) and len(value) == n else value
              for key, value in config.items()}
    more = [(name.replace(f".layers.{of}.", f".layers.{i}."), *rest) for i in range(n, LAYERS) for of in [n - PERIOD + (i - n) % PERIOD]
            for name, *rest in tensors if f".layers.{of}." in name]
    return {**longer, "num_hidden_layers": LAYERS}, tensors + more


def unroll(text):
    """Expanded statements without loops: a body for each value of its index."""
    lines, out = text.splitlines(), []
    while lines:
        line = lines.pop(0)
        loop = re.match(r"( *)- repeat: \{count: (\d+), as: (\w+), start: (\d+)\}", line)
        if not loop:
            out.append(line)
            continue
        lines.pop(0) # body:
        body, indent = [], len(loop[1])
        while lines and lines[0].startswith(" " * (indent + 4) + "- "):
            body.append(loop[1] + lines.pop(0)[indent + 4:])
        for i in range(int(loop[4]), int(loop[4]) + int(loop[2])):
            out += [re.sub(rf"\{{(?:(\d+)\*)?{loop[3]}(?:\+(\d+))?\}}", lambda m: str(int(m[1] or 1) * i + int(m[2] or 0)), line) for line in body]
    return "\n".join(out) + "\n"


def test_unrolled(name, model, counts):
    """The loop over a period has the bits of its layers one after another."""
    steps, rolled, flat = (os.path.join(os.path.dirname(model), file) for file in ("steps.yaml", "rolled.yaml", "flat.yaml"))
    for source, out in ((model, steps), (steps, rolled)):
        if call("expand", source, "-o", out).returncode != 0:
            sys.exit(f"{name}: expand")
    with open(rolled, encoding="utf-8") as f, open(flat, "w", encoding="utf-8") as out:
        text = f.read()
        if f"{{{PERIOD}*i+1}}" not in text:
            sys.exit(f"{name}: its layers are not a loop over periods")
        out.write(unroll(text))
    cases = os.path.join(os.path.dirname(model), "cases.safetensors")
    for prefix in prefixes(os.path.join(HERE, name, "checks.yaml")):
        results = [result("run", path, "--inputs", cases, "--prefix", prefix + ".", "--passes=O2") for path in (model, flat)]
        if results[0] != results[1]:
            sys.exit(f"{name}, {prefix}: a loop over periods does not give the bits of its layers")
        counts["equal"] += 1


def test(name, counts):
    with tempfile.TemporaryDirectory() as tmp:
        folder = os.path.join(tmp, name)
        shutil.copytree(os.path.join(HERE, name), folder)
        for at, _, names in os.walk(folder):
            if "tensors.txt" not in names:
                continue
            tensors = seeded.read_list(os.path.join(at, "tensors.txt"))
            if name in ALTERNATE:
                with open(os.path.join(at, "config.json"), encoding="utf-8") as f:
                    config, tensors = repeat_layers(json.load(f), tensors)
                with open(os.path.join(at, "config.json"), "w", encoding="utf-8") as f:
                    json.dump(config, f)
            seeded.write(name, tensors, os.path.join(at, "model.safetensors"))
        model = os.path.join(folder, "model.yaml")
        head = os.path.join(HERE, name, "head.yaml")
        if os.path.exists(head):
            shutil.copy(head, model)
        elif call("import", folder, "-o", model).returncode != 0:
            sys.exit(f"{name}: import")
        for n in COUNTS:
            equal = compare(model, os.path.join(HERE, name, "checks.yaml"), n)
            count(counts, name, n, equal)
        only = []
        if name in ALTERNATE: # results of the library are those of fewer layers
            test_unrolled(name, model, counts)
        else:
            only = ["--checks-only"]
            with open(os.path.join(HERE, name, "checks.yaml"), encoding="utf-8") as f, open(model, "a", encoding="utf-8") as out:
                out.write(f.read())
        for shards in ("2", "1x2"):
            verified = call("verify", model, f"--shards={shards}", "--passes=O2", *only, *COMMON)
            if verified.returncode != 0 and not any(text in verified.stderr for text in REFUSED):
                sys.exit(f"{name}: verify --shards={shards}: {verified.stdout}{verified.stderr}")


def main():
    names = sys.argv[1:]
    if not names:
        names = sorted(d for d in os.listdir(HERE) if os.path.exists(os.path.join(HERE, d, "checks.yaml"))) if ALL else SHORT
    counts = {"equal": 0, "refused": []}
    for name in names:
        test(name, counts)
    if len(sys.argv) == 1:
        test_models(counts)
    print(f"{counts['equal']} cases with equal bits; refused by name: {' '.join(counts['refused']) or 'none'}")
    if counts["equal"] == 0:
        sys.exit("nothing was compared")


if __name__ == "__main__":
    main()
