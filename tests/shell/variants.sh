#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# One object of five variants as its user sees it: closed like every object, no functions of one variant called
# from another, the same weights as for one processor, and a program that runs each of them by name with the same
# text as the object for that processor alone.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$TFMC_SOURCE"
model="examples/dates/model.yaml --dtype=compute=bf16" # the last variant has tiles, and needs permission
levels='v2 v3 v4 v4-bf16 v4-amx'
"$TFMC" $model "${quick[@]}" -o "$tmp/all.o" --header="$tmp/dates.h" --variants="${levels// /,}"
bash tests/object_audit.sh "$tmp/all.o" dates

# Calls inside of a variant stay there; the interface alone goes to all of them, directly.
objdump -dr --no-show-raw-insn "$tmp/all.o" >"$tmp/code"
awk '/^[0-9a-f]+ <.*>:$/ { from = $2; gsub(/[<>:]/, "", from) }
	match($0, /<dates\.v[0-9][a-z0-9-]*\.[^>+]*/) || match($0, /R_X86_64_[A-Z0-9]* +dates\.v[0-9][a-z0-9-]*\./) {
		to = substr($0, RSTART, RLENGTH)
		if (match(from, /^dates\.v[0-9][a-z0-9-]*\./) && index(to, substr(from, 1, RLENGTH)) == 0 && $0 !~ />:$/) { print from, "uses", to; bad = 1 }
	} END { exit bad }' "$tmp/code" >&2
[ "$(grep -cE '<dates\.v[234](-[a-z0-9]+)?\.run\.call>:' "$tmp/code")" -eq 5 ]
# The base variant is for any processor, and uses no wide registers.
awk '/^[0-9a-f]+ <.*>:$/ { from = $2 }
	/%[yz]mm/ && from ~ /<dates(_|\.v2\.)/ { print from, $0; bad = 1 }
	/%zmm/ && from ~ /<dates\.v3\./ { print from, $0; bad = 1 }
	END { exit bad }' "$tmp/code" >&2
[ "$(grep -c '%zmm' "$tmp/code")" -gt 100 ]

# One copy of the weights, the one that every single object has.
weights() { "$TFMC" inspect "$1" | grep -E '^(structure|weights): '; }
for level in $levels; do
	"$TFMC" $model "${quick[@]}" -o "$tmp/$level.o" --header="$tmp/$level.h" -mcpu=x86-64-$level
	[ "$(weights "$tmp/all.o")" = "$(weights "$tmp/$level.o")" ] || { echo "$level has other weights" >&2; exit 1; }
done

cat >"$tmp/main.c" <<'C'
#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>
#include "tfmc_rt.h"
#include "dates.h"

/* In place of libc's: the system refuses tiles, and how often it was asked is counted. */
static int asked;
long syscall(long number, ...)
{
	va_list ap;
	va_start(ap, number);
	asked += number == SYS_arch_prctl && va_arg(ap, long) == 0x1023 && va_arg(ap, long) == 18;
	va_end(ap);
	return -1;
}

int main(int argc, char **argv)
{
	struct tfmc_model model = dates_model();
	struct tfmc_session_options o = {.struct_size = sizeof(o), .variant = argc > 1 ? argv[1] : NULL};
	struct tfmc_session *s;
	char iso[64];
	int status = tfmc_session_open(&model, &o, &s);
	if (status) {
		puts(tfmc_rt_status_text(status));
		return status == TFMC_RT_E_CPU ? 3 : 1;
	}
	if (tfmc_generate_text(s, "march 3rd, 2021", iso, sizeof(iso)))
		return 1;
	puts(iso);
	fprintf(stderr, "%s\n", tfmc_session_variant(s));
	if (asked != (model.record->system[0] == 1 << 18))
		return 1;
	tfmc_session_close(s);
	return 0;
}
C
build() {
	"${CC:-cc}" -std=c17 -Wall -Wextra -Werror -Iruntime -I"$tmp" "$tmp/main.c" "$1" "$TFMC_BUILD/runtime/libtfmcrt.a" \
		-lpthread ${TFMC_LINK_FLAGS:-} -o "$2"
}
build "$tmp/all.o" "$tmp/all"
ran=0
for level in $levels; do
	build "$tmp/$level.o" "$tmp/$level"
	code=0
	"$tmp/all" x86-64-$level >"$tmp/got" 2>"$tmp/name" || code=$?
	[ $code -ne 3 ] || continue
	[ $code -eq 0 ] && [ "$(cat "$tmp/name")" = x86-64-$level ]
	"$tmp/$level" >"$tmp/want" 2>/dev/null
	cmp "$tmp/got" "$tmp/want"
	best=x86-64-$level
	ran=$((ran + 1))
done
[ $ran -ge 1 ]
"$tmp/all" >/dev/null 2>"$tmp/name"
[ "$(cat "$tmp/name")" = "$best" ]
# Refused, tiles are not used, whatever the processor has; nothing else is asked of the system.
[ "$best" != x86-64-v4-amx ]
code=0
"$tmp/v4-amx" >"$tmp/got" 2>&1 || code=$?
[ $code -eq 3 ]
if "$tmp/all" x86-64-v5 >"$tmp/got"; then exit 1; fi
grep -c 'has this name' "$tmp/got" >/dev/null
echo "$ran variants run here, $best by itself; $(size -A "$tmp/all.o" | awk '$1 ~ /^\.text/ { n += $2 } END { print n }') bytes of code"
