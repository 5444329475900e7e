#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Packed weights have the same bytes, and what is wrong with a weight is said once and in the same words, whether one
# worker packs them or several; the cache knows the same content whoever hashed it.
set -euo pipefail
command -v taskset >/dev/null || { echo "SKIPPED: no taskset" >&2; exit 77; }
[ "$(nproc)" -gt 1 ] || { echo "SKIPPED: one processor" >&2; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
one() { taskset -c "$(taskset -cp $$ | sed 's/.*: *//; s/[,-].*//')" "$TFMC" "$@"; }
python3 "$TFMC_SOURCE/tests/support/make_llama.py" "$tmp/m" llama hidden_size=160 num_attention_heads=5 head_dim=32 \
	intermediate_size=416 vocab_size=257 num_hidden_layers=3
options=(--weights=file -O0 -q)
for format in keep int4 q4_k q8_row mxfp4; do
	"$TFMC" "$tmp/m" -o "$tmp/all.o" --quantize=$format "${options[@]}"
	one "$tmp/m" -o "$tmp/one.o" --quantize=$format "${options[@]}"
	cmp "$tmp/all.weights" "$tmp/one.weights"
done

# Two weights that cannot be codes: the first one is said, as by one worker.
python3 - "$tmp/m/model.safetensors" <<'END'
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
n = struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:8 + n])
for name in ("model.layers.1.mlp.up_proj.weight", "model.layers.2.mlp.down_proj.weight"):
    struct.pack_into("<f", data, 8 + n + head[name]["data_offsets"][0] + 400, float("inf"))
open(sys.argv[1], "wb").write(data)
END
! "$TFMC" "$tmp/m" -o "$tmp/all.o" --quantize=q4 "${options[@]}" 2>"$tmp/all"
! one "$tmp/m" -o "$tmp/one.o" --quantize=q4 "${options[@]}" 2>"$tmp/one"
grep -q 'inf in tensor .* is too large for q4' "$tmp/all"
diff "$tmp/all" "$tmp/one"
