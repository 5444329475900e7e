#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Conventions of the tree: include directions, confined third-party headers, top-level entries, licence lines,
# banned functions, generated documents.
set -uo pipefail
cd "$TFMC_SOURCE"
failed=0
complain() { echo "$*" >&2; failed=1; }
sources() { find "$@" -name '*.[ch]' | sort; }

# Which module includes and calls which, and words. Each check finds what it is there for in a sample.
if command -v python3 >/dev/null; then
	python3 tests/shell/rooms.py . >&2 || complain "the rooms are not as rooms.txt says"
	sample=$(mktemp -d)
	mkdir -p "$sample"/ir/{a,b} "$sample/tests/shell"
	printf '*ir/a:\nir/b: ir/a\n' >"$sample/tests/shell/rooms.txt"
	echo '#include "ir/b/b.h"' >"$sample/ir/a/internal.h"
	echo '#include "ir/a/internal.h"' >"$sample/ir/b/b.h"
	found=$(python3 tests/shell/rooms.py "$sample" 2>&1 | cut -d' ' -f1 | sort | tr '\n' ' ')
	[ "$found" = "ir/a/internal.h ir/b/b.h " ] || complain "rooms.py finds $found"
	# Calls as well, by the symbols of the object files of this build; in rows turned around all calls go up.
	python3 -B tests/shell/calls.py . "$TFMC_BUILD" >&2 || complain "a module calls one that is below it in rooms.txt"
	tac tests/shell/rooms.txt >"$sample/turned"
	python3 -B tests/shell/calls.py . "$TFMC_BUILD" "$sample/turned" >"$sample/calls" 2>&1
	grep -q '^passes/.* calls ir_.*, a row below' "$sample/calls" || complain "calls.py finds nothing in rows turned around"
	# Words of the field. The check itself finds what it is there for, in a name and in a comment, and not in a string.
	python3 -B tests/shell/words.py . >&2 || complain "words that tests/words.txt lists"
	printf '/* asks ahead */\nint gang_size;\nconst char *s = "gang";\n' >"$sample/tests/words.c"
	cp tests/words.txt "$sample/tests"
	found=$(python3 -B tests/shell/words.py "$sample" | cut -d: -f2 | tr '\n' ' ')
	[ "$found" = "1 2 " ] || complain "words.py finds the lines $found, not 1 2"
	rm -rf "$sample"
else
	echo "SKIPPED: which folder includes and calls which, words of the field (no python3)" >&2
fi
# no_include FOLDER -- PATTERN: files of the folder must not include what matches
no_include() {
	local hits
	hits=$(sources "$1" | xargs grep -nE "^#include [\"<]($2)" || true)
	[ -z "$hits" ] || complain "forbidden include: $hits"
}
no_include passes 'llvm-c/|yaml.h|jansson.h'
no_include runtime 'llvm-c/'

# only_in HEADER FILE...: the header is included nowhere else
only_in() {
	local header=$1 hits
	shift
	hits=$(sources ir frontend passes backends runtime | xargs grep -lE "^#include <$header" | grep -vE "^($(IFS='|'; echo "$*"))" || true)
	[ -z "$hits" ] || complain "$header is included in $hits"
}
only_in 'yaml\.h' 'frontend/syntax/yaml_'
only_in 'jansson\.h' 'frontend/syntax/json.c' 'frontend/model/json_schema.c'
only_in 'llvm-c/' 'backends/object/'
only_in 'mpi\.h' 'runtime/mpi/mpi.c'
[ "$(sources frontend | xargs grep -lE '^#include <yaml\.h>' | wc -l)" -le 1 ] || complain "yaml.h is included in more than one file"

if command -v git >/dev/null && git rev-parse --git-dir >/dev/null 2>&1; then
	extra=$(git ls-files | cut -d/ -f1 | sort -u |
		grep -vxE 'frontend|ir|passes|backends|runtime|tests|examples|CMakeLists.txt|README.md|LICENSE|\..*' || true)
	[ -z "$extra" ] || complain "not in the top-level layout: $extra"
fi

hits=$(sources ir frontend passes backends runtime tests examples | xargs awk '
	FNR == 1 && !/SPDX-License-Identifier: Apache-2.0/ { print FILENAME ": no licence line" }')
[ -z "$hits" ] || complain "$hits"

# Lines of at most 120 columns, a tab is 8: .clang-format wraps code, and leaves comments as they are. The rows of tables
# (*.def) may be longer.
too_long() {
	awk '{ n = split($0, part, "\t"); w = 0
	       for (i = 1; i <= n; i++) w = (i > 1 ? w - w % 8 + 8 : 0) + length(part[i])
	       if (w > 120) print FILENAME ":" FNR ": " w " columns" }' "$@"
}
found=$(printf '\t%0112d\n\t%0113d\n%0120d\n%0121d\n\ta\t%0104d\n\ta\t%0105d\n' 1 1 1 1 1 1 | too_long - | cut -d: -f2 | tr '\n' ' ')
[ "$found" = "2 4 6 " ] || complain "too_long finds the lines $found, not 2 4 6"
export -f too_long
hits=$(sources ir frontend passes backends runtime tests examples | xargs bash -c 'too_long "$@"' too_long)
[ -z "$hits" ] || complain "too long: $hits"

# A heading among declarations is one line: /* ---- title ---- */
hits=$(find ir frontend passes backends runtime tests examples -name '*.[ch]' -o -name '*.def' |
	xargs grep -nE '/\* *---|-{10}' |
	grep -vE '/\* ---- .*[^-] ---- \*/$|"[^"]*-{10}' || true)
