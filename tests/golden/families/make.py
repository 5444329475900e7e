#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden families: what `transformers` computes for small seeded models of hub families.

    python3 make.py                rewrites every folder here
    python3 make.py NAME ...       only these

Needs torch, transformers (5.x), numpy and safetensors; the tests need none of them. A folder gets config.json as the
library saves it, tensors.txt (the tensors as they are named in the hub's files, and how seeded.py draws them), cases.safetensors
and checks.yaml (inputs and expected results, `checks` of a model file). The library loads the very file that seeded.py
writes. Numbers are those of the model in float64 where it runs in float64 (norms and softmax of some families stay f32).
"""
import copy
import json
import math
import os
import re
import shutil
import sys
import tempfile
import warnings

import numpy
import torch
import transformers
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import seeded
from families import FAMILIES

HERE = os.path.dirname(os.path.abspath(__file__))
SMALLEST_MARGIN = 4e-3  # between the best and the second logit of a greedy choice
ROUNDINGS = 101  # of f32 in the longest product: the error of a sum, relative to the largest number
F32_BOUND = 3e-5  # f32 against f64, relative to the largest number


# ---- weights ----


def how(family, name, shape):
    """(mean, spread) of a tensor by its name: norms near 1, tables and matrices so that values stay near 1."""
    leaf = name.rsplit(".", 1)[-1]
    if not shape:
        return 1.5, 0.5
    norm = re.search(r"norm|ln_|\.ln|LayerNorm", name) and len(shape) == 1
    if leaf in ("bias", "final_logits_bias") or name.endswith("_bias"):
        return 0.0, 0.2
    if norm:
        return (0.0 if family.get("plus_one") else 1.0), 0.3
    if re.search(r"embed_positions|position_embedding|wpe", name):
        return 0.0, family.get("positions", 0.5)
    if re.search(r"embed|wte|wpe|shared|cls_token|distillation_token|cls_token|pos_embed", name) and "patch" not in name:
        return 0.0, family.get("table", 0.5)
    if "relative_attention_bias" in name:
        return 0.0, 1.0
    fan = shape[0] if family.get("transposed") and len(shape) == 2 and ".c_" in name else seeded.count(shape[1:])
    if ".experts." in name and len(shape) == 3:  # [E, in, out]
        fan = shape[1]
    gain = family.get("qk", 2.0) if re.search(r"\b(q|k|query|key)(_proj|_lin)?\.weight|qkv|query_key_value|Wqkv|c_attn", name) else 1.2
    return 0.0, float(f"{gain * math.sqrt(3.0 / fan) * family.get('gain', 1.0):.3g}")


def saved_tensors(folder):
    rows = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            with safe_open(os.path.join(folder, name), "numpy") as f:
                for key in f.keys():
                    view = f.get_slice(key)
                    assert view.get_dtype() == "F32", (key, view.get_dtype())
                    rows[key] = view.get_shape()
    return rows


def natural(name):
    return [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", name)]


def make_model(name, family, folder):
    """The model with seeded weights, loaded by the library from the file that seeded.py writes."""
    cls = getattr(transformers, family["cls"])
    with tempfile.TemporaryDirectory() as tmp:
        torch.manual_seed(0)
        cls(family["config"]).save_pretrained(tmp)
        shapes = family.get("shapes") or saved_tensors(tmp)
        rows = [(key, list(shapes[key])) + how(family, key, shapes[key]) for key in sorted(shapes, key=natural)]
        for entry in os.listdir(tmp):
            if entry.endswith(".safetensors") or entry.endswith(".index.json"):
                os.remove(os.path.join(tmp, entry))
        seeded.write(name, rows, os.path.join(tmp, "model.safetensors"))
        if "convert" in family:
            tensors = load_file(os.path.join(tmp, "model.safetensors"))
            save_file(family["convert"](tensors), os.path.join(tmp, "model.safetensors"), {"format": "pt"})
        model, info = cls.from_pretrained(tmp, attn_implementation=family.get("attention", "eager"), dtype=torch.float32, output_loading_info=True,
                                          **family.get("load", {}))
        assert not info["missing_keys"] and not info["unexpected_keys"], (name, info)
        with open(os.path.join(tmp, "config.json"), encoding="utf-8") as f:
            config = json.load(f)
    config.update(family.get("also", {}))
    for key in family.get("without", ()):
        config.pop(key, None)
    if "head" in family:
        with open(os.path.join(folder, "head.yaml"), "w", encoding="utf-8") as f:
            f.write(family["head"])
    else:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
            json.dump(config, f, indent=1, sort_keys=True)
            f.write("\n")
    with open(os.path.join(folder, "tensors.txt"), "w", encoding="utf-8") as f:
        for key, shape, mean, spread in rows:
            f.write(f"{key} {','.join(map(str, shape)) or '-'} {mean:g} {spread:g}\n")
    return model.eval()


# ---- cases ----


def cut(x, lengths):
    """x [B, n, ...] with 0 at and behind the lengths."""
    if lengths is not None and x.ndim > 2:
        x = numpy.where((numpy.arange(x.shape[1])[None, :] < numpy.array(lengths)[:, None])[:, :, None], x, 0.0)
    return x


class Cases:
    """Tensors `CASE.NAME` and the checks that read them."""

    def __init__(self, f32, f64, by_length=False):
        self.f32, self.f64 = f32, f64
        self.by_length = by_length  # a batch of the library turns every sequence by the length of the longest
        self.tensors, self.checks = {}, []

    def alone(self, model, want, inputs, lengths):
        """The wanted outputs of a model, every sequence by itself without padding; 0 at padding."""
        results = []
        for b in range(next(iter(inputs.values())).shape[0]):
            given = {k: v[b:b + 1, :lengths[k][b]] if k in lengths else v[b:b + 1] for k, v in inputs.items()}
            given = {k: v.to(next(model.parameters()).dtype) if v.is_floating_point() else v for k, v in given.items()}
            with torch.no_grad():
                out = model(**given)
            results.append({k: f(out)[0].detach().to(torch.float64).numpy() for k, f in want.items()})
        longest = {k: max(r[k].shape[0] for r in results) for k in want}
        pad = lambda x, n: numpy.pad(x, [(0, n - x.shape[0])] + [(0, 0)] * (x.ndim - 1)) if x.ndim > 1 else x
        return {k: numpy.stack([pad(r[k], longest[k]) for r in results]) for k in want}

    def compute(self, want, inputs, lengths=None, masks=None):
        """name -> array of the wanted outputs, of the f64 model, after a look at what the f32 one gives for the batch.

        lengths: name of an input or output -> its lengths; masks: what tells the f32 model about padding."""
        lengths = lengths or {}
        exact = self.alone(self.f64, want, inputs, lengths)
        with torch.no_grad():
            out = self.f32(**inputs, **(masks or {}))
        single = self.alone(self.f32, want, inputs, lengths) if self.by_length else None
        for k, x in exact.items():
            batch = single[k] if single else cut(want[k](out).detach().numpy(), lengths.get(k))
            assert numpy.isfinite(x).all()
            error = numpy.abs(x - batch).max() / max(1.0, numpy.abs(x).max())
            assert error < F32_BOUND, (k, error)
        return {k: v.astype(numpy.float32) for k, v in exact.items()}

    def add(self, case, inputs, outputs, rows=None):
        for k, v in {**inputs, **outputs}.items():
            a = numpy.ascontiguousarray(v)
            self.tensors[f"{case}.{k}"] = a.astype(numpy.int32) if a.dtype.kind in "iu" else a
        largest = max(float(numpy.abs(v).max()) for v in outputs.values())
        atol = f", atol: {max(1e-5, ROUNDINGS * 2.0 ** -24 * largest):.2g}"
        flat = [k for k, v in outputs.items() if v.ndim < 3]
        for k in outputs if rows and flat else [None]:
            one = f"call: {k}, " if k else ""
            kept = f", rows: {rows}" if rows and k not in flat else ""
            self.checks.append(f"  - {{{one}file: cases.safetensors, cases: [{case}]{kept}{atol}}}")

    def greedy(self, case, inputs, tokens, rename):
        for k, v in {**inputs, "tokens": tokens}.items():
            self.tensors[f"{case}.{k}"] = numpy.ascontiguousarray(v).astype(numpy.int32)
        self.checks.append(f"  - {{call: generate, file: cases.safetensors, cases: [{case}], rename: {{{rename}: tokens}}, "
                           "ignore_stop: true, search: greedy}")


def ids_of(seed, shape, family, low=4):
    return numpy.random.default_rng(seed).integers(low, family.get("vocab", 193), shape)


def some_rows(n):
    return sorted({n // 2, n - 1})


def extra(family, ids, seed):
    """Further inputs of an encoder."""
    if not family.get("types"):
        return {}
    return {"token_type_ids": numpy.random.default_rng(seed).integers(0, 2, ids.shape)}


def torch_of(inputs):
    return {k: torch.from_numpy(numpy.asarray(v).astype(numpy.int64)) for k, v in inputs.items()}


def masked(family, ids, lengths):
    """ids with the padding of the family behind the lengths, and the mask of the library."""
    mask = (numpy.arange(ids.shape[1])[None, :] < numpy.array(lengths)[:, None]).astype(numpy.int64)
    return numpy.where(mask == 1, ids, family.get("pad", 0)), mask


def pick(outputs, rows):
    """The rows of [B, n, ...] outputs that are kept."""
    return {k: v[:, rows] if v.ndim > 2 else v for k, v in outputs.items()}


def text_cases(cs, family):
    want, longest = family["outputs"], family.get("longest", 37)
    for n in family.get("lengths", (1, 3, 19, longest)):
        ids = ids_of(100 + n, (1, n), family)
        family.get("mark", lambda x, l: None)(ids, [n])
        inputs = {"input_ids": ids, **extra(family, ids, n)}
        cs.add(f"len{n}", inputs, pick(cs.compute(want, torch_of(inputs)), some_rows(n)), some_rows(n))
    lengths, rows = family.get("batch", [19, 3, 1]), [0, 2]
    ids = ids_of(7, (3, 19), family)
    family.get("mark", lambda x, l: None)(ids, lengths)
    ids, mask = masked(family, ids, lengths)
    inputs = {"input_ids": ids, **{k: v * mask for k, v in extra(family, ids, 8).items()}}
    cuts = dict.fromkeys([*want, *inputs], lengths)
    out = cs.compute(want, torch_of(inputs), cuts, torch_of({"attention_mask": mask}))
    cs.add("batch3", {**inputs, "lengths": numpy.array(lengths)}, pick(out, rows), rows)


def follow(logits_of, prompt, steps):
    """Greedy continuation and its smallest margin."""
    ids, margin = list(prompt), math.inf
    for _ in range(steps):
        last = logits_of(numpy.array([ids]))
        best = numpy.sort(last)[::-1]
        margin = min(margin, (best[0] - best[1]) / max(1.0, abs(best[0])))
        ids.append(int(numpy.argmax(last)))
    return ids, margin


def good_greedy(start_of, logits_of, steps, fewest=8):
    for seed in range(60):
        prompt = start_of(seed)
        ids, margin = follow(lambda ids: logits_of(prompt, ids), prompt["start"], steps)
        new = ids[len(prompt["start"]):]
        if os.environ.get("SHOW"):
            print(seed, margin, new)
        if margin >= SMALLEST_MARGIN and len(set(new)) >= fewest:
            return prompt, new
    raise SystemExit("no greedy case that is decided clearly")


def causal_cases(cs, family):
    text_cases(cs, family)
    longest = family.get("longest", 37)

    def last_logits(prompt, ids):
        with torch.no_grad():
            if not family.get("cached"):
                return cs.f64(input_ids=torch.from_numpy(ids)).logits[0, -1].numpy()
            new = ids if "cache" not in prompt else ids[:, -1:]
            out = cs.f64(input_ids=torch.from_numpy(new), use_cache=True, cache=prompt.get("cache"))
            prompt["cache"] = out.cache
            return out.logits[0, -1].numpy()

    first = family.get("prompt", 5)
    prompt, new = good_greedy(lambda seed: {"start": list(ids_of(500 + seed, first, family))}, last_logits, longest - first)
    cs.greedy("greedy", {"input_ids": numpy.array([prompt["start"]])}, numpy.array([new]), "new_tokens")


def seq2seq_cases(cs, family):
    want = {"encoder_last_hidden_state": lambda o: o.encoder_last_hidden_state, "logits": lambda o: o.logits}
    start, longest = family["start"], family.get("longest", 37)
    for n, t in ((1, 1), (3, 19), (longest, 3)):
        y = ids_of(30 + t, (1, t), family)
        y[:, 0] = start
        inputs = {"input_ids": ids_of(20 + n, (1, n), family), "decoder_input_ids": y}
        family.get("mark", lambda x, l: None)(inputs["input_ids"], [n])
        out = cs.compute(want, torch_of(inputs))
        kept = {"encoder_last_hidden_state": out["encoder_last_hidden_state"][:, [0]], "logits": out["logits"][:, [0]]}
        if t == n:
            cs.add(f"len{n}", inputs, kept, [0])
            continue
        for name, size in (("encoder_last_hidden_state", n), ("logits", t)):
            cs.add(f"{'source' if size == n else 'target'}{n}x{t}", inputs, pick({name: out[name]}, some_rows(size)), some_rows(size))
    lengths, rows = [19, 3, 1], [0, 2]
    x = ids_of(7, (3, 19), family)
    family.get("mark", lambda x, l: None)(x, lengths)
    x, mask = masked(family, x, lengths)
    y = ids_of(8, (3, 19), family)
    y[:, 0] = start
    y_lengths = [3, 19, 1]
    y, _ = masked(family, y, y_lengths)
    given = {"input_ids": x, "decoder_input_ids": y}
    cuts = {"input_ids": lengths, "encoder_last_hidden_state": lengths, "decoder_input_ids": y_lengths, "logits": y_lengths}
    out = cs.compute(want, torch_of(given), cuts, torch_of({"attention_mask": mask}))
    given.update(lengths=numpy.array(lengths), decoder_lengths=numpy.array(y_lengths))
    cs.add("batch3", given, pick(out, rows), rows)

    def last_logits(prompt, ids):
        with torch.no_grad():
            return cs.f64(input_ids=torch.tensor([prompt["source"]]), decoder_input_ids=torch.from_numpy(ids)).logits[0, -1].numpy()

    prompt, new = good_greedy(lambda seed: {"start": [start], "source": [int(i) for i in ids_of(700 + seed, 19, family)]},
                              last_logits, longest - 1, 3)
    cs.greedy("greedy", {"input_ids": numpy.array([prompt["source"]])}, numpy.array([new]), "new_tokens")


def picture_cases(cs, family):
    size, channels = family["image"], family.get("channels", 3)
    for name, batch in (("one", 1), ("batch3", 3)):
        pixels = numpy.random.default_rng(batch).standard_normal((batch, channels, size, size)).astype(numpy.float32)
        out = cs.compute(family["outputs"], {"pixel_values": torch.from_numpy(pixels)})
        rows = some_rows((size // family["patch"]) ** 2)
        cs.add(name, {"pixel_values": pixels}, pick(out, rows), rows)


def pair_cases(cs, family):
    """Texts of several lengths, which end in the family's end token where it has one, and some images; or texts that are seen whole."""
    size, lengths = family["image"], [19, 3, 8] if "end" in family else [19, 19, 19]
    ids = ids_of(7, (3, 19), family)
    for b, n in enumerate(lengths if "end" in family else ()):
        ids[b, ids[b] == family["end"]] = 4
        ids[b, n - 1] = family["end"]
    ids, mask = masked(family, ids, lengths)
    pixels = numpy.random.default_rng(9).standard_normal((2, 3, size, size)).astype(numpy.float32)
    inputs = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask), "pixel_values": torch.from_numpy(pixels)}
    with torch.no_grad():
        exact = cs.f64(**{k: v.double() if v.is_floating_point() else v for k, v in inputs.items()})
    outputs = {k: f(exact).numpy().astype(numpy.float32) for k, f in family["outputs"].items()}
    cs.add("pair", {"input_ids": ids, "lengths": numpy.array(lengths), "pixel_values": pixels}, outputs)


KINDS = {"pair": pair_cases, "causal": causal_cases, "text": text_cases, "seq2seq": seq2seq_cases, "picture": picture_cases}


def make(name):
    family = FAMILIES[name]
    folder = os.path.join(HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    f32 = make_model(name, family, folder)
    f64 = family.get("wrap", lambda m: m)(copy.deepcopy(f32).double())
    cs = Cases(family.get("wrap", lambda m: m)(f32), f64, family.get("by_length", False))
    KINDS[family["kind"]](cs, family)
    save_file(cs.tensors, os.path.join(folder, "cases.safetensors"))
    with open(os.path.join(folder, "checks.yaml"), "w", encoding="utf-8") as f:
        f.write("checks:\n" + "\n".join(cs.checks) + "\n")
    for path, text in family.get("files", {}).items():
        os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
        with open(os.path.join(folder, path), "w", encoding="utf-8") as f:
            f.write(text if isinstance(text, str) else json.dumps(text, indent=1) + "\n")
    size = sum(os.path.getsize(os.path.join(at, f)) for at, _, files in os.walk(folder) for f in files)
    print(f"{name}: {size} bytes", flush=True)


def main():
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for name in sys.argv[1:] or FAMILIES:
        make(name)


if __name__ == "__main__":
    main()
