#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The test of one golden family: run.py NAME, with TFMC in the environment.

Writes the folder as the hub would have it (config.json, model.safetensors from seeded.py), then:
 1. the file of `tfmc import`, without an edit, passes the family's checks and `tfmc verify` as a whole;
 2. every key of config.json that is not known to be harmless changes what is compiled (not only params, which nothing need read),
    or its new value is refused at a place;
 3. an unknown key is rejected by name.
The short run tries the keys of every other family. The long run verifies the model on an OpenCL device as well, by work-groups.
"""
import copy
import json
import os
import re
import shutil
import sys
import tempfile

import seeded
from command import call

HERE = os.path.dirname(os.path.abspath(__file__))
# Keys that change nothing: what training, saving, tokenizers and callers read, and lengths the language bounds otherwise.
HARMLESS = re.compile(
    r"(_name_or_path|architectures|dtype|torch_dtype|transformers_version|use_cache|return_dict|output_\w+|\w*dropout\w*|\w*drop|"
    r"initializer_\w+|init_std|gradient_checkpointing|problem_type|(id2label|label2id)\.\w+|summary_\w+|task_specific_params.*|"
    r"\w*_token_id|router_aux_loss_coef|router_jitter_noise|pooler_\w+|encoder_stride|tie_weights_|sinusoidal_pos_embds|num_hidden_layers)$")
# Keys that change nothing in that very configuration: reason, family, keys.
SECOND = {}
for families in json.load(open(os.path.join(HERE, "second.json"), encoding="utf-8")).values():
    for family, keys in families.items():
        SECOND.setdefault(family, []).extend(keys)


# The machine code of the short run is made without optimization, in a third of the time.
QUICK = [] if os.environ.get("TFMC_ALL") else ["-O0", "--passes=O2"]


def fail(message, result=None):
    print(message)
    if result is not None:
        print(result.stdout + result.stderr)
    sys.exit(1)


def leaves(node, path=()):
    for key, value in node.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, path + (key,))
        else:
            yield path + (key,), value


def other(value):
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        return {"gelu": "relu", "silu": "relu"}.get(value, value + "_other")
    if isinstance(value, list):
        return [other(v) for v in value] if value else [1]
    return 1 if value is None else {"unknown_key": 1}


def changed(config, path, value):
    result = copy.deepcopy(config)
    at = result
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return result


def write_config(folder, config):
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)


def located(result):
    """The refusal of a command that failed, which must name a place."""
    if result.returncode != 1 or not re.search(r"^\S+\.yaml:\d+:\d+: error|: error", result.stderr, re.M):
        fail("no located refusal", result)
    return result.stderr


def expansion(folder):
    """The folder's model as a model file of steps, or the refusal."""
    result = call("expand", os.path.join(folder, "plain.yaml"))
    return (result.stdout, None) if result.returncode == 0 else (None, located(result))


def without(text, section):
    """The document without one of its sections."""
    kept, inside = [], False
    for line in text.splitlines():
        if line[:1] not in (" ", "#", ""):
            inside = line.startswith(section + ":")
        if not inside:
            kept.append(line)
    return "\n".join(kept)


def statements(folder):
    """The same as statements with all values filled in. Params are left out: what matters is a number or a statement
    elsewhere, so a value that is only read does not count as used."""
    text, refusal = expansion(folder)
    if refusal is not None:
        return None, refusal
    steps = os.path.join(folder, "steps.yaml")
    with open(steps, "w", encoding="utf-8") as f:
        f.write(text)
    result = call("expand", steps)
    return (without(result.stdout, "params"), None) if result.returncode == 0 else (None, located(result))


def compiled(folder):
    """What is compiled: statements may name params."""
    return call(os.path.join(folder, "plain.yaml"), "--emit=tir=-", "--stop-after=canonicalize", "-mcpu=x86-64-v2").stdout


