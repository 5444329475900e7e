#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Timelines: those of `tfmc bench --trace` and of a linked program are read by a parser of the format (timeline.py).
# A program with a trace computes the same; an object with names of groups is the one without them, and a function.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
check() { PYTHONDONTWRITEBYTECODE=1 python3 "$TFMC_SOURCE/tests/support/timeline.py" "$tmp/$1.json" "$2" "$3"; }
tales=$TFMC_SOURCE/examples/hub/tales

for threads in 1 2; do
	"$TFMC" bench "$tales" "${quick[@]}" --entry=prefill --threads=$threads --trace="$tmp/bench.json" >"$tmp/out"
	grep -q '^prefill ' "$tmp/out"
	check bench $threads 'all(c["name"] == "prefill" and c["args"]["status"] == 0 and c["args"]["B"] == 1 for c in calls)
		and len(calls) <= 16 and all(g["args"]["flops"] >= 0 and g["args"]["line"] and g["args"]["kernel"] for g in groups)
		and any(".0." in n and n.endswith(" linear") for n in names) and any(".1." in n for n in names)
		and {g["args"]["bytes"] > 0 for g in groups if g["args"]["kernel"].startswith("linear")} == {True}'
done
# Loops over some layers, and over periods of layers that alternate, name the layer.
cat >"$tmp/period.yaml" <<'YAML'
tfmc: 1
name: period
dims: {B: 1..4}
inputs: {v: "f32[B, 4]"}
model:
  - repeat: {id: layers, count: 10, start: 2}
    body: [linear: {out: 4, bias: i < 4, act: "if(i % 2 == 1, 'gelu', 'relu')", when: i < 8}, linear: {out: 4, when: i >= 8}]
outputs: {y: x}
weights:
  files: []
  map: {"layers.{i}.linear.{w}": {from: "none.{i}.{w}", optional: ones}}
YAML
"$TFMC" bench "$tmp/period.yaml" "${quick[@]}" --trace="$tmp/period.json" >"$tmp/out"
python3 -c 'import json, sys; names = {e["name"] for e in json.load(open(sys.argv[1]))["traceEvents"]}
assert {n for n in names if n.endswith(" linear")} == {f"layers.{i}.linear linear" for i in range(2, 12)}, names' "$tmp/period.json"
# Figures are those of --groups, and the time of a step is there, too.
"$TFMC" bench "$tales" "${quick[@]}" --entry=step --past=40 --groups --json --trace="$tmp/step.json" >"$tmp/groups.json"
python3 - "$tmp/step.json" "$tmp/groups.json" <<'PY'
import collections, json, sys
events, table = (json.load(open(path)) for path in sys.argv[1:])
events = [e for e in events["traceEvents"] if e["ph"] == "X"]
calls = sum(e["cat"] == "call" for e in events)
flops = sum(e["args"]["flops"] for e in events if e["cat"] == "group") / calls
runs = sum(e["cat"] == "group" for e in events) / calls
assert abs(flops - table["flops"]) < 1 and runs == sum(g["times"] for g in table["groups"]), (flops, table["flops"], runs)
PY
refuse() { # MESSAGE ARGUMENT..
	local code=0
	"$TFMC" bench "$tales" "${quick[@]}" "${@:2}" >"$tmp/out" 2>&1 || code=$?
	[ $code -eq 2 ] && grep -q -- "$1" "$tmp/out" && [ ! -e "$tmp/none" ]
}
refuse '--trace goes with the processor, not with --device' --trace="$tmp/none" --device=opencl
refuse '--trace goes with one variant, not with --variants' --trace="$tmp/none" --variants=v2,v3
refuse '--html goes with one variant, not with --variants' --html="$tmp/none" --variants=v2,v3

# Linked: with names, without, and too many events for the memory.
cat >"$tmp/traced.c" <<'C'
#include <stdio.h>
#include "tfmc_rt.h"
#include "dates.h"
static int run(const char *path, int64_t workers, int with_names, uint64_t cap)
{
	struct tfmc_model model = dates_model();
	struct tfmc_timeline *timeline = NULL;
	struct tfmc_timeline_options names = {.struct_size = sizeof(names), .label = dates_label};
	struct tfmc_session_options options = {
		.struct_size = sizeof(options), .batch = 1, .workers = workers, .all_workers = 1};
	struct tfmc_session *session = NULL;
	char iso[64] = "";
	int status = tfmc_timeline_create(model.record, cap, &timeline);
	options.trace = path ? tfmc_timeline_trace(timeline) : NULL;
	if (!status)
		status = tfmc_session_open(&model, &options, &session);
	if (!status)
		status = tfmc_generate_text(session, "the 3rd of March, 2021", iso, sizeof(iso));
	tfmc_session_close(session);
	if (!status && path)
		status = tfmc_timeline_save(timeline, path, with_names ? &names : NULL);
	tfmc_timeline_destroy(timeline);
	puts(status ? tfmc_rt_status_text(status) : iso);
	return status;
}
int main(int argc, char **argv)
{
	(void)argc;
	return run(NULL, 2, 0, 0) || run(argv[1], 1, 1, 0) || run(argv[2], 3, 1, 0) || run(argv[3], 2, 0, 0) ||
	       run(argv[4], 1, 1, 5) || run("/no/such/directory/file", 1, 1, 0) != TFMC_RT_E_FILE;
}
C
cd "$tmp"
"$TFMC" "$TFMC_SOURCE/examples/dates/model.yaml" "${quick[@]}" --labels -o dates.o
"$CC" -std=c17 -Wall -Wextra -Werror -I"$TFMC_SOURCE/runtime" -I. traced.c dates.o "$TFMC_BUILD/runtime/libtfmcrt.a" \
	-lpthread ${TFMC_LINK_FLAGS:-} -o traced
./traced one.json three.json plain.json few.json >out
[ "$(head -5 out | sort -u)" = 2021-03-03 ]
named='[c["name"] for c in calls][:2] == ["encode", "prefill"] and {c["name"] for c in calls} == {"encode", "prefill", "step"}
	and any(g["name"] == "encoder.layers.1.self.attention.o linear" and g["args"]["iteration"] == 1 and g["args"]["flops"] > 0
		and g["args"]["bytes"] > 0 and g["args"]["line"].startswith("model.yaml:") and g["args"]["kernel"].startswith("linear")
		for g in groups) and any(n == "decoder.head linear" for n in names) and not any("#" in n for n in names)'
check one 1 "$named"
check three 3 "$named"
check plain 2 'names[0] == "group 0" and all("line" not in g["args"] for g in groups)'
python3 -c "import json; t = json.load(open('few.json')); assert t['otherData']['dropped'] > 0 and sum(e['ph'] == 'X' for e in t['traceEvents']) >= 5"
bash "$TFMC_SOURCE/tests/object_audit.sh" dates.o dates

# --labels adds a function and strings; the other functions keep their bytes.
mkdir plain
"$TFMC" "$TFMC_SOURCE/examples/dates/model.yaml" "${quick[@]}" -o plain/dates.o
code() { objdump -d --no-show-raw-insn "$1" | awk '/^[0-9a-f]+ <.*>:$/ { f = $2 } { sub(/^ *[0-9a-f]+:/, ""); gsub(/[0-9a-f]+ <[^>]*>|#.*/, "") } f != "<dates_label>:"' | grep -v '^[0-9a-f]* <\|^$\|file format\|nop\|cs nopw'; }
cmp <(code dates.o) <(code plain/dates.o)
nm plain/dates.o | { ! grep -q label; }
