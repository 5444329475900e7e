#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# soak.sh [SECONDS [SEED [WORKERS]]]: sequences of models join, leave, fork, are saved and restored in random
# order (tests/soak/soak.c). The runtime library is compiled with TFMC_LINK_FLAGS, so that in a build with
# sanitizers, or with TFMC_LINK_FLAGS=-fsanitize=address,undefined, all of it is checked.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
seconds=${1:-6} seed=${2:-1} workers=${3:-1}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# The models have room for 64 sequences here.
add() { # FOLDER [TYPE]: also with that type of keys and values
	local name
	cp -rL "$1" "$tmp/model"
	if [ $# -gt 1 ]; then
		sed -i "s/^name: .*/&_$2/" "$tmp/model/model.yaml"
		echo "dtype: {cache: $2}" >>"$tmp/model/model.yaml"
	fi
	sed -i 's/^dims: {B: 1\.\.[0-9]*/dims: {B: 1..64/' "$tmp/model/model.yaml"
	grep -q '^dims: {B: 1\.\.64' "$tmp/model/model.yaml"
	name=$(sed -n 's/^name: //p' "$tmp/model/model.yaml")
	"$TFMC" "${quick[@]}" "$tmp/model/model.yaml" -o "$tmp/$name.o"
	rm -rf "$tmp/model"
	echo "#include \"$name.h\"" >>"$tmp/includes"
	echo "	{\"$name\", ${name}_model}," >>"$tmp/rows"
}
add "$TFMC_SOURCE/examples/names"
add "$TFMC_SOURCE/examples/dates"
add "$TFMC_SOURCE/examples/names" f16
add "$TFMC_SOURCE/examples/dates" bf16
add "$TFMC_SOURCE/examples/dates" int8
for model in stories260k aren-transliteration; do
	[ ! -d "${TFMC_SHARED:-}/models/$model" ] || add "$TFMC_SHARED/models/$model"
done

{
	echo '#include "tfmc_rt.h"'
	cat "$tmp/includes"
	echo 'struct soak_model {'
	echo '	const char *name;'
	echo '	struct tfmc_model (*model)(void);'
	echo '};'
	echo 'static const struct soak_model soak_models[] = {'
	cat "$tmp/rows"
	echo '};'
	echo '#define N_MODELS (sizeof(soak_models) / sizeof(soak_models[0]))'
} >"$tmp/models.h"

"$CC" -std=c17 -O1 -g -Wall -Wextra -Werror -ffp-contract=off -I"$TFMC_SOURCE" -I"$TFMC_SOURCE/runtime" -I"$tmp" \
	"$TFMC_SOURCE/tests/soak/soak.c" "$TFMC_SOURCE"/runtime/*.c "$tmp"/*.o -lpthread ${TFMC_LINK_FLAGS:-} -o "$tmp/soak"
"$tmp/soak" --seconds "$seconds" --seed "$seed" --workers "$workers"
[ $# -gt 0 ] || "$tmp/soak" --seconds 2 --seed 2 --workers 2
