# SPDX-License-Identifier: Apache-2.0
"""
What the operators of the graph level mean, computed element by element in doubles and Python ints from
rounded operands. Each result comes with the size of the terms that it was made of, which bounds its error.
"""
import math

from tensor import FLOATS, Tensor, broadcast, broadcast_shape, cast, count, indices, limits, ravel, same_shape, wrap


class Skip(Exception):
    """The operand lies outside of where the operator is promised."""


def result(dtype, shape, data, size=None):
    t = Tensor(dtype, shape, data)
    t.size = [abs(v) for v in t.data] if size is None else size
    return t


def safe(f):
    def g(*args):
        try:
            return f(*args)
        except OverflowError:
            return math.inf
        except (ValueError, ZeroDivisionError):
            return math.nan
    return g


def exp(v):
    return math.exp(v) if v < 709 else math.inf


def log(v):
    return math.log(v) if v > 0 else -math.inf if v == 0 else math.nan


def sqrt(v):
    return math.sqrt(v) if v >= 0 else math.nan


def rsqrt(v):
    return math.inf if v == 0 else 1 / math.sqrt(v) if v > 0 else math.nan


def sigmoid(v):
    return 1 / (1 + exp(-v)) if not math.isnan(v) else v


def circle(f):
    def g(v):
        if not abs(v) < 30000:
            raise Skip
        return f(v)
    return g


def gelu_tanh(v):
    return v / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v ** 3))) if abs(v) < 1e6 else max(v, 0.0)


def times_or_zero(v, factor):
    return -0.0 if v == -math.inf else v * factor


UNARY = {
    "neg": lambda v: -v,
    "abs": abs,
    "exp": exp,
    "log": log,
    "log10": lambda v: log(v) / math.log(10) if v > 0 else log(v),
    "sqrt": sqrt,
    "rsqrt": rsqrt,
    "sin": circle(math.sin),
    "cos": circle(math.cos),
    "tanh": math.tanh,
    "erf": math.erf,
    "sigmoid": sigmoid,
    "floor": lambda v: v if math.isinf(v) or math.isnan(v) else float(math.floor(v)),
    "ceil": lambda v: v if math.isinf(v) or math.isnan(v) else float(math.ceil(v)),
    "relu": lambda v: v if v > 0 or math.isnan(v) else 0.0,
    "relu2": lambda v: v * v if v > 0 or math.isnan(v) else 0.0,
    "gelu": lambda v: times_or_zero(v, (1 + math.erf(v / math.sqrt(2))) / 2),
    "gelu_tanh": lambda v: times_or_zero(v, 1.0) if math.isinf(v) and v < 0 else gelu_tanh(v),
    "gelu_quick": lambda v: v * sigmoid(1.702 * v),
    "silu": lambda v: v * sigmoid(v),
    "identity": lambda v: v,
}


def unary(name, x):
    if x.dtype not in FLOATS:
        return result(x.dtype, x.shape, [wrap(x.dtype, UNARY[name](v)) for v in x.data])
    if name in ("gelu", "gelu_tanh", "gelu_quick", "silu", "softcap") and any(abs(v) > 80 for v in x.data):
        raise Skip  # at -infinity they have a limit of their own
    data = [safe(UNARY[name])(v) for v in x.data]
    size = [max(abs(d), abs(v)) if abs(v) < 1e30 else abs(d) for d, v in zip(data, x.data)]
    return result(x.dtype, x.shape, data, size if name not in ("floor", "ceil", "neg", "abs", "exp") else None)


# ---- two operands ----

def float_mod(a, b):
    if math.isnan(a) or math.isnan(b) or math.isinf(a) or b == 0:
        return math.nan
    if abs(a) > 2.0**20 * abs(b):
        raise Skip
    r = math.fmod(a, b)
    return r + b if r != 0 and (r < 0) != (b < 0) else r


def float_floordiv(a, b):
    if b == 0 or math.isinf(a) or math.isnan(a) or math.isnan(b):
        return divide(a, b)
    r = float_mod(a, b)
    return -1.0 if math.isinf(b) and r != a else float(round((a - r) / b)) if not math.isinf(b) else 0.0


def divide(a, b):
    if b != 0 or math.isnan(a) or math.isnan(b):
        return a / b
    return math.nan if a == 0 else math.copysign(math.inf, a) * math.copysign(1, b)


