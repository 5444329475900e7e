#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the date translator and writes model.safetensors, cases.safetensors and the vocabularies.

    python3 train.py                     trains (about 10 minutes on two cores) and exports the best model
    python3 train.py --steps 2500        a shorter training
    python3 train.py --evaluate          prints the held-out accuracy of the exported model
    python3 train.py --translate TEXT    one translation with the exported model

Needs PyTorch and safetensors. The model is the encoder-decoder of "Attention Is All You Need" written out:
sinusoidal positions, embeddings times sqrt(d), multi-head attention, a feed-forward net with ReLU, the sum
x + sublayer(x) followed by LayerNorm (post-norm), a causal mask and encoder-decoder attention in the
decoder, and a linear layer before the softmax. No dropout: the data never repeat, so nothing is memorised.
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

D, HEADS, FF, LAYERS = 96, 4, 256, 2
EPS = 1e-5
HELD_OUT_SEED, HELD_OUT_COUNT = 20260101, 4000
BATCH = 160
PEAK_RATE, WARM_UP = 1.5e-3, 300
PROBE_EVERY = 500


# --- the model -------------------------------------------------------------------------------------------


def sinusoid(length, d):
    """[length, d]: sin(t w_0), cos(t w_0), sin(t w_1), ... with w_j = 10000^(-2j/d)"""
    t = torch.arange(length, dtype=torch.float64)[:, None]
    w = torch.pow(10000.0, -2.0 * torch.arange(d // 2, dtype=torch.float64) / d)
    return torch.stack([torch.sin(t * w), torch.cos(t * w)], dim=2).reshape(length, d).float()


class Attention(nn.Module):
    """Multi-head attention with separate q, k, v, o; keys and values come from `memory`."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))

    def forward(self, x, memory, visible):
        """x [B, S, D], memory [B, T, D], visible: bool, broadcast to [B, HEADS, S, T]"""
        batch = x.shape[0]
        q, k, v = (f(y).view(batch, -1, HEADS, D // HEADS).transpose(1, 2)
                   for f, y in ((self.q, x), (self.k, memory), (self.v, memory)))
        scores = q @ k.transpose(2, 3) / math.sqrt(D // HEADS)
        weights = scores.masked_fill(~visible, -1e30).softmax(dim=-1)
        return self.o((weights @ v).transpose(1, 2).reshape(batch, -1, D))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(D, FF), nn.Linear(FF, D)

    def forward(self, x):
        return self.down(F.relu(self.up(x)))


class EncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attention, self.ffn = Attention(), FeedForward()
        self.norm1, self.norm2 = nn.LayerNorm(D, EPS), nn.LayerNorm(D, EPS)

    def forward(self, x, visible):
        x = self.norm1(x + self.self_attention(x, x, visible))
        return self.norm2(x + self.ffn(x))


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attention, self.cross_attention, self.ffn = Attention(), Attention(), FeedForward()
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(D, EPS) for _ in range(3))

    def forward(self, x, memory, visible, memory_visible):
        x = self.norm1(x + self.self_attention(x, x, visible))
        x = self.norm2(x + self.cross_attention(x, memory, memory_visible))
        return self.norm3(x + self.ffn(x))


class Stack(nn.Module):
    """An embedding table and layers: one side of the model."""

    def __init__(self, vocab, layer):
        super().__init__()
        self.embedding = nn.Embedding(vocab, D)
        nn.init.normal_(self.embedding.weight, std=D ** -0.5)
        self.layers = nn.ModuleList(layer() for _ in range(LAYERS))

    def embed(self, ids):
        return self.embedding(ids) * math.sqrt(D) + sinusoid(ids.shape[1], D)


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Stack(len(data.SOURCE_VOCAB), EncoderLayer)
        self.decoder = Stack(len(data.TARGET_VOCAB), DecoderLayer)
        self.decoder.head = nn.Linear(D, len(data.TARGET_VOCAB))

    def encode(self, src, lengths):
        """src [B, S], lengths [B] -> memory [B, S, D]"""
        real = key_mask(lengths, src.shape[1])
        x = self.encoder.embed(src)
        for layer in self.encoder.layers:
            x = layer(x, real)
        return x

    def decode(self, tgt, memory, lengths):
        """tgt [B, T], memory [B, S, D], lengths [B] of the source -> logits [B, T, V]

        Targets are padded on the right, where the causal mask hides them from the real positions.
        """
        real = key_mask(lengths, memory.shape[1])
        causal = torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool).tril()[None, None]
        x = self.decoder.embed(tgt)
        for layer in self.decoder.layers:
            x = layer(x, memory, causal, real)
        return self.decoder.head(x)


def key_mask(lengths, size):
    """[B, 1, 1, size], true at real positions"""
    return (torch.arange(size)[None, :] < lengths[:, None])[:, None, None, :]


@torch.no_grad()
def greedy(model, src, lengths, max_len=data.MAX_TARGET):
    """The ids after <s> with the first </s>, for every row. </s> is never the first; ties: lowest id."""
    memory = model.encode(src, lengths)
    tgt = torch.full((src.shape[0], 1), data.START)
    done = torch.zeros(src.shape[0], dtype=torch.bool)
    while tgt.shape[1] < max_len and not done.all():
        logits = model.decode(tgt, memory, lengths)[:, -1]
        if tgt.shape[1] == 1:
            logits[:, data.STOP] = -math.inf
        new = logits.argmax(dim=-1)
        tgt = torch.cat([tgt, new[:, None]], dim=1)
        done |= new == data.STOP
    rows = []
    for row in tgt[:, 1:].tolist():
        rows.append(row[:row.index(data.STOP) + 1] if data.STOP in row else row)
    return rows


# --- data ------------------------------------------------------------------------------------------------


def pad(rows):
    """Lists of ids -> (ids [B, longest], lengths [B]), padded on the right with <blank>"""
    lengths = torch.tensor([len(r) for r in rows])
    ids = torch.full((len(rows), int(lengths.max())), data.BLANK)
    for i, row in enumerate(rows):
        ids[i, :len(row)] = torch.tensor(row)
    return ids, lengths


def tensors(pairs):
    """(src [B, S], lengths [B], tgt [B, T] with <s> in front, want [B, T] with </s> behind)"""
    src, lengths = pad([data.encode(text, data.SOURCE_VOCAB) for text, _ in pairs])
    iso = [data.encode(text, data.TARGET_VOCAB) for _, text in pairs]
    tgt, _ = pad([[data.START] + ids for ids in iso])
    want, _ = pad([ids + [data.STOP] for ids in iso])
    return src, lengths, tgt, want


def accuracy(model, pairs):
    """The share of pairs whose greedy decoding is right in every character, and some of the wrong ones."""
    model.eval()
    wrong = []
    for first in range(0, len(pairs), 500):
        part = pairs[first:first + 500]
        src, lengths, _, _ = tensors(part)
        for (text, iso), ids in zip(part, greedy(model, src, lengths)):
            if data.decode(ids, data.TARGET_VOCAB) != iso:
                wrong.append((text, iso, data.decode(ids, data.TARGET_VOCAB)))
    model.train()
    return 1.0 - len(wrong) / len(pairs), wrong


# --- training --------------------------------------------------------------------------------------------


def rate(step, steps):
    """Linear warm-up, and half a cosine down to a fiftieth."""
    return PEAK_RATE * min(1.0, step / WARM_UP) * (0.02 + 0.49 * (1.0 + math.cos(math.pi * step / steps)))


def batches(rng):
    """Endless batches. Sixteen of them are drawn together and sorted by length, so that little is padding."""
    while True:
        pairs = [data.sample(rng, held_out=False) for _ in range(16 * BATCH)]
        pairs.sort(key=lambda pair: len(pair[0]))
        parts = [pairs[i:i + BATCH] for i in range(0, len(pairs), BATCH)]
        rng.shuffle(parts)
        yield from (tensors(part) for part in parts)


def train(steps, seed):
    """Trains and exports the checkpoint that is best on a probe (trained days in fresh spellings)."""
    torch.manual_seed(seed)
    model = Translator()
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), eps=1e-9, weight_decay=0.01)
    probe = data.samples(seed + 1, 2000, held_out=False)
    best, start, running = -1.0, time.monotonic(), 0.0
    source = batches(random.Random(seed))
    for step in range(1, steps + 1):
        src, lengths, tgt, want = next(source)
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps)
        logits = model.decode(tgt, model.encode(src, lengths), lengths)
        loss = F.cross_entropy(logits.flatten(0, 1), want.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        running += loss.item()
        if step % PROBE_EVERY == 0 or step == steps:
            share, _ = accuracy(model, probe)
            print(f"{time.monotonic() - start:6.0f} s  step {step:6d}  loss {running / PROBE_EVERY:.5f}  "
                  f"probe {100 * share:.2f} %", flush=True)
            running = 0.0
            if share >= best:
                best = share
                export(model)


# --- export ----------------------------------------------------------------------------------------------


def store(file, tensors):
    """A safetensors file beside this script, replaced in one step, so that a reader never sees half of it."""
    path = os.path.join(HERE, file)
    save_file({name: t.detach().contiguous() for name, t in tensors.items()}, path + ".new")
    os.chmod(path + ".new", 0o644)
    os.replace(path + ".new", path)


def export(model):
    store("model.safetensors", model.state_dict())


def load():
    model = Translator()
    model.load_state_dict(load_file(os.path.join(HERE, "model.safetensors")))
    return model.eval()


@torch.no_grad()
def forward_case(model, pairs, padded):
    """Inputs and outputs of one forward case; outputs at padded positions are stored as 0."""
    src, lengths, tgt, _ = tensors(pairs)
    tgt_lengths = torch.full((len(pairs),), tgt.shape[1])
    if padded:  # targets of different lengths: prefixes, as in the middle of a generation
        tgt_lengths = torch.tensor([max(1, tgt.shape[1] - 5 * i) for i in range(len(pairs))])
    memory = model.encode(src, lengths)
    logits = model.decode(tgt, memory, lengths)
    case = {"src": src, "tgt": tgt, "memory": memory * key_mask(lengths, src.shape[1])[:, 0, 0, :, None],
            "logits": logits * key_mask(tgt_lengths, tgt.shape[1])[:, 0, 0, :, None]}
    if padded:
        case.update(lengths=lengths, decoder_lengths=tgt_lengths)
    return case


SHOWN = ["the 3rd of March, 2021", "3/3/21", "Weds 3 Mar 2021", "March 3rd 2021", "2021.03.03", "03-Mar-2021",
         "FRIDAY, THE 29TH OF FEBRUARY 2008", "20211231"]


def write_cases(model):
    """cases.safetensors: what PyTorch computes, for the `checks` of model.yaml."""
    cases = {"one": forward_case(model, [("3/3/21", "2021-03-03")], False),
             "long": forward_case(model, [("Wednesday, the 22nd of September, 2021", "2021-09-22")], False),
             "batch3": forward_case(model, [("3 Mar 2021", "2021-03-03"), ("3.4.2019", "2019-04-03"),
                                            ("the 3rd of March, 2021", "2021-03-03")], True)}
    for i, text in enumerate(SHOWN):
        src, lengths = pad([data.encode(text, data.SOURCE_VOCAB)])
        cases[f"greedy{i}"] = {"src": src, "new_tokens": torch.tensor(greedy(model, src, lengths)[0])}
    flat = {}
    for name, case in cases.items():
        for key, value in case.items():
            value = value if value.is_floating_point() else value.to(torch.int32)
            flat[f"{name}.{key}"] = value
    store("cases.safetensors", flat)


def report(model):
    """The held-out accuracy, some of the mistakes and some translations."""
    pairs = data.samples(HELD_OUT_SEED, HELD_OUT_COUNT, held_out=True)
    share, wrong = accuracy(model, pairs)
    for text, iso, got in wrong[:10]:
        print(f"wrong: {text!r}: {got}, not {iso}")
    print(f"held-out accuracy (greedy, every character right): {100 * share:.2f} % of {len(pairs)}")
    for text in SHOWN:
        print(f"{text:36s} {translate(model, text)}")


def translate(model, text):
    src, lengths = pad([data.encode(text, data.SOURCE_VOCAB)])
    return data.decode(greedy(model, src, lengths)[0], data.TARGET_VOCAB)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--export", action="store_true", help="only write the cases of the exported model")
    parser.add_argument("--translate", metavar="TEXT")
    arguments = parser.parse_args()
    if arguments.translate is not None:
        print(translate(load(), arguments.translate))
        return
    if not (arguments.evaluate or arguments.export):
        train(arguments.steps, arguments.seed)
    model = load()
    if not arguments.evaluate:
        data.write_vocab(HERE)
        write_cases(model)
    report(model)


if __name__ == "__main__":
    main()
