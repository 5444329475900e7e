#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the model of puzzles and writes model.safetensors and vocab.txt beside this script.

    python3 train.py                     trains (about 10 minutes on one core) and exports the model
    python3 train.py --steps 100         a shorter training
    python3 train.py --evaluate          cross entropy of other lines, and how many answers of drawn lines are right

Needs PyTorch and safetensors. The model is a decoder-only Transformer of the Llama kind over characters: RMSNorm, rotary
positions, attention with two heads for each head of keys, a gated feed-forward net, the table once more as output layer. Rows
of all matrices are 256 long, so that blocks of any size up to 256 fit.

Matrices are stored as F8_E4M3 times a power of two for each matrix, which makes a million parameters a megabyte. The last
part of the training computes with matrices rounded so (and passes gradients on as if they were not), so what is stored is
the model that was trained: its numbers are 8-bit floats, no format of integers or 4 bits has them without an error.
"""
import argparse
import math
import os
import random
import time

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

import data

HERE = os.path.dirname(os.path.abspath(__file__))
D, HEADS, KV_HEADS, FF, LAYERS, CONTEXT = 256, 4, 2, 256, 3, 192
WIDTH = D // HEADS
EPS, THETA = 1e-5, 10000.0
START, STOP, UNKNOWN = 0, 1, len(data.CHARACTERS) + 2
VOCAB = ["<s>", "</s>", *data.CHARACTERS, "<unk>"]
BATCH, PEAK_RATE, WARM_UP, PROBE_EVERY = 16, 2e-3, 60, 200
ROUNDED = 0.8  # of the steps are taken before matrices are rounded


# --- the model -----------------------------------------------------------------------------------------------


def scale_of(w):
    """The power of two that brings the largest magnitude of a matrix into [224, 448): 448 is the largest number of F8_E4M3."""
    return 2.0 ** math.floor(math.log2(448.0 / w.abs().max().item()))


def rounded(w):
    s = scale_of(w)
    return (w * s).to(torch.float8_e4m3fn).to(torch.float32) / s


class Matrix(nn.Module):
    """y = x W^T; with `rounds` W is what will be stored."""

    def __init__(self, rows, columns, std=None):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns) * (std or columns ** -0.5))
        self.rounds = False

    def value(self):
        return self.weight + (rounded(self.weight) - self.weight).detach() if self.rounds else self.weight

    def forward(self, x):
        return F.linear(x, self.value())


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(D))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + EPS) * self.weight


def rotate(x, cos, sin):
    """x [B, H, S, WIDTH]; a pair is an element and the one half a head behind it"""
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = Norm(), Norm()
        self.q, self.k, self.v = Matrix(D, D), Matrix(KV_HEADS * WIDTH, D), Matrix(KV_HEADS * WIDTH, D)
        self.o = Matrix(D, D, std=D ** -0.5 / math.sqrt(2 * LAYERS))
        self.up, self.gate = Matrix(FF, D), Matrix(FF, D)
        self.down = Matrix(D, FF, std=FF ** -0.5 / math.sqrt(2 * LAYERS))

    def attend(self, x, cos, sin):
        batch, size, _ = x.shape
        q, k, v = (m(x).view(batch, size, -1, WIDTH).transpose(1, 2) for m in (self.q, self.k, self.v))
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, dim=1) for t in (rotate(k, cos, sin), v))
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(batch, size, D))

    def forward(self, x, cos, sin):
        x = x + self.attend(self.norm1(x), cos, sin)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Puzzles(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = Matrix(len(VOCAB), D, std=0.05)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.final = Norm()

    def forward(self, ids):
        """ids [B, S] -> logits [B, S, V]; sequences are padded on the right, where the real ones do not see it"""
        angle = torch.arange(ids.shape[1])[:, None] * THETA ** (-torch.arange(0, WIDTH, 2) / WIDTH)
        cos, sin, x = angle.cos(), angle.sin(), F.embedding(ids, self.tokens.value())
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.tokens(self.final(x))

    def matrices(self):
        return {name: m for name, m in self.named_modules() if isinstance(m, Matrix)}


# --- training ------------------------------------------------------------------------------------------------


def batch(seed):
    """(ids [B, S] with <s> in front, want [B, S] with </s> behind and -1 at padded positions)"""
    rows = [[VOCAB.index(c, 2) for c in text] for text in data.lines(seed, BATCH)]
    size = max(map(len, rows)) + 1
    ids = [[START] + row + [STOP] * (size - 1 - len(row)) for row in rows]
    want = [row + [STOP] + [-1] * (size - 1 - len(row)) for row in rows]
    return torch.tensor(ids), torch.tensor(want)


def loss_of(model, ids, want):
    return F.cross_entropy(model(ids).flatten(0, 1), want.flatten(), ignore_index=-1)


@torch.no_grad()
def other_lines(model):
    return sum(loss_of(model, *batch(-1 - i)).item() for i in range(4)) / 4


def rate(step, steps):
    """Linear warm-up, and half a cosine down to a hundredth."""
    return PEAK_RATE * min(1.0, step / WARM_UP) * (0.01 + 0.495 * (1.0 + math.cos(math.pi * step / steps)))


def train(steps, seed):
    torch.manual_seed(seed)
    model = Puzzles()
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.05)
    start = time.process_time()
    for step in range(1, steps + 1):
        for m in model.matrices().values():
            m.rounds = step > ROUNDED * steps
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps)
        with torch.autocast("cpu", dtype=torch.bfloat16):  # products in bf16, about twice as fast; parameters stay f32
            loss = loss_of(model, *batch(seed * 1000000 + step))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % PROBE_EVERY == 0 or step == steps:
            print(f"{time.process_time() - start:6.0f} s  step {step:5d}  {loss.item():.4f}, "
                  f"other lines {other_lines(model):.4f}", flush=True)
    return model


# --- the files -----------------------------------------------------------------------------------------------


def store(model):
    """Replaced in one step, so that a reader never sees half of it."""
    tensors = {name: p.detach() for name, p in model.named_parameters() if p.dim() == 1}
    for name, m in model.matrices().items():
        scale = scale_of(m.weight.detach())
        tensors[f"{name}.weight"] = (m.weight.detach() * scale).to(torch.float8_e4m3fn)
        tensors[f"{name}.scale"] = torch.tensor([1.0 / scale])
    path = os.path.join(HERE, "model.safetensors")
    save_file(tensors, path + ".new")
    os.chmod(path + ".new", 0o644)
    os.replace(path + ".new", path)
    with open(os.path.join(HERE, "vocab.txt"), "w", encoding="utf-8") as f:
        f.writelines(token + "\n" for token in VOCAB)


def load():
    stored, model = load_file(os.path.join(HERE, "model.safetensors")), Puzzles()
    values = {name: t.to(torch.float32) * stored.get(name[:-len("weight")] + "scale", torch.ones(1))
              for name, t in stored.items() if name.endswith("weight")}
    model.load_state_dict(values)
    return model


@torch.no_grad()
def draw(model, count):
    """`count` lines, each character drawn at temperature 1."""
    ids = torch.full((count, 1), START)
    while ids.shape[1] < CONTEXT:
        p = model(ids)[:, -1].softmax(dim=-1)
        p[:, [START, UNKNOWN]] = 0
        ids = torch.cat([ids, torch.multinomial(p, 1)], dim=1)
    rows = ((row + [STOP])[1:(row + [STOP]).index(STOP)] for row in ids.tolist())
    return ["".join(VOCAB[i] for i in row) for row in rows]


def report(model):
    torch.manual_seed(5)
    answers = [data.is_right(p) for text in draw(model, 24) for p in text.split("; ")]
    known = [a for a in answers if a is not None]
    print(f"other lines: {other_lines(model):.4f} nats for each character; of {len(known)} answers in drawn lines "
          f"{sum(known)} are right")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--evaluate", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if not arguments.evaluate:
        store(train(arguments.steps, arguments.seed))
    report(load())


if __name__ == "__main__":
    main()
