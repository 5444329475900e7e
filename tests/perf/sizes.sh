#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Code size of every example for every level of x86-64, for all levels in one object, and for aarch64, and how long
# the compiler took: a table for sizes.md, which is committed with machine, date and commit so that growth is seen.
# Sizes are exact; times are the least of ROUNDS (default 3) and are never asserted.
#   bash tests/perf/sizes.sh           prints the table
#   bash tests/perf/sizes.sh --write   writes tests/perf/sizes.md
# BUILD_DIR: the build (default build), OUT: the scratch folder.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${BUILD_DIR:-build}
out=${OUT:-$build/perf/sizes}
tfmc=$build/frontend/driver/tfmc
mkdir -p "$out"

# MODEL OPTIONS...: code bytes and the least seconds
row() {
	local model=$1 best= start now bytes
	shift
	for _ in $(seq "${ROUNDS:-3}"); do
		start=$(date +%s%N)
		"$tfmc" "$model" -o "$out/x.o" --header="$out/x.h" --weights-out="$out/x.weights" "$@"
		now=$((($(date +%s%N) - start) / 1000000))
		[ -n "$best" ] && [ "$best" -le "$now" ] || best=$now
	done
	bytes=$(size -A "$out/x.o" | awk '$1 ~ /^\.text/ { n += $2 } END { print n }')
	printf ' %s | %s |' "$bytes" "$best"
}

table() {
	local model
	echo "# sizes"
	echo
	echo "Written by \`sizes.sh --write\`: bytes of code and milliseconds of the whole compiler, weights included, beside other work."
	echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(date +%Y-%m-%d), commit $(git rev-parse --short HEAD)$1."
	echo
	echo "| example | v2 | ms | v3 | ms | v4 | ms | v2, v3, v4 | ms | aarch64 | ms |"
	echo "|---|---|---|---|---|---|---|---|---|---|---|"
	for model in examples/*/model.yaml tests/golden/torch_*/model.yaml; do
		printf '| %s |' "$(basename "$(dirname "$model")")"
		for level in x86-64-v2 x86-64-v3 x86-64-v4; do row "$model" -mcpu=$level; done
		row "$model" --variants=v2,v3,v4
		row "$model" -mcpu=aarch64
		echo
	done
}

changed=
git diff --quiet HEAD -- backends passes ir frontend runtime || changed=" and changes"
if [ "${1:-}" = --write ]; then
	table "$changed" >"$out/sizes.md"
	cp "$out/sizes.md" tests/perf/sizes.md
else
	table "$changed"
fi
