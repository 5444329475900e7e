# SPDX-License-Identifier: Apache-2.0
# %% [markdown]
# # The example models from Python
# Cells in the percent format: Jupyter, VS Code and Spyder run them one by one, `python3 examples/notebook.py` all of
# them. With matplotlib the pictures are shown, or written to `notebook-*.png` where there is no display.

# %%
from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import tfmc
from numpy.typing import NDArray

examples = Path(os.environ.get("TFMC_SOURCE", Path(__file__).parent.parent if "__file__" in globals() else ".")) / "examples"

# %% [markdown]
# ## Translate
# The encoder-decoder of [dates](dates/README.md). Compiling takes a second; the object can be kept (`output=`) and loaded.

# %%
dates = tfmc.compile(examples / "dates" / "model.yaml")
print(dates)
for written in "the 3rd of March, 2021", "3/3/21", "Weds 3 Mar 2021":
    print(f"{written:24} {dates.generate(written)}   log p {dates.score(written, '2021-03-03').total:.3f}")

# %% [markdown]
# ## Tell a tale
# A small Llama as a folder of the hub, in 8 bits; text comes piece by piece.

# %%
tales = tfmc.compile(examples / "hub" / "tales", quantize="int8")
for piece in tales.generate("Zoë was a frog", max_tokens=40, temperature=0.7, seed=1):
    print(piece, end="", flush=True)
print()

# %% [markdown]
# ## Next tokens
# `run` takes arrays by name (NumPy, DLPack or lists) and returns arrays.

# %%
ids = np.array([tales.tokenize("Once upon a")], np.int32)
logits: NDArray[np.float32] = tales.run(input_ids=ids)["logits"][0, -1]
p = np.exp(logits - logits.max())
p /= p.sum()
for i in np.argsort(-p)[:5]:
    print(f"{tales.detokenize([int(i)])!r:10} {p[i]:.3f}")

# %% [markdown]
# ## Vectors of sentences

# %%
embed = tfmc.compile(examples / "embed" / "model.yaml")
words = {word: i for i, word in enumerate((examples / "embed" / "vocab.txt").read_text(encoding="utf-8").split("\n"))}
sentences = (examples / "embed" / "sentences.txt").read_text(encoding="utf-8").splitlines()[:40]
rows = [[words.get(word, 0) for word in s.lower().rstrip(".").split()][:20] for s in sentences]
vectors = embed.embed(rows)
near = vectors @ vectors.T / np.linalg.norm(vectors, axis=1) / np.linalg.norm(vectors, axis=1)[:, None]
np.fill_diagonal(near, -1)
a, b = np.unravel_index(int(near.argmax()), near.shape)
print(f"{sentences[int(a)]} ~ {sentences[int(b)]} ({near.max():.2f})")

# %% [markdown]
# ## What a model takes

# %%
plan = tales.plan(B=1, S=64)
print(f"weights {plan.weights / 1e6:.2f} MB, a sequence {plan.state_for_each_sequence / 1e3:.0f} kB, "
      f"arena {plan.arena / 1e3:.0f} kB, a prompt of 64 {plan.flops['prefill'] / 1e6:.0f} MFLOP")

# %% [markdown]
# ## Errors have places

# %%
try:
    tfmc.compile("tfmc: 1\nname: wrong\ninputs: {x0: {shape: [2], dtype: f32}}\nmodel: [foo: 1]\noutputs: {y: x}\n")
except tfmc.Error as e:
    print(f"line {e.line}, column {e.column}: {e.message} ({e.code})")

# %% [markdown]
# ## Attention, as pictures
# Which characters of the source each digit of the date looks at: a picture for each head of the last layer.

# %%
source, target = "the 3rd of March, 2021", "2021-03-03"
maps = dates.attention(source, target, attentions="cross", layers=[1])
path, weights = next(iter(maps.items()))
print(path, weights.shape)


def draw(weights: NDArray[np.float32], rows: str, columns: str, title: str, file: str) -> None:
    """weights [heads, rows, columns]."""
    try:
        import matplotlib
    except ImportError:
        print("no pictures: matplotlib is absent")
        return
    if not os.environ.get("DISPLAY") and "JPY_PARENT_PID" not in os.environ:
        matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    figure, axes = plt.subplots(1, len(weights), figsize=(4 * len(weights), 3), squeeze=False, layout="constrained")
    for head, axis in enumerate(axes[0]):
        axis.imshow(weights[head], vmin=0, vmax=1, cmap="Blues", aspect="auto")
        axis.set_xticks(range(len(columns)), list(columns))
        axis.set_yticks(range(len(rows)), list(rows))
        axis.set_title(f"head {head}")
    figure.suptitle(title)
    if matplotlib.get_backend().lower() == "agg":
        figure.savefig(file)
        print("wrote", file)
    else:
        plt.show()


draw(weights, ("^" + target)[:weights.shape[1]], source[:weights.shape[2]], path, "notebook-attention.png")
