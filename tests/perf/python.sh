#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# python.sh BUILD: what a call by the Python package takes beside the call of the entry, on a model of one gather.
set -euo pipefail
build=$(realpath "${1:?folder of a build}")
source=$(realpath "$(dirname "$0")/../..")
python=${TFMC_PYTHON:-python3}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cp -r "$source/runtime/python/tfmc" "$tmp"
"$python" -B "$source/runtime/python/abi.py" "$tmp/tfmc/_abi.py" >/dev/null
cd "$tmp"
cat >tiny.yaml <<'Y'
tfmc: 1
name: tiny
dims: {B: 1..4, S: 1..16}
inputs: {ids: {shape: [B, S], dtype: i32}}
model: [embed: {id: table, vocab: 8, dim: 4}]
outputs: {y: x}
weights: {files: [tiny.safetensors]}
Y
python3 "$source/examples/manual/draw.py" tiny.safetensors table.weight:8x4
"$build/frontend/driver/tfmc" tiny.yaml -o tiny.o -q
cat >bare.c <<'C'
#include <stdio.h>
#include <time.h>
#include "tfmc_rt.h"
#include "tiny.h"
int main(void)
{
	struct tfmc_model model = tiny_model();
	struct tfmc_session *session;
	int32_t ids[3] = {1, 2, 3};
	float y[12];
	int64_t dims[2] = {1, 3};
	struct tfmc_buffer in = {ids, 3}, out = {y, 12};
	double best = 1;
	if (tfmc_session_open(&model, NULL, &session))
		return 1;
	for (int k = 0; k < 20; k++) {
		struct timespec a, b;
		clock_gettime(CLOCK_MONOTONIC, &a);
		for (int i = 0; i < 10000; i++)
			tfmc_session_call(session, 0, dims, &in, &out);
		clock_gettime(CLOCK_MONOTONIC, &b);
		double seconds = ((double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9) / 10000;
		best = seconds < best ? seconds : best;
	}
	printf("%.3f\n", best * 1e6);
	tfmc_session_close(session);
}
C
"${CC:-cc}" -O2 -I"$source/runtime" -I. bare.c tiny.o "$build/runtime/libtfmcrt.a" -lpthread -o bare
PYTHONPATH=$tmp TFMC_LIBRARY=$build/runtime/python/libtfmc_python.so "$python" -B - "$(./bare)" <<'PY'
import sys, timeit
import numpy as np
import tfmc
entry, model, ids = float(sys.argv[1]), tfmc.load("tiny.o", threads=1), np.array([[1, 2, 3]], np.int32)
run = min(timeit.repeat(lambda: model.run(ids=ids), number=2000, repeat=30)) / 2000 * 1e6
print(f"the entry {entry:.2f} us, model.run {run:.2f} us, beyond the entry {run - entry:.2f} us")
PY
