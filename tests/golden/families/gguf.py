#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The test of one golden family as a GGUF file: gguf.py NAME|FOLDER [SETTINGS], with TFMC in the environment.

Writes the file that converters make of the family's folder (tests/support/to_gguf.py, tensors from seeded.py), or of a folder with
config.json, model.safetensors, and a model.yaml that ends with checks. Then:
 1. the file of `tfmc import` passes the family's checks and `tfmc verify` as a whole; SETTINGS are what metadata cannot say;
 2. the GGUF file alone is the same model, and compiles;
 3. every key of the metadata that is not known to be harmless changes what is compiled, or its new value is refused at a place;
 4. an unknown key and an unknown architecture are rejected by name;
 5. sizes of a head that equal the hidden size over the number of heads may be absent.
"""
import os
import re
import shutil
import sys
import tempfile

import run
import seeded

sys.path.insert(0, os.path.join(run.HERE, "..", "..", "support"))
import to_gguf  # noqa: E402

# Keys that no architecture computes with.
HARMLESS = re.compile(r"general\.(name|file_type)|[\w-]+\.(vocab_size|tensor_data_layout)|tokenizer\.ggml\.padding_token_id")
# Keys without effect in that very file: a length that only scaling reads, what a tensor or another key says better.
SECOND = {"phi3": ["phi3.rope.scaling.original_context_length"], "stablelm": ["stablelm.use_parallel_residual"],
          "stablelm_parallel": ["stablelm.use_parallel_residual"], "stablelm_heads": ["stablelm.use_parallel_residual"],
          "gpt_bigcode": ["starcoder.context_length"], "gpt_oss": ["gpt-oss.feed_forward_length"], "gpt2-tiny": ["gpt2.context_length"], "t5_encoder": ["t5encoder.attention.layer_norm_epsilon", "tokenizer.ggml.eos_token_id"],
          "flan_t5": ["t5.attention.layer_norm_epsilon"], "t5": ["t5.attention.layer_norm_epsilon"]}


def other(key, value):
    """Another value that the language can hold: one more, except where only a multiple could be right."""
    if isinstance(value, str):
        return value + "_other"
    if isinstance(value, list):
        return [other(key, value[0])] + value[1:]
    return not value if isinstance(value, bool) else value + 1


def check_keys(path, name, metadata, packed):
    def write(changed):
        to_gguf.write(path, 3, changed, packed)

    folder = os.path.dirname(path)
    write(metadata)
    before, refusal = run.expansion(folder)
    if before is None:
        run.fail("refused: " + refusal)
    counted = {"changes": 0, "refused": 0, "harmless": 0}
    for key, value in metadata.items():
        if HARMLESS.fullmatch(key) or key in SECOND.get(name, []):
            counted["harmless"] += 1
            continue
        write({**metadata, key: other(key, value)})
        after, refusal = run.expansion(folder)
        if refusal is not None:
            counted["refused"] += 1
        elif after != before:
            counted["changes"] += 1
        else:
            run.fail(f"'{key}' = {other(key, value)} in place of {value} changes nothing and is not refused")
    arch = metadata["general.architecture"]
    lengths = [f"{arch}.{key}" for key in ("attention.key_length", "attention.value_length", "rope.dimension_count")]
    even = metadata[arch + ".embedding_length"] // metadata[arch + ".attention.head_count"]
    write({key: value for key, value in metadata.items() if key not in lengths or value != even})
    after, refusal = run.expansion(folder)
    if after != before:
        run.fail(f"without sizes of a head that are {even}: {refusal}")
    write({**metadata, arch + ".unheard_of": 3})
    _, refusal = run.expansion(folder)
    if refusal is None or "'unheard_of'" not in refusal:
        run.fail(f"an unknown key is not refused by name: {refusal}")
    write({**metadata, "general.architecture": "unheard"})
    _, refusal = run.expansion(folder)
    if refusal is None or "'unheard' (known are bert, " not in refusal:
        run.fail(f"an unknown architecture is not refused with those that are known: {refusal}")
    write(metadata)
    return counted


def prepare(source, folder):
    """The family's folder as the hub has it, or one that is there: the text of its checks."""
    for part in ("config.json", "cases.safetensors"):
        shutil.copy(os.path.join(source, part), folder)
    seeds, weights = os.path.join(source, "tensors.txt"), os.path.join(folder, "model.safetensors")
    if os.path.exists(seeds):
        seeded.write(os.path.basename(source), seeded.read_list(seeds), weights)
    else:
        shutil.copy(os.path.join(source, "model.safetensors"), weights)
    with open(os.path.join(source, "checks.yaml" if os.path.exists(seeds) else "model.yaml"), encoding="utf-8") as f:
        return "checks:" + f.read().split("checks:", 1)[1]


def main():
    source, settings = sys.argv[1].rstrip("/"), sys.argv[2] if len(sys.argv) > 2 else ""
    source = source if os.path.isdir(source) else os.path.join(run.HERE, source)
    name = os.path.basename(source)
    with tempfile.TemporaryDirectory() as folder:
        checks = prepare(source, folder)
        metadata, tensors = to_gguf.convert(folder)
        path = os.path.join(folder, name.replace("-", "_") + ".gguf")
        packed = to_gguf.pack(tensors, "f32")
        to_gguf.write(path, 3, metadata, packed)
        model, plain = os.path.join(folder, "model.yaml"), os.path.join(folder, "plain.yaml")
        made = run.call("import", path, "-o", plain)
        if made.returncode != 0:
            run.fail("import", made)
        with open(plain, encoding="utf-8") as f, open(model, "w", encoding="utf-8") as out:
            out.write(f.read() + (f"set: {settings}\n" if settings else "") + checks)
        verified = run.call("verify", model, "-mcpu=native", *run.QUICK)
        if verified.returncode != 0:
            run.fail("verify", verified)
        print(verified.stdout, end="")
        compiled = run.call(path, "-o", os.path.join(folder, "alone.o"), "-mcpu=native", *run.QUICK)
        if compiled.returncode != 0 or run.call("expand", path).stdout != run.call("expand", plain).stdout:
            run.fail("the GGUF file alone", compiled)
        print(f"{name}: {verified.stdout.count(' ok')} comparisons; keys:",
              ", ".join(f"{n} {what}" for what, n in check_keys(path, name, metadata, packed).items()))


if __name__ == "__main__":
    main()
