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
exit $fails