def check_keys(folder, name, config):
    before, refusal = statements(folder)
    if before is None:
        fail("refused: " + refusal)
    ir = compiled(folder)
    if "func @" not in ir:
        fail("no IR")
    counted = {"changes": 0, "refused": 0, "harmless": 0}
    second = SECOND.get(name, [])
    for path, value in leaves(config):
        key = ".".join(path)
        if key == "model_type":
            continue
        if HARMLESS.match(re.sub(r"^(text|vision|attn)_config\.", "", key)) or key in second:
            counted["harmless"] += 1
            continue
        write_config(folder, changed(config, path, other(value)))
        after, refusal = statements(folder)
        if refusal is not None:
            counted["refused"] += 1
        elif after != before or compiled(folder) != ir:
            counted["changes"] += 1
        else:
            fail(f"'{key}' = {other(value)} in place of {value} changes nothing and is not refused")
    write_config(folder, {**config, "unheard_of": 3})
    _, refusal = expansion(folder)
    if refusal is None or "'unheard_of'" not in refusal:
        fail(f"an unknown key is not refused by name: {refusal}")
    write_config(folder, config)
    return counted


def check_modules(folder):
    """Modules, poolings and projections that no preset has are refused by name."""
    changes = [("modules.json", "models.Normalize", "models.LSTM"), ("modules.json", "models.Transformer", "models.CLIPModel"),
               ("1_Pooling/config.json", '"pooling_mode_max_tokens": false', '"pooling_mode_max_tokens": true'),
               ("1_Pooling/config.json", r'pooling_mode_(\w+": true)', r"pooling_mode_weighted\1"),
               ("1_Pooling/config.json", "word_embedding_dimension", "unheard_of")]
    if os.path.exists(os.path.join(folder, "2_Dense")):
        changes += [("2_Dense/config.json", "activation.Tanh", "activation.Hardtanh"), ("2_Dense/config.json", "bias", "unheard_of"),
                    ("modules.json", "models.Normalize", "models.Dense")]
    for name, old, new in changes:
        path = os.path.join(folder, name)
        with open(path, encoding="utf-8") as f:
            text = f.read()
        with open(path, "w", encoding="utf-8") as f:
            f.write(re.sub(old, new, text))
        result = call("import", folder, "-o", os.path.join(folder, "other.yaml"))
        if re.sub(old, new, text) == text or result.returncode != 1 or "not supported yet" not in result.stderr:
            fail(f"{name} with {new} is not refused", result)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
    config = os.path.join(folder, "config.json")
    with open(config, encoding="utf-8") as f:
        text = f.read()
    write_config(folder, {"model_type": "bart"})
    result = call("expand", folder)
    if result.returncode != 1 or "no param is called 'pooling'" not in result.stderr:
        fail("a family that does not pool is not refused", result)
    with open(config, "w", encoding="utf-8") as f:
        f.write(text)


def main():
    name = sys.argv[1]
    source = os.path.join(HERE, name)
    with tempfile.TemporaryDirectory() as tmp:
        folder = os.path.join(tmp, name)
        shutil.copytree(source, folder)
        for at, _, names in os.walk(folder):
            if "tensors.txt" in names:
                seeded.write(name, seeded.read_list(os.path.join(at, "tensors.txt")), os.path.join(at, "model.safetensors"))
        model, plain = os.path.join(folder, "model.yaml"), os.path.join(folder, "plain.yaml")
        head = os.path.join(source, "head.yaml")
        if os.path.exists(head):
            shutil.copy(head, model)
        else:
            made = call("import", folder, "-o", model)
            if made.returncode != 0:
                fail("import", made)
        shutil.copy(model, plain)
        with open(os.path.join(source, "checks.yaml"), encoding="utf-8") as f, open(model, "a", encoding="utf-8") as out:
            out.write(f.read())
        verified = call("verify", model, "-mcpu=native", *QUICK)
        if verified.returncode != 0:
            fail("verify", verified)
        print(verified.stdout, end="")
        if not QUICK and "\n  0:" in call("devices").stdout:
            os.environ["POCL_EXTRA_BUILD_FLAGS"] = "-cl-opt-disable"
            verified = call("verify", model, "--device=opencl", "--target=opencl-gpu")
            if verified.returncode != 0:
                fail("verify on a device", verified)
        if os.path.exists(head):
            return
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
            config = json.load(f)
        if os.path.exists(os.path.join(folder, "modules.json")):
            check_modules(folder)
        if QUICK and sum(name.encode()) % 2:
            return
        print("keys:", ", ".join(f"{n} {what}" for what, n in check_keys(folder, name, config).items()))


if __name__ == "__main__":
    main()
