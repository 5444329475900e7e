#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The system refuses memory: wherever that happens, the command says "out of memory while ..." and exits with 3, or
# it did without and its output is complete. Under limits of the shell, and with one allocation after another refused.
# LLVM that ends the process is an error with a reproducer and exit 70.
# TFMC_REFUSALS=N tries N allocations of each command instead of 8, TFMC_LIMITS=1 limits from 100 to 400 MB in steps of 5.
set -euo pipefail
[ -z "$TFMC_LINK_FLAGS" ] || { echo "skipped: sanitizers do not let themselves be preloaded"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
"$CC" -shared -fPIC -O1 -o refuse.so "$TFMC_SOURCE/tests/shell/refuse.c"
names=$TFMC_SOURCE/examples/names/model.yaml
fails=0
complain() { echo "$*" >&2; fails=1; }
files() { find . -name 'x*' -o -name '.x*' | sort | tr '\n' ' '; }

# is_answer CODE GOOD: what the command before may have done; GOOD says what a complete output is
is_answer() {
	case $1 in
	0) cmp -s "$2" x.out ;;
	3) grep -qE 'error: (out of memory while |cannot .*: (Cannot allocate memory|no memory))|out of memory' log && [ -z "$(files)" ] ;;
	*) false ;;
	esac
}
# try WHAT COMMAND...: output to x.out
try() {
	local code=0
	rm -f x*
	timeout 60 "$@" >log 2>&1 || code=$?
	echo $code
}

commands=(
	"$names -O0 -mcpu=x86-64-v3 -o x.out"
	"$names -O0 -mcpu=x86-64-v3 --weights=file --weights-out=x.w --header=x.h -o x.out"
	"$names -mcpu=x86-64-v3 --emit=tir -o x.out"
	"$names -O0 -mcpu=x86-64-v3 --emit=c -o x.out"
	"expand $names -o x.out"
)
for command in "${commands[@]}"; do
	[ "$(try "$TFMC" $command)" = 0 ] || complain "$command: $(cat log)"
	mv x.out good
	REFUSE_COUNT=1 LD_PRELOAD=$tmp/refuse.so "$TFMC" $command 2>log
	n=$(sed -n 's/allocations: //p' log)
	steps=${TFMC_REFUSALS:-8}
	said=0
	for i in $(seq 0 $((steps - 1))); do
		at=$((i * n / steps))
		for rest in "" REFUSE_REST=1; do
			code=$(try env REFUSE_ALLOCATION=$at $rest LD_PRELOAD="$tmp/refuse.so" "$TFMC" $command)
			is_answer "$code" good || complain "$command, allocation $at of $n $rest: exit $code: $(head -c 300 log)"
			[ "$code" != 3 ] || said=$((said + 1))
		done
	done
	[ $said -ge $steps ] || complain "$command: only $said of $((2 * steps)) refusals were noticed"
done

# The list of devices, which other code than that of the compiler makes.
export TFMC_OPENCL=$MOCK_OPENCL_PATH
"$TFMC" devices >devices.good
REFUSE_COUNT=1 LD_PRELOAD=$tmp/refuse.so "$TFMC" devices 2>log >/dev/null
n=$(sed -n 's/allocations: //p' log)
said=0
for at in $(seq 0 $((n - 1))); do
	code=0
	REFUSE_ALLOCATION=$at LD_PRELOAD=$tmp/refuse.so "$TFMC" devices >devices.out 2>log || code=$?
	case $code in
	0) cmp -s devices.good devices.out ;;
	3) grep -qE 'memory|OpenCL library cannot be loaded' log && [ ! -s devices.out ] ;;
	*) false ;;
	esac || complain "devices, allocation $at of $n: exit $code: $(head -c 300 log)"
	[ $code != 3 ] || said=$((said + 1))
done
[ $((2 * said)) -ge "$n" ] || complain "devices: only $said of $n refusals were noticed"

