#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every example, golden model and shared model through the optimizer: each pass by itself on a shrunk copy
# (verify --after-each, also with the passes that O2 leaves out), and objects of O0 and O2 of the shrunk copy, whose
# odd sizes meet every tail, against the interpreter; of the examples in full size, too (the others are verified so by
# shell/golden and shell/models). Prints a table: largest error of O0 and O2,
# their bound, the largest difference of any pass when nothing is rounded, and what fired.
set -uo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 turn=0
shared=() # by families/ the short run has each of them in small
[ -z "${TFMC_ALL:-}" ] || shared=("$TFMC_SHARED"/models/{,variants/}*/model.yaml)
mapfile -t models < <(ls -d "$TFMC_SOURCE"/examples/*/model.yaml "$TFMC_SOURCE"/tests/golden/*/model.yaml "${shared[@]}" 2>/dev/null)

# attempt WHAT OPTIONS..: tfmc verify; its lines stay in $work/WHAT.
attempt() {
	local what=$1
	shift
	"$TFMC" verify "$@" >"$work/$what" 2>"$work/log" && return 0
	echo "tfmc verify $*: exit code $?" >&2
	cat "$work/$what" "$work/log" >&2
	failed=1
}

# The largest error among lines "... against interpreter ERROR BOUND ok".
worst() {
	cat "$@" | awk '/against/ { e = $(NF - 2) + 0; if (e > most) most = e } END { printf "%.2g", most }'
}

# Counters that are not 0, as "pass: what n"; rules are counted together and named.
fired() {
	awk -F': ' '/^arena of/ { exit }
		NF == 2 && $2 !~ / 0$/ {
			if (sub(/^rule /, "", $2)) rules = rules " " $2
			else if ($1 ~ /^(merge|fuse|demand)/) passes = passes " " $1 "(" $2 ")"
		}
		END { print "passes:" passes "; rules:" (rules ? rules : " none") }' "$1"
}

printf '%-32s %8s %8s %8s %10s  %s\n' model O0 O2 bound passes "what fired"
for model in "${models[@]}"; do
	name=$(basename "$(dirname "$model")")
	if ! "$TFMC" compile "$model" -O0 --passes=O2 --stats -o "$work/m.o" >"$work/stats" 2>&1; then
		grep -q "not supported yet" "$work/stats" && continue
		echo "$model is not compiled" >&2
		cat "$work/stats" >&2
		failed=1
		continue
	fi
	# In the short run models take turns: one list of passes or the other, small objects of O0 or of O2.
	turn=$((turn + 1))
	levels=(O0 O2)
	[ -n "${TFMC_ALL:-}" ] || levels=("${levels[turn / 2 % 2]}")
	: | tee "$work"/{each,other,O0,O2,O0.small,O2.small}
	[ -z "${TFMC_ALL:-}" ] && [ $((turn % 2)) = 0 ] || attempt each "$model" --after-each
	[ -z "${TFMC_ALL:-}" ] && [ $((turn % 2)) = 1 ] || attempt other "$model" --after-each \
		--passes='canonicalize{nonempty=1},fuse-softmax,fuse-attention,merge-linear,encode,group{max_ops=4}'
	for level in "${levels[@]}"; do
		case $model in "$TFMC_SOURCE"/examples/*) attempt "$level" "$model" -$level ;; esac
		options=(-$level)
		[ "$level" = O0 ] || [ -n "${TFMC_ALL:-}" ] || options=("${quick[@]}")
		attempt "$level.small" "$model" "${options[@]}" --reduced-model
	done
	wide=$(awk '/not rounded/ { if ($NF + 0 > most) most = $NF + 0 } END { printf "%.2g", most }' "$work/each" "$work/other")
	bound=$(awk '/against/ { print $(NF - 1); exit }' "$work"/O[02].small)
	printf '%-32s %8s %8s %8s %10s  %s\n' "$name" "$(worst "$work/O0" "$work/O0.small")" \
		"$(worst "$work/O2" "$work/O2.small")" "$bound" "$wide" "$(fired "$work/stats")"
done
exit $failed
