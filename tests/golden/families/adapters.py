#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters, with TFMC in the environment: a model with `--adapter` has the packed weights, bit for bit, of the model whose
weights were merged here: W + s B A in exact arithmetic, rounded once to the type of W.

Factors are multiples of 1/16 and scales powers of two, so that sums in f64 are exact in any order.
"""
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import tempfile

import seeded
from command import call
from run import fail

HERE = os.path.dirname(os.path.abspath(__file__))
QUICK = [] if os.environ.get("TFMC_ALL") else ["-O0", "--passes=O2"]
ROOT = "base_model.model."


def bf16(v):
    m, e = math.frexp(v)
    return math.ldexp(round(m * 256), e - 8)


ROUND = {"F32": lambda v: struct.unpack("<f", struct.pack("<f", v))[0], "F16": lambda v: struct.unpack("<e", struct.pack("<e", v))[0],
         "BF16": bf16}


def pack(dtype, values):
    if dtype == "BF16":
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    return struct.pack(f"<{len(values)}{'f' if dtype == 'F32' else 'e'}", *values)


def write(path, tensors):
    """A safetensors file of {name: (dtype, shape, values)}."""
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        packed = pack(dtype, values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + data)


class Adapter:
    """A folder of PEFT, and what it makes of a model."""

    def __init__(self, seed, **config):
        self.draw = random.Random(seed).randint
        self.config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": None, "lora_dropout": 0.1, "bias": "none",
                       "use_dora": False, "task_type": "CAUSAL_LM", "init_lora_weights": True, "loftq_config": {}, **config}
        self.tensors, self.changes = {}, []

    def tensor(self, shape):
        return [self.draw(-16, 16) / 16 for _ in range(seeded.count(shape))]

    def add(self, module, target, scale, r=4, dtype="F32", form="matrix"):
        """Factors of a module; `target`: its tensor in the model's file; form: matrix, transposed (Conv1D), table."""
        self.changes.append((module, target, scale, r, dtype, form))
        return self

    def replace(self, name, target, dtype="F32"):
        self.changes.append((name, target, None, 0, dtype, "values"))
        return self

    def merge(self, tensors):
        """Draws the tensors of the adapter for a model, and adds them to it."""
        for module, target, scale, r, dtype, form in self.changes:
            kind, shape, values = tensors[target]
            if form == "values":
                new = self.tensor(shape)
                self.tensors[ROOT + module] = (dtype, shape, new)
                tensors[target] = (kind, shape, new)
                continue
            out, inner = (shape[0], shape[1]) if form == "matrix" else (shape[1], shape[0])
            a, b = self.tensor([r, inner]), self.tensor([out, r])
            ends = (".lora_embedding_A", ".lora_embedding_B") if form == "table" else (".lora_A.weight", ".lora_B.weight")
            self.tensors[ROOT + module + ends[0]] = (dtype, [r, inner], a)
            self.tensors[ROOT + module + ends[1]] = (dtype, [out, r], b)
            added = list(values)
            for i in range(out):
                for j in range(inner):
                    at = i * inner + j if form == "matrix" else j * out + i
                    added[at] += scale * sum(b[i * r + k] * a[k * inner + j] for k in range(r))
            tensors[target] = (kind, shape, added)

    def write(self, folder):
        os.makedirs(folder)
        with open(os.path.join(folder, "adapter_config.json"), "w", encoding="utf-8") as f:
            json.dump(self.config, f, indent=1)
        write(os.path.join(folder, "adapter_model.safetensors"), self.tensors)
        return folder


def packed(out, *args):
    """The packed weights of a model, compiled."""
    os.makedirs(out)
    result = call(*args, *QUICK, "--weights=file", "--name=m", "-o", os.path.join(out, "m.o"))
    if result.returncode != 0:
        fail("not compiled", result)
    with open(os.path.join(out, "m.weights"), "rb") as f:
        return f.read()


def model(family, dtype):
    rows = seeded.read_list(os.path.join(HERE, family, "tensors.txt"))
    tensors = {}
    for name, shape, *rest in rows:
        values = struct.unpack(f"<{seeded.count(shape)}f", seeded.tensor(family, name, shape, *rest))
        tensors[name] = (dtype, shape, [ROUND[dtype](v) for v in values])
    return tensors