[ -z "$hits" ] || complain "a broken heading: $hits"

hits=$(sources ir frontend passes backends runtime |
	xargs grep -nE '\b(strcpy|strcat|sprintf|vsprintf|gets|strtok|atoi|atol|atof|alloca|setlocale|rand|srand)\(' || true)
[ -z "$hits" ] || complain "banned function: $hits"
hits=$(sources ir frontend passes backends runtime | grep -vE '^frontend/driver/|^runtime/tokenizer/unicode_gen\.c$' |
	xargs grep -nE '\b(exit|abort|getenv|printf|puts|perror)\(' || true)
[ -z "$hits" ] || complain "only a program may do this: $hits"
hits=$(sources ir frontend passes backends | grep -v '^ir/support/memory\.c$' |
	xargs grep -nE '(^|[^_[:alnum:]])(malloc|calloc|realloc|reallocarray|strn?dup|v?asprintf|open_memstream|getline)\(' || true)
[ -z "$hits" ] || complain "memory comes from ir/support/memory.h: $hits"
# The bytes of a buffer go on by buf_append and output_write_text, which know when they are not complete.
hits=$(sources ir frontend passes backends | grep -vE '^(ir/support/buf|frontend/driver/(options/output|compile/driver))\.c$' |
	xargs grep -nP '\b(buf_bytes|output_write|fwrite|fputs)\(.*?\b([\w.>-]+?)(\.|->)data, \2\3len\b' || true)
[ -z "$hits" ] || complain "a buffer is written that may have failed: $hits"
hits=$(git ls-files 2>/dev/null | grep -E '\.(c|h|def|sh|md|yaml|py|txt)$|^\.ci' | grep -v '^tests/shell/conventions.sh$' |
	xargs grep -nE '\b(TODO|FIXME|XXX|HACK)\b' || true)
[ -z "$hits" ] || complain "unfinished: $hits"

# Objects have the same bytes whatever compiler built tfmc: no two instructions are emitted in an order that C leaves
# open. The sample tests the check: through a helper, a macro, an operator and an initializer.
if command -v python3 >/dev/null; then
	python3 tests/shell/emit_order.py ir frontend passes backends >&2 || complain "the order of emission is left to the compiler"
	sample=$(mktemp -d)
	cat >"$sample/sample.c" <<-'C'
		#define TWICE(k, a) kb_add(k, a, twice(k, a))
		static struct kb_val twice(struct kb *k, struct kb_val a) { return kb_emit(k, a); }
		struct pair fine(struct kb *k, struct kb_val a)
		{
			if (kb_emit(k, twice(k, a)).id && kb_emit(k, a).id)
				return pair(k, a.id ? twice(k, a) : kb_emit(k, a), kb_index(k, 1));
		}
		void helper(struct kb *k, struct kb_val a) { use(kb_emit(k, a), twice(k, a)); }
		void macro(struct kb *k, struct kb_val a) { use(a, TWICE(k, a), twice(k, a)); }
		int operator(struct kb *k, struct kb_val a) { return kb_emit(k, a).id + twice(k, a).id; }
		void initializer(struct kb *k, struct kb_val a) { struct pair p = {.x = twice(k, a), .y = kb_emit(k, a)}; }
	C
	found=$(python3 tests/shell/emit_order.py "$sample" | cut -d: -f2 | tr '\n' ' ')
	[ "$found" = "8 9 10 11 " ] || complain "emit_order.py finds the lines $found, not 8 9 10 11"
	rm -rf "$sample"
else
	echo "SKIPPED: the order of emission (no python3)" >&2
fi

# Warnings of clang; the build has those of gcc.
if command -v clang-19 >/dev/null; then
	flags=$(grep -m 1 -oE -- '-Wall .*' CMakeLists.txt)
	mpi=$(mpicc.openmpi -show 2>/dev/null | grep -oE -- '-I[^ ]+' | sed 's/^-I/-isystem /')
	[ -n "$mpi" ] || echo "SKIPPED: the warnings of clang for runtime/mpi/mpi.c (no mpicc.openmpi)" >&2
	sources ir frontend passes backends runtime | grep '\.c$' | grep -vx "${mpi:+no}runtime/mpi/mpi.c" |
		xargs -n 50 clang-19 -fsyntax-only -std=c17 $flags -Werror -I. -Iruntime $mpi -isystem "$(llvm-config-19 --includedir)" ||
		complain "clang warns"
else
	echo "SKIPPED: the warnings of clang (no clang-19)" >&2
fi

"$TFMC" ops | diff -u ir/ops.md - || complain "ir/ops.md is not current: tfmc ops > ir/ops.md"
"$TFMC" help --format=markdown | diff -u frontend/manual/reference/commands.md - ||
	complain "frontend/manual/reference/commands.md is not current: tfmc help --format=markdown > frontend/manual/reference/commands.md"
{ echo '```'; "$TFMC" passes; echo '```'; } | diff -u passes/passes.md - || complain "passes/passes.md is not current: it is what tfmc passes prints, in quotes"

# Each room is in the table of its folder's README.
while IFS=/ read -r top room; do
	grep -qE "^\|.*[\`[]$room[]\`]" "$top/README.md" || complain "$top/README.md does not say what the room $room owns"
done < <(sed -nE 's#^\*?([a-z]+/[a-z_]+):.*#\1#p' tests/shell/rooms.txt)
exit $failed
