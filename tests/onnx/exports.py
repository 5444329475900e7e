#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small models of transformers with seeded weights, exported by PyTorch, through tfmc as they are, against ONNX Runtime:
`exports.py TFMC [NAME..]`. Prints a line for each model; exit 1 where an output differs by more than 1e-5 + 1e-5 of its
largest element (of quantized activations: see ROUNDS); 77 without the packages."""
import os
import re
import subprocess
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
try:
    import numpy
    import onnx
    import onnx.numpy_helper
    import onnxruntime
    from onnxruntime import quantization
    import torch
    import transformers as tf
    from safetensors.numpy import load_file, save_file
except ImportError as e:
    print(f"SKIPPED: {e}")
    sys.exit(77)

import steps

SMALL = {"vocab_size": 101, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
         "max_position_embeddings": 64, "attn_implementation": "eager"}
RELATIVE = {**SMALL, "relative_attention": True, "position_biased_input": False, "type_vocab_size": 0}
PICTURE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "image_size": 32,
           "patch_size": 8, "attn_implementation": "eager"}
RECOGNIZER = {"height": 32, "width": 48, "widths": (16, 24, 32), "depth": 2, "size": 8, "classes": 37}
LCNET = {"width": 3}
T5 = {"vocab_size": 101, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}


def text(m, ids, mask):
    return m(input_ids=ids, attention_mask=mask)[0]


def with_types(m, ids, mask, types):
    return m(input_ids=ids, attention_mask=mask, token_type_ids=types)[0]


def causal(m, ids, mask):
    return m(input_ids=ids, attention_mask=mask, use_cache=False).logits


def picture(m, pixels):
    return m(pixel_values=pixels)[0]


def decoder(m, ids, states):
    return m(input_ids=ids, encoder_hidden_states=states, use_cache=False)[0]


class Mixer(torch.nn.Module):
    """A block of SVTR: attention of all patches (local: of those in a window of 7 rows and 11 columns), norms behind the sums."""

    def __init__(self, d, heads, rows, columns, local):
        super().__init__()
        self.heads, near = heads, torch.full((1, 1, rows * columns, rows * columns), 0.0)
        if local:
            row, column = torch.arange(rows * columns) // columns, torch.arange(rows * columns) % columns
            far = ((row[:, None] - row).abs() > 3) | ((column[:, None] - column).abs() > 5)
            near = near.masked_fill(far, float("-inf"))
        self.register_buffer("near", near if local else None)
        self.qkv, self.out = torch.nn.Linear(d, 3 * d), torch.nn.Linear(d, d)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(d, 4 * d), torch.nn.GELU(), torch.nn.Linear(4 * d, d))
        self.norm1, self.norm2 = torch.nn.LayerNorm(d), torch.nn.LayerNorm(d)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q * (d // self.heads) ** -0.5) @ k.transpose(-2, -1)
        scores = scores if self.near is None else scores + self.near
        x = self.norm1(x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d)))
        return self.norm2(x + self.mlp(x))


class Recognizer(torch.nn.Module):
    """Text of a line as probabilities of characters at each column, as SVTR: patches of two convolutions; stages of blocks, local
    ones first, each of half the rows of the one before; the mean of the rows."""

    def __init__(self, height, width, widths, depth, size, classes):
        super().__init__()
        nn, self.rows, self.columns, self.widths = torch.nn, height // 4, width // 4, widths
        stem = [nn.Conv2d(3, widths[0] // 2, 3, 2, 1), nn.BatchNorm2d(widths[0] // 2), nn.GELU(),
                nn.Conv2d(widths[0] // 2, widths[0], 3, 2, 1), nn.BatchNorm2d(widths[0]), nn.GELU()]
        for norm in stem[1::3]:
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
        self.stem = nn.Sequential(*stem)
        self.positions = nn.Parameter(torch.randn(1, self.rows * self.columns, widths[0]) * 0.1)
        self.stages, self.merges, self.norms = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for i, d in enumerate(widths):
            self.stages.append(nn.Sequential(*(Mixer(d, d // size, self.rows >> i, self.columns, 2 * k < len(widths) * depth)
                                               for k in range(i * depth, (i + 1) * depth))))
            if i + 1 < len(widths):
                self.merges.append(nn.Conv2d(d, widths[i + 1], 3, (2, 1), 1))
                self.norms.append(nn.LayerNorm(widths[i + 1]))
        self.pool, self.last = nn.AvgPool2d((self.rows >> len(widths) - 1, 1)), nn.Conv2d(widths[-1], widths[-1], 1, bias=False)
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, pixels):
        x = self.stem(pixels).flatten(2).transpose(1, 2) + self.positions
        for i, stage in enumerate(self.stages):
            x = stage(x)
            grid = x.transpose(1, 2).reshape(-1, self.widths[i], self.rows >> i, self.columns)
            if i < len(self.merges):
                x = self.norms[i](self.merges[i](grid).flatten(2).transpose(1, 2))
        x = torch.nn.functional.hardswish(self.last(self.pool(grid))).squeeze(2).transpose(1, 2)
        return self.head(x).softmax(-1)


class Separable(torch.nn.Module):
    """A depthwise and a pointwise convolution, with hardswish behind each."""

    def __init__(self, d_in, d_out, kernel, stride):
        super().__init__()
        nn = torch.nn
        self.deep = nn.Sequential(nn.Conv2d(d_in, d_in, kernel, stride, kernel // 2, groups=d_in, bias=False), nn.BatchNorm2d(d_in))
        self.point = nn.Sequential(nn.Conv2d(d_in, d_out, 1, bias=False), nn.BatchNorm2d(d_out))

    def forward(self, x):
        return torch.nn.functional.hardswish(self.point(torch.nn.functional.hardswish(self.deep(x))))


class Lcnet(torch.nn.Module):
    """The backbone of PP-OCRv4's recognizer (PP-LCNetV3, one branch for each convolution): pictures of 48 rows."""

    # Channels in and out in widths, size of the kernel, stride.
    BLOCKS = [(1, 2, 3, 1), (2, 4, 3, 1), (4, 4, 3, 1), (4, 8, 3, (2, 1)), (8, 8, 3, 1), (8, 16, 3, (1, 2)), *[(16, 16, 5, 1)] * 4,
              (16, 32, 5, (2, 1)), (32, 32, 5, 1), (32, 32, 5, (2, 1)), (32, 32, 5, 1)]

    def __init__(self, width):
        super().__init__()
        self.stem = torch.nn.Sequential(torch.nn.Conv2d(3, width, 3, 2, 1, bias=False), torch.nn.BatchNorm2d(width))
        self.blocks = torch.nn.Sequential(*(Separable(width * d_in, width * d_out, *more) for d_in, d_out, *more in self.BLOCKS))

    def forward(self, pixels):
        return torch.nn.functional.avg_pool2d(self.blocks(torch.nn.functional.hardswish(self.stem(pixels))), (3, 2))


