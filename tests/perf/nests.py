#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Searches the loop nest of linears: `nests.py TFMC [MxKxN[:FORMAT[:rounded]]..]` prints, for each linear of M rows (rounded: x is
quantized), the time of the nest that tfmc chooses, of the best one found within --seconds of measuring, their ratio and the attributes
that differ.

Coordinate descent over the attributes of the group (backends/kernels/README.md): one attribute changes at a time, and stays changed if
the linear is at least 2 % faster. Attributes that the kernel rejects (E606) cost nothing but a compilation. At the end both nests run in
turns, since the least of many runs finds luck as well as speed. --target, --mcpu: as for tfmc bench, so that the nest of a level is
searched beside the nest of the machine; --rounds=N runs in turns at the end (default 9)."""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

SHAPES = ["512x768x3072", "512x3072x768", "128x512x2048", "32x768x768", "8x768x3072", "1x768x3072", "512x768x3072:q8", "1x768x3072:q8",
          "8x768x3072:q4", "1x3072x768:q4", "512x768x3072:bf16", "1x768x3072:bf16", "512x768x3072:q8:rounded", "1x768x3072:q8:rounded",
          "8x768x3072:q4:rounded", "1x3072x768:q4:rounded", "1x768x3072:q4_k:rounded", "1x768x3072:q2_k:rounded"]
# Values that are tried of each attribute.
VALUES = {
    "mr": [1, 2, 3, 4, 5, 6, 8, 12], "nr": [16, 32, 64], "kc": [64, 128, 192, 256, 384, 512, 768, 1024],
    "mc": [24, 48, 96, 144, 192, 288, 384, 576, 768], "nc": [16, 32, 64, 128, 256, 512, 768], "nr1": [16, 32, 64],
    "ahead": [256, 512, 1024, 2048, 4096], "order": ["panels", "blocks"], "b": ["packed", "copied", "repacked"],
    "c": ["registers", "stack", "scratch"], "prefetch": ["none", "next"], "tiles": ["full", "balanced"],
}
SCRATCH = 1 << 20


class Linear:
    """One linear as text with the braces of its group open."""

    def __init__(self, tfmc, shape, folder, options):
        self.tfmc, self.shape, self.options = tfmc, shape, options
        self.path = os.path.join(folder, "linear.tir")
        sizes, form, rounded = (shape.split(":") + ["", ""])[:3]
        m, k, n = (int(size) for size in sizes.split("x"))
        values = f"sinusoid(rows={n}, dim={k}, layout=halves, spacing=t2t, start=1, base=100.0)"
        stores = "round" if form in ("bf16", "f16") else "quantize"
        weight = f"weight @w : f32[{n},{k}]" + (f" as {form} = {stores}({form}, {values})" if form else f" = {values}")
        x = f"  %x = quantize_rows %a : f32[{m},{k}]\n" if rounded else ""
        self.write(f'module "linear"\n{weight}\nfunc @run(%a: f32[{m},{k}]) -> (y: f32[{m},{n}]) {{\n{x}'
                   f"  %y = linear {'%x' if rounded else '%a'}, @w : f32[{m},{n}]\n  return %y\n}}\n")
        passes = re.search(r"^O2 +(.*),plan-memory$", self.call("passes").stdout, re.M).group(1)
        text = self.call(self.path, "--passes=" + passes, "--emit=tir", *options, "-o", "-").stdout
        self.before, now, self.after = re.fullmatch(r"(.* = group linear \{)([^}]*)(\}.*)", text, re.S).groups()
        self.chosen = dict(pair.split("=") for pair in now.split())

    def write(self, text):
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(text)

    def call(self, *arguments, check=True):
        return subprocess.run([self.tfmc, *arguments], check=check, capture_output=True, text=True)

    def time(self, attributes):
        """Milliseconds of a call, the least of its runs; none if the kernel rejects the attributes."""
        self.write(self.before + " ".join(f"{key}={value}" for key, value in attributes.items()) + self.after)
        done = self.call("bench", self.path, "--passes=plan-memory", "--json", "--no-cache", *self.options, check=False)
        if done.returncode == 0:
            return json.loads(done.stdout)["min_ms"]
        if "[E606]" not in done.stderr and "[E603]" not in done.stderr:
            raise SystemExit(f"{self.shape} {attributes}: {done.stderr}")
        return None


def descend(linear, seconds):
    """The fastest attributes found, and the number of nests that ran."""
    end, now, n_run = time.monotonic() + seconds, dict(linear.chosen), 1
    least, changed = linear.time(now), True
    while changed and time.monotonic() < end:
        changed = False
        for key, values in VALUES.items():
            for value in values:
                if str(value) == now.get(key) or time.monotonic() > end:
                    continue
                tried = {**now, key: str(value)}
                if key in ("kc", "c", "b"):
                    tried["scratch"] = str(max(SCRATCH, int(now.get("scratch", 0))))
                found = linear.time(tried)
                n_run += found is not None
                if found is not None and found < 0.98 * least:
                    now, least, changed = tried, found, True
    return now, n_run


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tfmc")
    parser.add_argument("shapes", nargs="*", default=SHAPES)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--target")
    parser.add_argument("--mcpu")
    a = parser.parse_args()
    options = [f"--target={a.target}"] * bool(a.target) + [f"-mcpu={a.mcpu}"] * bool(a.mcpu)
    with tempfile.TemporaryDirectory() as folder:
        for shape in a.shapes:
            linear = Linear(a.tfmc, shape, folder, options)
            best, n_run = descend(linear, a.seconds)
            pairs = [(linear.time(linear.chosen), linear.time(best)) for _ in range(a.rounds)]
            chosen, found = (min(times) for times in zip(*pairs))
            different = " ".join(f"{key}={value}" for key, value in best.items() if linear.chosen.get(key) != value)
            print(f"{shape:18} chosen {chosen:9.4f} ms, found {found:9.4f} ms, {chosen / found:.3f} ({n_run} nests) {different}",
                  flush=True)


if __name__ == "__main__":
    sys.exit(main())
