#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the sentence embedder and writes model.safetensors, cases.safetensors and vocab.txt.

    python3 train.py                     trains (a few minutes on one core) and exports
    python3 train.py --steps 1500        a longer or shorter training
    python3 train.py --evaluate          prints how often the other way to say a held-out meaning is the nearest text

Needs PyTorch and safetensors. The loss wants two ways to say a meaning near each other and everything else in the
batch far away; the opposite meaning of each sentence, which has the same words, is always in the batch. Two heads that
are thrown away after the training name who does it, and to whom, from the vector: they show the way out of a bag of words.
"""
import argparse
import os
import random
import time

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

import data

HERE = os.path.dirname(os.path.abspath(__file__))
D, HEADS, FF, LAYERS, OUT = 64, 4, 128, 3, 48
EPS = 1e-6
THETA = 100.0
BATCH, RATE, WARM_UP, SHARPNESS = 24, 4e-3, 100, 12.0
ACTORS = sorted(data.ACTORS)
WORDS = data.vocabulary()
NUMBER = {word: i for i, word in enumerate(WORDS)}


def rotate(x):
    """Rotary positions, x [B, HEADS, S, E]: features i and i + E / 2 turn by the position times THETA^(-2i / E)"""
    half = x.shape[3] // 2
    angle = torch.arange(x.shape[2])[:, None] * THETA ** (-torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], dim=3)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(D, EPS), nn.LayerNorm(D, EPS)
        self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))
        self.up, self.down = nn.Linear(D, FF), nn.Linear(FF, D)

    def forward(self, x, real):
        """x [B, S, D], real bool [B, S]: the row is a word"""
        y = self.norm1(x)
        q, k, v = (f(y).view(*y.shape[:2], HEADS, D // HEADS).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(rotate(q), rotate(k), v, attn_mask=real[:, None, None, :])
        x = x + self.o(y.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(len(WORDS), D)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.final = nn.LayerNorm(D, EPS)
        self.out = nn.Linear(D, OUT)

    def forward(self, ids, lengths):
        """ids [B, S], lengths [B] -> [B, OUT] of length 1"""
        real = torch.arange(ids.shape[1])[None, :] < lengths[:, None]
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x, real)
        x = (self.final(x) * real[:, :, None]).sum(1) / lengths[:, None]
        return F.normalize(self.out(x), dim=1)


def encode(texts):
    rows = [[NUMBER.get(word, 1) for word in text.split()] for text in texts]
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64)
    for i, row in enumerate(rows):
        ids[i, :len(row)] = torch.tensor(row)
    return ids, torch.tensor([len(row) for row in rows])


def store(file, tensors):
    path = os.path.join(HERE, file)
    save_file({name: t.detach().contiguous() for name, t in tensors.items()}, path + ".new")
    os.chmod(path + ".new", 0o644)
    os.replace(path + ".new", path)


def pairs(rng, n, kind):
    """Two ways to say each of 2n meanings: n, and the n that are their opposites."""
    meanings = [data.meaning(rng, kind) for _ in range(n)]
    meanings += [data.opposite(m) for m in meanings]
    return [data.say(rng, m) for m in meanings], [data.say(rng, m) for m in meanings], meanings


@torch.no_grad()
def report(model):
    rng = random.Random(20261121)
    first, second, meanings = pairs(rng, 500, "held out")
    scores = model(*encode(first)) @ model(*encode(second)).T
    found = scores.argmax(1).tolist()
    right = sum(meanings[i] == meanings[j] for i, j in enumerate(found))
    wrong_way = sum(meanings[j] == data.opposite(meanings[i]) for i, j in enumerate(found))
    print(f"held-out meanings found among {len(found)}: {100 * right / len(found):.1f} %; "
          f"taken for the opposite: {100 * wrong_way / len(found):.1f} %", flush=True)


def train(steps):
    torch.manual_seed(1)
    rng = random.Random(1)
    model, roles = Embedder(), nn.Linear(OUT, 2 * len(ACTORS))
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    parameters = [*model.parameters(), *roles.parameters()]
    optimizer = torch.optim.AdamW(parameters, betas=(0.9, 0.98), weight_decay=0.01)
    start = time.monotonic()
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(step / WARM_UP, 1.02 - step / steps)
        first, second, meanings = pairs(rng, BATCH, "train")
        a, b = model(*encode(first)), model(*encode(second))
        scores = SHARPNESS * a @ b.T
        same = torch.tensor([[a == b for b in meanings] for a in meanings])
        scores = scores.masked_fill(same & ~torch.eye(len(meanings), dtype=torch.bool), -100.0)
        target = torch.arange(len(meanings))
        loss = F.cross_entropy(scores, target) + F.cross_entropy(scores.T, target)
        guess = roles(SHARPNESS * torch.cat([a, b])).view(-1, 2, len(ACTORS))
        for role, at in ((0, 0), (1, 2)):
            loss = loss + F.cross_entropy(guess[:, role], torch.tensor([ACTORS.index(m[at]) for m in meanings] * 2))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if step % 200 == 0 or step == steps:
            print(f"{time.monotonic() - start:6.0f} s  step {step:5d}  loss {loss.item():.4f}  ", end="")
            report(model.eval())
            store("model.safetensors", model.state_dict())
            model.train()


@torch.no_grad()
def write_cases(model):
    """cases.safetensors: what PyTorch computes, for the `checks` of model.yaml; vocab.txt."""
    rng, tensors = random.Random(3), {}
    for name, n in (("one", 1), ("batch7", 7)):
        ids, lengths = encode([data.say(rng, data.meaning(rng, "held out")) for _ in range(n)])
        tensors.update({f"{name}.ids": ids.int(), f"{name}.lengths": lengths.int(),
                        f"{name}.embedding": model(ids, lengths)})
    store("cases.safetensors", tensors)
    with open(os.path.join(HERE, "vocab.txt"), "w", encoding="utf-8") as f:
        f.write("".join(word + "\n" for word in WORDS))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1600)
    parser.add_argument("--evaluate", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if not args.evaluate:
        train(args.steps)
    model = Embedder()
    model.load_state_dict(load_file(os.path.join(HERE, "model.safetensors")))
    if not args.evaluate:
        write_cases(model.eval())
    report(model.eval())


if __name__ == "__main__":
    main()
