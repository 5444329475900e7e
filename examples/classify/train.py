#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the classifier of shapes and writes model.safetensors and cases.safetensors.

    python3 train.py                     trains (about 10 minutes on one core) and exports the best model
    python3 train.py --steps 1500        a shorter training
    python3 train.py --evaluate          prints the accuracy of the exported model on pictures that it has not seen

Needs PyTorch, numpy and safetensors. The model is a Vision Transformer: patches of 4 x 4 pixels, a class token, learned positions,
layers with the norm in front of attention and feed-forward, and a linear layer on the class token. The pictures never
repeat, so nothing is memorised, and nothing is dropped out.
"""
import argparse
import math
import os
import time

import numpy
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

import data

HERE = os.path.dirname(os.path.abspath(__file__))

D, HEADS, FF, LAYERS, PATCH = 64, 4, 160, 3, 4
PATCHES = (data.SIZE // PATCH) ** 2
EPS = 1e-6
BATCH = 64
PEAK_RATE, WARM_UP = 1.5e-3, 300
PROBE_EVERY = 500
HELD_OUT_SEED, HELD_OUT_COUNT = 20261121, 6000


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(D, EPS), nn.LayerNorm(D, EPS)
        self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))
        self.up, self.down = nn.Linear(D, FF), nn.Linear(FF, D)

    def forward(self, x):
        """x [B, S, D]"""
        y = self.norm1(x)
        q, k, v = (f(y).view(*y.shape[:2], HEADS, D // HEADS).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.o(y.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(1, D, PATCH, stride=PATCH)
        self.token = nn.Parameter(torch.randn(1, D) * 0.02)
        self.positions = nn.Parameter(torch.randn(PATCHES + 1, D) * 0.02)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.final = nn.LayerNorm(D, EPS)
        self.head = nn.Linear(D, len(data.CLASSES))

    def forward(self, picture):
        """picture [B, 1, SIZE, SIZE] -> logits [B, classes]"""
        x = self.patches(picture).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], 1, D), x], dim=1) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.head(self.final(x[:, 0]))


def store(file, tensors):
    """A safetensors file beside this script, replaced in one step, so that a reader never sees half of it."""
    path = os.path.join(HERE, file)
    save_file({name: t.detach().contiguous() for name, t in tensors.items()}, path + ".new")
    os.chmod(path + ".new", 0o644)
    os.replace(path + ".new", path)


def load():
    model = Classifier()
    model.load_state_dict(load_file(os.path.join(HERE, "model.safetensors")))
    return model.eval()


@torch.no_grad()
def accuracy(model, pictures, labels):
    """The share of right answers, and how often class i was taken for class j: [classes, classes]"""
    taken = numpy.zeros((len(data.CLASSES), len(data.CLASSES)), int)
    for first in range(0, len(labels), 500):
        part = slice(first, first + 500)
        got = model(torch.from_numpy(data.values(pictures[part]))).argmax(dim=1).numpy()
        numpy.add.at(taken, (labels[part], got), 1)
    return taken.trace() / len(labels), taken


def rate(step, steps):
    """Linear warm-up, and half a cosine down to a hundredth."""
    return PEAK_RATE * min(1.0, step / WARM_UP) * (0.01 + 0.495 * (1.0 + math.cos(math.pi * step / steps)))


def train(steps, seed):
    """Trains and exports the checkpoint that is best on a probe."""
    torch.manual_seed(seed)
    rng = numpy.random.default_rng(seed)
    model = Classifier()
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.02)
    probe = data.batch(numpy.random.default_rng(seed + 1), 2000)
    best, start, running = -1.0, time.monotonic(), 0.0
    for step in range(1, steps + 1):
        pictures, labels = data.batch(rng, BATCH)
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps)
        loss = F.cross_entropy(model(torch.from_numpy(data.values(pictures))), torch.from_numpy(labels))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        running += loss.item()
        if step % PROBE_EVERY == 0 or step == steps:
            share, _ = accuracy(model, *probe)
            print(f"{time.monotonic() - start:6.0f} s  step {step:5d}  loss {running / PROBE_EVERY:.4f}  probe {100 * share:.2f} %", flush=True)
            running = 0.0
            if share >= best:
                best = share
                store("model.safetensors", model.state_dict())


@torch.no_grad()
def write_cases(model):
    """cases.safetensors: what PyTorch computes, for the `checks` of model.yaml."""
    tensors = {}
    for name, n in (("one", 1), ("batch5", 5)):
        pictures, _ = data.batch(numpy.random.default_rng(n), n)
        x = torch.from_numpy(data.values(pictures))
        logits = model(x)
        tensors.update({f"{name}.picture": x, f"{name}.logits": logits, f"{name}.probabilities": logits.softmax(dim=1)})
    store("cases.safetensors", tensors)


def report(model):
    share, taken = accuracy(model, *data.batch(numpy.random.default_rng(HELD_OUT_SEED), HELD_OUT_COUNT))
    print(" " * 10 + "".join(f"{name:>10s}" for name in data.CLASSES))
    for name, row in zip(data.CLASSES, taken):
        print(f"{name:10s}" + "".join(f"{n:10d}" for n in row))
    print(f"accuracy on unseen pictures: {100 * share:.2f} % of {HELD_OUT_COUNT}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--export", action="store_true", help="only write the cases of the exported model")
    arguments = parser.parse_args()
    if not (arguments.evaluate or arguments.export):
        train(arguments.steps, arguments.seed)
    model = load()
    if not arguments.evaluate:
        write_cases(model)
    report(model)


if __name__ == "__main__":
    main()
