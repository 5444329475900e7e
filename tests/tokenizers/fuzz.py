#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Damaged hub folders: fuzz.py TOKENS N [SEED] writes those of folders.py with N times one file mutated (values of JSON replaced, keys
renamed or dropped, bytes flipped) and has TOKENS (tfmc_tokens, best with sanitizers) read each: exit status 0, or 1 with a message."""
import copy
import json
import os
import random
import subprocess
import sys
import tempfile

import folders

FILES = ["tokenizer_config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "config.json", "vocab.txt", "merges.txt", "tokenizer.model",
         "spiece.model", "sentencepiece.bpe.model", "generation_config.json"]
VALUES = [None, True, False, 0, -1, 1, 2 ** 31, 2 ** 63 - 1, 1e300, "", "x", "</s>", "[PAD]", "<mask>", "a" * 5000, "\u0001", "\U0010ffff", [], {}, [[]], ["<s>", "<s>"],
          {"content": "</s>"}, {"content": ""}, {"content": "new", "lstrip": True, "normalized": True}, "LlamaTokenizer", "NllbTokenizer", "MBart50Tokenizer", "T5Tokenizer",
          "BertTokenizer", "WhisperTokenizer", "Nobody", {str(i): {"content": f"t{i}"} for i in range(0, 900, 7)}, {"4194304": {"content": "far"}}, {"99999999999999999999": {"content": "y"}}]
KEYS = ["add_bos_token", "add_eos_token", "bos_token", "eos_token", "unk_token", "sep_token", "cls_token", "pad_token", "mask_token", "added_tokens_decoder", "src_lang",
        "tgt_lang", "add_prefix_space", "do_lower_case", "legacy", "legacy_behaviour", "language", "task", "extra_special_tokens", "additional_special_tokens",
        "tokenizer_class", "split_special_tokens", "never_split", "model_type", "architectures", "eos_token_id", "forced_bos_token_id", "decoder_start_token_id"]


def value(rng):
    return copy.deepcopy(rng.choice(VALUES))


def mutate_tree(rng, node):
    """One place of a tree, or a new key of the outermost object."""
    while True:
        if isinstance(node, dict) and node and rng.random() < 0.7:
            key = rng.choice(list(node))
            if isinstance(node[key], (dict, list)) and rng.random() < 0.6:
                node = node[key]
                continue
            if rng.random() < 0.2:
                node[rng.choice(KEYS)] = node.pop(key)
            else:
                node[key] = value(rng)
        elif isinstance(node, dict):
            node[rng.choice(KEYS)] = value(rng)
        elif node:
            node[rng.randrange(len(node))] = value(rng)
        else:
            node.append(value(rng))
        return


def mutate_bytes(rng, data):
    data = bytearray(data or b"{}")
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(data))
        if rng.random() < 0.6:
            data[at] = rng.randrange(256)
        elif rng.random() < 0.5:
            del data[at:at + rng.randrange(1, 40)]
            data = data or bytearray(b"{")
        else:
            data[at:at] = data[at:at + rng.randrange(1, 40)]
    return bytes(data)


def mutant(rng, folder):
    """Mutates one file, which may be new; gives its path and what it was."""
    path = os.path.join(folder, rng.choice([f for f in FILES if f.endswith(".json") or os.path.exists(os.path.join(folder, f))]))
    old = open(path, "rb").read() if os.path.exists(path) else None
    new = None
    if path.endswith(".json") and rng.random() < 0.8:
        try:
            tree = json.loads(old or b"{}")
        except ValueError:  # mutated before
            tree = {}
        for _ in range(rng.randrange(1, 4) if isinstance(tree, (dict, list)) else 0):
            mutate_tree(rng, tree)
        new = json.dumps(tree, ensure_ascii=False).encode("utf-8", "surrogatepass")
    with open(path, "wb") as f:
        f.write(new if new is not None else mutate_bytes(rng, old))
    return path, old


def main():
    tokens, n, rng = sys.argv[1], int(sys.argv[2]), random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    counted = {0: 0, 1: 0}
    with tempfile.TemporaryDirectory() as tmp:
        paths = [folders.build(tmp, name) for name in folders.FOLDERS]
        for i in range(n):
            folder = rng.choice(paths)
            changed = [mutant(rng, folder) for _ in range(rng.randrange(1, 3))]
            text = "".join(rng.choice(folders.TEXTS) for _ in range(3)).encode()
            done = subprocess.run([tokens, folder, "ids", "special"], input=text + b"\0", capture_output=True)
            if done.returncode not in counted or (done.returncode == 1 and not done.stderr) or b"Sanitizer" in done.stderr or b"runtime error" in done.stderr:
                print(f"mutant {i} of {folder}: {[p for p, _ in changed]}, exit status {done.returncode}")
                for p, _ in changed:
                    print(open(p, "rb").read()[:2000])
                sys.exit(done.stderr.decode(errors="replace")[:6000])
            counted[done.returncode] += 1
            for path, old in reversed(changed):
                if old is None:
                    os.remove(path)
                else:
                    with open(path, "wb") as f:
                        f.write(old)
    print(f"{counted[0]} taken, {counted[1]} refused")


if __name__ == "__main__":
    main()
