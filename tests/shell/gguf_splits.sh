#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Splitters that GGUF metadata name: the golden tokenizers of the hub as metadata with such a name give the same ids.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# check GOLDEN PRE..
check() {
	local golden=$TFMC_SOURCE/tests/golden/tokenizers/$1 pre
	shift
	for pre in "$@"; do
		python3 -B - "$TFMC_SOURCE/tests/support" "$golden" "$pre" "$tmp" <<'P'
import json
import sys
sys.path.insert(0, sys.argv[1])
import to_gguf
with open(sys.argv[2] + ".json", encoding="utf-8") as f:
    source = json.load(f)
names = dict(source["model"]["vocab"])
kinds = {}
for added in source["added_tokens"]:
    names[added["content"]] = added["id"]
    kinds[added["id"]] = 3 if added["special"] else 4
tokens = [name for name, _ in sorted(names.items(), key=lambda item: item[1])]
assert [names[token] for token in tokens] == list(range(len(tokens)))
merges = [m if isinstance(m, str) else " ".join(m) for m in source["model"]["merges"]]
metadata = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": sys.argv[3], "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.merges": merges, "tokenizer.ggml.token_type": [kinds.get(i, 1) for i in range(len(tokens))],
            "tokenizer.ggml.add_bos_token": False}
to_gguf.write(sys.argv[4] + "/v.gguf", 3, metadata, to_gguf.pack({}, "f32"))
with open(sys.argv[2] + ".cases.json", encoding="utf-8") as f:
    cases = [case for case in json.load(f) if "text" in case and "\0" not in case["text"]]
assert len(cases) > 20
with open(sys.argv[4] + "/texts", "wb") as f:
    f.write(b"".join(case["text"].encode("utf-8", "surrogatepass") + b"\0" for case in cases))
with open(sys.argv[4] + "/want", "w", encoding="utf-8") as f:
    f.writelines(" ".join(str(i) for i in case["ids"]) + "\n" for case in cases)
P
		"$TFMC_BUILD/tests/tfmc_tokens" "$tmp/v.gguf" ids <"$tmp/texts" | sed 's/^ *//; s/ *$//' >"$tmp/ids"
		diff "$tmp/want" "$tmp/ids" >"$tmp/diff" || { echo "$pre:" >&2; head -20 "$tmp/diff" >&2; exit 1; }
		echo "$pre: $(wc -l <"$tmp/ids") texts"
	done
}

check falcon falcon
check deepseek_coder deepseek-coder
check deepseek_v3 deepseek-v3 hunyuan-dense
check gpt2 gpt-2 phi-2 mellum jina-v1-en jina-v2-code modern-bert
check qwen35 qwen35
check han kimi-k2
check llama3 llama-bpe falcon3 glm4
check o200k gpt-4o minimax-m2
check starcoder starcoder minerva-7b
check bloom bloom gpt3-finnish
