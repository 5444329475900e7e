#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Keys of GGUF metadata beside those of the computation: ids that end a turn or a message, by their keys or by their texts, stop
# generation as the end of a text does, the pooling that an embedder names is an output, provenance and neutral values change
# nothing, others are refused by name, normalizers and ends of BERT are followed.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
models=$TFMC_SHARED/models
[ -d "$models" ] || { echo "SKIPPED: $models is absent"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# write FOLDER FILE KEY=VALUE..: the folder as a GGUF file with these keys
write() {
	python3 -B - "$TFMC_SOURCE/tests/support" "$@" <<'P'
import json
import sys
sys.path.insert(0, sys.argv[1])
import to_gguf
metadata, tensors = to_gguf.convert(sys.argv[2])
for pair in sys.argv[4:]:
    key, value = pair.split("=")
    if value:
        metadata[key] = json.loads(value)
    else:
        metadata.pop(key, None)
to_gguf.write(sys.argv[3], 3, metadata, to_gguf.pack(tensors, "f32"))
P
}
# stops WANT KEY=VALUE..
stops() {
	local want=$1 got
	shift
	write "$models/variants/llama" "$tmp/llama.gguf" "$@"
	"$TFMC" expand "$tmp/llama.gguf" >"$tmp/text"
	got=$(sed -n 's/.*stop: \(\[[^]]*\]\|[0-9]*\).*/\1/p' "$tmp/text" | tr -d ' ' | head -1)
	[ "$got" = "$want" ] || { echo "$*: stop is '$got', not '$want'" >&2; exit 1; }
}
t=tokenizer.ggml
stops 7 "$t.eos_token_id=7"
stops '[7,9]' "$t.eos_token_id=7" "$t.eot_token_id=9"
stops '[7,9,11]' "$t.eos_token_id=7" "$t.eom_token_id=11" "$t.eot_token_id=9"
stops 7 "$t.eos_token_id=7" "$t.eot_token_id=7"
stops 9 "$t.eos_token_id=" "$t.eot_token_id=9"
# Texts: [ID, TEXT] pairs replace pieces of the vocabulary. A key for a kind of token goes before its texts.
texts() { python3 -c 'import json, sys; w = dict(a.split(":") for a in sys.argv[1:]); print(json.dumps([w.get(str(i), f"t{i}") for i in range(64)]))' "$@"; }
stops '[7,20]' "$t.eos_token_id=7" "$t.tokens=$(texts '20:<|im_end|>')"
stops '[7,21,20,22]' "$t.eos_token_id=7" "$t.tokens=$(texts '20:<end_of_turn>' '21:<|eot_id|>' '22:<|eom_id|>')"
stops '[7,9,20]' "$t.eos_token_id=7" "$t.eot_token_id=9" "$t.tokens=$(texts '20:<|eot_id|>')"
stops '[7,9]' "$t.eos_token_id=7" "$t.fim_pad_token_id=9" "$t.tokens=$(texts '20:<|fim_pad|>')"
stops '[7,20]' "$t.eos_token_id=7" "$t.tokens=$(texts '20:<|fim_pad|>')"
stops 7 "$t.eos_token_id=7" "$t.tokens=$(texts '20:<|eot_id|> ' '21:eot_id' '22:im_end' '23:<|im_start|>')"
stops '[7,21,22]' "$t.eos_token_id=7" "$t.tokens=$(texts '20:<|end|>' '21:<|return|>' '22:<|call|>')" # of several messages
stops '[7,20,21]' "$t.eos_token_id=7" "$t.tokens=$(texts '20:<|end|>' '21:<|return|>')"
stops 20 "$t.eos_token_id=7" "$t.tokens=$(texts '7:</s>' '20:<|tool_response>')"

# Provenance and neutral values change nothing; the same keys with other values are refused.
"$TFMC" import "$tmp/llama.gguf" >"$tmp/want"
same() {
	write "$models/variants/llama" "$tmp/llama.gguf" "$t.eos_token_id=7" "$t.tokens=$(texts '7:</s>' '20:<|tool_response>')" "$@"
	"$TFMC" import "$tmp/llama.gguf" >"$tmp/got" && cmp "$tmp/want" "$tmp/got" || { echo "$*: another model" >&2; exit 1; }
}
refused() {
	write "$models/variants/llama" "$tmp/llama.gguf" "$1"
	if "$TFMC" import "$tmp/llama.gguf" >/dev/null 2>"$tmp/error"; then echo "$1 is taken" >&2; exit 1; fi
	key=${1%%=*}
	grep -F "'${key#llama.}'" "$tmp/error" >/dev/null || { cat "$tmp/error" >&2; exit 1; }
}
same 'someone.quantized_by="me"' someone.quantize_version=2 'quantize.imatrix.file="x"' split.no=0 block_count=9 other.block_count=9 \
	other.attention.causal=false 'general.anything="x"'
same llama.pooling_type=0 llama.attention.causal=true llama.leading_dense_block_count=0 llama.nextn_predict_layers=0 \
	llama.expert_count=0 llama.expert_used_count=0 llama.attn_logit_softcapping=0.0 llama.logit_scale=1.0 llama.rope.scaling.factor=0.0 \
	llama.attention.clamp_kqv=0.0 llama.attention.sliding_window=0
for key in llama.pooling_type=1 llama.attention.causal=false llama.leading_dense_block_count=1 llama.nextn_predict_layers=1 \
	llama.attn_logit_softcapping=30.0 llama.logit_scale=0.5 llama.unheard_of=1 tokenizer.ggml.unheard_of=1; do
	refused "$key"
done
write "$models/variants/llama" "$tmp/llama.gguf" "$t.suppress_tokens=[5,9]"
"$TFMC" expand "$tmp/llama.gguf" | grep 'suppress: \[5, 9\]' >/dev/null

# Generation ends there: the third token of the model is made one that ends a turn.
write "$models/variants/llama" "$tmp/plain.gguf"
long=$("$TFMC" generate "$tmp/plain.gguf" "${quick[@]}" --tokens=1,5,7 --max-tokens=6 --print-tokens --ignore-stop)
read -r first second third _ <<<"${long//,/ }"
write "$models/variants/llama" "$tmp/turn.gguf" "$t.eot_token_id=$third"
[ "$first" != "$third" ] && [ "$second" != "$third" ]
short=$("$TFMC" generate "$tmp/turn.gguf" "${quick[@]}" --tokens=1,5,7 --max-tokens=6 --print-tokens)
[ "$(wc -w <<<"${short//,/ }")" -le 3 ] && [[ "${short//,/ }" == "$first $second"* ]] || { echo "'$long' is cut to '$short'" >&2; exit 1; }

# Pooling: mean, first and last row of the hidden states.
for type in 0 1 2 3 4; do
	write "$models/bert-tiny" "$tmp/bert.gguf" "bert.pooling_type=$type"
	python3 -B - "$TFMC" "$tmp/bert.gguf" "$tmp" "$type" <<'P'
import json
import struct
import subprocess
import sys
tfmc, model, tmp, kind = sys.argv[1:]
ids, lengths = [[1, 5, 9, 3], [8, 4, 0, 0]], [4, 2]
tensors = {"input_ids": ([2, 4], sum(ids, [])), "lengths": ([2], lengths)}
head, at, data = {}, 0, b""
for name, (shape, values) in tensors.items():
    head[name] = {"dtype": "I32", "shape": shape, "data_offsets": [at, at + 4 * len(values)]}
    at += 4 * len(values)
    data += struct.pack(f"<{len(values)}i", *values)
text = json.dumps(head).encode()
open(tmp + "/in.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
done = subprocess.run([tfmc, "run", model, "--inputs", tmp + "/in.safetensors", "--outputs", tmp + "/out.safetensors"], capture_output=True, text=True, check=True)
raw = open(tmp + "/out.safetensors", "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
head = json.loads(raw[8:8 + n])
def read(name):
    a, b = head[name]["data_offsets"]
    return head[name]["shape"], struct.unpack(f"<{(b - a) // 4}f", raw[8 + n + a:8 + n + b])
shape, hidden = read("last_hidden_state")
d = shape[2]
rows = [[hidden[(b * 4 + s) * d:(b * 4 + s + 1) * d] for s in range(lengths[b])] for b in range(2)]
want = {"1": [[sum(c) / len(r) for c in zip(*r)] for r in rows], "2": [r[0] for r in rows], "3": [r[-1] for r in rows]}.get(kind)
assert ("sentence_embedding" in head) == (want is not None), head.keys()
assert ("pooling_type 4" in done.stderr) == (kind == "4"), done.stderr
if want:
    got = read("sentence_embedding")[1]
    assert max(abs(x - y) for x, y in zip(got, sum(map(list, want), []))) < 1e-5
print("pooling", kind)
P
done

# Normalizers and what is around a text of BERT. bert WANT TEXT KEY=VALUE..: its ids
bert() {
	local want=$1 text=$2 got
	shift 2
	write "$models/bert-tiny" "$tmp/bert.gguf" "$t.model=\"bert\"" "$t.token_type=[3,3,3,3,1,1,1,1,1,1]" \
		"$t.tokens=[\"[PAD]\",\"[UNK]\",\"[CLS]\",\"[SEP]\",\"▁Ab\",\"▁ab\",\"▁Éb\",\"▁eb\",\"▁éb\",\"▁Eb\"]" "$@"
	got=$("$TFMC_BUILD/tests/tfmc_tokens" "$tmp/bert.gguf" ids special <<<"$text" | tr '\0\n' '  ' | xargs)
	[ "$got" = "$want" ] || { echo "bert $*: '$text' is '$got', not '$want'" >&2; exit 1; }
}
bert '2 4 6 3' 'Ab Éb' # words have capitals
bert '2 5 7 3' 'Ab Éb' "$t.normalizer.lowercase=true"
bert '2 5 8 3' 'Ab Éb' "$t.normalizer.lowercase=true" "$t.normalizer.strip_accents=false"
bert '2 4 9 3' 'Ab Éb' "$t.normalizer.lowercase=false" "$t.normalizer.strip_accents=true"
bert '2 4 6 3' 'Ab Éb' "$t.normalizer.lowercase=false" "$t.normalizer.strip_accents=false"
bert '4 6 3' 'Ab Éb' "$t.add_bos_token=false"
bert '2 4 6' 'Ab Éb' "$t.add_eos_token=false"
bert '4 6' 'Ab Éb' "$t.add_bos_token=false" "$t.add_eos_token=false"
bert '2 4 6 3' 'Ab Éb' "$t.add_bos_token=true" "$t.add_eos_token=true"
write "$models/bert-tiny" "$tmp/bert.gguf" "$t.model=\"bert\"" "$t.tokens=[\"[UNK]\"]" \
	"$t.normalizer.squash=true"
if "$TFMC_BUILD/tests/tfmc_tokens" "$tmp/bert.gguf" ids </dev/null 2>"$tmp/error"; then exit 1; fi
grep -F tokenizer.ggml.normalizer.squash "$tmp/error" >/dev/null
echo "keys, normalizers, ends"
