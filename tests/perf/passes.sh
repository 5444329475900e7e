#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Times the rows of compare.sh without one optimizing pass and with all of them, in turns.
#   bash tests/perf/passes.sh [--without P,Q+R] [--precision P] [--threads N] [--rounds N] [--slice S] [ROW...]
# BUILD_DIR: the build (default build). OUT: scratch folder, several GB (default BUILD_DIR/perf/passes). TFMC_CPU: -mcpu
# of tfmc (default native). PYTHON: a python with numpy (default python3).
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${BUILD_DIR:-build}")
out=$(realpath -m "${OUT:-$build/perf/passes}")
python=${PYTHON:-python3}
"$python" -c 'import numpy' || { echo "passes.sh: $python has no numpy (PYTHON names one that has)" >&2; exit 3; }
exec "$python" tests/perf/compare/passes.py --out "$out" --build "$build" --mcpu "${TFMC_CPU:-native}" "$@"
