#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Whole models against PyTorch's own nn.Transformer with seeded weights (tests/golden), and the trained
# example: their checks, and object against interpreter, on every processor level this machine has.
set -uo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
failed=0
turn=0
for model in "$TFMC_SOURCE"/tests/golden/*/model.yaml "$TFMC_SOURCE"/examples/dates/model.yaml; do
	levels=("-mcpu=native -O1" "-mcpu=x86-64-v2 ${quick[*]}" "-mcpu=x86-64-v3 ${quick[*]}")
	[ -n "${TFMC_ALL:-}" ] || levels=("${levels[turn++ % 3]}") # models take turns
	for options in "-mcpu=native" "-mcpu=native -O0" "-mcpu=native --threads=3" "${levels[@]}"; do
		# shellcheck disable=SC2086
		"$TFMC" verify "$model" $options >/tmp/tfmc-golden.$$ 2>&1
		code=$?
		[ $code -eq 0 ] && continue
		echo "$model $options: exit code $code" >&2
		cat /tmp/tfmc-golden.$$ >&2
		failed=1
	done
done
rm -f /tmp/tfmc-golden.$$
exit $failed
