#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Code that GPU compilers emit for skinny linears: every load of weights is a whole vector, and enough waves fit beside
# each other to hide the latency of memory.
exec bash "$TFMC_SOURCE/tests/perf/gpu_code.sh" --check