MODELS = {
    "bert": (lambda: tf.BertModel(tf.BertConfig(**SMALL)), with_types, ["input_ids", "attention_mask", "token_type_ids"]),
    "bert_sdpa": (lambda: tf.BertModel(tf.BertConfig(**{**SMALL, "attn_implementation": "sdpa"})), with_types,
                  ["input_ids", "attention_mask", "token_type_ids"]),
    "roberta": (lambda: tf.RobertaModel(tf.RobertaConfig(**SMALL)), text, ["input_ids", "attention_mask"]),
    "distilbert": (lambda: tf.DistilBertModel(tf.DistilBertConfig(vocab_size=101, dim=32, n_layers=2, n_heads=4, hidden_dim=64,
                                                                  max_position_embeddings=64)), text,
                   ["input_ids", "attention_mask"]),
    "gpt2": (lambda: tf.GPT2LMHeadModel(tf.GPT2Config(vocab_size=101, n_embd=32, n_layer=2, n_head=4, n_positions=64,
                                                      attn_implementation="eager")), causal, ["input_ids", "attention_mask"]),
    "llama": (lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**SMALL, num_key_value_heads=2)), causal,
              ["input_ids", "attention_mask"]),
    "qwen3": (lambda: tf.Qwen3ForCausalLM(tf.Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=8)), causal,
              ["input_ids", "attention_mask"]),
    "neox": (lambda: tf.GPTNeoXForCausalLM(tf.GPTNeoXConfig(**SMALL)), causal, ["input_ids", "attention_mask"]),
    "yarn": (lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**SMALL, num_key_value_heads=2, rope_parameters={
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16})), causal,
             ["input_ids", "attention_mask"]),
    "t5_encoder": (lambda: tf.T5EncoderModel(tf.T5Config(**T5)), text, ["input_ids", "attention_mask"]),
    "t5_decoder": (lambda: tf.T5Model(tf.T5Config(**T5)).decoder, decoder, ["input_ids", "states"]),
    "deberta": (lambda: tf.DebertaModel(tf.DebertaConfig(**RELATIVE, pos_att_type="c2p|p2c")), text,
                ["input_ids", "attention_mask"]),
    "deberta_v2": (lambda: tf.DebertaV2Model(tf.DebertaV2Config(
        **RELATIVE, pos_att_type="p2c|c2p", position_buckets=4, norm_rel_ebd="layer_norm", share_att_key=True)), text,
                   ["input_ids", "attention_mask"]),
    "vit": (lambda: tf.ViTModel(tf.ViTConfig(**PICTURE), add_pooling_layer=False), picture, ["pixel_values"]),
    "dinov2": (lambda: tf.Dinov2Model(tf.Dinov2Config(**PICTURE)), picture, ["pixel_values"]),
    "dpt": (lambda: tf.DPTForDepthEstimation(tf.DPTConfig(
        **{**PICTURE, "num_hidden_layers": 4}, backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[8, 8, 8, 8],
        fusion_hidden_size=8)), picture, ["pixel_values"]),
    "whisper_encoder": (lambda: tf.WhisperModel(tf.WhisperConfig(
        vocab_size=101, num_mel_bins=8, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=20, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, attn_implementation="eager")).encoder,
        lambda m, features: m(input_features=features)[0], ["input_features"]),
    "mobilevit": (lambda: tf.MobileViTModel(tf.MobileViTConfig(
        image_size=64, hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 16, 16, 24, 24, 32], num_attention_heads=4,
        expand_ratio=2.0), expand_output=False), picture, ["pixel_values"]),
    "svtr": (lambda: Recognizer(**RECOGNIZER), lambda m, pixels: m(pixels), ["pixel_values"]),
    "lcnet": (lambda: Lcnet(**LCNET), lambda m, pixels: m(pixels), ["pixel_values"]),
}


