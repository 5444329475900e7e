#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# i64 at the ends of its range and beyond 2^53, where doubles have gaps: what the interpreter and compiled code give is
# what Python's integers give modulo 2^64.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cat >"$tmp/model.yaml" <<'Y'
tfmc: 1
name: int64
dims: {N: 1..64, M: 3..64}
inputs:
  a: {shape: [N, M], dtype: i64}
  b: {shape: [N, M], dtype: i64}
  f: {shape: [N, M], dtype: f32}
  n: {shape: [M], dtype: i32}
graph:
  - plus = a + b
  - minus = a - b
  - times = a * b
  - quotient = a // b
  - rest = a % b
  - power = pow(a, b)
  - less = minimum(a, b)
  - more = maximum(a, b)
  - negative = neg(a)
  - size = abs(a)
  - lt = a < b
  - le = a <= b
  - eq = a == b
  - chosen = where(a > b, a, b)
  - single = cast(a, f32)
  - narrow = cast(a, i32)
  - byte = cast(a, i8)
  - true = cast(a, bool)
  - wide = cast(f, i64)
  - total = sum(a, -1)
  - highest = max(a, -1)
  - lowest = min(a, 0)
  - place = argmax(a, -1)
  - transposed = transpose(a, [1, 0])
  - joined = concat([a, reshape(b, [N, M])], 1)
  - rows = gather(transpose(a, [1, 0]), n)
  - part = slice(a, 1, 0, 1)
  - bordered = pad(a, 0, 1, 1, value=9007199254740991)
  - moved = a - 9007199254740993 + (-9223372036854775807) * b
  - moved = where(moved == 9007199254740993, 0, moved)
  - running = cumsum(a, -1)
  - first, at = topk(a, 3)
  - many = broadcast(reshape(a, [1, N, M]), [2, N, M])
  - mixed = (a * 3 - b) // 7 + abs(a) % 1000003
  - grown = a
  - repeat: {count: 3}
    body: ["grown = grown * 5 + b"]
outputs: {plus: plus, minus: minus, times: times, quotient: quotient, rest: rest, power: power, less: less, more: more,
  negative: negative, size: size, lt: lt, le: le, eq: eq, chosen: chosen, single: single, narrow: narrow, byte: byte,
  true: true, wide: wide, total: total, highest: highest, lowest: lowest, place: place, transposed: transposed, joined: joined,
  rows: rows, part: part, bordered: bordered, many: many, running: running, first: first, at: at, moved: moved, mixed: mixed, grown: grown}
Y
cat >"$tmp/int64.py" <<'P'
import itertools, json, random, struct, sys

FORMS = {"I64": "q", "I32": "i", "I8": "b", "F32": "f", "BOOL": "?"}
LOW, HIGH = -2**63, 2**63 - 1
ENDS = [LOW, LOW + 1, -2**53 - 1, -2**53, -2**31 - 1, -7, -1, 0, 1, 3, 2**31, 2**53, 2**53 + 1, 2**62 + 1, HIGH - 1, HIGH]


def wrap(v):
    return (v + 2**63) % 2**64 - 2**63


