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
	"$tmp/dates.o" "$TFMC_BUILD/runtime/libtfmcrt.a" -lpthread ${TFMC_LINK_FLAGS:-} -o "$tmp/dates"
"$tmp/dates" "the 3rd of March, 2021" "3/3/21" "Weds 3 Mar 2021" >"$tmp/out"
cat "$tmp/out"
[ "$(grep -c -- '-> 2021-03-03$' "$tmp/out")" -eq 3 ]
bash "$TFMC_SOURCE/tests/object_audit.sh" "$tmp/dates.o" dates

# Weights in a file of their own: a small object, mapped weights, the same answer.
"$TFMC" "$model" -mcpu=x86-64-v2 --weights=file -o "$tmp/again/dates.o"
[ "$(stat -c %s "$tmp/again/dates.o")" -lt $(($(stat -c %s "$tmp/dates.o") - 1500000)) ]
cat >"$tmp/mapped.c" <<'C'
#include <stdio.h>
#include "tfmc_rt.h"
#include "dates.h"
int main(int argc, char **argv)
{
	struct tfmc_model model = dates_model();
	struct tfmc_session_options options = {.struct_size = sizeof(options), .batch = 1, .workers = 2};
	struct tfmc_session *session;
	char iso[64];
	options.weights_path = argv[1];
	int status = tfmc_session_open(&model, &options, &session);
	if (!status && argc > 2)
		status = tfmc_generate_text(session, argv[2], iso, sizeof(iso));
	tfmc_session_close(session);
	puts(status ? tfmc_rt_status_text(status) : iso);
	return status != 0;
}
C
"$CC" -std=c17 -I"$TFMC_SOURCE/runtime" -I"$tmp/again" "$tmp/mapped.c" "$tmp/again/dates.o" \
	"$TFMC_BUILD/runtime/libtfmcrt.a" -lpthread ${TFMC_LINK_FLAGS:-} -o "$tmp/mapped"
[ "$("$tmp/mapped" "$tmp/again/dates.weights" "3 March 2021")" = 2021-03-03 ]
if "$tmp/mapped" "$tmp/again/dates.h" "3 March 2021"; then exit 1; fi # not a weights file
