#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the teller of tales and writes it as a hub folder, `tales`, as the library `transformers` saves any model.

    python3 train.py                     trains (about 10 minutes on one core) and writes the folder and the cases
    python3 train.py --steps 300         a shorter training
    python3 train.py --export            writes the cases of the folder again
    python3 train.py --evaluate          draws tales and counts those that keep their facts

Needs PyTorch, transformers and tokenizers. The model is a Llama: RMSNorm, rotary positions, grouped-query attention, a gated
feed-forward net, and the embedding table once more as output layer; weights are stored as bf16. Its tokens are byte pairs.
"""
import argparse
import math
import os
import time

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import data

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "tales")

VOCAB, CONTEXT = 512, 256
BATCH, PEAK_RATE, WARM_UP, PROBE_EVERY = 48, 4e-3, 60, 100
PROMPTS = ["", "Once there was a", "Zoë was a frog", "Milo was an owl and lived by the river. He loved nothing more than",
           "Once there was a bear named Quinn, who lived in a hollow tree. Of all her things she liked her brass compass best."]


def make_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(data.tales(7, 20000), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def make_model():
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCAB, hidden_size=96, intermediate_size=256, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=CONTEXT, rms_norm_eps=1e-5, tie_word_embeddings=True,
        bos_token_id=0, eos_token_id=1, initializer_range=0.05))


def rate(step, steps):
    """Linear warm-up, and half a cosine down to a hundredth."""
    return PEAK_RATE * min(1.0, step / WARM_UP) * (0.01 + 0.495 * (1.0 + math.cos(math.pi * step / steps)))


def batch(tokenizer, seed):
    """ids [B, S], padded with </s>, and labels with -100 there"""
    rows = [ids + [1] for ids in tokenizer(data.tales(seed, BATCH))["input_ids"]]
    size = max(map(len, rows))
    ids = torch.tensor([row + [1] * (size - len(row)) for row in rows])
    real = torch.tensor([[True] * len(row) + [False] * (size - len(row)) for row in rows])
    return ids, torch.where(real, ids, -100)


def train(steps):
    torch.manual_seed(1)
    tokenizer, model = make_tokenizer(), make_model()
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.05)
    start = time.monotonic()
    for step in range(1, steps + 1):
        ids, labels = batch(tokenizer, 1000 + step)
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps)
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % PROBE_EVERY == 0 or step == steps:
            print(f"{time.monotonic() - start:6.0f} s  step {step:5d}  loss {loss.item():.4f}", flush=True)
    model.to(torch.bfloat16).save_pretrained(FOLDER)
    tokenizer.save_pretrained(FOLDER)


def load():
    return AutoTokenizer.from_pretrained(FOLDER), AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()


@torch.no_grad()
def greedy(model, ids):
    """New ids, </s> included, at most to the end of the context; ties: lowest id."""
    n, past, new = len(ids), None, list(ids)
    while len(new) < CONTEXT and (len(new) == n or new[-1] != 1):
        out = model(input_ids=torch.tensor([new if past is None else new[-1:]]), past_key_values=past, use_cache=True)
        past = out.past_key_values
        new.append(int(out.logits[0, -1].argmax()))
    return new[n:]


@torch.no_grad()
def export():
    """cases.safetensors: ids, logits and greedy ids of PyTorch; expected.txt: the texts of the greedy ids."""
    tokenizer, model = load()
    cases, lines = {}, []
    for i, prompt in enumerate(PROMPTS):
        ids = tokenizer(prompt)["input_ids"]
        new = greedy(model, ids)
        cases[f"prompt{i}.input_ids"] = torch.tensor([ids], dtype=torch.int32)
        cases[f"prompt{i}.logits"] = model(input_ids=torch.tensor([ids])).logits.clone()
        cases[f"greedy{i}.input_ids"] = torch.tensor([ids], dtype=torch.int32)
        cases[f"greedy{i}.new_tokens"] = torch.tensor(new, dtype=torch.int32)
        lines += [prompt, tokenizer.decode(new, skip_special_tokens=True)]
    save_file(cases, os.path.join(HERE, "cases.safetensors"))
    with open(os.path.join(HERE, "expected.txt"), "w", encoding="utf-8") as out:
        out.write("\n".join(lines) + "\n")


@torch.no_grad()
def evaluate(count=200):
    tokenizer, model = load()
    torch.manual_seed(5)
    out = model.generate(torch.zeros((count, 1), dtype=torch.long), do_sample=True, temperature=0.8, top_k=0,
                         max_length=CONTEXT, pad_token_id=1)
    kept = [data.keeps_its_facts(text) for text in tokenizer.batch_decode(out, skip_special_tokens=True)]
    print(f"{sum(kept)} of {count} tales keep their facts")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--export", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if not (arguments.evaluate or arguments.export):
        train(arguments.steps)
    if not arguments.evaluate:
        export()
    evaluate()


if __name__ == "__main__":
    main()
