#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Operators of ONNX Runtime's domain com.microsoft through `tfmc import`, against ONNX Runtime (tests/onnx/fused.py). Needs a
# python3 (TFMC_PYTHON) with onnx, onnxruntime and safetensors.
set -uo pipefail
exec "${TFMC_PYTHON:-python3}" -B "$TFMC_SOURCE/tests/onnx/fused.py" "$TFMC"
