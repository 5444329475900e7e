#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Without a trace a call costs one test of the session's trace, and groups none (tfmc_rt.h): by callgrind, the instructions
# that lines of the runtime with a trace in them execute, from a call to the next.
set -euo pipefail
if ! command -v valgrind >/dev/null; then
	echo "SKIPPED: no valgrind, instructions are not counted"
	exit 77
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
"$TFMC" "$TFMC_SOURCE/examples/embed/model.yaml" -o embed.o -O0 -mcpu=x86-64-v2 -q
cat >calls.c <<'C'
#include <stdlib.h>
#include "embed.h"
#include "runtime/tfmc_rt.h"
int main(int argc, char **argv)
{
	static int32_t ids[] = {1, 2, 3};
	static float embedding[48];
	const struct tfmc_model model = embed_model();
	const int64_t dims[] = {1, 3}, entry = tfmc_entry_find(model.record, "run");
	const struct tfmc_buffer in[] = {{ids, 3}, {0}}, out[] = {{embedding, 48}};
	struct tfmc_session *session;
	int status = tfmc_session_open(&model, NULL, &session);
	for (int i = 0; !status && i < atoi(argv[argc - 1]); i++)
		status = tfmc_session_call(session, entry, dims, in, out);
	tfmc_session_close(session);
	return status;
}
C
# The sources, with the optimization of a release and lines.
${CC:-cc} -std=c17 -O2 -g -I. -I"$TFMC_SOURCE" -I"$TFMC_SOURCE/runtime" calls.c embed.o "$TFMC_SOURCE"/runtime/*.c -lm -lpthread -o calls
for n in 5 25; do
	valgrind -q --tool=callgrind --compress-strings=no --compress-pos=no --callgrind-out-file="out.$n" ./calls $n
done
python3 - "$TFMC_SOURCE/runtime" out.5 out.25 <<'PY'
import os, re, sys

def counts(path):
    """(file, line): instructions executed there, without those of called functions."""
    found, file, skips = {}, "", False
    for line in open(path):
        changed = re.match(r"f[lie]=(.*)", line)
        if changed:
            file = os.path.basename(changed[1])
        elif line.startswith("calls="):
            skips = True # the next line has the cost of the call
        elif re.match(r"\d+ \d+$", line):
            at, n = map(int, line.split())
            if not skips:
                found[file, at] = found.get((file, at), 0) + n
            skips = False
    return found

few, many = counts(sys.argv[2]), counts(sys.argv[3])
def lines(file):
    return open(os.path.join(sys.argv[1], file)).read().split("\n")
def grown(places):
    return sum(many[p] - few.get(p, 0) for p in places)
session = lines("session.c")
tests = {p for p in many if p[0] == "session.c" and "trace" in session[p[1] - 1]}
total, hooks, recorded = grown(many), grown(tests), grown({p for p in many if p[0] == "trace.c"})
print(f"{hooks / 20:g} of {total / 20:g} instructions of a call")
assert total > 20 * 10000 and any("s->trace" in line for line in session)
assert hooks % 20 == 0 and 0 < hooks <= 4 * 20 and recorded == 0, (hooks, recorded)
PY