def folder(path, family, tensors):
    os.makedirs(path)
    shutil.copy(os.path.join(HERE, family, "config.json"), path)
    write(os.path.join(path, "model.safetensors"), {n: (d, s, [ROUND[d](v) for v in values]) for n, (d, s, values) in tensors.items()})
    return path


def llama(adapter, layer, scale, **more):
    for module in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
                   "mlp.down_proj"):
        name = f"model.layers.{layer}.{module}"
        adapter.add(name, name + ".weight", scale, **more)
    return adapter


def gpt2(adapter, scale):
    for layer in range(2):
        for module in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"):
            # the tree of GPT2ForTokenClassification and that of GPT2Model, whose modules have no `transformer.`
            name = f"transformer.h.{layer}.{module}"
            adapter.add(name if layer == 0 else name[12:], name + ".weight", scale, form="transposed")
    return adapter


def cases():
    """(family, type of its weights, adapters)"""
    yield "llama3", "F32", [llama(Adapter("one"), 1, 2.0)]
    two = llama(Adapter("two", r=16, lora_alpha=8, use_rslora=True, rank_pattern={"self_attn.k_proj": 4},
                        alpha_pattern={"layers.0.self_attn.q_proj": 16, "q_proj": 32}), 1, 2.0, r=16, dtype="BF16")
    two.changes[0] = two.changes[0][:2] + (8.0,) + two.changes[0][3:]
    two.changes[1] = ("model.layers.1.self_attn.k_proj", "model.layers.1.self_attn.k_proj.weight", 4.0, 4, "F16", "matrix")
    yield "llama3", "BF16", [llama(Adapter("one"), 0, 2.0, dtype="BF16"), two, llama(Adapter("three"), 0, 2.0)]
    yield "gpt2_tags", "F32", [gpt2(Adapter("four", fan_in_fan_out=True), 2.0)]
    table = Adapter("five", target_modules=["embed_tokens", "q_proj"], modules_to_save=["lm_head"])
    table.replace("model.embed_tokens.base_layer.weight", "model.embed_tokens.weight")
    table.add("model.embed_tokens", "model.embed_tokens.weight", 2.0, form="table")
    table.add("model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.q_proj.weight", 2.0)
    table.replace("lm_head.modules_to_save.weight", "lm_head.weight")
    yield "llama3", "F32", [table]
    bert = Adapter("six", bias="all", modules_to_save=["classifier"])
    for name in ("query", "value"):
        path = f"bert.encoder.layer.0.attention.self.{name}"
        bert.add(path, path + ".weight", 2.0).replace(path + ".base_layer.bias", path + ".bias")
    bert.replace("classifier.weight", "classifier.weight").replace("classifier.bias", "classifier.bias")
    yield "bert_classes", "F16", [bert]


def check_merged(tmp):
    for i, (family, dtype, adapters) in enumerate(cases()):
        at = os.path.join(tmp, str(i))
        tensors = model(family, dtype)
        base = folder(os.path.join(at, "base"), family, tensors)
        options = []
        for k, adapter in enumerate(adapters):
            adapter.merge(tensors)
            options.append("--adapter=" + adapter.write(os.path.join(at, f"adapter{k}")))
        merged = folder(os.path.join(at, "merged"), family, tensors)
        want = packed(os.path.join(at, "want"), merged)
        if packed(os.path.join(at, "have"), base, *options) != want:
            fail(f"case {i}, {family} {dtype}: other weights than the merged ones")
        if len(adapters) > 1:
            # a model file names them, too, seen from where it is
            made = call("import", base, *options, "-o", os.path.join(at, "model.yaml"))
            if made.returncode != 0 or packed(os.path.join(at, "imported"), os.path.join(at, "model.yaml")) != want:
                fail(f"case {i}: an imported model has other weights", made)
        print(f"{family} {dtype}: {len(adapters)} adapters, {len(want)} bytes of packed weights are equal")
    return os.path.join(tmp, "0")


