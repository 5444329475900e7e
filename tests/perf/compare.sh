#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Times tfmc and its peers (ONNX Runtime, OpenVINO, CTranslate2, llama.cpp, a plain C program) on the same seeded models,
# in turns.
#   bash tests/perf/compare.sh [--json FILE] [--precisions f32,int8] [--threads 1,2] [--rounds N] [ROW...]   --help says all
# BUILD_DIR: the build (default build). OUT: scratch folder, several GB (default BUILD_DIR/perf/compare). PEERS_VENV: a
# virtual environment with the peers; without it one is made below OUT from PyPI. TFMC_CPU: -mcpu of tfmc (default
# native). STORIES: the plain C program of D5 (default ../shared/bench/decoder/stories.c).
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${BUILD_DIR:-build}")
out=$(realpath -m "${OUT:-$build/perf/compare}")
venv=${PEERS_VENV:-$out/venv}
packages=(numpy onnx onnxruntime openvino nncf ctranslate2 gguf llama-cpp-python)
mkdir -p "$out"

if [ ! -x "$venv/bin/python" ]; then
	python3 -m venv "$venv"
	"$venv/bin/pip" install --quiet "${packages[@]}"
fi
"$venv/bin/python" -c 'import numpy, onnx, onnxruntime, openvino, nncf, ctranslate2, gguf, llama_cpp' ||
	{ echo "compare.sh: $venv lacks packages; wanted: ${packages[*]}" >&2; exit 3; }

stories=${STORIES:-../shared/bench/decoder/stories.c}
if [ -r "$stories" ]; then
	stories=$(realpath "$stories")
else
	echo "compare.sh: NO PEER FOR D5: the plain C program $stories cannot be read (STORIES names it)" >&2
	stories=
fi
exec "$venv/bin/python" tests/perf/compare/compare.py --out "$out" --build "$build" --mcpu "${TFMC_CPU:-native}" \
	--stories "$stories" "$@"
