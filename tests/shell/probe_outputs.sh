#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# --probe on compiling: a linked program gets the attention weights of all layers and the result of a block as further
# outputs, with the values that `tfmc run --probe` prints; a name that fits nothing is refused. The entries that generate
# have them, too, and generate what they generate without.
set -euo pipefail
tfmc=$TFMC
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
model=$TFMC_SOURCE/examples/names/model.yaml
"$tfmc" "$model" -O0 -o "$tmp/m.o" -q --probe='layers.*.self.attention.weights' --probe=layers.1.ff
! "$tfmc" "$model" -O0 -o "$tmp/n.o" -q --probe=layers.1.fff 2>"$tmp/err"
grep -q "no value of the model is called 'layers.1.fff'; did you mean 'layers.1.ff'?" "$tmp/err"
[ ! -e "$tmp/n.o" ]
cat >"$tmp/main.c" <<'EOF'
#include <stdio.h>
#include <string.h>
#include "tfmc_rt.h"
#include "m.h"
int main(void)
{
	static float weights[3 * 4 * 2 * 2], ff[2 * 64];
	const int32_t ids[] = {1, 5};
	const int64_t dims[] = {1, 2};
	const struct tfmc_model model = names_model();
	struct tfmc_session *s;
	if (tfmc_session_open(&model, NULL, &s) != TFMC_RT_OK)
		return 1;
	const struct tfmc_record *r = tfmc_session_record(s);
	struct tfmc_buffer in[2] = {{(void *)ids, 2}, {NULL, 0}}, out[3] = {{NULL, 0}};
	int64_t entry = tfmc_entry_find(r, "run");
	for (uint64_t i = 0; i < 3; i++) {
		const char *name = tfmc_record_text(r, tfmc_entry_output(r, entry, i)->name);
		if (!strcmp(name, "layers_self_attention_weights"))
			out[i] = (struct tfmc_buffer){weights, 48};
		else if (!strcmp(name, "layers_ff"))
			out[i] = (struct tfmc_buffer){ff, 128};
	}
	if (tfmc_session_call(s, entry, dims, in, out) != TFMC_RT_OK)
		return 2;
	for (int i = 0; i < 48; i++)
		printf("%.4f\n", weights[i]);
	for (int i = 0; i < 128; i++)
		printf("%.4f\n", ff[i]);
	tfmc_session_close(s);
	return 0;
}
EOF
"$CC" -std=c17 -I"$tmp" -I"$TFMC_SOURCE/runtime" "$tmp/main.c" "$tmp/m.o" "$TFMC_BUILD/runtime/libtfmcrt.a" -lpthread -lm ${TFMC_LINK_FLAGS:-} -o "$tmp/main"
"$tmp/main" >"$tmp/got"
"$tfmc" run "$model" -O0 --input ids=1,5 --probe='layers.*.self.attention.weights' --probe=layers.1.ff >"$tmp/printed"
python3 - "$tmp/got" "$tmp/printed" <<'PY'
import re, sys
got = [float(x) for x in open(sys.argv[1])]
weights, ff, values = [], [], None
for line in open(sys.argv[2]):
    if not line.startswith(" "):
        values = weights if "attention.weights" in line else ff if line.startswith("layers.1.ff") else None
    elif values is not None:
        values += [float(x) for x in line.split("]", 1)[-1].split()]
wanted = weights + ff
assert len(got) == len(wanted) == 176, (len(got), len(wanted))
wrong = [(i, a, b) for i, (a, b) in enumerate(zip(got, wanted)) if abs(a - b) > 2e-4 * (1 + abs(b))]
assert not wrong, wrong[:8]
assert any(g > 0.01 for g in got[:48]) and any(abs(g) > 0.01 for g in got[48:])
PY

# The same of prefill and of the step after it, whose keys are those of the cache; the caller may omit them.
"$tfmc" "$model" -o "$tmp/m.o" -q --entries=prefill,step --probe='layers.*.self.attention.weights' --probe=layers.1.ff
"$tfmc" inspect "$tmp/m.o" >"$tmp/entries"
[ "$(grep -c 'layers_self_attention_weights: f32' "$tmp/entries")" = 2 ]
[ "$(grep -c 'layers_ff: f32' "$tmp/entries")" = 2 ]
cat >"$tmp/main.c" <<'EOF'
#include <stdio.h>
#include <string.h>
#include "tfmc_rt.h"
#include "m.h"
/* layers.1.ff of the last row, of the named entry. */
static int call(struct tfmc_session *s, const char *name, int32_t *ids, int64_t n)
{
	static float ff[8 * 64];
	const struct tfmc_record *r = tfmc_session_record(s);
	const int64_t entry = tfmc_entry_find(r, name), dims[] = {1, n};
	struct tfmc_buffer in[2] = {{ids, (uint64_t)n}, {NULL, 0}}, out[3] = {{NULL, 0}};
	for (uint64_t i = 0; i < 3; i++)
		if (!strcmp(tfmc_record_text(r, tfmc_entry_output(r, entry, i)->name), "layers_ff"))
			out[i] = (struct tfmc_buffer){ff, (uint64_t)n * 64};
	if (tfmc_session_call(s, entry, dims, in, out) != TFMC_RT_OK)
		return 1;
	for (int64_t i = 0; i < 64; i++)
		printf("%.4f\n", ff[(n - 1) * 64 + i]);
	return 0;
}
int main(void)
{
	int32_t ids[] = {1, 5, 7}, text[8];
	const struct tfmc_model model = names_model();
	const struct tfmc_generate_options o = {.struct_size = sizeof(o), .max_new_tokens = 8, .ignore_stop = 1};
	struct tfmc_session *s;
	uint64_t n;
	if (tfmc_session_open(&model, NULL, &s) != TFMC_RT_OK || call(s, "prefill", ids, 2) || call(s, "step", ids + 2, 1))
		return 1;
	if (tfmc_generate(s, &o, ids, 2, NULL, 0, text, 8, &n) != TFMC_RT_OK)
		return 2;
	for (uint64_t i = 0; i < n; i++)
		fprintf(stderr, "%d%s", text[i], i + 1 < n ? " " : "\n");
	tfmc_session_close(s);
	return 0;
}
EOF
"$CC" -std=c17 -I"$tmp" -I"$TFMC_SOURCE/runtime" "$tmp/main.c" "$tmp/m.o" "$TFMC_BUILD/runtime/libtfmcrt.a" -lpthread -lm ${TFMC_LINK_FLAGS:-} -o "$tmp/main"
"$tmp/main" >"$tmp/got" 2>"$tmp/text"
"$tfmc" generate "$model" --tokens 1,5 --max-tokens 8 --ignore-stop --print-tokens --temperature 0 | cmp - "$tmp/text"
"$tfmc" run "$model" -O0 --input ids=1,5,7 --probe=layers.1.ff >"$tmp/printed"
python3 - "$tmp/got" "$tmp/printed" <<'PY'
import sys
got = [float(x) for x in open(sys.argv[1])]
lines = open(sys.argv[2]).read().split("layers.1.ff")[1].splitlines()[1:]
rows = [[float(x) for x in line.split("]", 1)[1].split()] for line in lines]
wanted = rows[1] + rows[2]
assert len(got) == len(wanted) == 128, (len(got), len(wanted))
wrong = [(a, b) for a, b in zip(got, wanted) if abs(a - b) > 2e-3 * (1 + abs(b))]
assert not wrong, wrong[:4]
PY