def check_cache(at):
    """Code and packed weights that the cache keeps are those of the adapter that was given, and of its present bytes."""
    os.environ["XDG_CACHE_HOME"] = os.path.join(at, "cache")
    base, adapter = os.path.join(at, "base"), os.path.join(at, "adapter0")

    def outputs(path, *options):
        result = call("run", path, "--input", "input_ids=3,4,5", *QUICK, *options)
        if result.returncode != 0:
            fail("run", result)
        return result.stdout

    plain, merged = outputs(base), outputs(os.path.join(at, "merged"), "--no-cache")
    if plain == merged:
        fail("the adapter changes nothing")
    for _ in range(2):
        if outputs(base, "--adapter", adapter) != merged or outputs(base) != plain:
            fail("the cache confuses a model with its adapter")
    path = os.path.join(adapter, "adapter_config.json")
    with open(path, encoding="utf-8") as f:
        text = f.read()
    with open(path, "w", encoding="utf-8") as f:
        f.write(text.replace('"lora_alpha": 8', '"lora_alpha": 16'))
    if outputs(base, "--adapter", adapter) in (plain, merged):
        fail("the cache does not notice another alpha")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    print("the cache knows adapters")


Q = "model.layers.1.self_attn.q_proj"


def refusals():
    """(what changes the configuration or the tensors, the message after its place)"""
    def setting(key, value):
        return lambda config, tensors: config.__setitem__(key, value)

    def rename(old, new):
        return lambda config, tensors: tensors.__setitem__(ROOT + new, tensors.pop(ROOT + old))

    def reshape(name, shape):
        return lambda config, tensors: tensors.__setitem__(ROOT + name, ("F32", shape, [0.0] * seeded.count(shape)))

    config = r"adapter_config\.json:\d+:\d+: error: "
    file = r"error: '\S*adapter_model.safetensors': tensor 'base_model\.model\."
    for key, value in (("use_dora", True), ("lora_bias", True), ("target_parameters", ["w"]), ("trainable_token_indices", [1]),
                       ("layer_replication", [[0, 1]]), ("unheard_of", 1)):
        yield setting(key, value), config + f"not supported yet: '{key}' in"
    yield setting("peft_type", "IA3"), config + "not supported yet: 'peft_type' in .*: 'IA3'; LORA is"
    yield setting("peft_type", None), config + "not supported yet: 'peft_type'"
    yield setting("init_lora_weights", "pissa"), config + "not supported yet: 'init_lora_weights' in .*: 'pissa' changes the weights"
    yield setting("alpha_pattern", {"q_proj|k_proj": 2}), config + "not supported yet: 'alpha_pattern' in .* is a regular expression"
    yield setting("alpha_pattern", {"q_proj": "2"}), config + "'alpha_pattern.q_proj' in .* is not a number above 0"
    yield setting("lora_alpha", -1), config + "'lora_alpha' in .* is not a number above 0"
    yield setting("r", 0), config + "'r' in .* is not a rank from 1 to 4096"
    yield setting("r", 2.5), config + "'r' in .* is not a rank"
    yield setting("use_rslora", "yes"), config + "'use_rslora' in .* is not true or false"
    yield setting("r", 8), file + r".*' has rank 4, the other factor 4, 'r' in '\S*' is 8"
    yield setting("target_modules", ["k_proj"]), file + r".*' is of a module that 'target_modules' in '\S*' does not list"
    yield rename(f"{Q}.lora_A.weight", f"{Q}.lora_magnitude_vector"), file + r".*lora_magnitude_vector' is not supported yet: of LoRA"
    yield rename(f"{Q}.lora_A.weight", "model.layers.1.self_attn.other.lora_A.weight"), file + ".*' is one factor of two, the other is missing"
    yield (lambda c, t: [rename(f"{Q}.lora_{x}.weight", f"model.layers.9.self_attn.q_proj.lora_{x}.weight")(c, t) for x in "AB"],
           file + ".*' changes 'model.layers.9.self_attn.q_proj.weight', which the model's files do not store; similar: ")
    yield reshape(f"{Q}.lora_A.weight", [4, 85]), file + r".*' and its neighbour change a matrix \[84, 85\], '.*' is \[84, 84\]"
    yield reshape(f"{Q}.lora_B.weight", [84, 5]), file + ".*' has rank 4, the other factor 5"
    yield reshape(f"{Q}.lora_B.weight", [84, 4, 1]), file + ".*' is F32 of rank 3; factors are matrices of floats"
    yield rename(f"{Q}.lora_B.weight", "model.other.weight"), file + ".*' is one factor of two"
    yield (lambda c, t: t.__setitem__("other", t.pop(ROOT + f"{Q}.lora_A.weight"))), "tensor 'other' has a name without 'base_model.model.'"
    # GPT-2 stores [in, out], and the square o_proj is as the key says: a shape that contradicts it is no small matter
    yield setting("fan_in_fan_out", True), config + r".*is not stored as 'fan_in_fan_out' says, so that nothing says how the square"


