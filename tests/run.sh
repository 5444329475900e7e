#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds tfmc and runs the tests, about 20 minutes on two cores; `--all` runs everything, about 50 (tests/README.md
# says what the short run leaves out). Other arguments go to ctest (`bash tests/run.sh -R text/`); the slowest are listed.
# BUILD_DIR names the build directory (default build); TFMC_WERROR=ON makes warnings errors (.ci/run does).
set -euo pipefail
cd "$(dirname "$0")/.."
bash tests/packages.sh test
build=${BUILD_DIR:-build}
which=(-LE long)
if [ "${1:-}" = --all ]; then
	export TFMC_ALL=1
	which=()
	shift
fi
jobs=$(nproc 2>/dev/null || echo 2)
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTFMC_WERROR="${TFMC_WERROR:-OFF}" >"$build.configure.log" 2>&1 || {
	cat "$build.configure.log" >&2
	exit 1
}
rm -f "$build.configure.log"
cmake --build "$build" -j "$jobs"
code=0
ctest --test-dir "$build" --output-on-failure -j "$jobs" "${which[@]}" "$@" | tee "$build/tests.log" || code=$?
echo "The slowest, in seconds:"
sed -nE 's/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: ([^ ]+) .* ([0-9.]+) sec$/\2 \1/p' "$build/tests.log" | sort -rn | sed -n '1,20p' | column
grep -E '^[0-9]+% tests passed' "$build/tests.log" || true
exit $code
