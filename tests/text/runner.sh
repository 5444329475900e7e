#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs one text test: every line of the file that contains `RUN:` is a shell command, in order, with
#   %s the file, %S its directory, %t a scratch path, %tfmc the command, %FileCheck FileCheck,
#   %quick options of tfmc that make code without optimization where it is run, not looked at (support/effort.sh; nothing with
#   TFMC_ALL), %unoptimized the same beside passes that are named,
#   %not inverts an exit status (`%not 1 cmd` wants exactly 1), %shared the folder of shared models.
# A line with `REQUIRES: shared` skips the test (exit 77) when that folder is absent.
set -uo pipefail
file=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

if grep -q 'REQUIRES: shared' "$file" && [ ! -d "$TFMC_SHARED/models" ]; then
	echo "SKIPPED: $TFMC_SHARED is absent"
	exit 77
fi
if grep -q 'RUN:.*python3' "$file" && ! command -v python3 >/dev/null; then
	echo "SKIPPED: python3 is absent"
	exit 77
fi
if [ -z "${FILECHECK:-}" ] || [[ $FILECHECK == *NOTFOUND ]]; then
	echo "SKIPPED: FileCheck-19 is absent (Debian: llvm-19-tools)"
	exit 77
fi

. "$TFMC_SOURCE/tests/support/effort.sh"
not() {
	local want=any
	if [[ $1 =~ ^[0-9]+$ ]]; then want=$1; shift; fi
	"$@"
	local got=$?
	if [ "$want" = any ]; then [ $got -ne 0 ] && [ $got -lt 70 ]; else [ $got -eq "$want" ]; fi
}
export -f not

n=0
while IFS= read -r line; do
	n=$((n + 1))
	command=${line#*RUN:}
	command=${command//%tfmc/$TFMC}
	command=${command//%FileCheck/$FILECHECK --enable-var-scope --allow-unused-prefixes=false}
	command=${command//%quick/${quick[*]}}
	command=${command//%unoptimized/${quick[0]:-}}
	command=${command//%not/not}
	command=${command//%shared/$TFMC_SHARED}
	command=${command//%S/$(dirname "$file")}
	command=${command//%s/$file}
	command=${command//%t/$tmp/t}
	if ! (cd "$tmp" && bash -c "set -o pipefail; $command"); then
		echo "FAILED: $command" >&2
		exit 1
	fi
done < <(grep 'RUN:' "$file")
if [ $n -eq 0 ]; then
	echo "FAILED: $file has no RUN line" >&2
	exit 1
fi
