#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints the peaks of this machine for 1 .. n threads: multiply-add by instruction set, reads by level of memory.
#   bash tests/perf/peaks.sh [SECONDS]         SECONDS for each figure (default 0.3)
# OUT: where the program is written (default BUILD_DIR/perf; BUILD_DIR is build).
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${OUT:-${BUILD_DIR:-build}/perf}
mkdir -p "$out"
${CC:-cc} -std=c17 -O2 -Wall -Wextra tests/perf/peaks.c tests/perf/peaks_read.c tests/perf/peaks_main.c -lpthread -o "$out/peaks"
"$out/peaks" "$@"
