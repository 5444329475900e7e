#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Mistakes of a first day, and all that stderr says to each: the place, what is wrong in the user's words, the cure.
set -uo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
cp -r "$TFMC_SOURCE/tests/invalid/base" .
bad=0

# spoil NAME SED: the valid model with one change
spoil() { sed "s|files: \[|files: [base/|; $2" base/model.yaml | tail -n +2 >"$1.yaml"; }

# says CODE ARGUMENT... <<EXPECTED: exit code and stderr of tfmc
says()
{
	local want=$1
	shift
	cat >want
	"$TFMC" "$@" >out 2>got </dev/null
	local code=$?
	[ $code -eq "$want" ] && diff -u want got && return
	echo "tfmc $*: exit code $code, wanted $want" >&2
	bad=1
}

spoil ok ''
spoil key 's/heads: heads/haeds: heads/'
spoil name 's/dim: ff/dim: fff/'
spoil missing '/^outputs/d'
spoil twice 's/^outputs/params: {d: 9}\noutputs/'
spoil step 's/- linear:/- liner:/'
spoil include 's/^name/include: [nothing.yaml]\nname/'
spoil open 's/ctx: 6}/ctx: 6/'
spoil shape 's/ctx: 6/ctx: 7/'
spoil heads 's/heads: 2/heads: 3/'
spoil indent 's/^  - norm: {id: final}/ - norm: {id: final}/'
spoil big 's/ctx: 6/ctx: 99999999999999999999/'

says 2 ok.yaml -o m.o --weigths=embed <<'EXPECTED'
tfmc: unknown option --weigths=embed; did you mean --weights? (see tfmc help)
EXPECTED
says 2 ok.yaml -o m.o -O3 <<'EXPECTED'
tfmc: unknown option -O3; did you mean -O2 (the highest)? (see tfmc help)
EXPECTED
says 2 rnu ok.yaml <<'EXPECTED'
tfmc: there is no command or file 'rnu'; did you mean tfmc run? (see tfmc help)
EXPECTED
says 3 absent.yaml -o m.o <<'EXPECTED'
error: cannot read 'absent.yaml': there is no such file [E701]
EXPECTED
says 1 base/model.safetensors -o m.o <<'EXPECTED'
error: 'base/model.safetensors' is a file of weights (safetensors), not a model [E701]
note: a model is a model file (.yaml) that names its weights, a folder with config.json, or a GGUF file
EXPECTED
says 2 ok.yaml -o <<'EXPECTED'
tfmc: option -o requires a value (FILE) (see tfmc help)
EXPECTED
says 3 ok.yaml -o no/m.o <<'EXPECTED'
error: cannot write no/m.o: No such file or directory [E701]
EXPECTED
says 2 ok.yaml -o m.o --color=maybe <<'EXPECTED'
tfmc: --color is auto, always or never, not maybe (see tfmc help)
EXPECTED
says 1 ok.yaml -o m.o --target=aarch64-linux-gun <<'EXPECTED'
error: unknown target aarch64-linux-gun; did you mean 'aarch64-linux-gnu'? [E703]
EXPECTED
says 1 ok.yaml -o m.o --passes=fuse-sofmax <<'EXPECTED'
error: there is no pass 'fuse-sofmax'; did you mean 'fuse-softmax'? [E604]
EXPECTED
says 1 key.yaml -o m.o <<'EXPECTED'
key.yaml:15:55: error: unknown key 'haeds' in step 'attention'; did you mean 'heads'? [E103]
   15 |       - residual: {id: attn, body: [norm, attention: {haeds: heads, mask: causal}]}
      |                                                       ^~~~~
EXPECTED
says 1 name.yaml -o m.o <<'EXPECTED'
name.yaml:16:64: error: there is no 'fff' here; did you mean 'ff'? [E111]
   16 |       - residual: {id: mlp, body: [norm, ffn: {act: relu, dim: fff}]}
      |                                                                ^~~
EXPECTED
says 1 missing.yaml -o m.o <<'EXPECTED'
missing.yaml:1:1: error: the model needs 'outputs' [E200]
    1 | tfmc: 1
      | ^
EXPECTED
says 1 twice.yaml -o m.o <<'EXPECTED'
twice.yaml:19:1: error: the key 'params' is given twice [E102]
   19 | params: {d: 9}
      | ^~~~~~
twice.yaml:3:1: note: the first one is here
    3 | params: {d: 8, heads: 2, ff: 12, layers: 2, vocab: 11, ctx: 6}
      | ^~~~~~
EXPECTED
says 1 step.yaml -o m.o <<'EXPECTED'
step.yaml:18:5: error: unknown key 'liner' in a list of steps; did you mean 'linear'? [E103]
   18 |   - liner: {id: head, out: vocab, bias: false}
      |     ^~~~~
EXPECTED
says 3 include.yaml -o m.o <<'EXPECTED'
include.yaml:2:11: error: cannot read 'nothing.yaml': there is no such file [E701]
    2 | include: [nothing.yaml]
      |           ^~~~~~~~~~~~
include.yaml:2:11: note: in the include named here
    2 | include: [nothing.yaml]
      |           ^~~~~~~~~~~~
EXPECTED
says 1 open.yaml -o m.o <<'EXPECTED'
open.yaml:4:5: error: expected ',' or '}' [E101]
    4 | dims: {B: 1..2, S: 1..ctx}
      |     ^
open.yaml:3:9: note: to close this '{'
    3 | params: {d: 8, heads: 2, ff: 12, layers: 2, vocab: 11, ctx: 6
      |         ^
EXPECTED
says 1 indent.yaml -o m.o <<'EXPECTED'
indent.yaml:17:2: error: expected a key; is it indented as the keys above? [E101]
   17 |  - norm: {id: final}
      |  ^
indent.yaml:1:1: note: the mapping begins here
    1 | tfmc: 1
      | ^
EXPECTED
says 1 shape.yaml -o m.o <<'EXPECTED'
shape.yaml:12:5: error: the parameter 'pos.weight' wants [7, 8], the tensor 'pos.weight' of 'base/model.safetensors' is [6, 8] [E401]
   12 |   - positions: {id: pos, kind: learned, len: ctx}
      |     ^~~~~~~~~
note: 'ctx' is 7, the files have 6
shape.yaml:24:16: note: mapped here
   24 |     "{a}.{w}": "{a}.{w}"
      |                ^~~~~~~~~
EXPECTED
says 1 heads.yaml -o m.o <<'EXPECTED'
heads.yaml:15:62: error: width (8) is not a multiple of heads (3) (step layers.0.attn.attention) [E108]
   15 |       - residual: {id: attn, body: [norm, attention: {heads: heads, mask: causal}]}
      |                                                              ^~~~~
EXPECTED
says 1 big.yaml -o m.o <<'EXPECTED'
big.yaml:3:61: error: '99999999999999999999' does not fit into 64 bits [E112]
    3 | params: {d: 8, heads: 2, ff: 12, layers: 2, vocab: 11, ctx: 99999999999999999999}
      |                                                             ^~~~~~~~~~~~~~~~~~~~
EXPECTED
says 1 generate ok.yaml --tokens 1,99 -O0 <<'EXPECTED'
error: generate: id 99, number 2 of the prompt, is outside of the vocabulary of 11 [E704]
EXPECTED

[ ! -e m.o ] || { echo "an object was written" >&2; bad=1; }
exit $bad
