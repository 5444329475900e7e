#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Operators that optimizers of exported models write (domain com.microsoft), as models of one node, against ONNX Runtime:
`fused.py TFMC [NAME..]`. Prints a line for each case; exit 1 where an output differs by more than 1e-5 + 1e-5 of its largest
element; 77 without the packages."""
import os
import re
import subprocess
import sys
import tempfile

try:
    import numpy
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper
    from safetensors.numpy import load_file, save_file
except ImportError as e:
    print(f"SKIPPED: {e}")
    sys.exit(77)

import steps

B, S, D, H, E, K = 2, 6, 32, 4, 8, 2
RNG = numpy.random.default_rng(3)
TYPES = {"float32": 1, "int32": 6, "int64": 7}


def floats(*shape):
    return RNG.standard_normal(shape).astype(numpy.float32)


def ints(*values):
    return numpy.array(values, numpy.int32)


def tables(n=E // 2, theta=10000.0):
    angles = numpy.arange(64)[:, None] * theta ** (-numpy.arange(n) / n)
    return numpy.cos(angles).astype(numpy.float32), numpy.sin(angles).astype(numpy.float32)


def mask(*shape):
    out = numpy.ones(shape, numpy.int32)
    out[1, ..., -2:] = 0
    return out


COS, SIN = tables()
PAST = (floats(B, H, 3, E), floats(B, H, 3, E))

# name: operator, operands (inputs x.., constants as arrays, None: absent), outputs, attributes
CASES = {
    "skip_norm": ("SkipLayerNormalization", ["a", "b", floats(D), floats(D), floats(D)], 4, {"epsilon": 1e-5}),
    "skip_norm_plain": ("SkipLayerNormalization", ["a", "b", floats(D)], 1, {}),
    "skip_rms_norm": ("SkipSimplifiedLayerNormalization", ["a", "b", floats(D), floats(D)], 4, {"epsilon": 1e-6}),
    "norm": ("LayerNormalization", ["a", floats(D), floats(D)], 3, {"epsilon": 1e-5, "axis": -1, "stash_type": 1}),
    "rms_norm": ("SimplifiedLayerNormalization", ["a", floats(D)], 2, {"epsilon": 1e-6, "axis": -1, "stash_type": 1}),
    "gelu": ("Gelu", ["a"], 1, {}),
    "bias_gelu": ("BiasGelu", ["a", floats(D)], 1, {}),
    "fast_gelu": ("FastGelu", ["a", floats(D)], 1, {}),
    "fast_gelu_plain": ("FastGelu", ["a"], 1, {}),
    "quick_gelu": ("QuickGelu", ["a"], 1, {"alpha": 1.702}),
    "quick_gelu_alpha": ("QuickGelu", ["a"], 1, {"alpha": 1.5}),
    "fused_matmul": ("FusedMatMul", ["a", "b"], 1, {"transB": 1, "alpha": 0.25}),
    "fused_matmul_layer": ("FusedMatMul", ["a", floats(16, D)], 1, {"transB": 1}),
    "fused_matmul_factor": ("FusedMatMul", ["a", floats(D, 16)], 1, {"alpha": 2.0}),
    "fused_matmul_turned": ("FusedMatMul", ["a", "b"], 1, {"transA": 1}),
    "embed_norm": ("EmbedLayerNormalization", ["ids", "types", floats(50, D), floats(64, D), floats(2, D), floats(D), floats(D),
                                               "mask"], 3, {"epsilon": 1e-5, "mask_index_type": 1}),
    "embed_norm_positions": ("EmbedLayerNormalization", ["ids", None, floats(50, D), floats(64, D), None, floats(D), floats(D),
                                                         None,
                                                         "positions"], 2, {}),
    "attention": ("Attention", ["a", floats(D, 3 * D), floats(3 * D)], 1, {"num_heads": H}),
    "attention_lengths": ("Attention", ["a", floats(D, 3 * D), floats(3 * D), "lengths"], 1, {"num_heads": H}),
    "attention_mask": ("Attention", ["a", floats(D, 3 * D), floats(3 * D), "mask"], 1, {"num_heads": H}),
    "attention_rows": ("Attention", ["a", floats(D, 3 * D), floats(3 * D), "rows"], 1,
                       {"num_heads": H, "mask_filter_value": -1e4}),
    "attention_causal": ("Attention", ["a", floats(D, 3 * D), floats(3 * D)], 1, {"num_heads": H, "unidirectional": 1}),
    "attention_bias": ("Attention", ["a", floats(D, 3 * D), floats(3 * D), "mask", None, "scores"], 1,
                       {"num_heads": H, "scale": 0.5}),
    "attention_sizes": ("Attention", ["a", floats(D, 32), floats(32)], 1, {"num_heads": H, "qkv_hidden_sizes": [8, 8, 16]}),
    "heads": ("MultiHeadAttention", ["a", "b", "c"], 1, {"num_heads": H}),
    "heads_bias": ("MultiHeadAttention", ["a", "b", "c", floats(3 * D), "mask", "scores"], 1, {"num_heads": H, "scale": 0.3}),
    "heads_causal": ("MultiHeadAttention", ["a", "b", "c"], 1, {"num_heads": H, "unidirectional": 1}),
    "heads_cross": ("MultiHeadAttention", ["a", "keys", "values"], 1, {"num_heads": H}),
    "heads_past": ("MultiHeadAttention", ["a", "b", "c", None, None, None, "past_key", "past_value"], 3, {"num_heads": H}),
    "scatter_add": ("ScatterElements", ["grid", "places", "more"], 1, {"axis": 1, "reduction": "add"}),
    "scatter_max": ("ScatterElements", ["grid", "places", "more"], 1, {"axis": 0, "reduction": "max"}),
    "scatter_min": ("ScatterElements", ["grid", "places", "more"], 1, {"axis": 1, "reduction": "min"}),
    "scatter_rows": ("ScatterND", ["grid", numpy.array([[1], [3], [1]], numpy.int64), floats(3, 5)], 1, {"reduction": "add"}),
    "scatter_points": ("ScatterND", ["grid", numpy.array([[1, 2], [3, 0], [1, 2]], numpy.int64), floats(3)], 1,
                       {"reduction": "max"}),
    "rotary": ("RotaryEmbedding", ["heads", "positions64", COS, SIN], 1, {}),
    "rotary_interleaved": ("RotaryEmbedding", ["heads", "positions64", COS, SIN], 1, {"interleaved": 1}),
    "rotary_flat": ("RotaryEmbedding", ["a", "positions64", COS, SIN], 1, {}),
    "rotary_first": ("RotaryEmbedding", ["heads", "first", COS, SIN], 1, {}),
    "rotary_part": ("RotaryEmbedding", ["a", "positions64", *tables(2)], 1, {"rotary_embedding_dim": 4, "num_heads": H}),
}
INPUTS = {
    "a": floats(B, S, D), "b": floats(B, S, D), "c": floats(B, S, D), "heads": floats(B, H, S, E), "scores": floats(B, H, S, S),
    "keys": floats(B, 5, D), "values": floats(B, 5, D), "past_key": PAST[0], "past_value": PAST[1],
    "ids": RNG.integers(0, 50, (B, S)).astype(numpy.int32), "types": RNG.integers(0, 2, (B, S)).astype(numpy.int32),
    "positions": RNG.integers(0, 60, (B, S)).astype(numpy.int32), "positions64": RNG.integers(0, 60, (B, S)).astype(numpy.int64),
    "grid": floats(4, 5), "more": floats(4, 3), "places": numpy.array([[0, 1, 0], [2, 2, 2], [3, -1, 0], [1, 3, 3]], numpy.int64),
    "first": numpy.array([7], numpy.int64), "lengths": ints(S, 4), "mask": mask(B, S), "rows": mask(B, S, S),
}
# sizes that vary, with their bounds
SIZES = {"a": {0: "batch", 1: "seq"}, "b": {0: "batch", 1: "seq"}, "c": {0: "batch", 1: "seq"}, "heads": {0: "batch", 2: "seq"},
         "scores": {0: "batch", 2: "seq", 3: "seq"}, "keys": {0: "batch", 1: "count"}, "values": {0: "batch", 1: "count"},
         "past_key": {0: "batch", 2: "past"}, "past_value": {0: "batch", 2: "past"}, "ids": {0: "batch", 1: "seq"},
         "types": {0: "batch", 1: "seq"}, "positions": {0: "batch", 1: "seq"}, "positions64": {0: "batch", 1: "seq"},
         "first": {}, "grid": {}, "more": {}, "places": {}, "lengths": {0: "batch"},
         "mask": {0: "batch", 1: "seq"}, "rows": {0: "batch", 1: "seq", 2: "seq"}}
BOUNDS = {"batch": "1..4", "seq": "1..16", "count": "1..16", "past": "1..16"}


def value(name, array, sizes):
    return helper.make_tensor_value_info(name, TYPES[str(array.dtype)], [sizes.get(i, n) for i, n in enumerate(array.shape)])


def save(path, nodes, inputs, outputs, constants):
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(a, n) for n, a in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)])
    model.ir_version = 8
    onnx.save(model, path)


def difference(got, want):
    """None, or what differs."""
    if got.shape != want.shape:
        return f"the shape {got.shape}, not {want.shape}"
    error = float(numpy.abs(got.astype(numpy.float64) - want).max())
    return None if error <= 1e-5 + 1e-5 * float(numpy.abs(want).max()) else f"differs by {error:.2g}"


def check(tfmc, name, folder):
    op, operands, n_outputs, attributes = CASES[name]
    feed = {o: INPUTS[o] for o in operands if isinstance(o, str)}
    constants = {f"w{i}": o for i, o in enumerate(operands) if isinstance(o, numpy.ndarray)}
    names = [o if isinstance(o, str) else "" if o is None else f"w{i}" for i, o in enumerate(operands)]
    outputs = [f"y{i}" for i in range(n_outputs)]
    # of norms ONNX Runtime computes outputs 1 and 2 in training alone
    used = [o for i, o in enumerate(outputs) if not (op.startswith("Skip") and i in (1, 2))]
    is_standard = op in ("LayerNormalization", "SimplifiedLayerNormalization") or op.startswith("Scatter")
    node = helper.make_node(op, names, [o if o in used else "" for o in outputs], name="n",
                            domain="" if is_standard else "com.microsoft", **attributes)
    path = os.path.join(folder, name + ".onnx")
    integer = "y1" if op == "EmbedLayerNormalization" else ""
    save(path, [node], [value(n, a, SIZES[n]) for n, a in feed.items()],
         [helper.make_tensor_value_info(o, 6 if o == integer else 1, None) for o in used], constants)
    want = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(used, feed)
    sizes = {s for n in feed for s in SIZES[n].values()}
    yaml = path[:-5] + ".yaml"
    made = subprocess.run([tfmc, "import", path, "-o", yaml, *(f"--dim={s}={BOUNDS[s]}" for s in sorted(sizes))],
                          capture_output=True, text=True)
    if made.returncode:
        return made.stderr
    ids = {i for i in feed if re.search(rf"^  {i}: .*dtype: i32", open(yaml).read(), re.M)}
    save_file({i: v.astype(numpy.int32) if i in ids else v for i, v in feed.items()}, f"{folder}/in.safetensors")
    ran = subprocess.run([tfmc, "run", yaml, "--no-cache", "-O0", "--inputs", f"{folder}/in.safetensors", "--outputs",
                          f"{folder}/out.safetensors"], capture_output=True, text=True)
    if ran.returncode:
        return ran.stderr
    got = load_file(f"{folder}/out.safetensors")
    return next((f"{o}: {d}" for o, w in zip(used, want) if (d := difference(got[o], w))), None)


# ---- decoders whose past is state ----

def decoder(path, kind):
    """A table, attention with a cache, and logits. grouped: GroupQueryAttention with rotary positions; heads:
    MultiHeadAttention."""
    rng = numpy.random.default_rng(5)
    heads, e = (H, E) if kind == "heads" else (K, 16)  # ONNX Runtime has sizes of heads that are multiples of 16
    wide = (H + 2 * heads) * e
    w = {"table": rng.standard_normal((101, D)).astype(numpy.float32), "qkv": rng.standard_normal((D, wide)).astype(numpy.float32),
         "head": rng.standard_normal((H * e, 101)).astype(numpy.float32), "one": numpy.array(1, numpy.int64),
         "sizes": numpy.array([H * e, heads * e, heads * e], numpy.int64), "axis": numpy.array([1], numpy.int64)}
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["x"]), helper.make_node("MatMul", ["x", "qkv"], ["all"]),
             helper.make_node("Split", ["all", "sizes"], ["q", "k", "v"], axis=-1),
             helper.make_node("Cast", ["attention_mask"], ["real"], to=6),
             helper.make_node("ReduceSum", ["real", "axis"], ["count"], keepdims=0),
             helper.make_node("Cast", ["one"], ["one32"], to=6), helper.make_node("Sub", ["count", "one32"], ["last"]),
             helper.make_node("Shape", ["attention_mask"], ["shape"]),
             helper.make_node("Gather", ["shape", "one"], ["total"], axis=0),
             helper.make_node("Cast", ["total"], ["total32"], to=6)]
    past = ["past_key_values.0.key", "past_key_values.0.value"]
    out = ["o", "present.0.key", "present.0.value"]
    if kind == "heads":
        nodes.append(helper.make_node("MultiHeadAttention", ["q", "k", "v", "", "", "", *past], out, domain="com.microsoft",
                                      num_heads=H, unidirectional=1))
    else:
        packed = kind == "grouped_packed"
        w["cos"], w["sin"] = tables(e // 2)
        more = {"softcap": 20.0} if kind == "grouped_cap" else {"local_window_size": 4} if kind == "grouped_window" else {}
        operands = ["all", "", ""] if packed else ["q", "k", "v"]
        nodes.append(helper.make_node(
            "GroupQueryAttention", [*operands, *past, "last", "total32", "cos", "sin"], out, domain="com.microsoft", num_heads=H,
            kv_num_heads=K, do_rotary=1, rotary_interleaved=int(kind == "grouped_interleaved"), **more))
    nodes.append(helper.make_node("MatMul", ["o", "head"], ["logits"]))
    cache = ["batch", heads, "past", e]
    info = helper.make_tensor_value_info
    save(path, nodes, [info("input_ids", 7, ["batch", "seq"]), info("attention_mask", 7, ["batch", "past + seq"]),
                       *(info(p, 1, cache) for p in past)],
         [info("logits", 1, ["batch", "seq", 101]), *(info(p, 1, ["batch", heads, "total", e]) for p in out[1:])], w)
    return heads, e


DECODERS = ["heads", "grouped", "grouped_packed", "grouped_interleaved", "grouped_cap", "grouped_window"]


def check_decoder(tfmc, kind, folder):
    path, prompt, count = os.path.join(folder, "m.onnx"), [5, 9, 77], 12
    heads, e = decoder(path, kind)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()][2:]
    past, done, ids, rows = {i: numpy.zeros((1, heads, 0, e), numpy.float32) for i in names}, 0, prompt, []
    for _ in range(count + 1):
        done += len(ids)
        out = session.run(None, {"input_ids": numpy.array([ids]), "attention_mask": numpy.ones((1, done), numpy.int64), **past})
        past = dict(zip(names, out[1:]))
        rows.append(out[0][0, -1])
        ids = [int(rows[-1].argmax())]
    try:
        return difference(steps.in_object(tfmc, path, prompt, count, folder), numpy.array(rows))
    except RuntimeError as e:
        return str(e)


def main():
    tfmc, failed = sys.argv[1], 0
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[2:] or [*CASES, *(f"decoder_{d}" for d in DECODERS)]:
            decodes = name.startswith("decoder_")
            reason = check_decoder(tfmc, name[8:], folder) if decodes else check(tfmc, name, folder)
            failed += reason is not None
            print(f"FAILED {name}: {reason}" if reason else f"{name}: ok", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
