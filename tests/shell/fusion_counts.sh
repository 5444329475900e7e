#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Effect of every pass on every model, exactly: the counters of --stats at O2 for x86-64-v3, the peaks of the
# arenas, and the launches of a layer on OpenCL devices, compared with fusion_counts.expected. A line that changes is a fusion that was lost or won: look at it,
# then `fusion_counts.sh --write` (with the shared models present) writes the new table.
set -uo pipefail
: "${TFMC:?}" "${TFMC_SOURCE:?}"
here=$TFMC_SOURCE/tests/shell
shared=${TFMC_SHARED:-$TFMC_SOURCE/../shared}/models
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

models=(examples/dates examples/names tests/golden/torch_{encoder,decoder,seq2seq,seq2seq_prenorm,rotary,sinks})
hub=(aren-transliteration bert-tiny gpt2-tiny seq2seq-base stories260k
	variants/{bart,bloom,gemma3,gpt_neox,llama,marian,mixtral,opt,phi,qwen2,qwen3,t5})

# launches FILE: a line for each repeated layer
launches() {
	"$TFMC" "$1" -q --emit=opencl="$tmp/out.cl" && awk -v family=opencl-gpu '
		/^launches of / { of = $3 }
		/^ *repeat / { match($0, /[^ ]/); depth = RSTART; n = 0; inside = 1; next }
		inside {
			match($0, /[^ ]/)
			if (RSTART <= depth) { print family ": launches of a layer of " of " " n; inside = 0 }
			else if ($1 != "barrier" && !/ when .* > [0-9]+$/) n++ # of two kernels a call launches one
		}' "$tmp/out.cl"
}

# count NAME FILE: a heading, then a line for each counter that is not 0, for each arena and repeated layer
count() {
	echo "== $1"
	if ! "$TFMC" "$2" -mcpu=x86-64-v3 --stats --emit=tir="$tmp/out.tir" 2> "$tmp/stats"; then
		cat "$tmp/stats" >&2
		return 1
	fi
	grep -E '^[a-z0-9-]+: .* [1-9][0-9]*$|^arena of ' "$tmp/stats" | sed -E 's/, [0-9]+ buffers.*//'
	launches "$2"
}

table() {
	local m
	for m in "${models[@]}"; do count "$m" "$TFMC_SOURCE/$m/model.yaml" || return 1; done
	[ -d "$shared" ] || return 0
	for m in "${hub[@]}"; do count "$m" "$shared/$m/model.yaml" || return 1; done
}

table > "$tmp/now" || exit 1
if [ "${1:-}" = --write ]; then
	[ -d "$shared" ] || { echo "the shared models are needed to write the table" >&2; exit 1; }
	cp "$tmp/now" "$here/fusion_counts.expected"
	exit 0
fi
if [ ! -d "$shared" ]; then
	echo "SKIPPED in part: $shared is absent, the models of the project are compared"
	head -n "$(wc -l < "$tmp/now")" "$here/fusion_counts.expected" | diff - "$tmp/now"
	exit $?
fi
diff "$here/fusion_counts.expected" "$tmp/now"
