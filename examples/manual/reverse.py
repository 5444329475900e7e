#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""reverse.py    trains the model of "Attention of your own" (howto.md) to spell words backwards, writes reverse.safetensors

Needs PyTorch and safetensors; a minute on one core. The source is letters; the decoder knows the length of the word, sees what it has
written by causal attention, and looks at the source by additive attention: v tanh(W x + U m), softmax, weighted sum.
"""
import math
import os

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

D, HIDDEN, LETTERS, LONGEST = 32, 24, 26, 12
START, STOP, FIRST = 1, 2, 3  # ids of the target; letters from FIRST on


def sinusoid(length):
    w = 10000.0 ** (-2.0 * torch.arange(D // 2) / D)
    a = torch.arange(length)[:, None] * w
    return torch.cat([a.sin(), a.cos()], 1)


class Reverse(nn.Module):
    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(LETTERS + 1, D), nn.Embedding(LETTERS + FIRST, D)
        self.length = nn.Embedding(LONGEST + 1, D)
        self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))
        self.key, self.query = nn.Linear(D, HIDDEN, bias=False), nn.Linear(D, HIDDEN)
        self.score = nn.Linear(HIDDEN, 1, bias=False)
        self.head = nn.Linear(D, LETTERS + FIRST)

    def forward(self, src, lengths, tgt):
        memory = self.source(src) + sinusoid(src.shape[1])
        x = self.target(tgt) + sinusoid(tgt.shape[1]) + self.length(lengths)[:, None]
        scores = self.q(x) @ self.k(x).transpose(1, 2) / math.sqrt(D)
        seen = torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool).tril()
        x = x + self.o(scores.masked_fill(~seen, -math.inf).softmax(-1) @ self.v(x))
        e = self.score(torch.tanh(self.query(x)[:, :, None] + self.key(memory)[:, None]))[..., 0]
        real = torch.arange(src.shape[1]) < lengths[:, None]
        p = e.masked_fill(~real[:, None], -math.inf).softmax(-1)
        return self.head(x + p @ memory)


def batch(count):
    """Words of 1 to LONGEST letters, what is written so far and what comes next (0: nothing)."""
    lengths = torch.randint(1, LONGEST + 1, (count,))
    src = torch.randint(1, LETTERS + 1, (count, LONGEST))
    tgt, want = torch.zeros(count, LONGEST + 1, dtype=torch.int64), torch.zeros(count, LONGEST + 1, dtype=torch.int64)
    tgt[:, 0] = START
    for i, n in enumerate(lengths.tolist()):
        back = src[i, :n].flip(0) + FIRST - 1
        tgt[i, 1:n + 1], want[i, :n], want[i, n] = back, back, STOP
        src[i, n:] = 0
    return src, lengths, tgt, want


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = Reverse()
    steps = 2500
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * min(1, step / 100) * (0.01 + 0.99 * (1 - step / steps))
        src, lengths, tgt, want = batch(64)
        logits = model(src, lengths, tgt)
        loss = F.cross_entropy(logits.flatten(0, 1), want.flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 250 == 249:
            right = ((logits.argmax(-1) == want) | (want == 0)).all(1).float().mean()
            print(f"step {step + 1}  loss {loss.item():.5f}  words right {100 * right:.0f} %", flush=True)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reverse.safetensors")
    save_file({name: x.contiguous() for name, x in model.state_dict().items()}, path)
    os.chmod(path, 0o644)


if __name__ == "__main__":
    main()
