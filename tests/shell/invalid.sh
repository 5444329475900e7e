#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every file of tests/invalid is rejected as its `expect` lines say: message, place, exit code 1, nothing
# written, nothing on stdout. The format is described in tests/invalid/README.md.
set -uo pipefail
dir=$TFMC_SOURCE/tests/invalid
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0
count=0

complain() { echo "$1: $2" >&2; failed=$((failed + 1)); }

# check_expectation FILE LINE COLUMN REGEX: one of the errors in $tmp/err fits
check_expectation() {
	local line=$2 column=$3
	[ "$line" = '*' ] && line='[0-9]+'
	[ "$column" = '*' ] && column='[0-9]+'
	if [ "$2" = '*' ]; then
		grep -aE ': error: |^error: |^tfmc: error: ' "$tmp/err" | sed -E 's/^.*error: //' | grep -aqE -- "$4"
	else
		grep -aE "^[^ ]*:$line:$column: error: " "$tmp/err" | sed -E 's/^[^ ]*: error: //' | grep -aqE -- "$4"
	fi
}

check_file() {
	local file=$1 code
	"$TFMC" "$file" -o "$tmp/out/m.o" >"$tmp/out.txt" 2>"$tmp/err"
	code=$?
	[ $code -eq 1 ] || complain "$file" "exit code $code, expected 1"
	! grep -qa '(null)' "$tmp/err" || complain "$file" "a message has no word for what it names: $(cat "$tmp/err")"
	[ -s "$tmp/out.txt" ] && complain "$file" "wrote to stdout"
	[ -z "$(ls -A "$tmp/out")" ] || { complain "$file" "left files behind: $(ls -A "$tmp/out")"; rm -rf "${tmp:?}/out"/*; }
	local n=0
	while IFS= read -r row; do
		n=$((n + 1))
		row=${row#*expect: }
		local line=${row%%:*}; row=${row#*:}
		local column=${row%%:*}; row=${row#*: }
		check_expectation "$file" "$line" "$column" "$row" ||
			{ complain "$file" "no error $line:$column fits /$row/; got:"; sed 's/^/    /' "$tmp/err" >&2; }
	done < <(grep -a '^# expect: ' "$file" | head -9)
	local wanted
	wanted=$(sed -n 's/^# errors: //p' "$file")
	[ -z "$wanted" ] || [ "$(grep -acE '(^|: )error: ' "$tmp/err")" -eq "$wanted" ] ||
		{ complain "$file" "not $wanted errors:"; sed 's/^/    /' "$tmp/err" >&2; }
	[ $n -gt 0 ] || complain "$file" "has no expectation"
}

mkdir -p "$tmp/out"
for file in "$dir"/*.yaml; do
	count=$((count + 1))
	check_file "$file"
done
"$TFMC" "$dir/base/model.yaml" -o "$tmp/base.o" || complain base "the valid model is rejected"
echo "$count wrong inputs, $failed complaints"
[ $failed -eq 0 ] && [ $count -ge 30 ]
