#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The manual as HTML, as the build makes it for `cmake --install` and tfmc-doc: all words, links that work.
set -euo pipefail
if ! command -v cmark-gfm >/dev/null; then
	echo "SKIPPED: cmark-gfm is absent"
	exit 77
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cmake --install "$TFMC_BUILD" --prefix "$tmp" --component documentation >"$tmp/log" || { cat "$tmp/log"; exit 1; }
html=$tmp/share/doc/tfmc/manual/html
[ -d "$html" ] || { echo "SKIPPED: the build was configured without cmark-gfm"; exit 77; }
python3 -B "$TFMC_SOURCE/tests/support/html_manual.py" "$TFMC_SOURCE/frontend/manual" "$html"
