#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Times of an exchange between ranks inside one process.
#   bash tests/perf/ranks.sh [RANKS...]     default: 2 4
# ROUNDS: interleaved rounds (default 20), BUILD_DIR the build (default build), OUT the scratch folder.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${BUILD_DIR:-build}
out=${OUT:-$build/perf}
mkdir -p "$out"
${CC:-cc} -std=c17 -O2 -Wall -Wextra -Iruntime tests/perf/ranks.c "$build/runtime/libtfmcrt.a" -lpthread -o "$out/ranks"
if [ $# -eq 0 ]; then set -- 2 4; fi
for ranks in "$@"; do ${RUN:-} "$out/ranks" "$ranks" "${ROUNDS:-20}"; done
