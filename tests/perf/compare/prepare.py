# SPDX-License-Identifier: Apache-2.0
"""Makes what the rows need, in one folder: weights, model files, objects and workers of tfmc, models of the peers."""
import os
import subprocess

import rows
import seeded

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))


class Places:
    """Where things lie: the scratch folder, the build of tfmc, the C compiler, other programs."""

    def __init__(self, folder, build, cpu, stories):
        self.folder, self.build, self.cpu, self.stories = folder, build, cpu, stories
        self.tfmc = os.path.join(build, "frontend/driver/tfmc")
        self.cc = os.environ.get("CC", "cc")
        os.makedirs(folder, exist_ok=True)

    def at(self, name):
        """A file of the scratch folder."""
        return os.path.join(self.folder, name)


def symbol(row, precision):
    """The name of the row's tfmc model: the prefix of its symbols."""
    return f"{row.name.lower().replace('-', '_')}_{precision.name}"


def input_file(places, row):
    """The raw input of tfmc's worker."""
    if rows.MODELS[row.model].kind == "vit":
        path, data = places.at(row.name + ".f32"), seeded.patches()
    else:
        path, data = places.at(row.name + ".i32"), seeded.ids(row).astype("int32")
    data.tofile(path)
    return path


def worker_path(places, row, precision):
    """The program that runs the row with tfmc."""
    return places.at(symbol(row, precision) + ".worker")


def compile_tfmc(places, row, precision, *options):
    """Model file, object and worker; always anew, since the compiler is what changes. options: more of tfmc's."""
    import language

    name, model = symbol(row, precision), rows.MODELS[row.model]
    with open(places.at(name + ".yaml"), "w", encoding="utf-8") as f:
        f.write(language.text(model, name, row) + precision.section)
    subprocess.run([places.tfmc, places.at(name + ".yaml"), "-o", places.at(name + ".o"), "-mcpu=" + places.cpu,
                    "--weights=file", "--quiet", *options], check=True)
    subprocess.run([places.cc, "-std=c17", "-O2", "-march=native", "-I" + os.path.join(ROOT, "runtime"),
                    "-I" + places.folder, f'-DMODEL_HEADER="{name}.h"', f"-DMODEL={name}_model",
                    os.path.join(HERE, "worker.c"), places.at(name + ".o"),
                    os.path.join(places.build, "runtime/libtfmcrt.a"), "-lpthread", "-lm",
                    "-o", worker_path(places, row, precision)], check=True)


def build_peaks(places):
    """The program that measures peaks."""
    sources = [os.path.join(HERE, "..", name) for name in ("peaks.c", "peaks_read.c", "peaks_main.c")]
    subprocess.run([places.cc, "-std=c17", "-O2", *sources, "-lpthread", "-o", places.at("peaks")], check=True)


def peers_of(places, row, precision):
    """The peers that can do the row."""
    kind = rows.MODELS[row.model].kind
    decoders = ["llama.cpp"] if kind in ("gpt2", "llama") else []
    if row.name == "D5":
        return ["plain C"] if places.stories and precision.name == "f32" else []
    if precision.name == "q4":
        return [f"{d} {f}" for d in decoders for f in ("Q4_0", "Q4_K")]
    if row.mode != "run":
        return ["ctranslate2"] + ([] if precision.name == "f32" else decoders)
    onnx = [] if precision.type == "bf16" else ["onnxruntime"]
    return onnx + ["openvino"] + (["ctranslate2"] if kind != "vit" else [])


def write_peers(places, row, precision):
    """Files that are there already are kept: seeds and shapes decide them."""
    model, peers = rows.MODELS[row.model], peers_of(places, row, precision)
    if "openvino" in peers:
        import onnx_models

        onnx_models.write_encoder(model, row, places.at(row.name + ".onnx"))
        if precision.type == "int8":
            onnx_models.quantize(places.at(row.name + ".onnx"), places.at(row.name + ".int8.onnx"))
    if "ctranslate2" in peers:
        import ct2_models

        ct2_models.write(model, places.at(row.model + ".ct2"))
    if any(p.startswith("llama.cpp") for p in peers):
        import gguf_models

        for p in peers:
            if p.startswith("llama.cpp"):
                gguf_models.write(model, places.folder, gguf_models.kind_of(p, precision.type))


