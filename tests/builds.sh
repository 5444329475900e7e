#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds everything in each build type with each compiler, one after another; a warning is a failure (many minutes, so
# no ctest test). COMPILERS and TYPES take fewer: `COMPILERS=gcc TYPES=Release bash tests/builds.sh`.
set -uo pipefail
cd "$(dirname "$0")/.."
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
launcher=$(command -v ccache || true)
bad=0
for compiler in ${COMPILERS:-gcc clang-19}; do
	for type in ${TYPES:-Release Debug MinSizeRel RelWithDebInfo}; do
		began=$SECONDS
		cmake -S . -B "$top/build" -DCMAKE_C_COMPILER="$compiler" -DCMAKE_BUILD_TYPE="$type" \
			-DCMAKE_C_COMPILER_LAUNCHER="$launcher" >"$top/log" 2>&1 &&
			cmake --build "$top/build" -j "$(nproc)" >>"$top/log" 2>&1
		built=$?
		if [ $built -eq 0 ] && ! grep -q 'warning:' "$top/log"; then
			echo "$compiler $type: no warning ($((SECONDS - began)) s)"
		else
			grep -E 'warning:|error:|Error' "$top/log"
			echo "$compiler $type: failed"
			bad=1
		fi
		rm -rf "$top/build"
	done
done
exit $bad
