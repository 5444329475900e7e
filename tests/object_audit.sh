#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Properties of every object: closed, quiet, position-independent, marked for
# hardening. Usage: object_audit.sh OBJECT.o NAME
# Prints one line for each property that does not hold; exit code 1 when any.
set -u
export LC_ALL=C
object=${1:?object file}
name=${2:?name of the model}
failed=0

complain() {
	echo "object_audit: $object: $*" >&2
	failed=1
}

# Dependent on the machine: tools, the mark for control-flow protection, instructions that must not occur.
prefix='' compiler=${CC:-cc}
mark='IBT, SHSTK'
modes='v?ldmxcsr|fldcw|fnstcw|emms'
traps='syscall|int3|ud2'
if readelf -h "$object" | grep -q 'Machine: *AArch64'; then
	if [ "$(uname -m)" != aarch64 ]; then prefix=aarch64-linux-gnu- compiler=aarch64-linux-gnu-gcc; fi
	mark='AArch64 feature: BTI'
	modes='(msr|mrs).*fpcr'
	traps='svc|brk|udf|hlt'
fi

sections=$(readelf -SW "$object")

bad=$("${prefix}nm" -g --defined-only "$object" | awk '{print $3}' | grep -v "^${name}_" || true)
[ -z "$bad" ] || complain "defines symbols of others:" $bad

bad=$("${prefix}nm" -u "$object" | awk '{print $2}' | grep -vx 'memcpy\|memset' || true)
[ -z "$bad" ] || complain "needs symbols:" $bad

for symbol in record init reset trim fork select reorder fetch store close variant workers call arena_bytes state_bytes status_text; do
	"${prefix}nm" -g --defined-only "$object" | awk '{print $3}' | grep -qx "${name}_$symbol" || complain "has no ${name}_$symbol"
done

# name type flags size: sections with content that may be written, run at load, or belong to threads
bad=$(echo "$sections" | sed -n 's/^ *\[ *[0-9]*\] //p' | awk '
	$1 == "NULL" { next }
	{ flags = $7; filled = $5 !~ /^0+$/ }
	filled && flags ~ /W/ { print $1 }
	filled && $1 ~ /^\.(data|bss|tdata|tbss|init_array|fini_array|ctors|dtors|preinit_array)/ { print $1 }
	flags ~ /T/ { print $1 }' | sort -u)
[ -z "$bad" ] || complain "has sections it must not have:" $bad

echo "$sections" | grep -q '\.note\.GNU-stack' || complain "has no .note.GNU-stack"
echo "$sections" | grep '\.note\.GNU-stack' | grep -q ' X ' && complain "wants an executable stack"
echo "$sections" | grep -q '\.eh_frame' || complain "has no .eh_frame"

if echo "$sections" | grep -q '\.rodata\.tfmc'; then
	line=$(echo "$sections" | grep '\.rodata\.tfmc' | sed 's/^ *\[ *[0-9]*\] //')
	set -- $line
	[ "$7" = A ] || complain ".rodata.tfmc has flags $7"
	[ "${!#}" = 4096 ] || complain ".rodata.tfmc does not begin at a page"
fi

readelf -sW "$object" | awk '$4 == "IFUNC" || $4 == "TLS" || $5 == "UNIQUE"' | grep -q . && complain "has IFUNC, TLS or unique symbols"
readelf -nW "$object" | grep -q "$mark" || complain "is not marked for control-flow protection"

disassembly=$("${prefix}objdump" -d --no-show-raw-insn "$object")
echo "$disassembly" | grep -qE "\\b($modes)\\b" && complain "changes floating-point modes"
echo "$disassembly" | grep -qE "\\b($traps)\\b" && complain "has system calls or traps"

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
"$compiler" -shared -nostdlib -Wl,-z,text -Wl,-z,noexecstack -Wl,--fatal-warnings -o "$work/object.so" "$object" 2>"$work/log" ||
	complain "does not link into a shared library: $(cat "$work/log")"
[ ! -f "$work/object.so" ] || ! readelf -d "$work/object.so" | grep -q TEXTREL || complain "has text relocations"

exit $failed