def write_stories(places, model):
    """D5 as the plain C program wants it: rows of pairs side by side, a table of pieces that are the ids."""
    import numpy as np

    def get(name, shape):
        return seeded.tensor(name, shape)

    def rotated(name, heads):
        # Pairs are (n, n + e/2) in tfmc and (2n, 2n + 1) there.
        e = model.head_dim
        w = get(name, (heads * e, model.hidden)).reshape(heads, 2, e // 2, model.hidden)
        return w.transpose(0, 2, 1, 3).reshape(heads * e, model.hidden)

    d, f, kv, layers = model.hidden, model.ff, model.kv_heads, range(model.layers)
    parts = [get("word.weight", (model.vocab, d))]
    parts += [get(f"layers.{i}.attn.norm.weight", (d,)) for i in layers]
    parts += [rotated(f"layers.{i}.attn.attention.q.weight", model.heads) for i in layers]
    parts += [rotated(f"layers.{i}.attn.attention.k.weight", kv) for i in layers]
    parts += [get(f"layers.{i}.attn.attention.v.weight", (kv * model.head_dim, d)) for i in layers]
    parts += [get(f"layers.{i}.attn.attention.o.weight", (d, d)) for i in layers]
    parts += [get(f"layers.{i}.mlp.norm.weight", (d,)) for i in layers]
    for role, shape in (("gate", (f, d)), ("down", (d, f)), ("up", (f, d))):
        parts += [get(f"layers.{i}.mlp.ffn.{role}.weight", shape) for i in layers]
    parts.append(get("final.weight", (d,)))
    angle = np.arange(model.ctx)[:, None] * 10000.0 ** (-np.arange(0, model.head_dim, 2) / model.head_dim)
    parts += [np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)]
    with open(places.at("d5.bin"), "wb") as out:
        np.array([d, f, model.layers, model.heads, kv, model.vocab, model.ctx], np.int32).tofile(out)
        for part in parts:
            np.ascontiguousarray(part).tofile(out)
    with open(places.at("d5.tok"), "wb") as out:
        np.array([8], np.int32).tofile(out)
        for i in range(model.vocab):
            piece = f"{i} ".encode()
            out.write(np.float32(0).tobytes() + np.int32(len(piece)).tobytes() + piece)


def compile_stories(places):
    """The plain C program as its head says: with vectors, and with OpenMP for two threads."""
    flags = [places.cc, "-Ofast", "-march=native", "-w", places.stories]
    subprocess.run(flags + ["-o", places.at("stories-1"), "-lm"], check=True)
    subprocess.run(flags + ["-fopenmp", "-o", places.at("stories-2"), "-lm"], check=True)


def prepare(places, row, precision, reuse=False):
    """Everything for one row. reuse: what tfmc compiled before is taken."""
    model = rows.MODELS[row.model]
    has_worker = reuse and os.path.exists(worker_path(places, row, precision))
    if not has_worker:
        seeded.write_safetensors(model, places.at(model.name + ".safetensors"))
        compile_tfmc(places, row, precision)
    write_peers(places, row, precision)
    if "plain C" in peers_of(places, row, precision):
        write_stories(places, model)
        compile_stories(places)


def forget(places, row):
    """Removes the large files of a row."""
    names = [symbol(row, p) + ".weights" for p in rows.PRECISIONS.values()]
    names += [row.model + ".ct2/model.bin", row.model + ".safetensors"]
    names += [name for name in os.listdir(places.folder) if name.startswith(row.model + ".") and name.endswith(".gguf")]
    for path in names:
        if os.path.exists(places.at(path)):
            os.remove(places.at(path))
