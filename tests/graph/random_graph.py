# SPDX-License-Identifier: Apache-2.0
"""
random_graph.py FIRST COUNT [FOLDER]: runs random programs of graph statements (programs.py) through the
compiler ($TFMC) at -O0 and -O2 and through the interpreter, some as linked objects and as C, and compares the
value of every statement with what ops.py says of the values that it read.
"""
import math
import os
import shutil
import subprocess
import sys
import tempfile

import ops
import programs
import tensor

WAYS = {"O0": ["-O0"], "O2": ["-O2"], "interp": ["--backend=interp"]}
LINKED = {"object": (["-o", "model.o", "--header=model.h"], ["model.o"]),
          "C": (["--emit=c=model.c,header=model.h"], ["-O1", "-w", "model.c"])}
TOGETHER = 4  # programs of one model
STATEMENTS = 12


def write_model(folder, group):
    inputs, weights, lines = {}, {}, []
    out = ["tfmc: 1", "name: random", "dims: {%s}" % ", ".join(
        "%s%s: %d..9" % (s, p.prefix, low) for p in group for s, low in p.lows.items())]
    out.append("inputs:")
    rename = []
    for p in group:
        own = lambda text, p=p: text_with(text, p)
        for name, (v, t) in p.inputs.items():
            out.append("  %s: {shape: [%s], dtype: %s}" % (name, ", ".join(own(d) for d in v.dims), v.dtype))
            inputs[name] = t
        for text, names, _, _ in p.statements:
            lines += ["  - " + (own(t) if t.startswith("repeat:") else quoted(own(t)))
                      for t in ([text] if isinstance(text, str) else text)]
            rename += names
        weights.update(p.weights)
    out += ["graph:"] + lines + ["outputs: {%s}" % ", ".join("%s: %s" % (n, n) for n in rename)]
    if weights:
        out.append("weights: {files: [weights.safetensors]}")
        tensor.write(os.path.join(folder, "weights.safetensors"), weights)
    tensor.write(os.path.join(folder, "in.safetensors"), inputs)
    with open(os.path.join(folder, "model.yaml"), "w") as f:
        f.write("\n".join(out) + "\n")


def text_with(text, p):
    """B and S of the program by its own names."""
    words = "".join(c if c.isalnum() or c == "_" else "\0" for c in text).split("\0")
    out, at = "", 0
    for w in words:
        out += {"B": "B" + p.prefix, "S": "S" + p.prefix}.get(w, w)
        at += len(w)
        if at < len(text):
            out += text[at]
        at += 1
    return out


def quoted(text):
    return "'%s'" % text.replace("'", "''")


def done(folder, command):
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return ended.returncode == 0, "%s: %s" % (" ".join(command[:3]), ended.stderr)


def run_linked(folder, way, sizes):
    """By the header and a library of what the compiler made."""
    options, files = LINKED[way]
    here = os.path.dirname(os.path.abspath(__file__))
    out = way + ".safetensors"
    for command in ([os.environ["TFMC"], "model.yaml"] + options, ["gcc", "-shared", "-fPIC", "-o", way + ".so"] + files,
                    [sys.executable, "-B", os.path.join(here, "call.py"), "./%s.so" % way, "model.h", "in.safetensors", out]
                    + ["%s=%d" % s for s in sizes.items()]):
        ok, message = done(folder, command)
        if not ok:
            return None, message
    return tensor.read(os.path.join(folder, out)), ""


def run(folder, way):
    command = [os.environ["TFMC"], "run", "model.yaml", "--inputs=in.safetensors", "--outputs=%s.safetensors" % way]
    ok, message = done(folder, command + WAYS[way])
    if not ok:
        return None, message
    return tensor.read(os.path.join(folder, way + ".safetensors")), ""


def is_near(dtype, got, want, size):
    if dtype not in tensor.FLOATS:
        return got == want
    if math.isnan(want) or math.isnan(got):
        return math.isnan(want) and math.isnan(got)
    rounded = tensor.round_to(dtype, want)
    if math.isinf(got) or math.isinf(rounded):
        return got == rounded or abs(want) > 0.99 * 3.4e38 or (dtype == "f16" and abs(want) > 65000)
    bound = 32 * 2.0**-24 * size + 2.1 * tensor.EPS[dtype] * abs(want) + tensor.TINY[dtype]
    return abs(got - want) <= bound


def check(program, way, values, errors):
    for text, names, reads, f in program.statements:
        operands = [values[r] for r in reads]
        try:
            want = f(*operands)
        except ops.Skip:
            continue
        except AssertionError as e:
            errors.append("%s: %s: %s" % (way, text, e))
            return
        want = want if isinstance(want, tuple) else (want,)
        for name, w in zip(names, want):
            got = values[name]
            if (got.dtype, got.shape) != (w.dtype, w.shape):
                errors.append("%s: %s: %s%s in place of %s%s" % (way, text, got.dtype, got.shape, w.dtype, w.shape))
                continue
            for i, (g, v, s) in enumerate(zip(got.data, w.data, w.size)):
                if not is_near(w.dtype, g, v, s):
                    errors.append("%s: %s: element %d is %r in place of %r; read %s" % (
                        way, text, i, g, v, [(o.dtype, o.shape, o.data[:20]) for o in operands]))
                    break


def ways_of(group, linked):
    """The ways by which the group runs, each as a function of the folder."""
    sizes = {s + p.prefix: n for p in group for s, n in p.sizes.items()}
    ways = {way: lambda folder, way=way: run(folder, way) for way in WAYS}
    for way in linked:
        ways[way] = lambda folder, way=way: run_linked(folder, way, sizes)
    return ways


def run_group(group, folder, linked):
    errors = []
    write_model(folder, group)
    inputs = tensor.read(os.path.join(folder, "in.safetensors"))
    for way, call in ways_of(group, linked).items():
        outputs, message = call(folder)
        if outputs is None:
            errors.append("%s: %s" % (way, message))
            continue
        outputs.update(inputs)
        for p in group:
            check(p, way, outputs, errors)
    return errors


def linked_of(number):
    """Groups in turn: linking takes long."""
    if shutil.which("gcc") is None:
        return []
    return [["object"], [], ["C"], []][number % 4]


def main():
    first, n = int(sys.argv[1]), int(sys.argv[2])
    failed, statements = 0, 0
    for seed in range(first, first + n, TOGETHER):
        group = [programs.make(s, i, STATEMENTS) for i, s in enumerate(range(seed, min(seed + TOGETHER, first + n)))]
        statements += sum(len(p.statements) for p in group)
        with tempfile.TemporaryDirectory() as folder:
            errors = run_group(group, sys.argv[3] if len(sys.argv) > 3 else folder, linked_of(seed // TOGETHER))
        for e in errors[:5]:
            print("seeds %d..%d: %s" % (seed, seed + len(group) - 1, e), flush=True)
        failed += len(errors) > 0
    print("%d programs, %d statements, %d groups failed" % (n, statements, failed))
    sys.exit(failed > 0)


main()
