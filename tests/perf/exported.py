#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exported models by tfmc and by ONNX Runtime, in turns in one run, one thread on one processor: `exported.py TFMC [NAME..]` prints
for each model the least and the median time of both and their ratio (above 1: tfmc is faster). Models are those of
tests/onnx/exports.py with the sizes of MiniLM; --rounds=N (default 5), --cpu=N."""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "onnx"))
import exports
import numpy
import onnxruntime
import torch

SIZES = {"vocab_size": 1000, "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536,
         "max_position_embeddings": 512}
exports.SMALL.update(SIZES)
exports.RELATIVE.update(SIZES)
exports.RECOGNIZER.update(width=100, widths=(64, 128, 256), depth=4, size=32)  # as SVTR-Tiny
exports.LCNET.update(width=15)  # as PP-OCRv4's mobile recognizer
exports.PICTURE.update({**{k: v for k, v in SIZES.items() if "vocab" not in k and "position" not in k}, "image_size": 128,
                        "patch_size": 16})
exports.T5.update({"vocab_size": 1000, "d_model": 384, "d_kv": 32, "d_ff": 1536, "num_layers": 6, "num_heads": 12})
tf = exports.tf
exports.MODELS["gpt2"] = (lambda: tf.GPT2LMHeadModel(tf.GPT2Config(
    vocab_size=1000, n_embd=384, n_layer=6, n_head=12, n_positions=512, attn_implementation="eager")), *exports.MODELS["gpt2"][1:])
exports.MODELS["distilbert"] = (lambda: tf.DistilBertModel(tf.DistilBertConfig(
    vocab_size=1000, dim=384, n_layers=6, n_heads=12, hidden_dim=1536, max_position_embeddings=512)), *exports.MODELS["distilbert"][1:])
exports.MODELS["whisper_encoder"] = (lambda: tf.WhisperModel(tf.WhisperConfig(
    vocab_size=1000, num_mel_bins=80, d_model=384, encoder_layers=4, decoder_layers=1, encoder_attention_heads=6,
    decoder_attention_heads=6, encoder_ffn_dim=1536, decoder_ffn_dim=1536, max_source_positions=250, pad_token_id=0, bos_token_id=1,
    eos_token_id=2, decoder_start_token_id=1, attn_implementation="eager")).encoder, *exports.MODELS["whisper_encoder"][1:])
LENGTH, PAST = 64, 64
NAMES = ["bert", "distilbert", "deberta", "deberta_v2", "vit", "dinov2", "svtr", "lcnet", "t5_encoder", "t5_decoder",
         "whisper_encoder", "gpt2", "llama", "gpt2_cached", "llama_cached", "bert_static", "bert_columns"]


def operand(name, kind, rng):
    """An input for one sequence of LENGTH, or one picture."""
    if name in ("input_ids", "token_type_ids"):
        return rng.integers(0, 2, (1, LENGTH)).astype(numpy.int64)
    if name == "attention_mask":
        return numpy.ones((1, LENGTH), numpy.int64)
    size = {"svtr": (32, 100), "lcnet": (48, 320)}.get(kind, (128, 128))
    shape = {"pixel_values": (1, 3, *size), "states": (1, LENGTH, 384), "input_features": (1, 80, 500)}[name]
    return rng.standard_normal(shape).astype(numpy.float32)


def session_of(path, exact):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    if exact:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def times(session, feed, seconds):
    found, end = [], time.perf_counter() + seconds
    while not found or time.perf_counter() < end:
        begin = time.perf_counter()
        session.run(None, feed)
        found.append(time.perf_counter() - begin)
    return found


def plain(name, folder):
    """The path of the model, what ONNX Runtime is given, and the arguments of `tfmc bench`."""
    make, call, inputs = exports.MODELS[name.split("_")[0] if name in exports.QUANTIZED else name]
    torch.manual_seed(0)
    feed = {i: operand(i, name, numpy.random.default_rng(1)) for i in inputs}
    dims = {i: {0: "batch", 1: "seq"} if v.ndim < 4 and i != "input_features" else {0: "batch"} for i, v in feed.items()}
    path = os.path.join(folder, name + ".onnx")
    torch.onnx.export(exports.Wrapped(make().eval(), call), tuple(torch.from_numpy(v) for v in feed.values()), path, dynamo=False,
                      input_names=inputs, output_names=["y"], dynamic_axes=dims, opset_version=17)
    if name in exports.QUANTIZED:
        exports.QUANTIZED[name](path, path[:-5] + "_q.onnx", feed)
        path = path[:-5] + "_q.onnx"
    sizes = {s for d in dims.values() for s in d.values()}
    bounds = {"batch": "1..4", "seq": "1..512"}
    values = {"batch": 1, "seq": LENGTH}
    return path, feed, [*(f"--dim={s}={bounds[s]}" for s in sorted(sizes)), *(f"--dim={s}={values[s]}" for s in sorted(sizes))]


def cached(name, folder):
    """The same of one token after PAST others."""
    kind = name.split("_")[0]
    torch.manual_seed(0)
    path, inputs = exports.export_cached(exports.MODELS[kind][0]().eval(), name, folder, 6, CACHED_HEADS[kind], 32)
    feed = {"input_ids": numpy.ones((1, 1), numpy.int64), "position_ids": numpy.full((1, 1), PAST, numpy.int64),
            "attention_mask": numpy.ones((1, PAST + 1), numpy.int64)}
    feed.update({i: numpy.zeros((1, CACHED_HEADS[kind], PAST, 32), numpy.float32) for i in inputs if i.startswith("past")})
    return path, feed, ["--dim=batch=1..4", "--dim=seq=1..512", "--dim=batch=1", "--entry=step", f"--past={PAST}"]


CACHED_HEADS = {"gpt2": 12, "llama": 2}


def bench(tfmc, path, arguments):
    ran = subprocess.run([tfmc, "bench", path, "--threads=1", "--json", *arguments], capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(ran.stderr)
    out = json.loads(ran.stdout.splitlines()[0])
    return out["min_ms"], out["median_ms"]


def measure(tfmc, name, folder, rounds):
    path, feed, arguments = cached(name, folder) if name in exports.CACHED else plain(name, folder)
    session = session_of(path, False)
    feed = {i.name: feed[i.name] for i in session.get_inputs()}
    times(session, feed, 0.3)
    bench(tfmc, path, arguments)  # compiled, and kept
    ours, theirs = [], []
    for _ in range(rounds):
        theirs += [t * 1e3 for t in times(session, feed, 1)]
        ours.append(bench(tfmc, path, arguments))
    least, middle = min(o[0] for o in ours), statistics.median(o[1] for o in ours)
    other, other_middle = min(theirs), statistics.median(theirs)
    print(f"{name:16} {other:9.3f} {least:9.3f} {other / least:6.2f}   {other_middle:9.3f} {middle:9.3f} {other_middle / middle:6.2f}",
          flush=True)


def main():
    options = dict(a[2:].split("=") for a in sys.argv[2:] if a.startswith("--"))
    names = [a for a in sys.argv[2:] if not a.startswith("--")] or NAMES
    os.sched_setaffinity(0, {int(options.get("cpu", min(os.sched_getaffinity(0))))})
    torch.set_num_threads(1)
    print("                    least: ORT      tfmc  ratio   median: ORT      tfmc  ratio", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            try:
                measure(sys.argv[1], name, folder, int(options.get("rounds", 5)))
            except RuntimeError as e:
                print(f"{name:16} {e}", flush=True)


if __name__ == "__main__":
    main()
