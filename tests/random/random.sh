#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# random.sh [COUNT [FROM]]: COUNT (default 10000) random modules through random pipelines, compared with the
# interpreter, beginning at seed FROM (default 1). First a wrong rule must be found. TFMC_BUILD: the build directory.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
random=${TFMC_BUILD:-$here/../../build}/tests/tfmc_random

if "$random" --count 200 --rules "$here/wrong_silu.rule" > /dev/null; then
	echo "FAILED: a wrong rule was not found" >&2
	exit 1
fi
"$random" --count "${1:-10000}" --from "${2:-1}"