# A text on a device of the mock library, from cached code: opening, calling and closing, where LLVM's objects are
# destroyed as well.
export XDG_CACHE_HOME=$tmp/cache
device=("$TFMC" generate "$names" --tokens=1,2 --max-tokens=2 --print-tokens --temperature=0 -O0 --device=opencl:Processor)
LD_PRELOAD=$tmp/refuse.so "${device[@]}" >log # code is cached for the libraries of the process
"${device[@]}" >device.good
REFUSE_COUNT=1 LD_PRELOAD=$tmp/refuse.so "${device[@]}" 2>log >/dev/null
n=$(sed -n 's/allocations: //p' log)
said=0
for at in $(seq $((n - n / 20)) $((n / 20 / ${TFMC_REFUSALS:-16} + 1)) $((n - 1))) $(seq $((n - 12)) 3 $((n - 1))); do
	code=0
	REFUSE_ALLOCATION=$at LD_PRELOAD=$tmp/refuse.so "${device[@]}" >device.out 2>log || code=$?
	case $code in
	0) cmp -s device.good device.out ;;
	3) grep -q 'memory\|MEMORY' log ;;
	*) false ;;
	esac || complain "generate on a device, allocation $at of $n: exit $code: $(head -c 300 log)"
	[ $code != 3 ] || said=$((said + 1))
done
[ $said -ge 8 ] || complain "generate on a device: only $said refusals were noticed"
unset XDG_CACHE_HOME

# The forms of diagnostics.
form() { try env REFUSE_ALLOCATION=2000 REFUSE_REST=1 LD_PRELOAD="$tmp/refuse.so" "$TFMC" "$names" -O0 -o x.out --diagnostics="$1"; }
[ "$(form json)" = 3 ] && python3 -c '
import json
[m] = [json.loads(line) for line in open("log")]
assert m["severity"] == "error" and m["code"] == "E705" and m["message"].startswith("out of memory while "), m' ||
	complain "json: $(cat log)"
[ "$(form sarif)" = 3 ] && python3 -c '
import json
run = json.load(open("log"))["runs"][0]
assert run["invocations"][0]["exitCode"] == 3 and run["results"][0]["ruleId"] == "E705", run' || complain "sarif: $(cat log)"

# Limits of the shell. Below some size LLVM cannot even be loaded, which the loader of programs or LLVM says.
limits=$(seq 190 15 250)
[ -z "${TFMC_LIMITS:-}" ] || limits=$(seq 100 5 400)
for megabytes in $limits; do
	limit() { (ulimit -v $((megabytes * 1024)); "$@"); }
	limit "$TFMC" --version >log 2>&1 || { [ -s log ] || complain "$megabytes MB: nothing was said"; continue; }
	code=$(limit try "$TFMC" ${commands[0]})
	[ "$code" = 0 ] || { [ "$code" = 3 ] && is_answer 3 -; } || complain "$megabytes MB: exit $code: $(head -c 300 log)"
	codes="${codes:-}$code"
done
case $codes in *3*0) ;; *) complain "the limits were not between too small and enough: $codes" ;; esac

# LLVM crashes, gives up, or has an error of its own.
for how in 0:'LLVM: a test' 6:'LLVM gave up' 11:'LLVM crashed'; do
	code=$(try env REFUSE_PASSES="${how%%:*}" LD_PRELOAD="$tmp/refuse.so" "$TFMC" "$names" -O0 -mcpu=x86-64-v3 -o x.out)
	[ "$code" = 70 ] && grep -q "error: ${how#*:}" log && grep -q 'note: `tfmc ./tfmc-reproducer.tir --passes= -mcpu=x86-64-v3 -o FILE.o`' log ||
		complain "LLVM, ${how%%:*}: exit $code: $(cat log)"
	cp "$TFMC_SOURCE/examples/names/model.safetensors" .
	"$TFMC" tfmc-reproducer.tir --passes= -mcpu=x86-64-v3 -o again.o || complain "the reproducer does not compile"
	[ -z "$(files)" ] || complain "LLVM, ${how%%:*} left $(files)"
	rm tfmc-reproducer.tir
done
exit $fails
