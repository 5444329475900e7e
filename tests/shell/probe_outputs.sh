#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# --probe on compiling: a linked program gets the attention weights of all layers and the result of a block as further
# outputs, with the values that `tfmc run --probe` prints; a name that fits nothing is refused.
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
