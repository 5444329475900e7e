#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Models of transformers as PyTorch exports them, through `tfmc import`, against ONNX Runtime (tests/onnx/exports.py). Needs a
# python3 (TFMC_PYTHON) with torch, transformers, onnxruntime and safetensors, and --all: minutes.
set -uo pipefail
[ -n "${TFMC_ALL:-}" ] || { echo "SKIPPED: only with --all"; exit 77; }
exec "${TFMC_PYTHON:-python3}" -B "$TFMC_SOURCE/tests/onnx/exports.py" "$TFMC"
