#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The model of names becomes a program of its own: it draws the same names from a seed whatever the number of
# workers, and the same as the command does; scores are those of the command, and words of the languages that
# the training never saw score better than their own letters in another order.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
example=$TFMC_SOURCE/examples/names
PYTHONDONTWRITEBYTECODE=1 python3 "$example/data.py" --check # the generator's own probabilities
"$TFMC" "$example/model.yaml" -mcpu=x86-64-v2 "${quick[@]}" --entries=prefill,step,score -o "$tmp/names.o"
"$CC" -std=c17 -Wall -Wextra -Werror -I"$TFMC_SOURCE/runtime" -I"$tmp" "$example/main.c" "$example/together.c" \
	"$tmp/names.o" "$TFMC_BUILD/runtime/libtfmcrt.a" -lpthread ${TFMC_LINK_FLAGS:-} -o "$tmp/names"
bash "$TFMC_SOURCE/tests/object_audit.sh" "$tmp/names.o" names

# Names and their log-probabilities: for every seed the same ones.
"$tmp/names" 12 7 >"$tmp/one"
"$tmp/names" -w 3 12 7 >"$tmp/three"
cat "$tmp/one"
cmp "$tmp/one" "$tmp/three"
[ "$(awk '{ print $2 }' "$tmp/one" | sort -u | wc -l)" -ge 10 ]
# Side by side, 8 at a time: the same ones, with the same numbers.
"$tmp/names" -t 12 7 | cmp - "$tmp/one"
"$tmp/names" -w 2 -t 12 7 | cmp - "$tmp/one"
for i in 1 2 3; do
	"$TFMC" generate "$example/model.yaml" -mcpu=x86-64-v2 "${quick[@]}" --threads "$i" --prompt '' --seed $((6 + i))
done >"$tmp/command"
head -3 "$tmp/one" | awk '{ print $2 }' | diff - "$tmp/command"

# Several draws of one command, each behind its log p; names without a text.
"$TFMC" generate "$example/model.yaml" -mcpu=x86-64-v2 "${quick[@]}" --seed 7 --samples 12 >"$tmp/command"
awk '{ print $2 }' "$tmp/one" | diff - <(cut -f2 "$tmp/command")
paste "$tmp/one" "$tmp/command" | awk '{ d = $1 - $3; if (d > 1e-4 || d < -1e-4) exit 1 }'
"$TFMC" generate "$example/model.yaml" -mcpu=x86-64-v2 "${quick[@]}" --seed 7 --samples 40 --bad-words a --forced-text k --stop on >"$tmp/command"
[ "$(wc -l <"$tmp/command")" -eq 40 ]
cut -f2 "$tmp/command" >"$tmp/words"
[ "$(grep -c '^k' "$tmp/words")" -eq 40 ]
if grep -e a -e on "$tmp/words"; then exit 1; fi

# Held-out words (data.py) and their own letters shuffled: one list after the other.
words="kreirgilm leteaniëmés hygleld k'ábíl ninias yatishakin ramen woshiki nialálvon lánniële chamekaka skevirlyrg
	shushonkūn lomon liëllel skalraurg riritu tanreme bondond canviël brormalm stastokarg gaugoth skabar"
shuffled="eikrgriml ainlëmeetés dhgylle 'áblkí insnai asaynthiik nrame whioisk vaollnáin nnielëlá heacamkak yrgvslekri
	hnuūonkshs nlmoo lëillel kagrurasl irurti meetnra onobdnd vënclia lbomrrma ssgottarak gguhota arksab"
# shellcheck disable=SC2086
"$tmp/names" -s $words $shuffled >"$tmp/scores"
awk '{ print $2 }' "$tmp/scores" >"$tmp/words"
"$TFMC" score "$example/model.yaml" -mcpu=x86-64-v2 "${quick[@]}" --prompt-file "$tmp/words" >"$tmp/command"
sed -n 's/^log p \([^,]*\),.*\t\(.*\)$/\1 \2/p' "$tmp/command" >"$tmp/want"
awk '{ print $1, $2 }' "$tmp/scores" | diff - "$tmp/want"

# An object without the entry score goes letter after letter.
"$TFMC" "$example/model.yaml" -mcpu=x86-64-v2 "${quick[@]}" --entries=prefill,step -o "$tmp/steps.o" --header="$tmp/steps.h"
"$CC" -std=c17 -Wall -Wextra -Werror -I"$TFMC_SOURCE/runtime" -I"$tmp" "$example/main.c" "$example/together.c" \
	"$tmp/steps.o" "$TFMC_BUILD/runtime/libtfmcrt.a" -lpthread ${TFMC_LINK_FLAGS:-} -o "$tmp/steps"
# shellcheck disable=SC2086
"$tmp/steps" -s $words $shuffled | paste - "$tmp/scores" |
	awk '{ d = $1 - $3; if (d > 1e-4 || d < -1e-4 || $2 != $4) exit 1 }'
awk 'NR <= 24 { real += $1; next } { other += $1 }
	END { print "on average " real / 24 ", shuffled " other / 24; exit !(NR == 48 && real / 24 > other / 24 + 10) }' \
	"$tmp/scores"

# A letter that no name has; words that do not fit; bytes that are no text.
"$tmp/names" -s Ωmaren maren >"$tmp/scores"
awk '{ p[NR] = $1 } END { exit !(NR == 2 && p[1] < p[2] - 3) }' "$tmp/scores"
for word in "$(printf 'a%.0s' $(seq 24))" "$(printf 'a%.0s' $(seq 300))" "$(printf '\377')"; do
	if "$tmp/names" -s "$word" 2>"$tmp/error"; then exit 1; fi
	[ -s "$tmp/error" ]
done
