# SPDX-License-Identifier: Apache-2.0
"""ONNX files of the encoders, for ONNX Runtime and OpenVINO: static shapes, f32, weights beside the file."""
import os

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import seeded


class Graph:
    """A graph under construction. Values are names; every call adds one node."""

    def __init__(self):
        self.nodes, self.initializers, self.known = [], [], set()

    def constant(self, name, value):
        """An initializer, once."""
        if name not in self.known:
            self.known.add(name)
            self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def op(self, kind, *inputs, outputs=1, **attributes):
        """One node; its value, or a list of values."""
        n = len(self.nodes)
        names = [f"v{n}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=f"{kind}_{n}", **attributes))
        return names[0] if outputs == 1 else names

    def weight(self, name, shape, transpose=False):
        """A seeded tensor; matrices are stored [in, out] where they are multiplied from the right."""
        value = seeded.tensor(name, shape)
        return self.constant(name, value.T if transpose else value)

    def linear(self, x, path, n_out, n_in, bias=True):
        """x times the matrix of path, plus its bias."""
        y = self.op("MatMul", x, self.weight(path + ".weight", (n_out, n_in), True))
        return self.op("Add", y, self.weight(path + ".bias", (n_out,))) if bias else y

    def layer_norm(self, x, path, m):
        """LayerNormalization over the last axis."""
        return self.op("LayerNormalization", x, self.weight(path + ".weight", (m.hidden,)),
                       self.weight(path + ".bias", (m.hidden,)), axis=-1, epsilon=m.eps)

    def scalar(self, name, value):
        """A float constant."""
        return self.constant(name, np.array(value, np.float32))

    def save(self, path, inputs, outputs):
        """Writes the model, weights in one file beside it."""
        graph = helper.make_graph(self.nodes, "model", inputs, outputs, self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        data = os.path.basename(path) + ".data"
        if os.path.exists(path + ".data"):
            os.remove(path + ".data")
        onnx.save(model, path, save_as_external_data=True, location=data, size_threshold=1024)


def activate(g, x, act):
    """relu, gelu (erf), gelu_tanh or silu."""
    if act == "relu":
        return g.op("Relu", x)
    if act == "silu":
        return g.op("Mul", x, g.op("Sigmoid", x))
    one, half = g.scalar("one", 1), g.scalar("half", 0.5)
    if act == "gelu":
        inner = g.op("Erf", g.op("Div", x, g.scalar("root2", 2**0.5)))
        return g.op("Mul", g.op("Mul", x, g.op("Add", inner, one)), half)
    cube = g.op("Mul", g.op("Mul", x, x), x)
    inner = g.op("Add", x, g.op("Mul", cube, g.scalar("cubic", 0.044715)))
    inner = g.op("Tanh", g.op("Mul", inner, g.scalar("root_2_pi", (2 / np.pi) ** 0.5)))
    return g.op("Mul", g.op("Mul", x, g.op("Add", inner, one)), half)


def _attention(g, x, path, m, length):
    d, e = m.hidden, m.head_dim
    split = g.constant("split", np.array([1, length, m.heads, e], np.int64))
    join = g.constant("join", np.array([1, length, d], np.int64))
    q, k, v = (g.op("Reshape", g.linear(x, f"{path}.{r}", d, d), split) for r in "qkv")
    q, v = g.op("Transpose", q, perm=[0, 2, 1, 3]), g.op("Transpose", v, perm=[0, 2, 1, 3])
    scores = g.op("MatMul", q, g.op("Transpose", k, perm=[0, 2, 3, 1]))
    p = g.op("Softmax", g.op("Div", scores, g.scalar("root_e", e**0.5)), axis=-1)
    y = g.op("Reshape", g.op("Transpose", g.op("MatMul", p, v), perm=[0, 2, 1, 3]), join)
    return g.linear(y, path + ".o", d, d)


def _ffn(g, x, path, m):
    up = activate(g, g.linear(x, path + ".up", m.ff, m.hidden), m.act)
    return g.linear(up, path + ".down", m.hidden, m.ff)


def _front(g, m, length):
    if m.kind == "vit":
        x = g.op("Concat", g.weight("cls.weight", (1, 1, m.hidden)), g.linear("input", "patch", m.hidden, 768), axis=1)
        return g.op("Add", x, g.weight("position.weight", (length, m.hidden)))
    x = g.op("Gather", g.weight("word.weight", (m.vocab, m.hidden)), "input")
    if m.sinusoidal:
        x = g.op("Mul", x, g.scalar("scale", m.hidden**0.5))
        return g.op("Add", x, g.constant("positions", seeded.sinusoid(length, m.hidden)))
    position = seeded.tensor("position.weight", (m.ctx, m.hidden))[:length]
    x = g.op("Add", x, g.constant("positions", position))
    return g.layer_norm(x, "emb_norm", m)


def write_encoder(m, row, path):
    """An encoder or ViT at the row's length: input "input", output "output" f32 [1, length, D]."""
    if os.path.exists(path):
        return
    g, n = Graph(), row.length
    x = _front(g, m, n)
    for i in range(m.layers):
        p = f"layers.{i}"
        if m.kind == "vit":
            x = g.op("Add", x, _attention(g, g.layer_norm(x, p + ".attn.norm", m), p + ".attn.attention", m, n))
            x = g.op("Add", x, _ffn(g, g.layer_norm(x, p + ".mlp.norm", m), p + ".mlp.ffn", m))
        else:
            x = g.layer_norm(g.op("Add", x, _attention(g, x, p + ".attn.attention", m, n)), p + ".norm1", m)
            x = g.layer_norm(g.op("Add", x, _ffn(g, x, p + ".mlp.ffn", m)), p + ".norm2", m)
    if m.kind == "vit":
        x = g.layer_norm(x, "final", m)
    g.nodes[-1].output[0] = "output"
    shape = [1, n - 1, 768] if m.kind == "vit" else [1, n]
    kind = TensorProto.FLOAT if m.kind == "vit" else TensorProto.INT64
    g.save(path, [helper.make_tensor_value_info("input", kind, shape)],
           [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, n, m.hidden])])


def quantize(path, to):
    """ONNX Runtime's dynamic quantization of the matrices, unless it is there."""
    if os.path.exists(to):
        return
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(path, to, weight_type=QuantType.QInt8, per_channel=True, use_external_data_format=True)