# With keys and values as inputs and outputs; _range: without positions as an input, the file counts them.
CACHED = ["gpt2_cached", "llama_cached", "gpt2_range", "llama_range"]

# Rotary positions are statements `rope`: queries and keys of two layers.
ROTATES = ["llama", "qwen3", "neox", "yarn"]


def static(path, out, feed):
    """8-bit activations and matrices, as pairs of QuantizeLinear and DequantizeLinear."""
    class Once(quantization.CalibrationDataReader):
        rest = [feed]

        def get_next(self):
            return self.rest.pop() if self.rest else None
    quantization.quantize_static(path, out, Once(), per_channel=True)


def dynamic(path, out, feed):
    """8-bit matrices and tables; activations are quantized at each call."""
    del feed
    quantization.quantize_dynamic(path, out)


def replace_matrices(path, out, make):
    """MatMul nodes with a constant matrix become what make(node, weight) gives: nodes and tensors."""
    model = onnx.load(path)
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    nodes = []
    for node in model.graph.node:
        if node.op_type == "MatMul" and node.input[1] in weights:
            added, tensors = make(node, weights[node.input[1]])
            nodes += added
            model.graph.initializer.extend(tensors)
        else:
            nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, out)


def tensor(name, array):
    return onnx.numpy_helper.from_array(array, name)


def columns(path, out, feed):
    """Matrices of 8 bits with a scale for each column; activations are floats."""
    del feed

    def make(node, w):
        name, scale = node.output[0], numpy.abs(w).max(axis=0) / 127
        made = onnx.helper.make_node("DequantizeLinear", [name + ".q", name + ".s"], [name + ".w"], axis=1)
        node.input[1] = name + ".w"
        return [made, node], [tensor(name + ".q", numpy.rint(w / scale).astype(numpy.int8)), tensor(name + ".s", scale)]
    replace_matrices(path, out, make)


