#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The system refuses to write: every form of a full disk is a message with path and reason and exit 3, old outputs stay
# as they are, and neither a failure nor a signal leaves files.
set -euo pipefail
[ -z "$TFMC_LINK_FLAGS" ] || { echo "skipped: sanitizers do not let themselves be preloaded"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
"$CC" -shared -fPIC -O1 -o refuse.so "$TFMC_SOURCE/tests/shell/refuse.c"
model=$TFMC_SOURCE/examples/names/model.yaml
fails=0
complain() { echo "$*" >&2; fails=1; }
compile() { "$TFMC" "$model" -O0 -mcpu=x86-64-v3 -o x.o "$@"; }
refuse() { LD_PRELOAD=$tmp/refuse.so "$@"; }
outputs() { find . -type f ! -name refuse.so ! -name log ! -name '*.tir' | sort | tr '\n' ' '; }

# expect WHAT PATTERN COMMAND...: exit 3, the message, and the old files
expect() {
	local what=$1 pattern=$2 code=0
	shift 2
	echo old >x.o; echo old >x.h; echo old >x.weights
	"$@" >log 2>&1 || code=$?
	[ $code = 3 ] && grep -qE "$pattern" log || complain "$what: exit $code, not 3 with $pattern: $(cat log)"
	[ "$(cat x.o x.h x.weights | tr '\n' ' ')" = "old old old " ] || complain "$what: old outputs were changed"
	[ "$(outputs)" = "./x.h ./x.o ./x.weights " ] || complain "$what: files are left: $(outputs)"
}
limited() { (ulimit -f 16; "$@"); }
expect "EFBIG" 'error: cannot write x.o: File too large' limited compile
expect "EFBIG, weights" 'error: cannot write x.weights: File too large' limited compile --weights=file
expect "EFBIG, json" '^\{"severity":"error",.*"message":"cannot write x.o: File too large"' limited compile --diagnostics=json
expect "EFBIG, C" 'error: cannot write x.o: File too large' limited compile --emit=c
expect "EIO" 'error: cannot write x.o: Input/output error' env REFUSE_SYNC=5 LD_PRELOAD="$tmp/refuse.so" "$TFMC" "$model" -O0 -o x.o
expect "ENOSPC" 'error: cannot write x.o: No space left on device' env REFUSE_SYNC=28 LD_PRELOAD="$tmp/refuse.so" "$TFMC" "$model" -O0 -o x.o
expect "EDQUOT" 'error: cannot write x.o: Disk quota exceeded' env REFUSE_SYNC=122 LD_PRELOAD="$tmp/refuse.so" "$TFMC" "$model" -O0 -o x.o
full() { "$@" >/dev/full; }
expect "stdout" 'error: cannot write to stdout: No space left on device' full "$TFMC" "$model" --emit=tir -o -
[ "$(grep -c 'cannot write' log)" = 1 ] || complain "stdout is reported more than once"

# A file system that is full, where users may make one.
if unshare -Urm true 2>/dev/null; then
	mkdir small
	code=0
	unshare -Urm bash -c 'mount -t tmpfs -o size=100k none small && cd small && "$@"' - \
		"$TFMC" "$model" -O0 -o x.o >log 2>&1 || code=$?
	[ $code = 3 ] && grep -q 'error: cannot write x.o: No space left on device' log || complain "full disk: exit $code: $(cat log)"
	rmdir small
else
	echo "a full file system was not tried: no user namespaces here"
fi

# wait_for COMMAND...: until it is true, ten seconds at most
wait_for() {
	for _ in $(seq 200); do
		"$@" && return
		sleep 0.05
	done
	complain "never: $*"
}
is_written() { ls -l "/proc/$1/fd" 2>/dev/null | grep -qF "$tmp/"; }
named() { find . -name '.x.*.tfmc-*' | sort; }
is_named() { [ "$(named | wc -l)" = 2 ]; }
# A command that waits with all its files written; its number goes to $pid.
start() {
	"$@" LD_PRELOAD="$tmp/refuse.so" REFUSE_SYNC=0 "$TFMC" "$model" -O0 -mcpu=x86-64-v3 -o x.o >log 2>&1 &
	pid=$!
}
rm -f x.*
start env
wait_for is_written $pid
[ -z "$(outputs)" ] || complain "files have names before they are complete: $(outputs)"
kill -KILL $pid; wait $pid || true
[ -z "$(outputs)" ] || complain "KILL left $(outputs)"
for signal in INT TERM HUP PIPE; do
	code=0
	# A shell starts background jobs with INT ignored.
	start env --default-signal=INT REFUSE_UNNAMED=1
	wait_for is_named
	kill -$signal $pid
	wait $pid || code=$?
	[ $code = $((128 + $(kill -l $signal))) ] || complain "$signal: exit $code"
	[ -z "$(outputs)" ] || complain "$signal left $(outputs)"
done
# Files of a killed process go with the next run, files of a living one stay.
start env REFUSE_UNNAMED=1
wait_for is_named
kill -KILL $pid; wait $pid || true
left=$(named)
is_named || complain "KILL should have left files"
start env REFUSE_UNNAMED=1
are_others() { is_named && [ -z "$(comm -12 <(named) <(echo "$left"))" ]; }
wait_for are_others
REFUSE_UNNAMED=1 refuse compile
is_named || complain "the files of a living process were removed"
kill -TERM $pid; wait $pid || true
[ "$(outputs)" = "./x.h ./x.o " ] || complain "left: $(outputs)"

# A folder that cannot be read.
mkdir folder
echo '{}' >folder/config.json
code=0
REFUSE_FOLDERS=13 refuse "$TFMC" folder -o x.o >log 2>&1 || code=$?
[ $code = 3 ] && grep -q "error: cannot read 'folder': Permission denied" log || complain "folder: exit $code: $(cat log)"

# The candidates of reduce go with it.
"$TFMC" "$model" -q -mcpu=x86-64-v3 --emit=tir --stop-after=canonicalize -o case.tir
"$TFMC" reduce case.tir --test='sleep 5; true' >log 2>&1 &
pid=$!
wait_for test -e case.tir.candidate.tir
kill -TERM $pid; wait $pid || true
[ ! -e case.tir.candidate.tir ] || complain "reduce left its candidate"
# One that a killed reduce left is taken over; another's file of the name is not, nor that of one that runs.
"$TFMC" reduce case.tir --test='sleep 5; true' >log 2>&1 &
pid=$!
wait_for test -s case.tir.candidate.tir
code=0
"$TFMC" reduce case.tir --test=true -o small.tir >log 2>&1 || code=$?
[ $code = 3 ] && grep -q 'another tfmc reduce uses it' log || complain "two at once: exit $code: $(cat log)"
kill -KILL $pid; wait $pid || true
"$TFMC" reduce case.tir --test='test -s' -o small.tir >log 2>&1 || complain "reduce after one that was killed: $(cat log)"
[ ! -e case.tir.candidate.tir ] && [ -s small.tir ] || complain "reduce after one that was killed left its candidate"
for made in 'echo mine >' mkfifo 'ln -s case.tir'; do
	eval "$made case.tir.candidate.tir"
	before=$(md5sum case.tir) code=0
	timeout 20 "$TFMC" reduce case.tir --test=true -o small.tir >log 2>&1 || code=$?
	[ $code = 3 ] && grep -q 'cannot write the candidate' log && [ "$(md5sum case.tir)" = "$before" ] ||
		complain "$made in place of the candidate: exit $code: $(cat log)"
	[ -p case.tir.candidate.tir ] || [ -L case.tir.candidate.tir ] || grep -qx mine case.tir.candidate.tir || complain "$made: it is gone"
	rm case.tir.candidate.tir
done

# A path that is a link stays one: what it leads to is written, whether it is there or not.
mkdir -p there && rm -f x.* there/*
ln -s there/y.o x.o && ln -s ../there/y.h there/loop.h && ln -s there/loop.h x.h && echo old >there/y.h
compile >log 2>&1 || complain "outputs that are links: $(cat log)"
[ -L x.o ] && [ -L x.h ] && [ -L there/loop.h ] && [ ! -L there/y.o ] && [ -s there/y.o ] && ! grep -qx old there/y.h ||
	complain "outputs that are links: $(ls -l . there)"
rm -f x.* && ln -s there/circle x.o && ln -s ../x.o there/circle
code=0
compile >log 2>&1 || code=$?
[ $code = 3 ] && grep -q 'cannot write x.o: Too many levels' log || complain "a circle of links: exit $code: $(cat log)"
rm -f x.* && ln -s there/z.h x.o && ln -s there/z.h x.h
code=0
compile >log 2>&1 || code=$?
[ $code = 3 ] && grep -q 'two outputs are the file' log || complain "two links to one file: exit $code: $(cat log)"
exit $fails
