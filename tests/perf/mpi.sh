#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Times of a sum of all ranks, in shared memory and by messages, with each MPI of this machine.
#   bash tests/perf/mpi.sh [RANKS...]     default: 2
# OUT: the scratch folder.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${OUT:-${BUILD_DIR:-build}/perf}
mkdir -p "$out"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
[ $# -gt 0 ] || set -- 2
for mpi in openmpi mpich; do
	command -v mpicc.$mpi mpirun.$mpi >/dev/null || continue
	mpicc.$mpi -std=c17 -O2 -Wall -Wextra -I. tests/perf/mpi.c runtime/mpi/*.c -lpthread -o "$out/sums.$mpi"
	for ranks in "$@"; do
		for transport in window messages; do
			run=(mpirun.$mpi -n "$ranks" -bind-to core)
			[ "$ranks" -le "$(nproc)" ] || run=(mpirun.$mpi -n "$ranks")
			[ $mpi = mpich ] || run+=(--oversubscribe)
			"${run[@]}" "$out/sums.$mpi" $transport | sed "s/^/$mpi: /"
		done
	done
done
