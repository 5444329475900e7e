#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every op and every example on every back end, see tests/matrix/README.md.
exec bash "$TFMC_SOURCE/tests/matrix/matrix.sh"
