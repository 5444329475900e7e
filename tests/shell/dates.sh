#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The main job: the dates model becomes an object that plain C links, for every place the weights may
# lie; the same input gives the same bytes; the object is audited.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
model=$TFMC_SOURCE/examples/dates/model.yaml
"$TFMC" "$model" -mcpu=x86-64-v2 -o "$tmp/dates.o"
mkdir "$tmp/again"
"$TFMC" "$model" -mcpu=x86-64-v2 -o "$tmp/again/dates.o"
cmp "$tmp/dates.o" "$tmp/again/dates.o"
cmp "$tmp/dates.h" "$tmp/again/dates.h"
"$CC" -std=c17 -Wall -Wextra -Werror -I"$TFMC_SOURCE/runtime" -I"$tmp" "$TFMC_SOURCE/examples/dates/main.c" \
	"$tmp/dates.o" "$TFMC_BUILD/runtime/libtfmcrt.a" -lpthread -o "$tmp/dates"
"$tmp/dates" "the 3rd of March, 2021" "3/3/21" "Weds 3 Mar 2021" >"$tmp/out"
cat "$tmp/out"
[ "$(grep -c -- '-> 2021-03-03$' "$tmp/out")" -eq 3 ]
bash "$TFMC_SOURCE/tests/object_audit.sh" "$tmp/dates.o" dates
