#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what the modules of a PyTorch model compute to a file that `tfmc verify --reference` reads.

From Python, with any torch.nn.Module:

    from torch_activations import Recorder
    with Recorder(model, {"encoder.layers.{i}.norm1": "layers.{i}.norm1", "head": "head"}) as recorder:
        model(ids, lengths)
    recorder.save("acts.safetensors", {"input_ids": ids, "lengths": lengths})

From the command line, with a folder of the hub (needs transformers):

    python3 torch_activations.py FOLDER --class AutoModelForCausalLM --inputs in.safetensors --map map.txt -o acts.safetensors
    tfmc verify FOLDER --reference acts.safetensors

A mapping goes from names of modules (as in model.named_modules()) to layer paths of tfmc; {name} is one part of
a path and stands for the same text on both sides. In a map file each line is `MODULE -> PATH`; `#` begins a
comment. `tfmc inspect FOLDER --probe='*'` prints all paths with types and places in the model file.

What is recorded is the output of a module (of a tuple the first tensor). A module that runs several times keeps its
last output. Inputs go into the file under the names of the model file's inputs, ids as i32; `lengths` i32[B] stands
for an attention mask of ones and zeros at the end.
"""
import argparse
import re

import numpy
import torch
from safetensors.numpy import load_file, save_file


def parts_of(pattern):
    """A regular expression with one group for each {name}, and these names."""
    names = re.findall(r"\{(\w+)\}", pattern)
    pieces = [re.escape(piece) for piece in re.split(r"\{\w+\}", pattern)]
    return re.compile(r"([^.]+)".join(pieces)), names


def path_of(mapping, module):
    """The layer path of a module, None when nothing in the mapping fits."""
    for pattern, path in mapping.items():
        expression, names = parts_of(pattern)
        found = expression.fullmatch(module)
        if found:
            return path.format(**dict(zip(names, found.groups())))
    return None


def first_tensor(output):
    while isinstance(output, (tuple, list)) and output:
        output = output[0]
    if hasattr(output, "last_hidden_state"):
        output = output.last_hidden_state
    return output if isinstance(output, torch.Tensor) else None


def stored(tensor):
    """f32 and i32: what the object computes with; bf16 has no type in numpy and is exact in f32."""
    value = tensor.detach().cpu() if isinstance(tensor, torch.Tensor) else torch.as_tensor(tensor)
    whole = not value.dtype.is_floating_point
    return numpy.ascontiguousarray(value.to(torch.int32 if whole else torch.float32).numpy())


class Recorder:
    """Hooks for the modules of a mapping while the context lasts; `values` by layer path."""

    def __init__(self, model, mapping):
        self.values = {}
        self.handles = []
        self.paths = {name: path_of(mapping, name) for name, _ in model.named_modules()}
        unused = [pattern for pattern in mapping
                  if not any(parts_of(pattern)[0].fullmatch(name) for name in self.paths)]
        if unused:
            raise ValueError(f"no module is called {', '.join(unused)}")
        self.model = model

    def __enter__(self):
        for name, module in self.model.named_modules():
            if self.paths[name] is not None:
                self.handles.append(module.register_forward_hook(self.hook_for(self.paths[name])))
        return self

    def __exit__(self, *_):
        for handle in self.handles:
            handle.remove()
        self.handles = []

    def hook_for(self, path):
        def hook(_module, _inputs, output):
            tensor = first_tensor(output)
            if tensor is not None:
                self.values[path] = stored(tensor)
        return hook

    def save(self, file, inputs, outputs=None):
        """All values with the inputs, and outputs under the names of the model file's."""
        tensors = {name: stored(value) for name, value in inputs.items()}
        tensors.update({name: stored(value) for name, value in (outputs or {}).items()})
        tensors.update(self.values)
        save_file(tensors, file)


def read_map(file):
    mapping = {}
    with open(file, encoding="utf-8") as lines:
        for line in lines:
            line = line.split("#")[0].strip()
            if line:
                module, path = line.split("->")
                mapping[module.strip()] = path.strip()
    return mapping


def main():
    parser = argparse.ArgumentParser(description="activations of a hub model for tfmc verify --reference")
    parser.add_argument("folder")
    parser.add_argument("--class", dest="kind", default="AutoModel", help="class of transformers that loads it")
    parser.add_argument("--inputs", required=True, help="safetensors: input_ids and others, lengths")
    parser.add_argument("--map", required=True, help="lines MODULE -> PATH")
    parser.add_argument("-o", "--output", required=True)
    options = parser.parse_args()
    import transformers
    model = getattr(transformers, options.kind).from_pretrained(
        options.folder, dtype=torch.float32, attn_implementation="eager").eval()
    inputs = load_file(options.inputs)
    call = {name: torch.from_numpy(value.astype(numpy.int64) if value.dtype.kind == "i" else value)
            for name, value in inputs.items() if name != "lengths"}
    if "lengths" in inputs:
        size = inputs["input_ids"].shape[1]
        call["attention_mask"] = (torch.arange(size)[None, :] < torch.from_numpy(inputs["lengths"])[:, None]).long()
    with torch.no_grad(), Recorder(model, read_map(options.map)) as recorder:
        model(**call)
    recorder.save(options.output, inputs)
    print(f"{options.output}: {len(recorder.values)} values")


if __name__ == "__main__":
    main()
