#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Random programs of graph statements, compiled at -O0 and -O2, interpreted, linked and as C, against plain Python:
# graph_random.sh [COUNT [FROM]].
set -uo pipefail
command -v python3 >/dev/null || { echo "SKIPPED: python3 is absent"; exit 77; }
exec python3 -B "$TFMC_SOURCE/tests/graph/random_graph.py" "${2:-0}" "${1:-$([ -n "${TFMC_ALL:-}" ] && echo 48 || echo 24)}"