def float_pow(a, b):
    try:
        v = math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:
        if a == 0 and b < 0:
            odd = b % 2 == 1
            return math.copysign(math.inf, a) if odd else math.inf
        return math.nan
    if v != 0 and abs(b * math.log(abs(a) if a else 1.0)) > 80:
        raise Skip  # the bound of pow is for results of moderate size
    return v


def int_pow(a, b):
    if b < 0:
        return 1 if a == 1 else (-1 if b % 2 else 1) if a == -1 else 0
    return pow(a, b, 1 << 64) if b > 200 else a ** b


def extreme(pick):
    return lambda a, b: math.nan if math.isnan(a) or math.isnan(b) else pick(a, b)


FLOAT_PAIRS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": divide,
               "//": float_floordiv, "%": float_mod, "**": float_pow, "pow": float_pow,
               "minimum": extreme(min), "maximum": extreme(max), "min": extreme(min), "max": extreme(max)}
INT_PAIRS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
             "//": lambda a, b: a // b if b else 0, "%": lambda a, b: a % b if b else 0, "**": int_pow, "pow": int_pow,
             "minimum": min, "maximum": max, "min": min, "max": max}
COMPARISONS = {"<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
               "==": lambda a, b: a == b, "!=": lambda a, b: a != b}


def pair(name, a, b):
    a, b = same_shape(a, b)
    if name in COMPARISONS:
        return result("bool", a.shape, [COMPARISONS[name](p, q) for p, q in zip(a.data, b.data)])
    if name in ("and", "or"):
        f = (lambda p, q: p and q) if name == "and" else (lambda p, q: p or q)
        return result("bool", a.shape, [f(p, q) for p, q in zip(a.data, b.data)])
    if a.dtype not in FLOATS:
        return result(a.dtype, a.shape, [wrap(a.dtype, INT_PAIRS[name](p, q)) for p, q in zip(a.data, b.data)])
    data = [FLOAT_PAIRS[name](p, q) for p, q in zip(a.data, b.data)]
    if name in ("+", "-"):
        return result(a.dtype, a.shape, data, [max(abs(p), abs(q)) for p, q in zip(a.data, b.data)])
    return result(a.dtype, a.shape, data)


def clip(x, low, high):
    if low is not None:
        x = pair("maximum", x, low)
    return x if high is None else pair("minimum", x, high)


def leaky_relu(x, slope):
    return result(x.dtype, x.shape, [v if v > 0 else v * slope for v in x.data])


def where(c, a, b):
    c, a, b = same_shape(c, a, b)
    return result(a.dtype, a.shape, [q if p else r for p, q, r in zip(c.data, a.data, b.data)])


def to_type(x, dtype):
    return result(dtype, x.shape, [cast(dtype, v, x.dtype) for v in x.data])


# ---- reductions ----

def lines(x, axes, keep):
    """The elements that fall together, by the index of the result."""
    axes = [a % len(x.shape) for a in ([axes] if isinstance(axes, int) else axes)]
    full = [1 if i in axes else n for i, n in enumerate(x.shape)]
    rows = [[] for _ in range(count(full))]
    for index in indices(x.shape):
        rows[ravel(full, [0 if i in axes else k for i, k in enumerate(index)])].append(x.at(index))
    shape = full if keep else [n for i, n in enumerate(full) if i not in axes]
    return rows, shape


def top(row):
    return math.nan if any(math.isnan(v) for v in row) else max(row)


def reduce(name, x, axes, keep):
    rows, shape = lines(x, axes, keep)
    if x.dtype not in FLOATS and name != "mean":
        f = {"sum": sum, "max": max, "min": min}[name]
        return result(x.dtype, shape, [wrap(x.dtype, f(r)) for r in rows])
    dtype = x.dtype if x.dtype in FLOATS else "f32"
    if name in ("max", "min"):
        sign = 1 if name == "max" else -1
        return result(dtype, shape, [sign * top([sign * v for v in r]) for r in rows])
    size = [sum(abs(v) for v in r) for r in rows]
    n = len(rows[0]) if name == "mean" else 1
    return result(dtype, shape, [sum(r) / n for r in rows], [s / n for s in size])


def argmax(x, axis):
    rows, shape = lines(x, axis, False)
    best = [max(range(len(r)), key=lambda i: (-math.inf if math.isnan(r[i]) else r[i], not math.isnan(r[i]), -i))
            for r in rows]
    return result("i32", shape, best)


def log_sum(row):
    m = top(row)
    shift = 0.0 if math.isinf(m) or math.isnan(m) else m
    return log(math.fsum(exp(v - shift) for v in row)) + shift if m == m and m != math.inf else m


