#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The sentence embedder becomes a program of its own: lines that mean the same are nearest whatever their words are, lines with the
# same words and the opposite meaning are not; a question alone and lines side by side get the same vectors.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
example=$TFMC_SOURCE/examples/embed
"$TFMC" verify "$example/model.yaml" -mcpu=native
"$TFMC" "$example/model.yaml" -mcpu=x86-64-v2 "${quick[@]}" -o "$tmp/embed.o"
bash "$TFMC_SOURCE/tests/object_audit.sh" "$tmp/embed.o" embed
"$CC" -std=c17 -Wall -Wextra -Werror -I"$tmp" "$example/main.c" "$tmp/embed.o" ${TFMC_LINK_FLAGS:-} -o "$tmp/embed"
search() { "$tmp/embed" "$example/vocab.txt" "$@"; }

# A line is nearest to itself, and the cosine is 1 although it was computed beside others of other lengths.
while IFS= read -r line; do
	search "$example/sentences.txt" "$line" >"$tmp/out"
	[ "$(sed -n 2p "$tmp/out")" = "   1.000  $line" ] || { cat "$tmp/out" >&2; exit 1; }
done <"$example/sentences.txt"

# Ten meanings, each said in a way and in another, and their opposites.
cat >"$tmp/pairs" <<'P'
the dog chased the cat in the park|it was the kitten that was pursued by a hound in the garden|the cat chased the dog in the park
a doctor helped the thief|the burglar was aided by a physician|a thief helped the doctor
the king saw a stranger today|an outsider was noticed by the monarch this day|a stranger saw the king today
the teacher scolded the kid at home|a youngster was reprimanded by the instructor in the house|the kid scolded the teacher at home
the sailor greeted the singer|it was the seaman that welcomed a vocalist|the singer greeted the sailor
the policeman found the robber at night|after dark a burglar was discovered by the officer|the robber found the policeman at night
the farmer called the doctor|the physician was phoned by a grower|the doctor called the farmer
the cat scared the king|it was the monarch that was frightened by a kitten|the king scared the cat
P
right=0
while IFS='|' read -r question same opposite; do
	printf '%s\n' "$opposite" "$same" >"$tmp/two"
	cat "$example/sentences.txt" >>"$tmp/two"
	[ "$(search "$tmp/two" "$question" | sed -n '2s/^ *[-0-9.]* *//p')" = "$same" ] && right=$((right + 1))
done <"$tmp/pairs"
echo "$right of 8 found"
[ $right -ge 7 ]

# Nothing to search, nothing to read.
if search "$tmp/none" x 2>"$tmp/error"; then exit 1; fi
grep -c 'cannot be opened' "$tmp/error" >/dev/null
: >"$tmp/empty"
if search "$tmp/empty" x 2>"$tmp/error"; then exit 1; fi
grep -c 'has no lines' "$tmp/error" >/dev/null
search "$example/sentences.txt" "" "!!! ???" "words that nobody knows" | grep -c . >/dev/null
