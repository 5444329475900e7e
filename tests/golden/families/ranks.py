#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every family on several ranks: ranks.py [NAME..], with TFMC in the environment.

A model compiled with --shards=N, whose ranks run as threads, gives the bits of the one object that computes the parts of
all ranks and adds them in the same order (pass shard, reference=1), and passes the checks of the family. Families that
cannot be divided are refused by name. The short run takes some families with N = 3; the long run all, with 2, 3 and 4.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

import seeded

HERE = os.path.dirname(os.path.abspath(__file__))
ALL = bool(os.environ.get("TFMC_ALL"))
SHORT = ["llama3", "falcon_new", "gpt_bigcode", "mixtral", "gemma3", "phi3", "flan_t5", "mbart"]
PIPELINE = ("canonicalize,fuse-softmax,fuse-attention,merge-heads,shard{{ranks={0} {1}}},demand-rows,merge-linear,"
            "encode,block-logits,specialize,group,select,plan-memory")
# The machine code is made without optimization, in a third of the time.
COMMON = ["--no-cache", "--progress=never", "-mcpu=native", "-O0"]


def call(*args):
    return subprocess.run([os.environ["TFMC"], *args], capture_output=True, text=True, errors="replace", timeout=600)


def prefixes(name):
    """Cases of the checks that entry `run` computes: the names before the dot."""
    with open(os.path.join(HERE, name, "checks.yaml"), encoding="utf-8") as f:
        text = f.read()
    found = []
    for line in text.splitlines():
        if "cases:" in line and "call: generate" not in line:
            found += re.findall(r"[\w.]+", line.split("cases:")[-1].split("]")[0])
    return list(dict.fromkeys(found))


def compare(folder, name, n):
    """Whether N ranks give the bits of one object; None: the family is refused by name."""
    equal = 0
    for prefix in prefixes(name):
        outputs = []
        # gather=1: all matrices that cannot be cut have their columns divided.
        for how in (["--passes=" + PIPELINE.format(n, "reference=1")],
                    ["--passes=" + PIPELINE.format(n, "reference=0 gather=1"), f"--shards={n}"]):
            out = os.path.join(folder, f"out{len(outputs)}.safetensors")
            made = call("run", os.path.join(folder, "model.yaml"), "--inputs", os.path.join(folder, "cases.safetensors"), "--prefix",
                        prefix + ".", "--outputs", out, *COMMON, *how)
            if made.returncode == 1 and "can be divided among the ranks" in made.stderr:
                return None
            if made.returncode != 0:
                sys.exit(f"{name}, {prefix}, {' '.join(how)}: {made.stdout}{made.stderr}")
            with open(out, "rb") as f:
                outputs.append(f.read())
        if outputs[0] != outputs[1]:
            sys.exit(f"{name}, {prefix}: {n} ranks do not give the bits of one object")
        equal += 1
    return equal


def test(name, counts):
    with tempfile.TemporaryDirectory() as tmp:
        folder = os.path.join(tmp, name)
        shutil.copytree(os.path.join(HERE, name), folder)
        for at, _, names in os.walk(folder):
            if "tensors.txt" in names:
                seeded.write(name, seeded.read_list(os.path.join(at, "tensors.txt")), os.path.join(at, "model.safetensors"))
        model = os.path.join(folder, "model.yaml")
        head = os.path.join(HERE, name, "head.yaml")
        if os.path.exists(head):
            shutil.copy(head, model)
        elif call("import", folder, "-o", model).returncode != 0:
            sys.exit(f"{name}: import")
        for n in (2, 3, 4) if ALL else (3,):
            equal = compare(folder, name, n)
            if equal is None:
                counts["refused"].append(f"{name}/{n}")
            else:
                counts["equal"] += equal
        with open(os.path.join(HERE, name, "checks.yaml"), encoding="utf-8") as f, open(model, "a", encoding="utf-8") as out:
            out.write(f.read())
        if equal is not None:
            verified = call("verify", model, "--shards=2", "--passes=O2", "--checks-only", *COMMON)
            if verified.returncode != 0 and "can be divided among" not in verified.stderr:
                sys.exit(f"{name}: verify --shards=2: {verified.stdout}{verified.stderr}")


def main():
    names = sys.argv[1:]
    if not names:
        names = sorted(d for d in os.listdir(HERE) if os.path.exists(os.path.join(HERE, d, "checks.yaml"))) if ALL else SHORT
    counts = {"equal": 0, "refused": []}
    for name in names:
        test(name, counts)
    print(f"{counts['equal']} cases with equal bits; refused by name: {' '.join(counts['refused']) or 'none'}")
    if counts["equal"] == 0:
        sys.exit("nothing was compared")


if __name__ == "__main__":
    main()