def save(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        packed = struct.pack(f"<{len(values)}{FORMS[dtype]}", *values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + data)


def load(path):
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    header, data = json.loads(raw[8:8 + n]), raw[8 + n:]
    return {name: list(struct.unpack(f"<{(t['data_offsets'][1] - t['data_offsets'][0]) // struct.calcsize('<' + FORMS[t['dtype']])}"
                                     f"{FORMS[t['dtype']]}", data[slice(*t["data_offsets"])]))
            for name, t in header.items() if name != "__metadata__"}


def inputs():
    draw = random.Random(5)
    rows, columns = 17, len(ENDS)
    a, b = [], []
    for i in range(rows):  # every pair of ends, then a row of numbers of all sizes
        for j in range(columns):
            a.append(ENDS[j] if i < 16 else draw.getrandbits(63) >> draw.randrange(63))
            b.append(ENDS[(i + j) % columns] if i < 16 else draw.randrange(-40, 60))
    f = [draw.choice([0.0, -0.9, 1.5, -2.5, 2.0**40 + 2.0**20, 9.1e18, 9.3e18, -9.3e18, 1e30, -1e30, 16777217.0]) for _ in a]
    f = [struct.unpack("f", struct.pack("f", v))[0] for v in f]
    return rows, columns, a, b, f, [draw.randrange(columns) for _ in range(columns)]


def power(a, b):
    if b >= 0:
        return wrap(pow(a, b, 2**64))
    return 1 if a == 1 or (a == -1 and b % 2 == 0) else -1 if a == -1 else 0


def nearest_single(v):
    """An int as f32, ties to even, without a double between."""
    m, e = abs(v), 0
    while m >= 2**27:
        m, e = m >> 1 | m & 1, e + 1
    r = struct.unpack("f", struct.pack("f", float(m)))[0] * 2.0**e  # 27 bits, the last one for all behind
    return -r if v < 0 else r


def expected(rows, columns, a, b, f, n):
    def each(fn, *x):
        return [fn(*v) for v in zip(*x)]

    def row(x, i):
        return x[i * columns:(i + 1) * columns]

    clamp = lambda v, lo, hi: min(max(v, lo), hi)
    quotient = lambda x, y: wrap(x // y) if y else 0
    rest = lambda x, y: x % y if y else 0
    grown = a
    for _ in range(3):
        grown = each(lambda x, y: wrap(x * 5 + y), grown, b)
    transposed = [a[i * columns + j] for j in range(columns) for i in range(rows)]
    return {
        "plus": each(lambda x, y: wrap(x + y), a, b), "minus": each(lambda x, y: wrap(x - y), a, b),
        "times": each(lambda x, y: wrap(x * y), a, b), "quotient": each(quotient, a, b), "rest": each(rest, a, b),
        "power": each(power, a, b), "less": each(min, a, b), "more": each(max, a, b),
        "negative": [wrap(-x) for x in a], "size": [wrap(abs(x)) for x in a],
        "lt": each(lambda x, y: x < y, a, b), "le": each(lambda x, y: x <= y, a, b), "eq": each(lambda x, y: x == y, a, b),
        "chosen": each(max, a, b), "single": [nearest_single(x) for x in a],
        "narrow": [clamp(x, -2**31, 2**31 - 1) for x in a], "byte": [clamp(x, -128, 127) for x in a], "true": [x != 0 for x in a],
        "wide": [clamp(int(x), LOW, HIGH) for x in f],
        "total": [wrap(sum(row(a, i))) for i in range(rows)], "highest": [max(row(a, i)) for i in range(rows)],
        "lowest": [min(a[j::columns]) for j in range(columns)],
        "place": [row(a, i).index(max(row(a, i))) for i in range(rows)],
        "transposed": transposed, "joined": list(itertools.chain(*(row(a, i) + row(b, i) for i in range(rows)))),
        "rows": list(itertools.chain(*(transposed[k * rows:(k + 1) * rows] for k in n))),
        "part": list(itertools.chain(*(row(a, i)[0:1] for i in range(rows)))),
        "bordered": [2**53 - 1] * columns + a + [2**53 - 1] * columns, "many": a + a,
        "running": list(itertools.chain(*([wrap(v) for v in itertools.accumulate(row(a, i))] for i in range(rows)))),
        "first": list(itertools.chain(*(sorted(row(a, i), reverse=True)[:3] for i in range(rows)))),
        "at": list(itertools.chain(*(sorted(range(columns), key=lambda j: (-a[i * columns + j], j))[:3] for i in range(rows)))),
        "moved": [0 if v == 2**53 + 1 else v for v in each(lambda x, y: wrap(x - (2**53 + 1) - HIGH * y), a, b)],
        "mixed": each(lambda x, y: wrap(quotient(wrap(wrap(x * 3) - y), 7) + rest(wrap(abs(x)), 1000003)), a, b),
        "grown": grown,
    }


rows, columns, a, b, f, n = inputs()
if sys.argv[1] == "write":
    shape = [rows, columns]
    save(sys.argv[2], {"a": ("I64", shape, a), "b": ("I64", shape, b), "f": ("F32", shape, f), "n": ("I32", [columns], n)})
else:
    got, wrong = load(sys.argv[2]), 0
    for name, want in expected(rows, columns, a, b, f, n).items():
        bad = [i for i, (x, y) in enumerate(zip(got[name], want, strict=True)) if x != y]
        if bad:
            print(f"{sys.argv[2]}: {name}[{bad[0]}] is {got[name][bad[0]]}, expected {want[bad[0]]} ({len(bad)} are wrong)")
            wrong = 1
    sys.exit(wrong)
P
python3 "$tmp/int64.py" write "$tmp/in.safetensors"
failed=0
for options in "--backend=interp" "-mcpu=native -O2" "-mcpu=native -O0" "-mcpu=x86-64-v2 -O1" "-mcpu=x86-64-v3 --threads=3"; do
	out="$tmp/${options// /}.safetensors"
	# shellcheck disable=SC2086
	"$TFMC" run "$tmp/model.yaml" $options --inputs "$tmp/in.safetensors" --outputs "$out"
	python3 "$tmp/int64.py" check "$out" || failed=1
done
exit $failed
