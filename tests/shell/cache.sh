#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Commands that run a model take its code and packed weights from the cache when nothing has changed, and from nowhere
# else: other weights, options and programs have other entries, damaged ones are made again, and a cache that cannot be
# used is as none.
set -uo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME=$tmp/xdg
unset TFMC_CACHE_LIMIT
cache=$tmp/xdg/tfmc
failed=0

complain() {
	echo "$1" >&2
	cat "$tmp/err" >&2
	failed=1
}

# generate [PROGRAM=..] ARGUMENTS: what it prints goes to out, whether it came from the cache is what it ends with.
# A file counts as changed by this command until the clock has moved behind its times.
generate() {
	sleep 0.02
	if ! "${PROGRAM:-$TFMC}" generate "$tmp/dates/model.yaml" --prompt "3rd of March 2021" -O0 -v "$@" >"$tmp/out" 2>"$tmp/err"; then
		complain "generate $* failed"
	fi
	grep -q 'come from the cache' "$tmp/err"
}

cached() { generate "${@:2}" || complain "$1: not from the cache"; }
fresh() { ! generate "${@:2}" || complain "$1: from the cache"; }
same() { cmp -s "$tmp/out" "$tmp/first" || complain "$1: other results"; }

cp -r "$TFMC_SOURCE/examples/dates" "$tmp/dates"
fresh "the first time"
cp "$tmp/out" "$tmp/first"
cached "the second time" && same "the second time"
[ "$(stat -c %a "$cache")" = 700 ] || complain "others may read the cache"
fresh "--no-cache" --no-cache && same "--no-cache"

# Another command has other code and the same packed weights.
"$TFMC" score "$tmp/dates/model.yaml" --prompt "3rd of March 2021" --target-text 2021-03-03 -O0 >"$tmp/err" 2>&1 ||
	complain "score failed"
[ "$(ls "$cache" | cut -d- -f1 | sort | uniq -c | tr -s ' \n' ' ')" = ' 2 code 2 seen 1 weights ' ] ||
	complain "generate and score keep $(ls "$cache")"

# The name of the folder is nothing to it; what the files hold is.
cp -r "$tmp/dates" "$tmp/copy" && mv "$tmp/dates" "$tmp/old" && mv "$tmp/copy" "$tmp/dates"
cached "a copy"
fresh "other options" --passes="$("$TFMC" passes | sed -n 's/^O1 *//p')"
weights=$tmp/dates/model.safetensors
cp --preserve=all "$weights" "$tmp/kept"
for at in 500000 900000 1300000; do # exponents: what the model writes changes
	printf '\x7e\x7e\x7e\x7e' | dd of="$weights" bs=1 seek=$at conv=notrunc status=none
done
touch -r "$tmp/kept" "$weights"
fresh "changed weights with the time of before"
cat "$tmp/kept" >"$weights"
cached "the weights of before" && same "the weights of before"

# Another program with the same sources, some of them wrong on purpose.
PROGRAM=${TFMC_PLANTED:-$TFMC_BUILD/tests/tfmc_planted} fresh "another program"

# What is said about compiling is said each time.
"$TFMC" verify "$tmp/dates/model.yaml" --checks-only -O0 --remarks -v >"$tmp/out" 2>"$tmp/err"
grep -q 'cache is not used: an option says' "$tmp/err" && grep -q 'remark: group' "$tmp/err" || complain "--remarks with the cache"

# Damage: a byte of code, of weights; cut off.
damage() { # WHAT PATTERN COMMAND..: on the files of the pattern
	local f
	for f in "$cache"/$2; do "${@:3}" "$f"; done
	fresh "$1" && same "$1"
	cached "made again after $1" && same "made again after $1"
}
flip() { printf '\xa5\x5a' | dd of="$1" bs=1 seek=$(($(stat -c %s "$1") / 2)) conv=notrunc status=none; }
damage "a byte of code" 'code-*' flip
damage "a byte of weights" 'weights-*' flip
damage "code cut off" 'code-*' truncate -s -7
damage "weights cut off" 'weights-*' truncate -s -7
damage "no weights" 'weights-*' rm

# Two at once, from nothing; a writer that was killed.
rm -rf "$cache"
for i in 1 2; do
	"$TFMC" generate "$tmp/dates/model.yaml" --prompt "3rd of March 2021" -O0 >"$tmp/out$i" 2>"$tmp/err" &
done
wait
cmp -s "$tmp/out1" "$tmp/first" && cmp -s "$tmp/out2" "$tmp/first" || complain "two at once: other results"
cached "after two at once"
echo left >"$cache/new-left00"
rm "$cache"/code-*
fresh "a file that was left"
[ -z "$(ls "$cache" | grep ^new-)" ] || complain "files of processes that are gone stay: $(ls "$cache")"

# Its size has a bound: of two models the one that was used last stays, and one beyond the bound is not kept.
rm -rf "$cache"
fresh "within the limit" --cache-limit=3M
fresh "a second pipeline" --cache-limit=3000000 --passes="$("$TFMC" passes | sed -n 's/^O1 *//p')"
[ "$(du -sb --apparent-size "$cache" | cut -f1)" -lt 3200000 ] || complain "the cache is beyond its limit"
rm -rf "$cache"
TFMC_CACHE_LIMIT=1000 fresh "beyond the limit"
[ -z "$(ls "$cache" | grep -E '^(weights|new)-')" ] || complain "more than the limit is kept"
same "beyond the limit"

# No cache, and the command does not mind.
none() { # WHY
	fresh "$1" && same "$1"
	grep -q "the cache is not used: .*$2" "$tmp/err" || complain "$1: the reason is not said"
}
XDG_CACHE_HOME=/dev/null none "no directory" "Not a directory"
mkdir -m 777 "$tmp/open" "$tmp/open/tfmc" && chmod 777 "$tmp/open/tfmc"
XDG_CACHE_HOME=$tmp/open none "a directory of others" "others may write there"
XDG_CACHE_HOME='' HOME='' none "no home" "neither"

# A full disk.
mkdir "$tmp/small"
full='mount -t tmpfs -o size=1m none "$1/small" && mkdir "$1/small/tfmc" && chmod 700 "$1/small/tfmc" &&
	XDG_CACHE_HOME=$1/small "$TFMC" generate "$1/dates/model.yaml" --prompt "3rd of March 2021" -O0 && ls "$1/small/tfmc" >&2'
if unshare -rm true 2>/dev/null; then
	unshare -rm bash -c "$full" - "$tmp" >"$tmp/out" 2>"$tmp/err" || complain "a full disk fails the command"
	same "a full disk"
	! grep -qE '^(new|weights)-' "$tmp/err" || complain "a full disk: files are left"
else
	echo "no user namespaces here: not tried on a full disk"
fi
exit $failed
