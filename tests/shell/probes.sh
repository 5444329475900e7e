#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Probes: every value of a model by name, through the interpreter and the object, fused and with barriers; groups of
# the model itself stay as they are; patterns that match nothing; --reference finds a planted error at its step.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
golden=$TFMC_SOURCE/tests/golden
mcpu="-mcpu=x86-64-v2 ${quick[*]}"
cat >"$tmp/tensors.py" <<'PY'
import json, struct, sys

def load(path):
    data = open(path, "rb").read()
    n, = struct.unpack("<Q", data[:8])
    out = {}
    for name, t in json.loads(data[8:8 + n]).items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            form = {"F32": "f", "I32": "i"}[t["dtype"]]
            raw = data[8 + n + begin:8 + n + end]
            out[name] = (t["shape"], struct.unpack(f"<{len(raw) // 4}{form}", raw))
    return out
PY
# check EXPRESSION FILES...: of the tensors of files a, b
check() {
	PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$tmp python3 - "$@" <<'PY'
import math, sys
from tensors import load
files = [load(f) for f in sys.argv[2:]]
a, b = files[0], files[-1]
def near(name):
    return a[name][0] == b[name][0] and all(x == y or abs(x - y) <= 1e-5 + 1e-4 * abs(y)
                                            for x, y in zip(a[name][1], b[name][1]))
names = dict(locals())
assert eval(f"({sys.argv[1]})", names), sys.argv[1]
PY
}
run() { "$TFMC" run "$golden/$1/model.yaml" $mcpu --inputs "$golden/$1/cases.safetensors" --prefix "$2." --outputs "$tmp/$3" "${@:4}"; }
# refused CODE TEXT COMMAND...
refused() {
	local code=0
	"${@:3}" >"$tmp/out" 2>"$tmp/err" || code=$?
	[ "$code" -eq "$1" ] || { echo "exit code $code, not $1: ${*:3}"; cat "$tmp/err"; exit 1; }
	grep -aq -- "$2" "$tmp/err" || { echo "no '$2' in:"; cat "$tmp/err"; exit 1; }
}

# One name, a pattern over layers, whole blocks; rows of weights sum to 1; the object and the interpreter agree.
run torch_decoder batch3 plain
run torch_decoder batch3 object --probe='layers.*.weights' --probe=layers.1.self.norm --probe=layers.1
run torch_decoder batch3 interp --probe='layers.*.weights' --probe=layers.1.self.norm --probe=layers.1 --backend interp
check 'near("logits")' "$tmp/plain" "$tmp/object"
check 'set(a) == set(b) == {"logits", "layers.1", "layers.1.self.norm", *(f"layers.{i}.self.attention.weights" for i in range(3))}
	and all(near(n) for n in a)' "$tmp/object" "$tmp/interp"
check 'all(abs(sum(v[k:k + s[3]]) - 1) < 1e-5 for i in range(3) for s, v in [a[f"layers.{i}.self.attention.weights"]]
	for k in range(0, len(v), s[3]))' "$tmp/object"
for level in -O0 -O1 -O2; do
	mcpu=-mcpu=x86-64-v2 run torch_decoder batch3 level $level --probe-barrier --probe='layers.*.weights' --probe=layers.1.self.norm --probe=layers.1
	check 'set(a) == set(b) and all(near(n) for n in a)' "$tmp/level" "$tmp/object"
done
# Rounds that are asked for, no others; an encoder's own entry; steps of a decoder.
run torch_decoder batch3 two --probe='layers.[x]*' --probe='layers.?.ff' 2>"$tmp/err" && exit 1
grep -q "no value of the model is called 'layers.\[x\]\*'" "$tmp/err"
run torch_decoder batch3 two --probe='layers.2.ff' --probe='layers.1.ff'
check 'set(a) == {"logits", "layers.1.ff", "layers.2.ff"}' "$tmp/two"
run torch_decoder batch3 all --probe='layers.?.ff'
check 'b["layers.1.ff"] == a["layers.1.ff"] and b["layers.2.ff"] == a["layers.2.ff"]' "$tmp/two" "$tmp/all"

# Whether attention is fused depends on barriers alone.
groups() {
	run torch_decoder batch3 out --print-ir-after=group "$@" 2>"$tmp/ir"
	sed -n '/^func @run/,/^}/p' "$tmp/ir" | grep -c 'group attention' || true
}
[ "$(groups)" = 1 ]
[ "$(groups --probe='*.scores' --probe='*.weights' --probe='*.context')" -ge 1 ]
[ "$(groups --probe='*.scores' --probe-barrier)" = 0 ]

