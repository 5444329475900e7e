#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `tfmc quality` says, computed again from the logits that `tfmc run` writes: distances.py MODEL OTHER REPORT FED FIRST ..

REPORT is a file with the line of --json. Each pair FED FIRST is a part of a text: FED the inputs of `run`, such as
"src=1,2 tgt=1,3,4,2" (the last one ends with an id that is predicted and not fed), FIRST the number of ids before the first
that is predicted. Pure Python, sums by math.fsum.
"""
import json
import math
import os
import subprocess
import sys
import tempfile

import near

# As `quick` of tests/support/effort.sh.
QUICK = [] if os.environ.get("TFMC_ALL") else ["-O0", "--passes=O2"]


def logits(model, inputs):
    """Rows of logits, of the output of that name."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out")
        subprocess.run([os.environ["TFMC"], "run", model, *QUICK, *(w for i in inputs for w in ("--input", i)), "--outputs", path],
                       check=True)
        (_, rows, vocab), values = near.read(path)["logits"]
    return [values[i * vocab:(i + 1) * vocab] for i in range(rows)]


def log_softmax(row):
    top = max(row)
    total = math.log(math.fsum(math.exp(x - top) for x in row))
    return [x - top - total for x in row]


def positions(model, other, fed, first):
    """(kl, same top, log p, log q) of each id from number `first` on"""
    *rest, (name, ids) = [part.split("=") for part in fed.split()]
    ids = [int(i) for i in ids.split(",")]
    inputs = [f"{n}={v}" for n, v in rest] + [f"{name}={','.join(map(str, ids[:-1]))}"]
    for at, (x, y) in enumerate(zip(logits(other, inputs), logits(model, inputs)), 1):
        if at < first:
            continue
        p, q = log_softmax(x), log_softmax(y)
        kl = math.fsum(math.exp(a) * (a - b) for a, b in zip(p, q))
        yield kl, p.index(max(p)) == q.index(max(q)), p[ids[at]], q[ids[at]]


def main():
    model, other, report, *parts = sys.argv[1:]
    with open(report, encoding="utf-8") as f:
        got = json.load(f)
    found = [p for fed, first in zip(parts[::2], parts[1::2]) for p in positions(model, other, fed, int(first))]
    n, kl = len(found), sorted(max(f[0], 0.0) for f in found)
    want = {
        "positions": n,
        "kl_mean": math.fsum(kl) / n,
        "kl_999": kl[math.ceil(0.999 * n) - 1],
        "same_top": sum(f[1] for f in found) / n,
        "rms_probability": math.sqrt(math.fsum((math.exp(f[3]) - math.exp(f[2])) ** 2 for f in found) / n),
        "perplexity": math.exp(-math.fsum(f[3] for f in found) / n),
        "reference_perplexity": math.exp(-math.fsum(f[2] for f in found) / n),
    }
    print(got, want, sep="\n")
    # Calls on many rows and single steps give the same logits; sums are in another order.
    if not all(abs(got[k] - want[k]) <= 1e-9 * abs(want[k]) + 1e-14 for k in want) or not want["kl_mean"] > 1e-9:
        raise SystemExit("the report is not what the logits give")


if __name__ == "__main__":
    main()
