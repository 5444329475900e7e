#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The main job, from nothing: builds tfmc, compiles examples/dates/model.yaml into an object file,
# links examples/dates/main.c with it, and shows what the program makes of some dates.
set -euo pipefail
cd "$(dirname "$0")/.."
bash tests/packages.sh build
build=${BUILD_DIR:-build}
jobs=$(nproc 2>/dev/null || echo 2)

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "== building tfmc (log: only on failure)"
{ cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo && cmake --build "$build" -j "$jobs" --target tfmc_package; } \
	>"$log" 2>&1 || { cat "$log" >&2; exit 1; }

out=$build/examples/dates
mkdir -p "$out"
show() { echo "\$ $*"; "$@"; }
show "$build/frontend/driver/tfmc" examples/dates/model.yaml -o "$out/dates.o"
show cc -std=c17 -O2 -Iruntime -I"$out" examples/dates/main.c "$out/dates.o" "$build/runtime/libtfmcrt.a" \
	-lpthread -lm -o "$out/dates"
show "$out/dates" "the 3rd of March, 2021" "3/3/21" "Weds 3 Mar 2021" "December 25th 1999" "2010-07-09"
