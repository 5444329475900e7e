#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every C file is formatted as .clang-format says (clang-format 14; formats differ between versions).
set -uo pipefail
cd "$TFMC_SOURCE"
tool=$(command -v clang-format-14 || true)
[ -n "$tool" ] || { echo "SKIPPED: clang-format-14 is absent"; exit 77; }
find ir frontend passes backends runtime tests examples -name '*.[ch]' -print0 | xargs -0 "$tool" --dry-run --Werror