# Everything of a model at once.
for model in torch_decoder torch_encoder torch_seq2seq torch_front; do
	for barrier in '' --probe-barrier; do
		"$TFMC" verify "$golden/$model/model.yaml" $mcpu --probe='*' $barrier >"$tmp/out"
		[ "$(grep -c 'against interpreter  ' "$tmp/out")" -ge 20 ]
		! grep -q FAILED "$tmp/out"
	done
done

# IR text has names of values and paths as well.
"$TFMC" "$golden/torch_encoder/model.yaml" --passes=canonicalize,fuse-softmax,fuse-attention --stop-after=fuse-attention --emit=tir="$tmp/model.tir"
cp "$golden/torch_encoder/model.safetensors" "$tmp"
"$TFMC" verify "$tmp/model.tir" $mcpu --probe='layers.2.*.weights' --probe=layers.0.norm1 >"$tmp/out"
grep -q 'layers.2.self.attention.weights, against interpreter .* ok' "$tmp/out"
grep -q 'layers.0.norm1, against interpreter .* ok' "$tmp/out"
"$TFMC" "$golden/torch_encoder/model.yaml" $mcpu --stop-after=group --emit=tir="$tmp/grouped.tir"
refused 1 'not supported yet: probes of a module whose kernels' "$TFMC" verify "$tmp/grouped.tir" --probe='*'

# Names with types and places; the weights of an attention op have a column for each key.
"$TFMC" inspect "$golden/torch_seq2seq/model.yaml" --probe='*.cross.*.weights' --probe='decoder' >"$tmp/out"
grep -q '^decoder.layers.1.cross.attention.weights *f32\[B,4,T,S\] .*model.yaml:[0-9]*$' "$tmp/out"
[ "$(grep -c weights "$tmp/out")" = 2 ]
"$TFMC" inspect "$tmp/model.tir" --probe='*.weights' >"$tmp/out"
grep -q '^layers.0.self.attention.weights *f32\[B,3,S,S\]' "$tmp/out"
refused 1 "no value of the model matches 'x'" "$TFMC" inspect "$golden/torch_seq2seq/model.yaml" --probe=x

# Names that are wrong.
refused 1 "no value of the model is called 'layers.0.nrm1'" "$TFMC" verify "$golden/torch_encoder/model.yaml" --probe=layers.0.nrm1
grep -q "did you mean 'layers.0.norm1'" "$tmp/err"
refused 1 "no value of the model is called 'layers.3.norm1'" "$TFMC" verify "$golden/torch_encoder/model.yaml" --probe='*' --probe=layers.3.norm1

# Values of PyTorch; errors that are planted into the model file are found at their step.
acts=$golden/torch_encoder/activations.safetensors
mkdir "$tmp/planted"
cp "$golden"/torch_encoder/{model,cases}.safetensors "$tmp/planted"
"$TFMC" verify "$golden/torch_encoder/model.yaml" $mcpu --reference "$acts" >"$tmp/out"
[ "$(grep -c 'against reference .* ok' "$tmp/out")" = 19 ]
planted() { # EDIT STEP
	sed "$1" "$golden/torch_encoder/model.yaml" >"$tmp/planted/model.yaml"
	! cmp -s "$golden/torch_encoder/model.yaml" "$tmp/planted/model.yaml"
	refused 4 "the first step that differs is $2: largest error" "$TFMC" verify "$tmp/planted/model.yaml" $mcpu --reference "$acts"
	grep -q "planted/model.yaml:[0-9]*:[0-9]*: error: the first step" "$tmp/err"
}
planted 's/act: gelu,/act: gelu_tanh,/' layers.0.ff.ffn
planted 's/- norm: {id: norm2}/- norm: {id: norm2, eps: 1e-3}/' layers.0.norm2
planted 's/mask: none/mask: causal/' layers.0.self.attention
planted 's/fused: qkv}/fused: qkv, scale: 0.3}/' layers.0.self.attention
planted 's/{i}.{n:norm1,norm2}/{i}.{n:norm2=norm1,norm1=norm2}/' layers.0.norm1
refused 3 'cannot read' "$TFMC" verify "$golden/torch_encoder/model.yaml" --reference "$tmp/nothing.safetensors"
refused 1 'has no value of the model' "$TFMC" verify "$golden/torch_decoder/model.yaml" --reference "$golden/torch_front/model.safetensors"