def blocks(path, out, feed):
    """Matrices of 4 bits in blocks of 32, with zero points."""
    del feed

    def make(node, w):
        name, (k, n) = node.output[0], w.shape
        rows = w.T.reshape(n, k // 32, 32)
        low, scale = rows.min(axis=2, keepdims=True), numpy.ptp(rows, axis=2, keepdims=True) / 15
        zero = numpy.clip(numpy.rint(-low / scale), 0, 15)
        q = numpy.clip(numpy.rint(rows / scale) + zero, 0, 15).astype(numpy.uint8)
        zero = numpy.pad(zero.reshape(n, -1), ((0, 0), (0, k // 32 % 2))).astype(numpy.uint8)
        made = onnx.helper.make_node("MatMulNBits", [node.input[0], name + ".q", name + ".s", name + ".z"], [name],
                                     domain="com.microsoft", K=k, N=n, bits=4, block_size=32)
        return [made], [tensor(name + ".q", q[..., ::2] | q[..., 1::2] << 4),
                        tensor(name + ".s", scale.reshape(-1).astype(numpy.float32)),
                        tensor(name + ".z", (zero[:, ::2] | zero[:, 1::2] << 4).reshape(-1))]
    replace_matrices(path, out, make)


QUANTIZED = {"bert_columns": columns, "bert_blocks": blocks, "bert_static": static, "bert_dynamic": dynamic}


# A number next to a tie becomes another code after the least difference, so that two programs differ by whole steps (from the
# file computed in f64 ONNX Runtime differs by 2.8e-4 here, tfmc by 6e-7): the rms is less than a fifth of what quantization
# changes.
ROUNDS = ["bert_dynamic"]


def rms(x):
    return float(numpy.sqrt((x * x).mean()))


def example(name, kind, rng):
    if name in ("input_ids", "token_type_ids"):
        return rng.integers(*((0, 2) if name == "token_type_ids" else (3, 100)), (2, 9)).astype(numpy.int64)
    if name == "attention_mask":
        mask = numpy.ones((2, 9), numpy.int64)
        mask[1, 6:] = 0
        return mask
    size = {"mobilevit": (64, 64), "svtr": (RECOGNIZER["height"], RECOGNIZER["width"]), "lcnet": (48, 64)}.get(kind, (32, 32))
    shape = {"pixel_values": (2, 3, *size), "states": (2, 9, 32),
             "input_features": (2, 8, 40)}[name]
    return rng.standard_normal(shape).astype(numpy.float32)


class Cached(torch.nn.Module):
    """A decoder whose keys and values are inputs and outputs, two for each layer."""

    def __init__(self, model, counts):
        super().__init__()
        self.m, self.counts = model, counts

    def forward(self, ids, mask, *past):
        positions, past = (None, past) if self.counts else (past[0], past[1:])
        cache = tf.cache_utils.DynamicCache()
        for i in range(0, len(past), 2):
            cache.update(past[i], past[i + 1], i // 2)
        out = self.m(input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True)
        return (out.logits, *(t for layer in out.past_key_values.layers for t in (layer.keys, layer.values)))


def step_in_session(path, prompt, count, heads):
    """Logits of a prompt and of greedy steps after it, with the cache of the file."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    past = {i: numpy.zeros((1, heads, 0, 8), numpy.float32) for i in names if i.startswith("past")}
    ids, done, rows = prompt, 0, []
    for _ in range(count + 1):
        feed = {"input_ids": numpy.array([ids]), "position_ids": numpy.arange(done, done + len(ids))[None],
                "attention_mask": numpy.ones((1, done + len(ids)), numpy.int64), **past}
        out = session.run(None, {i: feed[i] for i in names})
        past, done = dict(zip(past, out[1:])), done + len(ids)
        rows.append(out[0][0, -1])
        ids = [int(rows[-1].argmax())]
    return numpy.array(rows)


def export_cached(model, name, folder, layers, heads, size):
    """The path of a decoder with its cache as inputs and outputs, [batch, heads, past, size], and its inputs."""
    counts = name.endswith("_range")
    path = os.path.join(folder, name + ".onnx")
    caches = [f"{i}.{part}" for i in range(layers) for part in ("key", "value")]
    inputs = ["input_ids", "attention_mask", *([] if counts else ["position_ids"]), *(f"past_key_values.{c}" for c in caches)]
    axes = {"input_ids": {0: "batch", 1: "seq"}, "attention_mask": {0: "batch", 1: "past + seq"},
            "position_ids": {0: "batch", 1: "seq"}, **{i: {0: "batch", 2: "past"} for i in inputs if i.startswith("past")}}
    example = (torch.randint(3, 100, (2, 3)), torch.ones(2, 8, dtype=torch.int64),
               *([] if counts else [torch.arange(5, 8)[None].repeat(2, 1)]), *(torch.randn(2, heads, 5, size) for _ in caches))
    torch.onnx.export(Cached(model, counts), example, path, dynamo=False, input_names=inputs,
                      output_names=["logits", *(f"present.{c}" for c in caches)],
                      dynamic_axes={i: axes[i] for i in inputs}, opset_version=17)
    return path, inputs


def check_cached(tfmc, name, folder):
    kind = name.split("_")[0]
    heads, prompt, count = {"gpt2": 4, "llama": 2}[kind], [5, 9, 77], 16
    torch.manual_seed(0)
    model = MODELS[kind][0]().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.02)
    path, _ = export_cached(model, name, folder, 2, heads, 8)
    want = step_in_session(path, prompt, count, heads)
    try:
        got = steps.in_object(tfmc, path, prompt, count, folder)
    except RuntimeError as e:
        return str(e)
    error, largest = float(numpy.abs(got - want).max()), float(numpy.abs(want).max())
    print(f"{name}: largest error {error:.2g} of {largest:.3g}, {count} steps", flush=True)
    return None if error <= 1e-5 + 1e-5 * largest else "differs"


class Wrapped(torch.nn.Module):
    def __init__(self, model, call):
        super().__init__()
        self.m, self.call = model, call

    def forward(self, *args):
        return self.call(self.m, *args)


def check(tfmc, name, folder):
    make, call, inputs = MODELS[name.split("_")[0] if name in QUANTIZED else name]
    torch.manual_seed(0)
    model = Wrapped(make().eval(), call)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.02)  # biases are not zero
    feed = {i: example(i, name, numpy.random.default_rng(1)) for i in inputs}
    path = os.path.join(folder, name + ".onnx")
    dims = {i: {0: "batch", 1: "seq"} if v.ndim < 4 and i != "input_features" else {0: "batch"} for i, v in feed.items()}
    torch.onnx.export(model, tuple(torch.from_numpy(v) for v in feed.values()), path, dynamo=False, input_names=inputs,
                      output_names=["y"], dynamic_axes=dims, opset_version=17)
    options = onnxruntime.SessionOptions()
    if name in QUANTIZED:
        exported, path = path, path[:-5] + "_q.onnx"
        QUANTIZED[name](exported, path, feed)
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # what the file says
    want = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, feed)[0]
    bounds = ["--dim=batch=1..4"] + (["--dim=seq=1..64"] if any(1 in d for d in dims.values()) else [])
    yaml = path[:-5] + ".yaml"
    made = subprocess.run([tfmc, "import", path, "-o", yaml, *bounds], capture_output=True, text=True)
    if made.returncode:
        return made.stderr
    written = open(yaml).read()
    ids = {i for i in inputs if re.search(rf"^  {i}: .*dtype: i32", written, re.M)}
    save_file({i: v.astype(numpy.int32) if i in ids else v for i, v in feed.items()}, f"{folder}/in.safetensors")
    ran = subprocess.run([tfmc, "run", yaml, "--no-cache", "--inputs", f"{folder}/in.safetensors", "--outputs",
                          f"{folder}/out.safetensors"], capture_output=True, text=True)
    if ran.returncode:
        return ran.stderr
    got = load_file(f"{folder}/out.safetensors")["y"]
    error, largest = float(numpy.abs(got - want).max()), float(numpy.abs(want).max())
    print(f"{name}: largest error {error:.2g} of {largest:.3g}, {written.count(chr(10) + '  - ')} statements", flush=True)
    if got.shape != want.shape:
        return "another shape"
    if name in ROTATES and written.count(" = rope(") != 4:
        return f"{written.count(' = rope(')} statements rope, not 4"
    if name in ROUNDS:
        floats = onnxruntime.InferenceSession(exported, providers=["CPUExecutionProvider"]).run(None, feed)[0]
        return None if rms(got - want) <= rms(want - floats) / 5 else "differs"
    return None if error <= 1e-5 + 1e-5 * largest else "differs"


def main():
    tfmc, failed = sys.argv[1], 0
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[2:] or [*MODELS, *CACHED, *QUANTIZED]:
            reason = check_cached(tfmc, name, folder) if name in CACHED else check(tfmc, name, folder)
            if reason:
                failed += 1
                print(f"FAILED {name}: {reason}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
