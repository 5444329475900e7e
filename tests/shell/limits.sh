#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A few lines of a model cannot fill the disk or take the machine: weights that are computed and not stored, code and
# the memory of sessions have limits, which are said at the step that exceeds them before anything is written and
# which options raise. Many steps of their own code take memory by their number, not by its square.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"

refused() { # text of the message, arguments
	local text=$1 status=0
	shift
	"$TFMC" "$@" -mcpu=x86-64-v2 >out 2>&1 || status=$?
	grep -q "$text" out && [ $status = 1 ] || {
		echo "tfmc $*: status $status, no '$text'" >&2
		cat out >&2
		exit 1
	}
}

model() { # dims of S, steps
	printf '%s\n' 'tfmc: 1' 'name: m' "dims: {B: 1..8, S: 1..$1}" 'inputs: {inp: {shape: [B, S, 64], dtype: f32}}' \
		'model:' "$2" 'outputs: {y: x}'
}

# Without the limit: 550 GB.
positions='  - positions: {kind: sinusoidal, layout: interleaved, spacing: paper}'
model 2147483647 "$positions" >positions.yaml
refused 'positions.yaml:6:5: error: weights of 549.8 GB would be written, .* limit is 8 times that and 1.0 GB' \
	positions.yaml -o m.o
grep -q 'limit-weights=549755813632 raises it' out
refused 'limit is 8 times that and 2.5 MB' positions.yaml -o m.o --limit-weights=2.5M
refused 'weights of 549.8 GB would be written' bench positions.yaml --dim S=4
model 20000 "$positions" >some.yaml
refused 'weights of 5.2 MB would be written' some.yaml -o m.o --limit-weights=5M
[ "$(ls)" = "$(printf '%s\n' out positions.yaml some.yaml)" ]
"$TFMC" some.yaml -mcpu=x86-64-v2 -O0 -o m.o --limit-weights=5120kB
[ -s m.o ]
"$TFMC" plan positions.yaml -mcpu=x86-64-v2 | grep -q '549755813632'

# Steps that share no code: 300 kernels of 1500 values.
model 4 '  - repeat: {count: 100, body: [{act: gelu}, {normalize: {p: 2}}, {scale: {by: "1.5 + i"}}]}' >steps.yaml
refused 'steps.yaml:6:[0-9]*: error: the code of the steps up to here has about .* the limit is 20.0 kB' \
	steps.yaml -o m.o --limit-code=20k
(ulimit -d 100000; "$TFMC" steps.yaml -mcpu=x86-64-v2 --emit=c=m.c --limit-code=64M)

model 100000000 '  - {normalize: {p: 2}}
  - {transpose: {perm: [0, 2, 1]}}
  - {normalize: {p: 2}}' >wide.yaml
refused 'a session takes .* GB .* the limit is 1.0 GB' bench wide.yaml --limit-memory=1G
"$TFMC" bench wide.yaml -mcpu=x86-64-v2 --dim S=2 --limit-memory=1T >out 2>&1 || true
! grep -q 'a session takes' out

for wrong in 0 -1 x 1X 1e30; do
	status=0
	"$TFMC" some.yaml -o m.o --limit-code=$wrong 2>out || status=$?
	[ $status = 2 ] && grep -q 'limit-code is a number of bytes' out
done

# Activity is reported on stderr on request: files and stages; progress not to a file of messages.
"$TFMC" some.yaml -mcpu=x86-64-v2 -O0 -o m.o -v 2>out
grep -q '^read some.yaml ([0-9]* bytes)$' out
grep -q '^  weight packing  *[0-9.]* s$' out
"$TFMC" some.yaml -mcpu=x86-64-v2 -O0 -o m.o --progress=never >plain 2>&1
"$TFMC" some.yaml -mcpu=x86-64-v2 -O0 -o m.o >auto 2>&1
cmp plain auto
status=0
"$TFMC" some.yaml -o m.o --progress=maybe 2>out || status=$?
[ $status = 2 ] && grep -q 'progress is auto, always or never, not maybe' out

# Models that no session can call are refused by name, and the interpreter runs them.
inputs=$(seq -s, 128 | sed 's/[0-9]*/%x&: f32[1]/g')
printf 'module "m"\nfunc @run(%s) -> (y: f32[1]) {\n%%y = add %%x1, %%x2 : f32[1]\nreturn %%y\n}\n' "$inputs" >tensors.tir
{
	echo 'module "m"'
	seq 17 | sed 's/.*/dim D& in [1,4]/'
	printf 'func @run(%%x: f32[D17]) -> (y: f32[D17]) {\n%%y = relu %%x : f32[D17]\nreturn %%y\n}\n'
} >dims.tir
mapfile -t values < <(seq 128 | sed 's/.*/--input=x&=&/')
for command in run bench verify; do
	given=("${values[@]}") one=(--input=x=1,2)
	[ $command = run ] || given=() one=()
	refused 'entry run has 128 inputs and 1 outputs; a session takes 128 tensors' $command tensors.tir "${given[@]}"
	refused 'error: the model has 17 dims; a session takes 16' $command dims.tir "${one[@]}"
done
"$TFMC" run tensors.tir "${values[@]}" --backend=interp -q >out
grep -q 3 out
"$TFMC" run dims.tir --input=x=1,2 --backend=interp -q >out
grep -q 2 out