def logsumexp(x, axes, keep):
    rows, shape = lines(x, axes, keep)
    data = [log_sum(r) for r in rows]
    return result(x.dtype, shape, data, [max(1.0, abs(v), *[abs(e) for e in r if abs(e) < 1e6]) if len(r) else 1.0
                                         for v, r in zip(data, rows)])


def along(x, axis, f, dtype=None):
    """f of every line along the axis, in its place."""
    axis %= len(x.shape)
    out, size = [0] * len(x.data), [0] * len(x.data)
    for index in indices([1 if i == axis else n for i, n in enumerate(x.shape)]):
        at = [ravel(x.shape, list(index[:axis]) + [i] + list(index[axis + 1:])) for i in range(x.shape[axis])]
        values, sizes = f([x.data[i] for i in at])
        for i, v, s in zip(at, values, sizes):
            out[i], size[i] = v, s
    return result(dtype or x.dtype, x.shape, out, size)


def softmax(x, axis, logs):
    def f(row):
        m = top(row)
        if math.isnan(m) or m == math.inf:
            raise Skip
        if m == -math.inf:
            if logs:
                raise Skip
            return [0.0] * len(row), [1.0] * len(row)
        total = math.fsum(exp(v - m) for v in row)
        if logs:
            y = [v - m - math.log(total) for v in row]
            return y, [max(1.0, abs(v)) if abs(v) < 1e30 else 1.0 for v in y]
        return [exp(v - m) / total for v in row], [1.0] * len(row)
    return along(x, axis, f)


def cumsum(x, axis):
    def f(row):
        out, size, total, reach = [], [], 0, 0.0
        for v in row:
            total, reach = total + v, reach + abs(v)
            out.append(wrap(x.dtype, total) if x.dtype not in FLOATS else total)
            size.append(reach)
        return out, size
    return along(x, axis, f)


def topk(x, k):
    n, values, ids = x.shape[-1], [], []
    for i in range(0, len(x.data), n):
        row = x.data[i:i + n]
        order = sorted(range(n), key=lambda j: (math.isnan(row[j]), 0 if math.isnan(row[j]) else -row[j], j))[:k]
        values += [row[j] for j in order]
        ids += order
    shape = list(x.shape[:-1]) + [k]
    return result(x.dtype, shape, values), result("i32", shape, ids)


# ---- movement ----

def transpose(x, perm):
    shape = [x.shape[p] for p in perm]
    data = []
    for index in indices(shape):
        source = [0] * len(shape)
        for i, p in enumerate(perm):
            source[p] = index[i]
        data.append(x.at(source))
    return result(x.dtype, shape, data)


def pick(x, axis, places, new_shape):
    """The axis replaced by new_shape, whose elements are x at these places."""
    axis %= len(x.shape)
    shape = list(x.shape[:axis]) + list(new_shape) + list(x.shape[axis + 1:])
    data = []
    for index in indices(shape):
        at = ravel(new_shape, index[axis:axis + len(new_shape)])
        data.append(x.at(list(index[:axis]) + [places[at]] + list(index[axis + len(new_shape):])))
    return result(x.dtype, shape, data)


def slice_of(x, axis, begin, end, step=1):
    places = list(range(begin % (x.shape[axis] + 1) if begin >= 0 else begin + x.shape[axis],
                        end if end >= 0 else end + x.shape[axis], step))
    return pick(x, axis, places, [len(places)])


def frame(x, size, hop, axis):
    count = (x.shape[axis] - size) // hop + 1
    return pick(x, axis, [i * hop + k for i in range(count) for k in range(size)], [count, size])


def gather(x, ids, axis):
    n = x.shape[axis]
    return pick(x, axis, [min(max(i, 0), n - 1) for i in ids.data], ids.shape)


def scatter(x, ids, y, axis):
    axis %= len(x.shape)
    out = result(x.dtype, x.shape, x.data)
    for index in indices(y.shape):
        row = ids.at(index[axis:axis + len(ids.shape)])
        if 0 <= row < x.shape[axis]:
            place = list(index[:axis]) + [row] + list(index[axis + len(ids.shape):])
            out.data[ravel(x.shape, place)] = y.at(index)
    return result(x.dtype, x.shape, out.data)


