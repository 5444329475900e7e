#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the model of names and writes model.safetensors, cases.safetensors and vocab.txt.

    python3 train.py                     trains (about 3 minutes on one core) and exports the model
    python3 train.py --steps 500         a shorter training
    python3 train.py --evaluate          prints the held-out cross entropy beside that of the generator
    python3 train.py --score WORD ...    log p of words under the exported model and under the generator
    python3 train.py --export            writes the cases and the vocabulary of the exported model again

Needs PyTorch and safetensors. The model is a decoder-only Transformer of the GPT-2 kind: learned positions,
x + sublayer(norm(x)) (pre-norm), causal multi-head attention with one matrix for q, k, v, a feed-forward net
with GELU, a last LayerNorm, and the embedding table once more as output layer. No dropout: the data never repeat.
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

D, HEADS, FF, LAYERS, CONTEXT = 64, 4, 256, 3, 24
EPS = 1e-5
HELD_OUT_SEED, HELD_OUT_COUNT = 20260102, 10000
BATCH = 256
PEAK_RATE, WARM_UP = 3e-3, 100
PROBE_EVERY = 200


# --- the model -------------------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.o = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x):
        """x [B, S, D]; every position sees itself and what stands before it"""
        batch, size, _ = x.shape
        q, k, v = (t.view(batch, size, HEADS, D // HEADS).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(batch, size, D))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(D, FF), nn.Linear(FF, D)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(D, EPS), Attention()
        self.norm2, self.ffn = nn.LayerNorm(D, EPS), FeedForward()

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.ffn(self.norm2(x))


class Names(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(len(data.VOCAB), D), nn.Embedding(CONTEXT, D)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.final = nn.LayerNorm(D, EPS)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.05)

    def forward(self, ids):
        """ids [B, S] -> logits [B, S, V]; sequences are padded on the right, where the real ones do not see it"""
        x = self.tokens(ids) + self.positions.weight[:ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.final(x), self.tokens.weight)


NEVER = [data.BLANK, data.START, len(data.VOCAB) - 1]  # not chosen; </s> is not the first new id


@torch.no_grad()
def greedy(model, prompt, count):
    """At most `count` ids after the prompt, with the first </s>; ties: lowest id."""
    ids = list(prompt)
    while len(ids) - len(prompt) < count and ids[-1] != data.STOP:
        logits = model(torch.tensor([ids]))[0, -1]
        logits[NEVER + [data.STOP] * (len(ids) == len(prompt))] = -math.inf
        ids.append(int(logits.argmax()))
    return ids[len(prompt):]


@torch.no_grad()
def log_p(model, words):
    """[B]: log P(word), the sum over its characters and </s>"""
    ids, want = tensors(words)
    each = model(ids).log_softmax(dim=-1).gather(2, want.clamp(min=0)[:, :, None])[:, :, 0]
    return (each * (want >= 0)).sum(dim=1)


# --- data ------------------------------------------------------------------------------------------------


def pad(rows, filler):
    size = max(map(len, rows))
    return torch.tensor([row + [filler] * (size - len(row)) for row in rows])


def tensors(words):
    """(ids [B, S] with <s> in front, want [B, S] with </s> behind and -1 at padded positions)"""
    rows = [data.encode(word) for word in words]
    return pad([[data.START] + row for row in rows], data.BLANK), pad([row + [data.STOP] for row in rows], -1)


def bits_per_character(log_ps, words):
    """</s> is counted as a character."""
    return -sum(log_ps) / math.log(2) / sum(len(word) + 1 for word in words)


def score(model, words):
    model.eval()
    return [p for first in range(0, len(words), 500) for p in log_p(model, words[first:first + 500]).tolist()]


# --- training --------------------------------------------------------------------------------------------


def rate(step, steps):
    """Linear warm-up, and half a cosine down to a hundredth."""
    return PEAK_RATE * min(1.0, step / WARM_UP) * (0.01 + 0.495 * (1.0 + math.cos(math.pi * step / steps)))


def batches(rng):
    """Endless batches. Sixteen of them are drawn together and sorted by length, so that little is padding."""
    while True:
        words = sorted((data.sample(rng, held_out=False) for _ in range(16 * BATCH)), key=len)
        parts = [words[i:i + BATCH] for i in range(0, len(words), BATCH)]
        rng.shuffle(parts)
        yield from map(tensors, parts)


def train(steps, seed):
    torch.manual_seed(seed)
    model = Names()
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.99), weight_decay=0.01)
    probe = data.samples(seed + 1, 1000, held_out=False)
    true = bits_per_character(map(data.log_probability, probe), probe)
    start, source = time.monotonic(), batches(random.Random(seed))
    for step in range(1, steps + 1):
        ids, want = next(source)
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps)
        # Long names have more tokens: the sum over tokens and a fixed divisor weigh every token alike.
        loss = F.cross_entropy(model(ids).flatten(0, 1), want.flatten(), ignore_index=-1, reduction="sum")
        optimizer.zero_grad()
        (loss / (10 * BATCH)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % PROBE_EVERY == 0 or step == steps:
            bits = bits_per_character(score(model, probe), probe)
            model.train()
            print(f"{time.monotonic() - start:6.0f} s  step {step:5d}  probe {bits:.4f} bits per character, "
                  f"generator {true:.4f}", flush=True)
    return model.eval()


# --- export ----------------------------------------------------------------------------------------------


def store(file, contents):
    """A safetensors file beside this script, replaced in one step, so that a reader never sees half of it."""
    path = os.path.join(HERE, file)
    save_file({name: t.detach().contiguous() for name, t in contents.items()}, path + ".new")
    os.chmod(path + ".new", 0o644)
    os.replace(path + ".new", path)


def load():
    model = Names()
    model.load_state_dict(load_file(os.path.join(HERE, "model.safetensors")))
    return model.eval()


PROMPTS = ["", "k", "vel", "xa", "shi", "thur"]


@torch.no_grad()
def write_cases(model):
    """cases.safetensors: what PyTorch computes, for the `checks` of model.yaml."""
    cases = {}
    for name, words in (("start", [""]), ("one", ["maliné"]), ("long", ["drelthyrvindgrautharmal"]),
                        ("batch3", ["tzak'", "sholira", "dak"])):
        ids, want = tensors(words)
        case = {"ids": ids, "logits": model(ids) * (want >= 0)[:, :, None]}
        if len(words) > 1:  # outputs at padded positions are stored as 0
            case["lengths"] = (want >= 0).sum(dim=1)
        cases[name] = case
    for i, prompt in enumerate(PROMPTS):
        ids = [data.START] + data.encode(prompt)
        new = greedy(model, ids, CONTEXT - len(ids))
        cases[f"greedy{i}"] = {"ids": torch.tensor([ids]), "new_tokens": torch.tensor(new)}
    flat = {}
    for name, case in cases.items():
        for key, value in case.items():
            flat[f"{name}.{key}"] = value if value.is_floating_point() else value.to(torch.int32)
    store("cases.safetensors", flat)


def report(model):
    """The held-out cross entropy of the model beside that of the generator, which no model can beat."""
    words = data.samples(HELD_OUT_SEED, HELD_OUT_COUNT, held_out=True)
    true = [data.log_probability(word) for word in words]
    got = score(model, words)
    print(f"held-out names: {len(words)}, {len(set(words))} different")
    print(f"bits per character: model {bits_per_character(got, words):.4f}, "
          f"generator {bits_per_character(true, words):.4f}")
    off = sorted(abs(a - b) for a, b in zip(got, true))
    print(f"|log p(model) - log p(generator)| of a name: median {off[len(off) // 2]:.2f}, "
          f"nine tenths below {off[len(off) * 9 // 10]:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--export", action="store_true")
    parser.add_argument("--score", nargs="+", metavar="WORD")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.score:
        for word, p in zip(arguments.score, score(load(), arguments.score)):
            print(f"{p:12.4f}  generator {data.log_probability(word):12.4f}  {word}")
        return
    if not (arguments.evaluate or arguments.export):
        store("model.safetensors", train(arguments.steps, arguments.seed).state_dict())
    model = load()
    if not arguments.evaluate:
        data.write_vocab(HERE)
        write_cases(model)
    report(model)


if __name__ == "__main__":
    main()
