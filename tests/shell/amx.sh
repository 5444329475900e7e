#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Machine code with matrix tiles; on a machine that has none of them amx.c does what their instructions say, one by
# one. Linears whose sizes fill no tile, line or panel, and whole models in int8 and bf16, against the interpreter.
set -euo pipefail
for feature in avx512_bf16 avx512_vnni; do
	grep -qw $feature /proc/cpuinfo || { echo "SKIPPED: this machine has no $feature"; exit 77; }
done
has_tiles=$(grep -cw amx_tile /proc/cpuinfo) || {
	[ -z "$TFMC_LINK_FLAGS" ] || { echo "SKIPPED: sanitizers do not let themselves be preloaded"; exit 77; }
	ldd "$TFMC" | grep -c libLLVM >/dev/null || { echo "SKIPPED: LLVM is part of the command"; exit 77; }
}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
export XDG_CACHE_HOME=$tmp/cache
"$CC" -std=c17 -Wall -Wextra -Werror -O2 -shared -fPIC -o amx.so "$TFMC_SOURCE/tests/shell/amx.c" -lm

instead=()
[ "$has_tiles" -gt 0 ] || instead=(env "LD_PRELOAD=$tmp/amx.so" "AMX_COUNT=$tmp/count")

# with_tiles ARGUMENT...: `tfmc verify`; products are computed by tiles, and no thread keeps its tiles.
with_tiles() {
	"${instead[@]}" "$TFMC" verify "$@" -mcpu=x86-64-v4-amx >log 2>&1 ||
		{ echo "$*: exit $?" && cat log && exit 1; } >&2
	[ "$has_tiles" -gt 0 ] || grep -c '^[1-9][0-9]* products, 0 threads' count >/dev/null || { echo "$*: $(cat count)" && exit 1; } >&2
}

# NAME FORMAT N K ROUNDING
linears='row q8_row 37 94 {block=0}
odd q8_row 21 98 {block=0}
long q8_row 150 1300 {block=0}
wide q8_row 700 130 {block=0}
one q8_row 1 4 {block=0}
block q8 37 30 {block=0}
same q8 37 30
steps q8 37 94 {block=32}
steps_long q4_128 150 1300 {block=128}
steps_wide q4s 700 130 {block=32}
steps_offset q4_k 45 600 {block=32}
pairs bf16 37 94 {to=bf16}
pairs_odd bf16 21 98 {to=bf16}
pairs_long bf16 150 1302 {to=bf16}
pairs_wide bf16 700 130 {to=bf16}
pairs_one bf16 1 4 {to=bf16}'
module() { # ROWS
	local inputs='' types='' outputs='' body=''
	echo 'module "linears"'
	echo "dim B in [$1,200]"
	while read -r name format n k rounding; do
		local numbers="sinusoid(rows=$n, dim=$k, layout=halves, spacing=t2t, start=1, base=100.0)"
		local made="quantize($format, $numbers)"
		[ "$format" != bf16 ] || made="round(bf16, $numbers)"
		echo "weight @$name : f32[$n,$k] as $format = $made"
		inputs+=", %x_$name: f32[B,$k]" types+=", y_$name: f32[B,$n]" outputs+=", %y_$name"
		body+="  %r_$name = quantize_rows %x_$name $rounding : f32[B,$k]"$'\n'
		body+="  %y_$name = linear %r_$name, @$name : f32[B,$n]"$'\n'
	done <<<"$linears"
	echo "func @run(${inputs#, }) -> (${types#, }) {"
	echo "$body  return ${outputs#, }"
	echo "}"
}
for rows in 1 17 33; do
	module $rows >linears.tir
	with_tiles linears.tir
	awk '/ against interpreter/ && !($(NF - 2) <= 1e-5) { print; bad = 1 } END { exit bad }' log >&2 # of f32 sums
done

for model in classify dates; do
	with_tiles "$TFMC_SOURCE/examples/$model/model.yaml" --quantize=q8_row
done
for model in encoder seq2seq experts; do
	mkdir $model
	ln -s "$TFMC_SOURCE"/tests/golden/torch_$model/*.safetensors $model
	{ # what PyTorch computed is not rounded
		sed '/^checks:/,$d' "$TFMC_SOURCE/tests/golden/torch_$model/model.yaml"
		echo 'dtype: {compute: bf16}'
	} >$model/model.yaml
	with_tiles $model/model.yaml
done

[ "$has_tiles" -eq 0 ] || exit 0
code=0
AMX_REFUSED=1 LD_PRELOAD=$tmp/amx.so "$TFMC" verify linears.tir -mcpu=x86-64-v4-amx >log 2>&1 || code=$?
[ $code -ne 0 ] && grep -c 'cannot run code for x86-64-v4-amx' log >/dev/null
