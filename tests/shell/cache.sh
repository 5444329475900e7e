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

bounded() { timeout 20 "$TFMC" "$@"; } # as PROGRAM
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
[ "$(ls "$cache" | cut -d- -f1 | sort | uniq -c | tr -s ' \n' ' ')" = ' 1 CACHEDIR.TAG 2 code 1 packed 2 seen 1 weights ' ] ||
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

# Messages about compiling are printed each time.
"$TFMC" verify "$tmp/dates/model.yaml" --checks-only -O0 --remarks -v >"$tmp/out" 2>"$tmp/err"
grep -q 'cache is not used: an option reports' "$tmp/err" && grep -q 'remark: group' "$tmp/err" || complain "--remarks with the cache"

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
echo left >"$cache/new-$(printf %064d 1)"
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
mkdir -m 777 "$tmp/open" "$tmp/open/tfmc" && chmod 777 "$tmp/open/tfmc"
XDG_CACHE_HOME=$tmp/open none "a directory of others" "others may write there"
XDG_CACHE_HOME='' HOME='' none "no home" "neither"
XDG_CACHE_HOME=/dev/null none "no directory" "Not a directory"

# Files that tfmc did not make stay, whatever they are called: in a folder without its mark, which is not used, behind a
# link, and beside its own files when these are removed.
hash=$(printf %064d 7)
own=("code-$hash" "weights-$hash" "packed-$hash" "seen-$hash" "new-$hash" "$hash.clbin" "$hash.clbin.abcdef")
odd=(README.md new-features.md new-left00 code-review weights-of-mine seen- "code-${hash}0" "code-${hash%7}g" "Code-$hash"
	"$hash.clbin2" "$hash.clbin.abcdefg" "x$hash.clbin" CACHEDIR.TAG.old)
plant() { # FOLDER NAME..
	mkdir -p "$1/new-folder/code-$hash"
	local name
	for name in "${@:2}"; do
		echo mine >"$1/$name" && touch -d 2020-01-01 "$1/$name"
	done
}
all_there() { # WHAT FOLDER NAME..
	local name
	[ -d "$2/new-folder/code-$hash" ] || complain "$1: a folder is gone"
	for name in "${@:3}"; do
		[ "$(cat "$2/$name" 2>&1)" = mine ] || complain "$1: $name is gone"
	done
}
unused() { # WHAT HOME WHY
	XDG_CACHE_HOME=$2 none "$1" "$3"
	XDG_CACHE_HOME=$2 TFMC_CACHE_LIMIT=1 none "$1, full" "$3"
}
plant "$tmp/clone/tfmc" "${own[@]}" "${odd[@]}"
unused "a folder of the user" "$tmp/clone" "no CACHEDIR.TAG"
printf 'Signature: 8a477f597d28d172789f06886806bc55\n# This file is a cache directory tag created by another.\n' >"$tmp/clone/tfmc/CACHEDIR.TAG"
unused "a cache of another program" "$tmp/clone" "no CACHEDIR.TAG"
all_there "a folder of the user" "$tmp/clone/tfmc" "${own[@]}" "${odd[@]}"
rm "$tmp/clone/tfmc/CACHEDIR.TAG" && ln -s "$cache/CACHEDIR.TAG" "$tmp/clone/tfmc/CACHEDIR.TAG"
unused "a mark that is a link" "$tmp/clone" "no CACHEDIR.TAG"
mkdir "$tmp/only" "$tmp/only/tfmc" && echo mine >"$tmp/only/tfmc/code-$hash"
unused "one file with a name of the cache" "$tmp/only" "no CACHEDIR.TAG"
for to in "$tmp/clone/tfmc" "$cache" "$tmp/nowhere"; do
	mkdir -p "$tmp/linked" && ln -sfn "$to" "$tmp/linked/tfmc"
	unused "a link to $to" "$tmp/linked" "symbolic link"
done
all_there "a linked folder" "$tmp/clone/tfmc" "${own[@]}" "${odd[@]}"
rm -rf "$cache"
fresh "a new folder"
plant "$cache" "${odd[@]}"
ln -s "$tmp/clone/tfmc/README.md" "$cache/weights-$(printf %064d 8)"
cached "beside other files"
fresh "beside other files, full" --cache-limit=1500k --passes="$("$TFMC" passes | sed -n 's/^O1 *//p')"
all_there "the cache's own folder" "$cache" "${odd[@]}"
[ "$(ls "$cache" | grep -cxE '(code|weights)-[0-9a-f]{64}')" = 2 ] || complain "the cache has more than fits: $(ls "$cache")"
[ -L "$cache/weights-$(printf %064d 8)" ] || complain "a link in the cache is gone"
rm -rf "$cache"
fresh "a folder of before marks" && rm "$cache/CACHEDIR.TAG"
cached "a folder of before marks" && [ -s "$cache/CACHEDIR.TAG" ] || complain "a cache of before marks is not taken over"
mkdir -p "$tmp/empty/tfmc"
XDG_CACHE_HOME=$tmp/empty fresh "an empty folder"
XDG_CACHE_HOME=$tmp/empty cached "an empty folder"

# A file that is not regular counts as absent, and nothing waits for it.
replaced() { # WHAT COMMAND: each file of the cache but its mark
	local f
	for f in "$cache"/$1; do rm -rf "$f" && $2 "$f"; done
	PROGRAM=bounded generate
	same "$2 in place of $1"
}
cached "an empty folder before"
for pattern in 'code-*' 'weights-*' 'seen-*' '*-*'; do replaced "$pattern" mkfifo; done
for command in mkdir "ln -s /dev/zero" "ln -s $tmp/kept"; do replaced '*-*' "$command"; done
rm "$cache/CACHEDIR.TAG"; mkfifo "$cache/CACHEDIR.TAG"
PROGRAM=bounded none "a mark that is a FIFO" "no CACHEDIR.TAG"
rm -rf "$cache"

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
