#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generation settings of hub folders: `tfmc generate` writes the ids of `model.generate()`.

    python3 generation.py                 replays generation.json (ctest families/generation; standard library only)
    python3 generation.py --draw N [SEED] draws N settings for each family and compares; needs torch and transformers 5
    python3 generation.py --make N [SEED] the same, and keeps those with their results in generation.json

A case is a family of this folder with other keys in config.json, a generation_config.json or none, source or prompt, and options.
The library decides in float64; cases that it decides otherwise in float32 are not kept. Settings come from
generation_config.json alone, from config.json alone, or are in both, so that their precedence is compared as well. Cases of whisper (start sequences, detected languages,
timestamps; one call of the decoder) and phi3_long (beams that grow past the original length of longrope) were chosen by hand and stay as they are.
"""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

import seeded

HERE = os.path.dirname(os.path.abspath(__file__))
STORED = os.path.join(HERE, "generation.json")
FAMILIES = ["llama3", "gpt_neox", "mbart", "blenderbot", "m2m_100", "flan_t5"]
BY_HAND = ["phi3_long", "whisper"]
TFMC = os.environ.get("TFMC") or "tfmc"
# The machine code of the short run is made without optimization, in a third of the time.
QUICK = [] if os.environ.get("TFMC_ALL") else ["-O0", "--passes=O2"]


def make_folder(family, case, folder):
    """config.json and generation_config.json of a case; the weights are made once for each family."""
    with open(os.path.join(HERE, family, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    config.update(case["config"])
    for key in case["without"]:
        config.pop(key, None)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    path = os.path.join(folder, "generation_config.json")
    if os.path.exists(path):
        os.remove(path)
    if case["generation"] is not None:
        with open(path, "w", encoding="utf-8") as f:
            json.dump(case["generation"], f)
    if not os.path.exists(os.path.join(folder, "model.safetensors")):
        seeded.write(family, seeded.read_list(os.path.join(HERE, family, "tensors.txt")), os.path.join(folder, "model.safetensors"))


def run_tfmc(case, folder):
    args = [TFMC, "generate", folder, "--print-tokens"] + QUICK + case["options"]
    if "features" in case:  # of speech, drawn from this seed
        path = os.path.join(folder, "features.input")
        seeded.write(case["features"], [("input_features", [1, 8, 40], 0.0, 1.5)], path)
        args += ["--inputs", path]
    else:
        args += ["--tokens", ",".join(map(str, case["prompt"]))]
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    if done.returncode:
        return done.stderr.strip()
    scored = "--n-best" in case["options"]
    return [[int(id) for id in (line.split("\t")[1] if scored else line).split()] for line in done.stdout.splitlines()]


def report(family, case, got):
    print(f"{family}: {json.dumps({k: v for k, v in case.items() if k != 'ids'})}\n  expected {case['ids']}\n  tfmc     {got}")


def replay():
    with open(STORED, encoding="utf-8") as f:
        cases = json.load(f)
    wrong = total = 0
    with tempfile.TemporaryDirectory() as tmp:
        os.environ["XDG_CACHE_HOME"] = tmp
        for family, rows in cases.items():
            folder = os.path.join(tmp, family)
            os.mkdir(folder)
            for case in rows:
                make_folder(family, case, folder)
                got = run_tfmc(case, folder)
                total += 1
                if got != case["ids"]:
                    wrong += 1
                    report(family, case, got)
    print(f"{total - wrong} of {total} cases have the library's ids")
    return 1 if wrong else 0


# ---- drawing ----


def draw_settings(rng, vocab, liked, is_pair):
    """Some keys of a generation configuration. liked: ids that the model tends to write."""
    some = lambda n: [rng.choice(liked) if rng.random() < 0.7 else rng.randrange(3, vocab) for _ in range(n)]
    keys = {
        "repetition_penalty": lambda: rng.choice([1.1, 1.3, 2.0, 0.8]),
        "no_repeat_ngram_size": lambda: rng.randrange(1, 4),
        "encoder_no_repeat_ngram_size": lambda: rng.randrange(1, 4),
        "encoder_repetition_penalty": lambda: rng.choice([1.2, 1.5, 0.7]),
        "min_length": lambda: rng.randrange(1, 16),
        "min_new_tokens": lambda: rng.randrange(1, 8),
        "bad_words_ids": lambda: [some(rng.randrange(1, 4)) for _ in range(rng.randrange(1, 5))],
        "suppress_tokens": lambda: some(rng.randrange(1, 4)) + ([-1] if rng.random() < 0.2 else []),
        "begin_suppress_tokens": lambda: some(rng.randrange(1, 4)),
        "forced_eos_token_id": lambda: rng.choice([2, liked[0], [2, liked[-1]]]),
        "sequence_bias": lambda: [[some(n), rng.choice([-8.0, -2.5, 3.0, 7.5])] for n in (1, 2, rng.randrange(1, 4))],
        "exponential_decay_length_penalty": lambda: [rng.randrange(0, 6), rng.choice([1.05, 1.3, 0.9])],
        "renormalize_logits": lambda: True,
        "num_beams": lambda: rng.randrange(1, 6),
        "length_penalty": lambda: rng.choice([0.0, 0.5, 1.0, 2.0, -1.0]),
        "early_stopping": lambda: rng.choice([True, False, "never"]),
        "eos_token_id": lambda: rng.choice([2, some(1)[0], sorted(set(some(3))), None]),
        "bos_token_id": lambda: rng.randrange(0, 9),
        "decoder_start_token_id": lambda: rng.randrange(0, 9),
        "forced_bos_token_id": lambda: rng.randrange(3, 40),
        "max_new_tokens": lambda: rng.randrange(3, 14),
        "max_length": lambda: rng.randrange(12, 24),
        "do_sample": lambda: False,
        "num_return_sequences": lambda: 1,
        "unheard_of": lambda: "x",
    }
    if not is_pair:
        del keys["forced_bos_token_id"], keys["decoder_start_token_id"]
    share = rng.choice([0.1, 0.2, 0.35])
    return {key: draw() for key, draw in keys.items() if rng.random() < share}


def draw_case(rng, base, liked, is_pair):
    vocab = base["vocab_size"]
    where = rng.choice(["generation", "generation", "config", "both"])
    case = {"config": {}, "without": [], "generation": None, "options": []}
    if where != "generation":
        case["config"] = draw_settings(rng, vocab, liked, is_pair)
    if where != "config":
        case["generation"] = draw_settings(rng, vocab, liked, is_pair)
        case["generation"].setdefault("eos_token_id", rng.choice([2, liked[0]]))
        if is_pair and rng.random() < 0.8:
            case["generation"].setdefault("decoder_start_token_id", 2)
    if rng.random() < 0.2:
        case["without"] = rng.sample(["eos_token_id", "forced_eos_token_id", "decoder_start_token_id", "pad_token_id"], 2)
    case["config"] = {k: v for k, v in case["config"].items() if k != "unheard_of"}
    case["without"] = [k for k in case["without"] if k not in case["config"] and not (k == "pad_token_id" and "pad_token_id" in base)]
    case["prompt"] = [rng.randrange(3, vocab) if rng.random() < 0.6 else rng.choice(liked) for _ in range(rng.randrange(1, 9))]
    counts = case["generation"] if case["generation"] is not None else dict(base, **case["config"])
    if ("max_new_tokens" not in counts and "max_length" not in counts) or rng.random() < 0.3:
        case["options"] += ["--max-tokens", str(rng.randrange(4, 14))]
    if rng.random() < 0.25:
        case["options"] += ["--beam", str(rng.randrange(2, 6)), "--early-stopping", rng.choice(["true", "false", "never"])]
        if rng.random() < 0.5:
            case["options"] += ["--length-penalty", str(rng.choice([0.0, 0.7, 1.5, -0.5]))]
        if rng.random() < 0.5:
            case["options"] += ["--n-best", "2"]
    return case


def library(case, folder, is_pair, dtype):
    """Ids that the library writes after what it was given and forced to begin with; None where it refuses."""
    import torch
    import transformers

    cls = transformers.AutoModelForSeq2SeqLM if is_pair else transformers.AutoModelForCausalLM
    try:
        model = cls.from_pretrained(folder, dtype=dtype).eval()
    except ValueError:
        return None
    g = model.generation_config
    n_first = 1 + (g.forced_bos_token_id is not None) if is_pair else len(case["prompt"])
    named = dict(zip(case["options"][::2], case["options"][1::2]))
    also = {}
    if "--max-tokens" in named:
        also["max_new_tokens"] = int(named["--max-tokens"]) + (n_first - 1 if is_pair else 0)
    if "--beam" in named:
        also["num_beams"] = int(named["--beam"])
        also["early_stopping"] = {"true": True, "false": False, "never": "never"}[named["--early-stopping"]]
    if "--length-penalty" in named:
        also["length_penalty"] = float(named["--length-penalty"])
    if "--n-best" in named:
        also["num_return_sequences"] = int(named["--n-best"])
    also["return_dict_in_generate"] = True
    also["use_cache"] = "num_decoder_layers" not in vars(model.config)  # whose caches have as many layers as the encoder
    try:
        with torch.no_grad():
            out = model.generate(torch.tensor([case["prompt"]]), **also)
    except (ValueError, RuntimeError, IndexError):
        return None
    rows = out.sequences.tolist()
    if "beam_indices" in out and out.beam_indices is not None:  # shorter results are padded
        new = [sum(i >= 0 for i in row) for row in out.beam_indices.tolist()]
        rows = [row[:n + (1 if is_pair else len(case["prompt"]))] for row, n in zip(rows, new)]
    return [row[n_first:] for row in rows]


def draw(n, seed, keep):
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    kept, wrong, total = {}, 0, 0
    for family in FAMILIES:
        rng = random.Random(f"{seed} {family}")
        with open(os.path.join(HERE, family, "config.json"), encoding="utf-8") as f:
            base = json.load(f)
        is_pair = bool(base.get("is_encoder_decoder"))
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_CACHE_HOME"] = os.path.join(folder, "cache")
            rows = kept[family] = []
            liked = [5]
            plain = {"config": {}, "without": [], "generation": {"decoder_start_token_id": 2, "repetition_penalty": 1.5}, "options": ["--max-tokens", "12"],
                     "prompt": [7, 8, 9]}
            make_folder(family, plain, folder)
            liked = sorted(set(library(plain, folder, is_pair, torch.float64)[0]))
            while len(rows) < n:
                case = draw_case(rng, base, liked, is_pair)
                make_folder(family, case, folder)
                ids = library(case, folder, is_pair, torch.float64)
                if ids is None or ids != library(case, folder, is_pair, torch.float32):
                    continue
                case["ids"] = ids
                rows.append(case)
                got = run_tfmc(case, folder)
                total += 1
                if got != ids:
                    wrong += 1
                    report(family, case, got)
    print(f"{total - wrong} of {total} cases have the library's ids")
    if keep:
        with open(STORED, encoding="utf-8") as f:
            kept.update({k: v for k, v in json.load(f).items() if k in BY_HAND})
        with open(STORED, "w", encoding="utf-8") as f:
            lines = [f' "{family}": [\n' + ",\n".join("  " + json.dumps(row) for row in rows) + "\n ]" for family, rows in kept.items()]
            f.write("{\n" + ",\n".join(lines) + "\n}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] in ("--draw", "--make"):
        sys.exit(draw(int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "0", sys.argv[1] == "--make"))
    sys.exit(replay())
