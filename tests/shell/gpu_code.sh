#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What compilers of GPUs make of linears for few rows: every load of weights is a whole vector, and enough waves fit beside
# each other to hide the latency of memory.
exec bash "$TFMC_SOURCE/tests/perf/gpu_code.sh" --check