def concat(xs, axis):
    axis %= len(xs[0].shape)
    shape = list(xs[0].shape)
    shape[axis] = sum(x.shape[axis] for x in xs)
    data = []
    for index in indices(shape):
        at, i = list(index), 0
        while at[axis] >= xs[i].shape[axis]:
            at[axis] -= xs[i].shape[axis]
            i += 1
        data.append(xs[i].at(at))
    return result(xs[0].dtype, shape, data)


def pad(x, axis, before, after, value):
    axis %= len(x.shape)
    shape = list(x.shape)
    shape[axis] += before + after
    data = []
    for index in indices(shape):
        at = list(index)
        at[axis] -= before
        data.append(x.at(at) if 0 <= at[axis] < x.shape[axis] else value)
    return result(x.dtype, shape, data)


# ---- products ----

def einsum(spec, *xs):
    left, out = spec.replace(" ", "").split("->")
    sizes = {}
    for labels, x in zip(left.split(","), xs):
        sizes.update(zip(labels, x.shape))
    inner = [l for l in sizes if l not in out]
    data, size = [], []
    for index in indices([sizes[l] for l in out]):
        at = dict(zip(out, index))
        total, reach = 0.0, 0.0
        for rest in indices([sizes[l] for l in inner]):
            at.update(zip(inner, rest))
            term = 1.0 if xs[0].dtype in FLOATS else 1
            for labels, x in zip(left.split(","), xs):
                term *= x.at([at[l] for l in labels])
            total, reach = total + term, reach + abs(term)
        data.append(total if xs[0].dtype in FLOATS else wrap(xs[0].dtype, int(total)))
        size.append(reach)
    return result(xs[0].dtype, [sizes[l] for l in out], data, size)


def matmul(a, b, ta, tb):
    swap = lambda x: transpose(x, list(range(len(x.shape) - 2)) + [len(x.shape) - 1, len(x.shape) - 2])
    a, b = swap(a) if ta else a, swap(b) if tb else b
    lead = broadcast_shape(a.shape[:-2], b.shape[:-2])
    a, b = broadcast(a, lead + a.shape[-2:]), broadcast(b, lead + b.shape[-2:])
    batch = "uvwxyz"[:len(lead)]
    return einsum("%sik,%skj->%sij" % (batch, batch, batch), a, b)


def linear(x, w, bias):
    lead = "uvwxyz"[:len(x.shape) - 1]
    y = einsum("%sk,nk->%sn" % (lead, lead), x, w)
    if bias is None:
        return y
    n = len(bias.data)
    return result(y.dtype, y.shape, [v + bias.data[i % n] for i, v in enumerate(y.data)],
                  [s + abs(bias.data[i % n]) for i, s in enumerate(y.size)])


def norm(x, w, bias, eps, centered, plus_one=False):
    def f(row):
        if not all(abs(v) <= 1e6 for v in row):
            raise Skip
        mean = math.fsum(row) / len(row) if centered else 0.0
        spread = math.fsum((v - mean) ** 2 for v in row) / len(row)
        scale = 1 / math.sqrt(spread + eps)
        reach = max(abs(v) for v in row)
        weight = [v + 1 if plus_one else v for v in w.data]
        out = [(v - mean) * scale * g + (bias.data[i] if bias else 0.0)
               for i, (v, g) in enumerate(zip(row, weight))]
        return out, [reach * scale * (abs(g) + 1) + (abs(bias.data[i]) if bias else 0.0) for i, g in enumerate(weight)]
    return along(x, -1, f)


def conv(x, w, bias, stride, padding, dilation, groups):
    """x [B, C, axes..], w [O, C / groups, taps..]"""
    axes = len(x.shape) - 2
    sizes = [(x.shape[i + 2] + 2 * padding - dilation * (w.shape[i + 2] - 1) - 1) // stride + 1 for i in range(axes)]
    shape = [x.shape[0], w.shape[0]] + sizes
    data, size = [], []
    for index in indices(shape):
        b, o, place = index[0], index[1], index[2:]
        total = bias.data[o] if bias else 0.0
        reach = abs(total)
        for c in range(w.shape[1]):
            source = o // (w.shape[0] // groups) * w.shape[1] + c
            for tap in indices(w.shape[2:]):
                at = [p * stride + t * dilation - padding for p, t in zip(place, tap)]
                if all(0 <= a < n for a, n in zip(at, x.shape[2:])):
                    term = x.at([b, source] + at) * w.at([o, c] + list(tap))
                    total, reach = total + term, reach + abs(term)
        data.append(total)
        size.append(reach)
    return result(x.dtype, shape, data, size)
