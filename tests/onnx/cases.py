#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Operator cases of ONNX as small models: `cases.py FOLDER OUT` writes OUT/NAME/model.yaml (or model.tir) and
OUT/NAME/cases.safetensors for every case of FOLDER/cases.json, and prints one line each: `model NAME` or
`not applicable NAME: reason`. Only the standard library is used; onnx.sh runs the models.

What an operator means is written here as statements of the model language: attributes become arguments, axes
become reshapes. Inputs keep their element types; arithmetic is f32, as everywhere in the language."""
import json
import os
import struct
import sys

DTYPE = {"F32": "f32", "F16": "f16", "BF16": "bf16", "I64": "i64", "I32": "i32", "BOOL": "bool"}
CLOSE = {"F32": (1e-4, 1e-4), "F16": (2e-3, 2e-3), "BF16": (2e-3, 2e-3)}


class NotApplicable(Exception):
    pass


class Case:
    """Inputs and outputs of one test by name, and the statements that compute the latter."""

    def __init__(self, test):
        self.op, self.attrs = test["op"], test["attributes"]
        self.inputs = [i if i.get("tensor") else None for i in test["inputs"]]
        self.outputs = [o for o in test["outputs"] if o.get("tensor")]
        self.wanted = [o["name"] for o in test["outputs"]]
        self.lines = []
        self.taken = set()
        for i in self.inputs:
            if i and i["name"] == "x":
                i["name"] = "x_in"
            if i and i["dtype"] in ("F16", "BF16"):
                self.say(f"{i['name']}_f = cast({i['name']}, f32)")

    def has(self, n):
        return n < len(self.inputs) and self.inputs[n] is not None

    def name(self, n):
        """The value of operand n in f32; `x` is no name for an input."""
        i = self.inputs[n]
        return i["name"] + ("_f" if i["dtype"] in ("F16", "BF16") else "")

    def shape(self, n):
        return list(self.inputs[n]["shape"])

    def say(self, line):
        self.lines.append(line)

    def give(self, name, value):
        """The output `name` is `value`, in its own element type."""
        for o in self.outputs:
            if o["name"] != name:
                continue
            if 0 in o["shape"]:
                raise NotApplicable(f"output '{name}' has no elements, which no dim of the language allows")
            wide = DTYPE[o["dtype"]]
            self.say(f"out_{name} = cast({value}, {wide})" if wide != "f32" else f"out_{name} = {value}")
            self.taken.add(name)


def product(numbers):
    n = 1
    for i in numbers:
        n *= i
    return n


def text(f):
    return repr(float(f))


# --- attention ----------------------------------------------------------------------------------------------


def heads(c, n, name, count):
    """Operand n as [B, heads, S, E] under `name`; gives its shape."""
    s = c.shape(n)
    if len(s) == 4:
        c.say(f"{name} = {c.name(n)}")
        return s
    b, length, width = s
    e = width // count
    c.say(f"{name} = transpose(reshape({c.name(n)}, [{b}, {length}, {count}, {e}]), [0, 2, 1, 3])")
    return [b, count, length, e]


def visible(c, q, k, past):
    """The mask of causality where queries do not begin at key 0, or ''."""
    if c.has(6):
        start = f"reshape(cast({c.name(6)}, i32) - {q[2]}, [{q[0]}, 1, 1, 1])"
        queries = f"reshape(iota({q[2]}), [1, 1, {q[2]}, 1]) + {start}"
    elif past:
        queries = f"reshape(iota({q[2]}, start={past}), [1, 1, {q[2]}, 1])"
    else:
        return ""
    return f"reshape(iota({k[2]}), [1, 1, 1, {k[2]}]) <= {queries}"


def read_mask(c, k):
    """attn_mask as long as the keys; keys beyond it are not visible."""
    short = k[2] - c.shape(3)[-1]
    if short and c.inputs[3]["dtype"] == "BOOL":
        raise NotApplicable("a bool mask shorter than the keys")
    c.say(f"given = pad({c.name(3)}, axis=-1, before=0, after={short}, value=-.inf)" if short
          else f"given = {c.name(3)}")
    return c.inputs[3]["dtype"] == "BOOL"


def attention(c):
    a = c.attrs
    q = heads(c, 0, "q", a.get("q_num_heads"))
    k = heads(c, 1, "k", a.get("kv_num_heads"))
    v = heads(c, 2, "v", a.get("kv_num_heads"))
    past = c.shape(4)[2] if c.has(4) else 0
    if past:
        c.say(f"k = concat([{c.name(4)}, k], axis=2)")
        c.say(f"v = concat([{c.name(5)}, v], axis=2)")
        k[2], v[2] = k[2] + past, v[2] + past
    c.give("present_key", "k")
    c.give("present_value", "v")
    scale, cap = a.get("scale", 0.0) or q[3] ** -0.5, a.get("softcap", 0.0)
    args = [f"scale={text(scale)}"]
    is_bool = read_mask(c, k) if c.has(3) else False
    causal = visible(c, q, k, past) if a.get("is_causal") else ""
    if causal and is_bool:
        c.say(f"given = where(given, {causal}, false)")
    elif causal:
        c.say(f"seen = {causal}")
    if c.has(3) and is_bool:
        args.append("mask=given")
    elif causal:
        args.append("mask=seen")
    if a.get("is_causal") and not causal:
        args.append("causal=true")
    if c.has(6):
        args.append(f"lengths=cast({c.name(6)}, i32)")
    biased = c.has(3) and not is_bool
    if biased and not cap:
        args.append("bias=given")
    if cap and not biased:
        args.append(f"softcap={text(cap)}")
    if cap and biased or "qk_matmul_output" in [o["name"] for o in c.outputs]:
        scores(c, q, k, scale, cap, biased, is_bool, causal)
    c.say("y = matmul(p, v_all)" if cap and biased else f"y = sdpa(q, k, v, {', '.join(args)})")
    if len(c.shape(0)) == 3:
        c.say(f"y = reshape(transpose(y, [0, 2, 1, 3]), [{q[0]}, {q[2]}, {q[1] * v[3]}])")
    c.give("Y", "y")


def scores(c, q, k, scale, cap, biased, is_bool, causal):
    """What sdpa does, step by step: ONNX adds its mask behind the softcap and gives the scores between."""
    group = q[1] // k[1]
    for n in "kv":
        c.say(f"{n}_all = {n}" if group == 1 else
              f"{n}_all = gather({n}, iota({q[1]}) // {group}, axis=1)")
    if group > 1:
        raise NotApplicable("the scores of grouped heads as an output")
    if c.has(6):
        raise NotApplicable("the scores of padded keys as an output")
    mode = c.attrs.get("qk_matmul_output_mode", 0)
    c.say(f"s = {text(scale)} * matmul(q, k_all, transpose_b=true)")
    if mode == 0:
        c.give("qk_matmul_output", "s")
    if cap:
        c.say(f"s = softcap(s, {text(cap)})")
    if mode == 1:
        c.give("qk_matmul_output", "s")
    if biased:
        c.say("s = s + given")
    if is_bool:
        c.say("s = where(given, s, -.inf)")
    elif causal:
        c.say("s = where(seen, s, -.inf)")
    elif c.attrs.get("is_causal"):
        c.say(f"s = where(reshape(iota({k[2]}), [1, {k[2]}]) <= reshape(iota({q[2]}), [{q[2]}, 1]), s, -.inf)")
    if mode == 2:
        c.give("qk_matmul_output", "s")
    c.say("p = softmax(s)")
    if mode == 3:
        c.give("qk_matmul_output", "p")


def flex_attention(c):
    q = c.shape(0)
    scale = c.attrs.get("scale", 0.0) or q[3] ** -0.5
    c.give("Y", f"sdpa({c.name(0)}, {c.name(1)}, {c.name(2)}, scale={text(scale)})")


# --- norms, activations ---------------------------------------------------------------------------------------


def norm(c):
    s = c.shape(0)
    axis = c.attrs.get("axis", -1) % len(s)
    eps = text(c.attrs.get("epsilon", 1e-5))
    inner = product(s[axis:])
    kind = "layer_norm" if c.op == "LayerNormalization" else "rms_norm"
    c.say(f"rows = reshape({c.name(0)}, [{', '.join(map(str, s[:axis] + [inner]))}])")
    c.say(f"y = reshape({kind}(rows, none, {eps}), [{', '.join(map(str, s))}]) * {c.name(1)}")
    c.give("Y", f"y + {c.name(2)}" if c.has(2) else "y")
    kept = ", ".join(map(str, s[:axis] + [1] * (len(s) - axis)))
    c.say("middle = mean(rows, axis=-1, keep=true)")
    c.give("Mean", f"reshape(middle, [{kept}])")
    c.give("InvStdDev", f"reshape(rsqrt(mean((rows - middle) * (rows - middle), axis=-1) + {eps}), [{kept}])")


def gelu(c):
    c.give("y", f"{'gelu_tanh' if c.attrs.get('approximate') == 'tanh' else 'gelu'}({c.name(0)})")


def swish(c):
    alpha = c.attrs.get("alpha", 1.0)
    c.give("y", f"silu({c.name(0)})" if alpha == 1.0 else f"{c.name(0)} * sigmoid({text(alpha)} * {c.name(0)})")


def softmax(c):
    c.give("y", f"softmax({c.name(0)}, axis={c.attrs.get('axis', -1)})")


# --- moving windows and caches ----------------------------------------------------------------------------------


def causal_conv(c):
    b, ch, length = c.shape(0)
    taps = c.shape(1)[2]
    if c.has(3):
        c.say(f"line = concat([{c.name(3)}, {c.name(0)}], axis=2)")
    else:
        c.say(f"line = pad({c.name(0)}, axis=2, before={taps - 1}, after=0)")
    for k in range(taps):
        tap = f"reshape(slice({c.name(1)}, axis=2, begin={k}, end={k + 1}), [1, {ch}, 1])"
        part = f"slice(line, axis=2, begin={k}, end={k + length}) * {tap}"
        c.say(f"y = {part}" if k == 0 else f"y = y + {part}")
    if c.has(2):
        c.say(f"y = y + reshape({c.name(2)}, [1, {ch}, 1])")
    if c.attrs.get("activation") in ("silu", "swish"):
        c.say("y = silu(y)")
    elif c.attrs.get("activation", "none") != "none":
        raise NotApplicable(f"activation {c.attrs['activation']}")
    c.give("output", "y")
    c.give("present_state", f"slice(line, axis=2, begin={length}, end={length + taps - 1})")


def tensor_scatter(c):
    """Rows of every sequence from its own index on."""
    s, n = c.shape(0), c.shape(1)[-2]
    length, axis = s[-2], len(s) - 2
    first = [s[0]] + [1] * (len(s) - 1)
    row = [1] * len(s)
    row[axis] = length
    c.say("y = " + c.name(0))
    for i in range(n):
        c.say(f"at = reshape(cast({c.name(2)}, i32) + {i}, {first})")
        if c.attrs.get("mode", "linear") == "circular":
            c.say(f"at = at - {length} * cast(at >= {length}, i32)")
        c.say(f"y = where(reshape(iota({length}), {row}) == at, "
              f"slice({c.name(1)}, axis={axis}, begin={i}, end={i + 1}), y)")
    c.give("present_cache", "y")


# --- rotary, as IR: its table is an input here --------------------------------------------------------------------


def rotary(c, name):
    s, table = c.shape(0), c.shape(1)
    count, half = c.attrs.get("num_heads", 0), c.shape(1)[-1]
    flat = len(s) == 3
    b, h, n, e = (s[0], count, s[1], s[2] // count) if flat else s
    rows = table[0] if len(table) == 2 else table[0] * table[1]
    out = c.outputs[0]["name"]
    lines = [f'module "{name}"', "func @run(%%x: f32[%s], %%c: f32[%s], %%s: f32[%s]%s) -> (%s: f32[%s]) {" % (
        ",".join(map(str, s)), ",".join(map(str, table)), ",".join(map(str, table)),
        f", %at: i32[{b},{n}]" if c.has(3) else "", out, ",".join(map(str, s)))]
    shape = f"{rows},{half}"
    for v in "cs":
        lines.append(f"  %{v}2 = reshape %{v} {{dims=[{shape}]}} : f32[{shape}]" if len(table) == 3 else "")
    k = "2" if len(table) == 3 else ""
    lines.append(f"  %t = concat %c{k}, %s{k} {{axis=1}} : f32[{rows},{2 * half}]")
    x = "%x"
    if flat:
        lines.append(f"  %h = reshape %x {{dims=[{b},{n},{h},{e}]}} : f32[{b},{n},{h},{e}]")
        lines.append(f"  %u = transpose %h {{perm=[0,2,1,3]}} : f32[{b},{h},{n},{e}]")
        x = "%u"
    if not c.has(3):
        lines.append(f"  %all = iota {{dims=[{b * n}]}} : i32[{b * n}]")
        lines.append(f"  %at = reshape %all {{dims=[{b},{n}]}} : i32[{b},{n}]")
    layout = " {layout=interleaved}" if c.attrs.get("interleaved") else ""
    lines.append(f"  %y = rope {x}, %t, %at{layout} : f32[{b},{h},{n},{e}]")
    result = "%y"
    if flat:
        lines.append(f"  %v = transpose %y {{perm=[0,2,1,3]}} : f32[{b},{n},{h},{e}]")
        lines.append(f"  %w = reshape %v {{dims=[{b},{n},{h * e}]}} : f32[{b},{n},{h * e}]")
        result = "%w"
    lines += [f"  return {result}", "}", ""]
    inputs = {"x": c.inputs[0], "c": c.inputs[1], "s": c.inputs[2]}
    if c.has(3):
        inputs["at"] = c.inputs[3]
    return "\n".join(l for l in lines if l) + "\n", inputs


OPS = {
    "Attention": attention,
    "FlexAttention": flex_attention,
    "LayerNormalization": norm,
    "RMSNormalization": norm,
    "Gelu": gelu,
    "Swish": swish,
    "Softmax": softmax,
    "CausalConvWithState": causal_conv,
    "TensorScatter": tensor_scatter,
}

# --- files ----------------------------------------------------------------------------------------------------


class Tensors:
    def __init__(self, path):
        with open(path, "rb") as f:
            self.header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            self.data = f.read()

    def bytes(self, key):
        begin, end = self.header[key]["data_offsets"]
        return self.data[begin:end]


def write_tensors(path, tensors):
    """{name: (dtype, shape, bytes)}"""
    header, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + data)


def to_i32(raw):
    return b"".join(struct.pack("<i", v) for (v,) in struct.iter_unpack("<q", raw))


def yaml_model(c, name):
    OPS[c.op](c)
    inputs = [i for i in c.inputs if i]
    missing = [o["name"] for o in c.outputs if o["name"] not in c.taken]
    if missing:
        raise NotApplicable(f"output {', '.join(missing)}")
    tolerance = max((CLOSE[o["dtype"]] for o in c.outputs if o["dtype"] in CLOSE), default=(0, 0))
    quoted = [f"  - \"{line}\"" for line in c.lines]
    return "\n".join([
        "tfmc: 1", f"name: {name[:63]}", "dims: {}", "inputs:",
        *(f"  {i['name']}: {{shape: {i['shape']}, dtype: {DTYPE[i['dtype']]}}}" for i in inputs),
        "graph:", *quoted,
        "outputs: {" + ", ".join(f"{o['name']}: out_{o['name']}" for o in c.outputs) + "}",
        "checks:",
        f"  - {{file: cases.safetensors, cases: [one], rtol: {tolerance[0]}, atol: {tolerance[1]}}}", ""])


def store(folder, c, tensors, prefix):
    table = {}
    for t in [i for i in c.inputs if i] + c.outputs:
        table[prefix + t["name"]] = (t["dtype"], t["shape"], tensors.bytes(t["tensor"]))
    write_tensors(os.path.join(folder, "cases.safetensors"), table)


def write_case(test, tensors, out):
    name = test["name"].removeprefix("test_")
    folder = os.path.join(out, name)
    c = Case(test)
    if c.op == "RotaryEmbedding":
        model, inputs = rotary(c, name)
        os.makedirs(folder)
        given = {}
        for key, i in inputs.items():
            raw = tensors.bytes(i["tensor"])
            wide = i["dtype"] == "I64"
            given[key] = ("I32" if wide else i["dtype"], i["shape"], to_i32(raw) if wide else raw)
        write_tensors(os.path.join(folder, "inputs.safetensors"), given)
        kind = "model.tir"
    elif c.op in OPS:
        model, kind = yaml_model(c, name), "model.yaml"
        os.makedirs(folder)
    else:
        raise NotApplicable(f"the language has no operator {c.op}")
    store(folder, c, tensors, "one." if kind == "model.yaml" else "")
    with open(os.path.join(folder, kind), "w") as f:
        f.write(model)


def compare(have, want):
    """The outputs in the file `have` against those of the same names in `want`."""
    a, b = Tensors(have), Tensors(want)
    for key in a.header:
        x = [v for (v,) in struct.iter_unpack("<f", a.bytes(key))]
        y = [v for (v,) in struct.iter_unpack("<f", b.bytes(key))]
        if len(x) != len(y) or any(not abs(p - q) <= 1e-4 + 1e-4 * abs(q) for p, q in zip(x, y)):
            sys.exit(f"{key} differs")


def main():
    if sys.argv[1] == "compare":
        compare(sys.argv[2], sys.argv[3])
        return
    source, out = sys.argv[1:]
    tensors = Tensors(os.path.join(source, "cases.safetensors"))
    with open(os.path.join(source, "cases.json")) as f:
        tests = json.load(f)["tests"]
    for test in tests:
        name = test["name"].removeprefix("test_")
        try:
            write_case(test, tensors, out)
            print(f"model {name}")
        except NotApplicable as why:
            print(f"not applicable {name}: {why}")


main()
