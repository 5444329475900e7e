#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints the roofs of this machine for 1 .. n threads: multiply-add by instruction set, reads by level of memory.
#   bash tests/perf/roofs.sh [SECONDS]         SECONDS for each figure (default 0.3)
# OUT: where the program is written (default BUILD_DIR/perf; BUILD_DIR is build).
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${OUT:-${BUILD_DIR:-build}/perf}
mkdir -p "$out"
${CC:-cc} -std=c17 -O2 -Wall -Wextra tests/perf/roofs.c tests/perf/roofs_read.c tests/perf/roofs_main.c -lpthread -o "$out/roofs"
"$out/roofs" "$@"
