#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every attribute of the table of ir/text.md (Groups) on a group of every kind: one that the table does not name for the
# kind is rejected by its name, and any value of the others changes the object or is rejected. One value of each may be
# what the kernel has without it.
set -euo pipefail
: "${TFMC:?}" "${TFMC_SOURCE:?}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

python3 -B - "$TFMC" "$TFMC_SOURCE/ir/text.md" "$tmp" <<'END'
import os, re, subprocess, sys
tfmc, table, tmp = sys.argv[1:]

KINDS = {
    "linear": ("f32[21,96]", {"mr": 4, "nr": 16, "kc": 16, "lanes": 8, "br": 8, "scratch": 65536},
               "pre  %n = rms_norm %x, %g : f32[21,64]\n    root %r = linear %n, @w #panel16"),
    "attention": ("f32[1,2,20,16]", {"br": 16, "bc": 16, "lanes": 8, "scratch": 4000000}, "root %r = attention %q, %q, %q"),
    "rowwise": ("f32[21,64]", {"lanes": 8, "scratch": 256}, "root %r = softmax %x"),
    "loops": ("f32[21,64]", {"lanes": 8}, "root %r = relu %x"),
    "exchange": ("f32[21,64]", {}, "root %r = all_reduce %x {ranks=2}"),
}
VALUES = {"mr": (2, 6), "nr": (32, 64), "kc": (8, 32), "br": (4, 24), "bc": (32, 48), "split": (2, 3), "lanes": (4, 16),
          "pad": (16, 32), "scratch": (5000000, 6000000), "mc": (4, 12), "nc": (32, 48), "nr1": (16, 32),
          "ahead": (64, 128), "order": ("blocks", "panels"), "b": ("packed", "copied", "stored", "repacked"),
          "c": ("registers", "stack", "scratch"), "prefetch": ("none", "next"), "tiles": ("full", "balanced")}


def compile(kind, attributes):
    """The bytes of the object, or of the message that rejects the attributes."""
    type, _, body = KINDS[kind]
    shards = 2 if kind == "exchange" else 1
    braces = " ".join(f"{name}={value}" for name, value in attributes.items())
    with open(f"{tmp}/m.tir", "w") as file:
        file.write(f'''module "m" stage=groups
weight @w : f32[96,64] #panel16 = sinusoid(rows=96, dim=64, layout=halves, spacing=t2t, start=1, base=100.0)
func @run(%x: f32[21,64], %g: f32[64], %q: f32[1,2,20,16]) -> (z: {type}) {{
  %y = group {kind} {"{" + braces + "} " if braces else ""}{{
    {body} : {type}
    yield %r
  }} : {type}
  %z = group loops {{lanes=8}} {{
    root %s = sqrt %y : {type}
    yield %s
  }} : {type}
  return %z
}}
''')
    run = subprocess.run([tfmc, "m.tir", "--passes=plan-memory", "--mcpu=x86-64-v3", "-O0", f"--shards={shards}",
                          "-o", "m.o"], cwd=tmp,
                         capture_output=True, text=True)
    if run.returncode == 0:
        with open(f"{tmp}/m.o", "rb") as file:
            return file.read()
    assert run.returncode == 1, run.stderr
    return run.stderr


of = {}
with open(table) as file:
    section = file.read().split("## Groups")[1]
for names, kinds in re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| ([\w, ]+) \|", section, re.M):
    for name in re.findall(r"\w+", names):
        of.setdefault(name, set()).update(KINDS if kinds == "all" else kinds.split(", "))
assert set(of) == set(VALUES), set(of) ^ set(VALUES)

wrong = []
for kind, (_, attributes, _) in KINDS.items():
    base = compile(kind, attributes)
    assert isinstance(base, bytes), base
    for name, values in VALUES.items():
        if kind in of[name]:
            if sum(compile(kind, {**attributes, name: value}) == base for value in values) > 1:
                wrong.append(f"{kind} {name}: ignored")
        elif f"{name} of a group {kind}: no kernel of this kind reads it" not in str(compile(kind, {name: values[0]})):
            wrong.append(f"{kind} {name}: not rejected")
print("\n".join(wrong))
sys.exit(bool(wrong))
END