def check_refusals(at):
    base, broken, n = os.path.join(at, "base"), os.path.join(at, "broken"), 0
    command = [base, "--adapter", broken, "--emit=tir=-", "--passes="]
    for change, message in refusals():
        adapter = llama(Adapter("one"), 1, 2.0)
        adapter.merge(model("llama3", "F32"))
        change(adapter.config, adapter.tensors)
        shutil.rmtree(broken, ignore_errors=True)
        result = call(*command[:2], adapter.write(broken), *command[3:])
        if result.returncode != 1 or not re.search(message, result.stderr):
            fail(f"not refused with '{message}'", result)
        n += 1
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        os.remove(os.path.join(broken, name))
        result = call(*command)
        if result.returncode != 3 or name not in result.stderr:
            fail(f"an adapter without {name}", result)
    print(f"{n} wrong adapters are refused by place and name")
    return command


def check_mutations(command, broken, seed, count):
    """Bytes changed at random: refused or read, without a crash, in bounded time."""
    adapter = llama(Adapter("one"), 1, 2.0)
    adapter.merge(model("llama3", "F32"))
    shutil.rmtree(broken)
    adapter.write(broken)
    files, draw, refused = {}, random.Random(seed), 0
    for name in os.listdir(broken):
        with open(os.path.join(broken, name), "rb") as f:
            files[name] = f.read()
    for i in range(count):
        name = sorted(files)[i % 2]
        # headers are where the structure is
        data = bytearray(files[name])
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(min(len(data), 2500))
            kind = draw.randrange(3)
            if kind == 0:
                data[at] = draw.randrange(256)
            elif kind == 1:
                del data[at:at + draw.randint(1, 9)]
            else:
                data[at:at] = data[at:at + draw.randint(1, 9)]
        with open(os.path.join(broken, name), "wb") as f:
            f.write(data)
        result = subprocess.run([os.environ["TFMC"], *command], capture_output=True, text=True, errors="replace", timeout=60)
        if result.returncode not in (0, 1) or (result.returncode == 1 and "error: " not in result.stderr):
            fail(f"seed {seed}, mutation {i} of {name}", result)
        refused += result.returncode
        with open(os.path.join(broken, name), "wb") as f:
            f.write(files[name])
    if refused < count // 2:
        fail(f"only {refused} of {count} mutations are refused")
    print(f"{count} mutations, {refused} refused")


def check_ties(tmp):
    """An adapter of a table that the head reads, too, is refused: PEFT would give the head the values without it."""
    path = os.path.join(tmp, "tied")
    tensors = model("llama3", "F32")
    del tensors["lm_head.weight"]
    base = folder(path, "llama3", tensors)
    with open(os.path.join(base, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    with open(os.path.join(base, "config.json"), "w", encoding="utf-8") as f:
        json.dump({**config, "tie_word_embeddings": True}, f)
    adapter = Adapter("tied").add("model.embed_tokens", "model.embed_tokens.weight", 2.0, form="table")
    adapter.merge(tensors)
    result = call(base, "--adapter", adapter.write(os.path.join(tmp, "table")), "--emit=tir=-", "--passes=")
    if result.returncode != 1 or "an adapter changes 'embed_tokens.weight', which is read as 'tokens.weight' and, tied, as" not in result.stderr:
        fail("an adapter of a tied table", result)
    # a folder of an adapter is no model, and says what to do
    result = call("generate", os.path.join(tmp, "table"), "--tokens=1")
    if result.returncode != 3 or "--adapter=FOLDER" not in result.stderr:
        fail("an adapter as a model", result)
    print("tied tables are refused")


def main():
    with tempfile.TemporaryDirectory() as tmp:
        at = check_merged(tmp)
        check_cache(at)
        command = check_refusals(at)
        check_mutations(command, os.path.join(at, "broken"), 7, 2000 if not QUICK else 60)
        check_ties(tmp)


if __name__ == "__main__":
    main()
