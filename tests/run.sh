#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds tfmc and runs every test. Extra arguments go to ctest (`bash tests/run.sh -R text/`).
# BUILD_DIR names the build directory (default build); TFMC_WERROR=ON makes warnings errors (.ci/run does).
set -euo pipefail
cd "$(dirname "$0")/.."
bash tests/packages.sh test
build=${BUILD_DIR:-build}
jobs=$(nproc 2>/dev/null || echo 2)
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTFMC_WERROR="${TFMC_WERROR:-OFF}" >"$build.configure.log" 2>&1 || {
	cat "$build.configure.log" >&2
	exit 1
}
rm -f "$build.configure.log"
cmake --build "$build" -j "$jobs" -- --no-print-directory
ctest --test-dir "$build" --output-on-failure -j "$jobs" "$@"
