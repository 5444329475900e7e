#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds everything in each build type with each compiler, one after another; a warning is a failure (many minutes, so
# no ctest test), and so is a unit suite that fails (SUITES: a pattern, all without; "none" runs none). COMPILERS and TYPES take fewer, LTO is a type:
# `COMPILERS=gcc TYPES="Release LTO" SUITES="kb|json" bash tests/builds.sh`.
set -uo pipefail
cd "$(dirname "$0")/.."
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
launcher=$(command -v ccache || true)
bad=0
for compiler in ${COMPILERS:-gcc clang-19}; do
	for type in ${TYPES:-Release Debug MinSizeRel RelWithDebInfo LTO}; do
		began=$SECONDS
		options=(-DCMAKE_BUILD_TYPE="$type")
		[ "$type" != LTO ] || options=(-DCMAKE_BUILD_TYPE=Release -DCMAKE_INTERPROCEDURAL_OPTIMIZATION=ON)
		cmake -S . -B "$top/build" -DCMAKE_C_COMPILER="$compiler" "${options[@]}" \
			-DCMAKE_C_COMPILER_LAUNCHER="$launcher" >"$top/log" 2>&1 &&
			cmake --build "$top/build" -j "$(nproc)" >>"$top/log" 2>&1
		built=$?
		if [ $built -eq 0 ] && [ "${SUITES:-}" != none ]; then
			ctest --test-dir "$top/build" -j "$(nproc)" -R "^unit/(${SUITES:-.*})\$" --output-on-failure >>"$top/log" 2>&1 || built=1
		fi
		if [ $built -eq 0 ] && ! grep -q 'warning:' "$top/log"; then
			echo "$compiler $type: no warning ($((SECONDS - began)) s)"
		else
			grep -E 'warning:|error:|Error|:[FE]:|\*\*\*' "$top/log"
			echo "$compiler $type: failed"
			bad=1
		fi
		rm -rf "$top/build"
	done
done
exit $bad
