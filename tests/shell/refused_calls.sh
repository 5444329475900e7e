#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# One call of the system fails, each in turn: the command did without and its answer is right, or it says why and exits
# with 3, whatever it was doing and whatever file it was. Files that become shorter while they are read; outputs of one
# command that appear together or not at all. TFMC_REFUSALS=N tries N of each kind of call instead of 3.
set -euo pipefail
[ -z "$TFMC_LINK_FLAGS" ] || { echo "skipped: sanitizers do not let themselves be preloaded"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
export XDG_CACHE_HOME=$tmp/cache
"$CC" -shared -fPIC -O1 -o refuse.so "$TFMC_SOURCE/tests/shell/refuse.c"
"$TFMC" new "$tmp/m" -q
model=$tmp/m/model.yaml
fails=0
complain() { echo "$*" >&2; fails=1; }
refuse() { env LD_PRELOAD="$tmp/refuse.so" "$@"; }

# each WHAT CALL:ERRNO.. COMMAND..: from call to call, as many as TFMC_REFUSALS of a kind
steps=${TFMC_REFUSALS:-3}
each() {
	local what=$1 call error n k code said=0 kinds=$2
	shift 2
	refuse REFUSE_COUNT=1 "$@" >good 2>counts || complain "$what: $(cat counts)"
	for kind in $kinds; do
		call=${kind%:*} error=${kind#*:}
		n=$(sed -n "s/^calls of $call: //p" counts)
		[ "$n" -gt 0 ] || continue
		for k in $(seq 1 $(((n + steps - 1) / steps)) "$n") "$n"; do
			code=0
			refuse REFUSE_CALL="$call" REFUSE_AT="$k" REFUSE_ERRNO="$error" timeout 60 "$@" >out 2>err || code=$?
			case $code in
			0) cmp -s good out ;;
			3) said=$((said + 1)); grep -q '^\(.*: \)\?error: .*\[E70[0-9]\]' err ;;
			*) false ;;
			esac || complain "$what: call $k of $n of $call fails with $error: exit $code: $(head -c 200 err)"
		done
	done
	[ $said -gt 0 ] || complain "$what: nothing that failed was noticed"
}
files="open:24 open:5 read:5 fstat:5 stat:5 mmap:12"
each inspect "$files" "$TFMC" inspect "$model"
# Folders are read to their end: with weights of any name, with other weights than tfmc reads, without a configuration.
mkdir odd pickles bare
cp "$TFMC_SOURCE"/examples/hub/tales/* odd
mv odd/model.safetensors odd/other.safetensors
cp odd/config.json pickles
echo >pickles/model.bin
echo >bare/model.onnx
for folder in odd pickles bare; do
	n=$(refuse REFUSE_COUNT=1 "$TFMC" inspect $folder 2>&1 | sed -n 's/^calls of readdir: //p' || true)
	for k in $(seq 1 "$n"); do
		code=0
		refuse REFUSE_CALL=readdir REFUSE_AT="$k" REFUSE_ERRNO=5 "$TFMC" inspect $folder >out 2>err || code=$?
		[ $code = 3 ] && [ "$(grep -c "^error: " err)" = 1 ] && grep -q "^error: cannot read '$folder': Input/output error" err ||
			complain "$folder: call $k of $n of readdir fails: exit $code: $(cat err)"
	done
	[ "$n" -gt 0 ] || complain "$folder: readdir is not called"
done
# A folder that cannot be read to its end is not taken for an empty one, which would become the cache.
mkdir home
mkdir -m 700 home/tfmc
echo mine >home/tfmc/file
for k in 1 2 3; do
	refuse REFUSE_CALL=readdir REFUSE_AT=$k REFUSE_ERRNO=5 XDG_CACHE_HOME="$tmp/home" "$TFMC" generate "$model" --tokens=1,2 --max-tokens=1 \
		-O0 >out 2>err || complain "a folder of others as cache: $(cat err)"
	[ "$(ls -A home/tfmc)" = file ] || complain "readdir $k fails, and the folder of others became a cache"
done
each "inspect a folder" "$files" "$TFMC" inspect "$TFMC_SOURCE/examples/hub/tales"
each "inspect weights" "$files" "$TFMC" inspect m/model.safetensors
generate=("$TFMC" generate "$model" --tokens=1,2 --max-tokens=1 -O0)
each "generate, from nothing" "$files" "${generate[@]}" --no-cache
"${generate[@]}" >err 2>&1
each "generate, cached" "$files openat:24" "${generate[@]}"

# Interrupted writes are repeated: the program of a device (of the mock library) is cached whatever write is interrupted.
device=(env TFMC_OPENCL="$MOCK_OPENCL_PATH" "${generate[@]}" --print-tokens --device=opencl:Processor)
"${device[@]}" >good
n=$(refuse REFUSE_COUNT=1 XDG_CACHE_HOME="$tmp/of_0" "${device[@]}" 2>&1 >out | sed -n 's/^calls of write: //p')
for k in $(seq 1 "$n"); do
	refuse REFUSE_CALL=write REFUSE_AT="$k" REFUSE_ERRNO=4 XDG_CACHE_HOME="$tmp/of_$k" "${device[@]}" >out 2>err || complain "write $k is interrupted: $(cat err)"
	cmp good out
	[ "$(ls "$tmp/of_$k/tfmc" | grep -c '\.clbin$')" = 1 ] || complain "write $k of $n is interrupted: the program is not cached"
done
[ "$n" -gt 0 ] || complain "nothing is written"

# Where there is no memory for code: every command that runs it.
without_pages() { # WHAT COMMAND..: each mmap in turn, from the first that is noticed as one of the code
	local what=$1 code n k found=0
	shift
	refuse REFUSE_COUNT=1 "$@" >out 2>counts || complain "$what: $(cat counts)"
	n=$(sed -n 's/^calls of mmap: //p' counts)
	for k in $(seq 1 "$n"); do
		code=0
		refuse REFUSE_CALL=mmap REFUSE_AT="$k" REFUSE_ERRNO=12 "$@" >out 2>err || code=$?
		[ $code = 0 ] || [ $code = 3 ] || complain "$what: mmap $k of $n: exit $code: $(head -c 200 err)"
		! grep -q 'out of memory while loading the code \[E705\]' err || found=1
	done
	[ $found = 1 ] || complain "$what: no lack of memory for code was noticed"
}
without_pages generate "${generate[@]}"
printf 'abc\n' >text
without_pages calibrate "$TFMC" calibrate "$model" --prompt-file text -O0 -o profile
"$TFMC" verify "$model" -O0 >out 2>&1
without_pages verify "$TFMC" verify "$model" -O0 --checks-only

# Weights that are absent; that become shorter, by pages or within the last one; that are written to.
mv m/model.safetensors kept
expect() { # WHAT PATTERN COMMAND..
	local what=$1 pattern=$2 code=0
	shift 2
	"$@" >out 2>err || code=$?
	[ $code = 3 ] && grep -q "$pattern" err || complain "$what: exit $code: $(cat err)"
	[ -z "$(ls -A | grep -E '^\.?x\.')" ] || complain "$what left $(ls -A)"
}
for command in "generate --tokens=1 --max-tokens=1" verify; do
	expect "$command without weights" "cannot read '.*model.safetensors': there is no such file" \
		"$TFMC" ${command%% *} "$model" $(echo "$command" | cut -s -d' ' -f2-)
done
for bytes in 0 100 100000 $(($(stat -c %s kept) - 1)); do
	for command in "-o x.o" "-o x.o --weights=file --diagnostics=json" "--emit=c=x.c"; do
		cp kept m/model.safetensors
		expect "cut to $bytes, $command" "model.safetensors.*\(became shorter\|was changed\) while it was read" \
			refuse REFUSE_SHRINK="$tmp/m/model.safetensors" REFUSE_BYTES="$bytes" "$TFMC" "$model" -O0 $command
	done
	cp kept m/model.safetensors
	expect "cut to $bytes, generate" "model.safetensors.*\(became shorter\|was changed\) while it was read" \
		refuse REFUSE_SHRINK="$tmp/m/model.safetensors" REFUSE_BYTES="$bytes" "${generate[@]}" --no-cache
done
# Several threads at once read what is not there any more.
for k in 1 2 3 4 5; do
	cp kept m/model.safetensors
	expect "cut, four readers" "model.safetensors.*\(became shorter\|was changed\) while it was read" \
		refuse REFUSE_SHRINK="$tmp/m/model.safetensors" REFUSE_BYTES=0 REFUSE_READERS=1 "${generate[@]}" --no-cache
done
cp kept m/model.safetensors

# Outputs appear together or not at all: whichever name cannot be given, the files of before are back.
outputs=("$TFMC" "$model" -O0 -mcpu=x86-64-v3 -q -o x.o --weights=file -MD --emit=obj,header,tir=x.tir)
names="x.d x.h x.o x.tir x.weights"
contents() { for f in $names; do if [ -e $f ]; then md5sum <$f; else echo none; fi; done; }
left() { ls -A | grep -E '^\.?x\.' | tr '\n' ' '; }
"${outputs[@]}"
[ "$(left)" = "$names " ] || complain "outputs are $(left)"
new=$(contents)
for before in all some none; do
	for kind in rename linkat; do
		for k in 1 2 3 5 6; do
			[ $before$kind != nonelinkat ] || continue
			code=0
			rm -f x.*
			[ $before = none ] || for f in $names; do echo "old $f" >$f; done
			[ $before != some ] || rm x.o x.d
			old=$(contents)
			refuse REFUSE_CALL=$kind REFUSE_AT=$k REFUSE_ERRNO=5 "${outputs[@]}" 2>err || code=$?
			case $code in
			0) [ "$(contents)" = "$new" ] ;;
			3) [ "$(contents)" = "$old" ] && grep -q 'error: cannot write x\..*: Input/output error' err ;;
			*) false ;;
			esac || complain "$kind $k with $before there: exit $code: $(cat err), $(left)"
			[ "$kind$k" = rename6 ] || [ $kind = linkat ] || [ $code = 3 ] || complain "rename $k was not noticed"
			! ls -A | grep -q tfmc- || complain "$kind $k with $before there: left $(left)"
		done
	done
done
exit $fails
