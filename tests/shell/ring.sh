#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# ring.sh [SEED [FAMILY]]: a model with windows, compiled with caches of all positions and with rings of several
# lengths; what is done to their sequences gives the same bytes (tests/soak/ring.c). FAMILY: on an OpenCL device.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
seed=${1:-1} turns=100
[ -z "${TFMC_ALL:-}" ] || turns=400
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# Two layers with a window of 13 and one with W2, whose heads are 6 wide; the reference has room for CTX positions.
model() { # NAME LEN1 LEN2 W2
	local to=$tmp/$1
	mkdir "$to"
	cp -L "$TFMC_SOURCE/tests/golden/torch_rotary/model.safetensors" "$to"
	sed -e "s/^name: .*/name: $1/" -e 's/ctx: 24/ctx: 150/' -e '/^checks:/,$d' \
		-e "s/kv_heads: kv_heads, /&window: 13, cache: {len: $2}, /" \
		-e "s/- attention:\$/&\n            window: $4\n            cache: {len: $3}/" \
		"$TFMC_SOURCE/tests/golden/torch_rotary/model.yaml" >"$to/model.yaml"
	echo "dtype: {cache: $type}" >>"$to/model.yaml"
}
rows= type=f32
compile() { # NAME LEN1 LEN2 W2 OPTION..
	local name=$1
	model "$1" "$2" "$3" "$4"
	shift 4
	"$TFMC" "$tmp/$name/model.yaml" -o "$tmp/$name.o" "$@"
	rows+="	{\"$name\", ${name}_model},"$'\n'
	echo "#include \"$name.h\"" >>"$tmp/includes"
}

run() { # the models that were compiled
	{
		printf '#include "tfmc_rt.h"\n'
		cat "$tmp/includes"
		printf 'struct ring_model {\n\tconst char *name;\n\tstruct tfmc_model (*model)(void);\n};\n'
		printf 'static const struct ring_model ring_models[] = {\n%s};\n' "$rows"
		printf '#define N_MODELS (sizeof(ring_models) / sizeof(ring_models[0]))\n'
	} >"$tmp/models.h"
	"$CC" -std=c17 -O1 -g -Wall -Wextra -Werror -ffp-contract=off -I"$TFMC_SOURCE" -I"$TFMC_SOURCE/runtime" -I"$tmp" \
		"$TFMC_SOURCE/tests/soak/ring.c" "$tmp"/*.o \
		"$TFMC_BUILD/runtime/libtfmcrt.a" "$TFMC_BUILD/runtime/opencl/libtfmccl.a" -pthread -ldl ${TFMC_LINK_FLAGS:-} -o "$tmp/ring"
	"$tmp/ring" "$seed" $turns
	rm -rf "$tmp"/*
	rows=
}

if [ -n "${2:-}" ]; then
	compile full 150 150 31 --target="$2"
	compile short 16 34 31 --target="$2"
	compile long 40 96 31 --target="$2"
	run
	exit
fi

short=$("$TFMC" passes | sed -n 's/^O2 *//p' | sed 's/select/select{bc=16}/')
for cpu in x86-64-v2 native; do
	[ $cpu = native ] && options=() || options=("${quick[@]}")
	# Two windows in two rings, or a ring beside a whole cache; the first ring takes four tokens at once.
	compile full 150 150 31 --mcpu=$cpu "${options[@]}"
	compile short 16 34 31 --mcpu=$cpu "${options[@]}"
	compile long 40 96 31 --mcpu=$cpu "${options[@]}"
	run
	[ -n "${TFMC_ALL:-}" ] || [ $cpu != native ] || options=(-O0)
	# Blocks of 16 keys: most are read where they lie, one is not. Keys and values are narrow here.
	[ $cpu = native ] && type=bf16 || type=f16
	for one in "full 150" "narrow 33" "wide 75"; do
		set -- $one
		compile "$1" "$2" 150 7 --mcpu=$cpu "${options[@]}" --passes="$short"
	done
	run
	type=f32
done

# Without fusion caches are read element by element.
type=f16
compile full 150 150 7 -O0
compile plain 27 16 7 -O0
compile other 64 48 7 -O0
run
