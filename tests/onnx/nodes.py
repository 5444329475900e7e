#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Node tests of ONNX through `tfmc import` and `tfmc run`: `nodes.py TFMC [ARCHIVE.tar.gz] [--interpret]
[--only=PART]`. With an archive its tests, which needs the standard library alone; without one those of the installed package `onnx`
(exit 77 where there is none). Prints a line for each operator: how many passed, how many with all inputs but the first
as initializers, how many were refused (E706, E301) and why. Exit 1 where a test fails."""
import collections
import math
import os
import re
import subprocess
import sys
import tarfile
import tempfile

import proto


class Case:
    def __init__(self, name, model, inputs, outputs):
        self.name, self.model, self.inputs, self.outputs = name, model, inputs, outputs
        graph = proto.every(model, 7)[0]
        self.op = proto.every(proto.every(graph, 1)[0], 4)[0].decode()


def archive_cases(path):
    """Folders of an archive: model.onnx and test_data_set_0/{input,output}_N.pb."""
    with tarfile.open(path) as tar:
        files = {m.name: tar.extractfile(m).read() for m in tar.getmembers() if m.isfile()}
    for model in sorted(n for n in files if n.endswith("/model.onnx")):
        folder = os.path.dirname(model)
        sets = {kind: [files[f"{folder}/test_data_set_0/{kind}_{i}.pb"] for i in range(99)
                       if f"{folder}/test_data_set_0/{kind}_{i}.pb" in files] for kind in ("input", "output")}
        yield os.path.basename(folder), files[model], sets["input"], sets["output"]


def package_cases():
    try:
        import numpy
        from onnx import numpy_helper
        from onnx.backend.test.case.node import collect_testcases
    except ImportError as e:
        print(f"SKIPPED: {e}; the node tests are those of the package onnx")
        sys.exit(77)

    def message(v):
        return numpy_helper.from_array(numpy.asarray(v)).SerializeToString()
    for case in collect_testcases(None):
        if case.model is None or not case.data_sets:
            continue
        inputs, outputs = case.data_sets[0]
        if any(isinstance(v, (list, dict, type(None))) for v in list(inputs) + list(outputs)):
            continue
        if any(numpy.asarray(v).dtype == object for v in list(inputs) + list(outputs)):
            continue
        yield case.name, case.model.SerializeToString(), [message(v) for v in inputs], [message(v) for v in outputs]


def names_of(text, section):
    """Names under a section of the written model file, in order."""
    body = re.search(rf"^{section}:\n((?:  .*\n)*)", text, re.M)
    return re.findall(r"^  (\w+):", body.group(1), re.M) if body else []


def with_initializers(case):
    """The model with all inputs but the first as initializers."""
    out = b""
    for number, value in proto.fields(case.model):
        if number == 7:
            declared = [proto.every(v, 1)[0].decode() for v in proto.every(value, 11)]
            value += b"".join(proto.field(5, t.message(n)) for n, t in list(zip(declared, case.inputs))[1:])
        out += proto.field(number, value)
    return out


def same(got, want, kind):
    loose = {10: 2e-3, 16: 2 ** -7}.get(kind, 1e-4)  # bf16: one step, since the file rounds after each operation
    if isinstance(want, float) and math.isnan(want):
        return math.isnan(got)
    return got == want or abs(got - want) <= loose + loose * abs(want)


def run_case(tfmc, how, case, folder, constants):
    """None: passed; else (refused, message)."""
    path = os.path.join(folder, "case.onnx")
    with open(path, "wb") as f:
        f.write(with_initializers(case) if constants else case.model)
    made = subprocess.run([tfmc, "import", path], capture_output=True, text=True, timeout=60)
    if made.returncode != 0:
        reason = made.stderr.splitlines()[0] if made.stderr else f"exit {made.returncode}"
        return made.returncode == 1 and ("[E706]" in reason or "[E301]" in reason), reason
    with open(os.path.join(folder, "case.yaml"), "w") as f:
        f.write(made.stdout)
    names = names_of(made.stdout, "inputs")
    proto.write_safetensors(os.path.join(folder, "in.safetensors"), dict(zip(names, case.inputs)))
    ran = subprocess.run([tfmc, "run", os.path.join(folder, "case.yaml"), *how, "--inputs",
                          os.path.join(folder, "in.safetensors"), "--outputs", os.path.join(folder, "out.safetensors")],
                         capture_output=True, text=True, timeout=60)
    if ran.returncode != 0:
        return False, ran.stderr.splitlines()[0] if ran.stderr else f"exit {ran.returncode}"
    out = proto.read_safetensors(os.path.join(folder, "out.safetensors"))
    for name, want in zip(names_of(made.stdout, "outputs"), case.outputs):
        shape, values = out[name]
        if shape != want.shape:
            return False, f"{name} has the shape {shape}, not {want.shape}"
        for i, (a, b) in enumerate(zip(values, want.values())):
            if not same(a, b, want.type):
                return False, f"{name}[{i}] is {a}, not {b}"
    return None


def main():
    tfmc, archives = sys.argv[1], [a for a in sys.argv[2:] if not a.startswith("--")]
    only = next((a[7:] for a in sys.argv[2:] if a.startswith("--only=")), "")
    options = ["--backend=interp"] if "--interpret" in sys.argv else ["-O0", "--no-cache"]
    counts, reasons, failed = collections.defaultdict(collections.Counter), {}, 0
    with tempfile.TemporaryDirectory() as folder:
        for name, model, inputs, outputs in archive_cases(archives[0]) if archives else package_cases():
            if only not in name:
                continue
            try:
                case = Case(name, model, [proto.Tensor(t) for t in inputs], [proto.Tensor(t) for t in outputs])
            except ValueError as e:
                counts["(types)"]["refused"] += 1
                reasons["(types)"] = str(e)
                continue
            result, how = run_case(tfmc, options, case, folder, False), "passed"
            if result is not None and result[0] and len(inputs) > 1:
                again = run_case(tfmc, options, case, folder, True)
                result, how = (again, "constant") if again is None or not again[0] else (result, how)
            if result is None:
                counts[case.op][how] += 1
            elif result[0]:
                counts[case.op]["refused"] += 1
                reasons[case.op] = re.sub(r"^.*error: | \(node 1, ''\)", "", result[1])
            else:
                failed += 1
                counts[case.op]["FAILED"] += 1
                print(f"FAILED {name}: {result[1]}", file=sys.stderr)
    total = collections.Counter()
    for op in sorted(counts):
        total.update(counts[op])
        text = ", ".join(f"{how} {counts[op][how]}" for how in ("passed", "constant", "refused", "FAILED") if counts[op][how])
        print(f"{op}: {text}" + (f" ({reasons[op]})" if op in reasons else ""))
    print("all: " + ", ".join(f"{how} {n}" for how, n in sorted(total.items())))
    return 1 if failed or not total else 0


if __name__ == "__main__":
    sys.exit(main())
