# SPDX-License-Identifier: Apache-2.0
"""
Random programs of graph statements. A statement is its text (or texts), the names it assigns, and a function that says
from the values of the names it reads what it must give.
"""
import ast
import random

import ops
from tensor import FLOATS, INTS, Tensor, broadcast, broadcast_shape, count, limits, round_to

OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}
SIZES = [1, 1, 2, 3, 4, 5, 7, 8, 13, 17]


class Value:
    def __init__(self, name, dtype, dims):
        self.name, self.dtype, self.dims = name, dtype, list(dims)


class Program:
    """dims: symbols and their sizes; a dim of a value is a text, its size what the text gives."""

    def __init__(self, seed, number):
        self.rng = random.Random(seed)
        self.prefix = "p%d_" % number
        self.lows = {"B": 1, "S": self.rng.choice([1, 1, 4])}
        self.sizes = {"B": self.rng.randint(1, 3), "S": self.rng.randint(self.lows["S"], 9)}
        self.values, self.inputs, self.weights, self.statements = [], {}, {}, []
        self.n, self.products = 0, {}
        self.make_input("f32", ["B", "S"])  # sizes of all dims come from inputs
        for _ in range(self.rng.randint(1, 3)):
            self.make_input(self.rng.choice(["f32", "f32", "f32", "f16", "bf16", "i8", "u8", "i16", "i32", "i64", "bool"]))

    # ---- parts ----

    def size(self, dim):
        return eval(dim, {}, self.sizes)  # texts of this file: sums and products of sizes

    def shape(self, dims):
        return [self.size(d) for d in dims]

    def fresh(self, what="v"):
        self.n += 1
        return "%s%s%d" % (self.prefix, what, self.n)

    def number(self, dtype):
        r = self.rng
        if dtype == "bool":
            return r.random() < 0.5
        if dtype in FLOATS:
            kind = r.random()
            return round_to(dtype, 0.0 if kind < 0.05 else float(r.randint(-3, 3)) if kind < 0.3 else r.gauss(0, 2))
        lo, hi = limits(dtype)
        return r.choice([lo, hi, 0]) if r.random() < 0.05 else r.randint(max(lo, -9), min(hi, 9))

    def tensor(self, dtype, shape):
        return Tensor(dtype, shape, [self.number(dtype) for _ in range(count(shape))])

    def dim(self):
        return self.rng.choice(["B", "S", "S"]) if self.rng.random() < 0.3 else str(self.rng.choice(SIZES))

    def dims(self, lo=1, hi=4):
        while True:
            dims = [self.dim() for _ in range(self.rng.randint(lo, hi))]
            if count(self.shape(dims)) <= 400:
                return dims

    def make_input(self, dtype, dims=None):
        v = Value(self.fresh("in"), dtype, dims or self.dims())
        self.inputs[v.name] = (v, self.tensor(dtype, self.shape(v.dims)))
        self.values.append(v)
        return v

    def parameter(self, shape):
        path = self.fresh("w")
        self.weights[path] = self.tensor("f32", shape)
        return path

    def find(self, types, lo=1, hi=4):
        fits = [v for v in self.values if v.dtype in types and lo <= len(v.dims) <= hi and
                count(self.shape(v.dims)) <= 3000]
        if fits and self.rng.random() < 0.9:
            return self.rng.choice(fits[-8:])
        return self.make_input(self.rng.choice(types), self.dims(lo, hi))

    def fitting(self, v):
        """Another value of the type that broadcasts with v, or the text of a number."""
        fits = [u for u in self.values if u.dtype == v.dtype and all(
            a == b or "1" in (a, b) for a, b in zip(u.dims[::-1], v.dims[::-1]))]
        if fits and self.rng.random() < 0.6:
            return self.rng.choice(fits)
        dims = [d if self.rng.random() < 0.8 else "1" for d in v.dims[self.rng.randint(0, len(v.dims)):]]
        return self.make_input(v.dtype, dims) if dims else v

    def axis(self, v):
        axis = self.rng.randrange(len(v.dims))
        return axis, axis - len(v.dims) if self.rng.random() < 0.3 else axis

    def add(self, text, reads, results, f):
        """text with {0} for the names assigned; results: (dtype, dims) of each."""
        values = [Value(self.fresh(), dtype, dims) for dtype, dims in results]
        names = [v.name for v in values]
        self.statements.append((", ".join(names) + " = " + text, names, [r.name for r in reads], f))
        self.values += values

    # ---- statements ----

    def unary(self):
        name = self.rng.choice(sorted(ops.UNARY))
        x = self.find(FLOATS + INTS if name in ("neg", "abs") else FLOATS)
        text = "-" + x.name if name == "neg" and self.rng.random() < 0.5 else "%s(%s)" % (name, x.name)
        self.add(text, [x], [(x.dtype, x.dims)], lambda t: ops.unary(name, t))

    def literal(self, dtype):
        v = self.number(dtype)
        return ("(%d)" % v, v) if dtype in INTS else ("(%d)" % int(v), float(int(v))) if self.rng.random() < 0.3 else (
            "(%r)" % v, v)

    def binary(self):
        name = self.rng.choice(["+", "-", "*", "/", "//", "%", "**", "pow", "minimum", "maximum", "min", "max", "<", "<=", ">", ">=", "==",
                                "!="])
        a = self.find(FLOATS if name == "/" else FLOATS + INTS)
        call = "%s(%%s, %%s)" % name if name.isalpha() else "%%s %s %%s" % name.replace("%", "%%")
        if self.rng.random() < 0.3:
            text, v = self.literal(a.dtype)
            dims = a.dims
            if name == "/" and v == 0:
                return
            if name in ("min", "max") and "." not in text and "e" not in text:
                return  # an int is an axis
            scalar = Tensor(a.dtype, [], [round_to(a.dtype, v)])
            if self.rng.random() < 0.5:
                f, reads, text = (lambda t: ops.pair(name, t, scalar)), [a], call % (a.name, text)
            else:
                f, reads, text = (lambda t: ops.pair(name, scalar, t)), [a], call % (text, a.name)
        else:
            b = self.fitting(a)
            if self.rng.random() < 0.5:
                a, b = b, a
            f, reads, text = (lambda t, u: ops.pair(name, t, u)), [a, b], call % (a.name, b.name)
            dims = self.together(a, b)
        self.add(text, reads, [("bool" if name in ops.COMPARISONS else a.dtype, dims)], f)

    def together(self, *values):
        rank = max(len(v.dims) for v in values)
        out = []
        for i in range(-rank, 0):
            texts = [v.dims[i] for v in values if len(v.dims) >= -i]
            out.append(([t for t in texts if t != "1"] or ["1"])[0])
        return out

    def logic(self):
        a = self.find(["bool"])
        if self.rng.random() < 0.3:
            self.add("not " + a.name, [a], [("bool", a.dims)], lambda t: ops.result("bool", t.shape, [not v for v in t.data]))
            return
        b, name = self.fitting(a), self.rng.choice(["and", "or", "==", "!=", "<", "<=", ">", ">="])
        self.add("%s %s %s" % (a.name, name, b.name), [a, b], [("bool", self.together(a, b))],
                 lambda t, u: ops.pair(name, t, u))

    def where(self):
        a = self.find(FLOATS + INTS + ("bool",))
        b = self.fitting(a)
        c = self.make_input("bool", self.together(a, b)[self.rng.randint(0, 1):] or self.together(a, b))
        if self.rng.random() < 0.2 and a.dtype != "bool":
            text, v = self.literal(a.dtype)
            number = Tensor(a.dtype, [], [round_to(a.dtype, v)])
            if self.rng.random() < 0.5:
                call, f = "where(%s, %s, %s)" % (c.name, a.name, text), lambda p, t: ops.where(p, t, number)
            else:
                call, f = "where(%s, %s, %s)" % (c.name, text, a.name), lambda p, t: ops.where(p, number, t)
            self.add(call, [c, a], [(a.dtype, self.together(a, c))], f)
            return
        self.add("where(%s, %s, %s)" % (c.name, a.name, b.name), [c, a, b], [(a.dtype, self.together(a, b, c))], ops.where)

    def cast(self):
        x, to = self.find(FLOATS + INTS + ("bool",)), self.rng.choice(FLOATS + INTS + ("bool",))
        text = self.rng.choice(["cast(%s, %s)", "cast(%s, '%s')"])
        self.add(text % (x.name, to), [x], [(to, x.dims)], lambda t: ops.to_type(t, to))

    def reduce(self):
        name = self.rng.choice(["sum", "mean", "max", "min", "logsumexp"])
        x = self.find(FLOATS if name == "logsumexp" else FLOATS + INTS)
        axes = self.rng.sample(range(len(x.dims)), self.rng.randint(1, len(x.dims)))
        if len(axes) == 1 and self.rng.random() < 0.7:
            axes = axes[0] - (len(x.dims) if self.rng.random() < 0.5 else 0)
        keep = self.rng.random() < 0.5
        gone = {a % len(x.dims) for a in ([axes] if isinstance(axes, int) else axes)}
        dims = [("1" if i in gone else d) for i, d in enumerate(x.dims) if keep or i not in gone]
        dtype = "f32" if name == "mean" and x.dtype in INTS else x.dtype
        f = (lambda t: ops.logsumexp(t, axes, keep)) if name == "logsumexp" else lambda t: ops.reduce(name, t, axes, keep)
        self.add("%s(%s, axis=%s%s)" % (name, x.name, axes, ", keep=true" if keep else ""), [x], [(dtype, dims)], f)

    def by_axis(self):
        name = self.rng.choice(["softmax", "log_softmax", "cumsum", "argmax"])
        x = self.find(FLOATS if "soft" in name else FLOATS + INTS)
        real, axis = self.axis(x)
        f = {"softmax": lambda t: ops.softmax(t, axis, False), "log_softmax": lambda t: ops.softmax(t, axis, True),
             "cumsum": lambda t: ops.cumsum(t, axis), "argmax": lambda t: ops.argmax(t, axis)}[name]
        dims = x.dims[:real] + x.dims[real + 1:] if name == "argmax" else x.dims
        self.add("%s(%s, axis=%d)" % (name, x.name, axis), [x], [("i32" if name == "argmax" else x.dtype, dims)], f)

    def topk(self):
        x = self.find(FLOATS + INTS)
        k = self.rng.randint(1, self.least(x.dims[-1]))
        dims = x.dims[:-1] + [str(k)]
        self.add("topk(%s, %d)" % (x.name, k), [x], [(x.dtype, dims), ("i32", dims)], lambda t: ops.topk(t, k))

    def parts(self, dim):
        """The factors of a size, where it is known to have some."""
        if dim in self.products:
            return self.products[dim]
        factors = [n for n in range(2, int(dim)) if int(dim) % n == 0] if dim.isdigit() else []
        if not factors:
            return ["1", dim] if self.rng.random() < 0.5 else [dim, "1"]
        n = self.rng.choice(factors)
        return [str(n), str(int(dim) // n)]

    def merged(self, dims):
        """One axis of several."""
        text = "*".join("(%s)" % d for d in dims)
        self.products[text] = dims
        return text

    def reshape(self):
        x = self.find(FLOATS + INTS + ("bool",))
        i = self.rng.randrange(len(x.dims))
        n = self.rng.randint(1, len(x.dims) - i)
        if n > 1:
            dims = x.dims[:i] + [self.merged(x.dims[i:i + n])] + x.dims[i + n:]
        elif len(x.dims) < 5:
            dims = x.dims[:i] + self.parts(x.dims[i]) + x.dims[i + 1:]
        else:
            dims = [self.merged(x.dims)]
        self.add("reshape(%s, [%s])" % (x.name, ", ".join(dims)), [x], [(x.dtype, dims)],
                 lambda t: ops.result(t.dtype, self.shape(dims), t.data))

    def transpose(self):
        x = self.find(FLOATS + INTS + ("bool",), 1, 5)
        perm = self.rng.sample(range(len(x.dims)), len(x.dims))
        self.add("transpose(%s, %s)" % (x.name, perm), [x], [(x.dtype, [x.dims[p] for p in perm])],
                 lambda t: ops.transpose(t, perm))

    def broadcast(self):
        x = self.find(FLOATS + INTS + ("bool",), 1, 3)
        dims = [self.dim()] + [self.dim() if d == "1" else d for d in x.dims]
        if count(self.shape(dims)) > 3000:
            return
        self.add("broadcast(%s, [%s])" % (x.name, ", ".join(dims)), [x], [(x.dtype, dims)],
                 lambda t: ops.result(t.dtype, self.shape(dims), broadcast(t, self.shape(dims)).data))

    def concat(self):
        x = self.find(FLOATS + INTS + ("bool",))
        real, axis = self.axis(x)
        others = [self.make_input(x.dtype, x.dims[:real] + [self.dim()] + x.dims[real + 1:]) if self.rng.random() < 0.7 else x
                  for _ in range(self.rng.randint(1, 2))]
        all_of = [x] + others
        dims = list(x.dims)
        dims[real] = "+".join("(%s)" % v.dims[real] for v in all_of)
        self.add("concat([%s], axis=%d)" % (", ".join(v.name for v in all_of), axis), all_of, [(x.dtype, dims)],
                 lambda *t: ops.concat(t, axis))

    def constant_axis(self, v, least):
        axes = [i for i, d in enumerate(v.dims) if d.isdigit() and int(d) >= least]
        return self.rng.choice(axes) if axes else None

    def split(self):
        x = self.find(FLOATS + INTS + ("bool",))
        axis = self.constant_axis(x, 2)
        if axis is None:
            return
        first = self.rng.randint(1, int(x.dims[axis]) - 1)
        sizes = [first, int(x.dims[axis]) - first]
        parts = [x.dims[:axis] + [str(s)] + x.dims[axis + 1:] for s in sizes]
        self.add("split(%s, axis=%d, sizes=%s)" % (x.name, axis, sizes), [x], [(x.dtype, p) for p in parts],
                 lambda t: (ops.slice_of(t, axis, 0, first), ops.slice_of(t, axis, first, sum(sizes))))

    def slice(self):
        x = self.find(FLOATS + INTS + ("bool",))
        axis = self.constant_axis(x, 1)
        if axis is None:
            return
        n = int(x.dims[axis])
        begin = self.rng.randint(0, n - 1)
        end, step = self.rng.randint(begin + 1, n), self.rng.randint(1, 3)
        dims = x.dims[:axis] + [str((end - begin + step - 1) // step)] + x.dims[axis + 1:]
        a, b = begin - n if begin and self.rng.random() < 0.3 else begin, end - n if end < n and self.rng.random() < 0.5 else end
        text = "slice(%s, axis=%d, begin=%d, end=%d%s)" % (x.name, axis, a, b, ", step=%d" % step if step > 1 else "")
        self.add(text, [x], [(x.dtype, dims)], lambda t: ops.slice_of(t, axis, begin, end, step))

    def least(self, dim):
        return eval(dim, {}, self.lows)

    def symbolic_slice(self):
        """From a position to n before the end, or the last n, of an axis of any size."""
        x = self.find(FLOATS + INTS + ("bool",))
        axes = [i for i, d in enumerate(x.dims) if not d.isdigit()]
        if not axes:
            return
        axis = self.rng.choice(axes)
        dim, least = x.dims[axis], self.least(x.dims[axis])
        cut = self.rng.randint(0, least - 1)
        begin = self.rng.randint(0, least - 1 - cut)
        end = "(%s)-%d" % (dim, cut)
        if self.rng.random() < 0.3:
            size = self.rng.randint(1, least - cut)
            text = "slice(%s, axis=%d, begin=(%s)-%d, end=%s)" % (x.name, axis, dim, size + cut, end)
            new, first = str(size), lambda n: n - size - cut
        else:
            last = "-%d" % cut if cut and self.rng.random() < 0.5 else end
            text = "slice(%s, axis=%d, begin=%d, end=%s)" % (x.name, axis, begin, last)
            new, first = "(%s)-%d" % (dim, begin + cut), lambda n: begin
        self.add(text, [x], [(x.dtype, x.dims[:axis] + [new] + x.dims[axis + 1:])],
                 lambda t: ops.pick(t, axis, range(first(t.shape[axis]), t.shape[axis] - cut), [self.size(new)]))

    def stepped_slice(self):
        """Every n-th of an axis of any size; no output can have such a size, its sum can."""
        x = self.find(INTS)
        axes = [i for i, d in enumerate(x.dims) if not d.isdigit()]
        if not axes:
            return
        axis, step = self.rng.choice(axes), self.rng.randint(2, 3)
        begin = self.rng.randint(0, self.least(x.dims[axis]) - 1)
        text = "sum(slice(%s, axis=%d, begin=%d, end=%s, step=%d), axis=%d)" % (x.name, axis, begin, x.dims[axis], step, axis)
        self.add(text, [x], [(x.dtype, x.dims[:axis] + x.dims[axis + 1:])],
                 lambda t: ops.reduce("sum", ops.slice_of(t, axis, begin, t.shape[axis], step), axis, False))

    # ---- several operators in a statement ----

    def tree(self, leaves, depth):
        """An expression of ints as Python writes it, with no more parentheses than it needs."""
        if depth == 0 or self.rng.random() < 0.15:
            return ast.Name(self.rng.choice(leaves)) if self.rng.random() < 0.8 else ast.Constant(self.rng.randint(0, 9))
        kind = self.rng.choice([ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.USub, ast.Add, ast.Sub])
        if kind is ast.USub:
            return ast.UnaryOp(kind(), self.tree(leaves, depth - 1))
        return ast.BinOp(self.tree(leaves, depth - 1), kind(), self.tree(leaves, depth - 1))

    def expression(self):
        x = self.find(["i32", "i64"])
        reads = [x] + [self.fitting(x) for _ in range(self.rng.randint(0, 2))]
        tree = self.tree([v.name for v in reads], 3)
        used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        reads = list({v.name: v for v in reads if v.name in used}.values())
        if not any(isinstance(n, ast.BinOp) for n in ast.walk(tree)) or not reads:
            return
        dtype = x.dtype

        def value(node, names):
            if isinstance(node, ast.Name):
                return names[node.id]
            if isinstance(node, ast.Constant):
                return Tensor(dtype, [], [node.value])
            if isinstance(node, ast.UnaryOp):
                return ops.unary("neg", value(node.operand, names))
            return ops.pair(OPERATORS[type(node.op)], value(node.left, names), value(node.right, names))
        try:
            dims = self.dims_of(tree, {v.name: v for v in reads})
        except ValueError:
            return
        self.add(ast.unparse(tree), reads, [(dtype, dims)], lambda *t: value(tree, dict(zip([v.name for v in reads], t))))

    def dims_of(self, node, names):
        """ValueError for parts that hold no tensor: their arithmetic is that of the language's numbers."""
        if isinstance(node, ast.Name):
            return names[node.id].dims
        if isinstance(node, ast.UnaryOp):
            if isinstance(node.operand, ast.Constant):
                raise ValueError
            return self.dims_of(node.operand, names)
        both = [n for n in (node.left, node.right) if not isinstance(n, ast.Constant)]
        if not both:
            raise ValueError
        return self.together(*[Value("", "", self.dims_of(n, names)) for n in both])

    def repeat(self):
        x, count_of = self.find(["i32", "i64"]), self.rng.randint(1, 4)
        y = self.fitting(x)
        if self.together(x, y) != x.dims:
            return
        op, other, start = self.rng.choice("+-*"), self.rng.choice("+-"), self.rng.randint(0, 3)
        name, index = self.fresh(), self.fresh("r")
        body = "%s = %s %s %s %s %s" % (name, name, op, y.name, other, index)
        text = ["%s = %s + 0" % (name, x.name),
                "repeat: {count: %d, as: %s, start: %d, body: [\"%s\"]}" % (count_of, index, start, body)]

        def f(t, u):
            t = ops.result(t.dtype, t.shape, t.data)
            for i in range(start, start + count_of):
                t = ops.pair(other, ops.pair(op, t, u), Tensor(t.dtype, [], [i]))
            return t
        self.statements.append((text, [name], [x.name, y.name], f))
        self.values.append(Value(name, x.dtype, x.dims))

    def index(self):
        x = self.find(FLOATS + INTS + ("bool",), 2, 4)
        if not x.dims[0].isdigit():
            return
        i = self.rng.randrange(int(x.dims[0]))
        self.add("%s[%d]" % (x.name, i), [x], [(x.dtype, x.dims[1:])], lambda t: ops.pick(t, 0, [i], []))

    def padding(self, dtype):
        if dtype in FLOATS and self.rng.random() < 0.5:
            return self.rng.choice([0.5, -2.25])
        return self.rng.randint(0 if dtype == "u8" else -5, 5)

    def pad(self):
        x = self.find(FLOATS + INTS)
        real, axis = self.axis(x)
        before, after, value = self.rng.randint(0, 3), self.rng.randint(0, 3), self.padding(x.dtype)
        sides = "".join(", %s=%d" % side for side in (("before", before), ("after", after)) if side[1] or self.rng.random() < 0.3)
        dims = list(x.dims)
        dims[real] = "(%s)+%d" % (dims[real], before + after)
        text = "pad(%s, axis=%d%s%s)" % (x.name, axis, sides, ", value=%r" % value if value else "")
        self.add(text, [x], [(x.dtype, dims)], lambda t: ops.pad(t, axis, before, after, value))

    def frame(self):
        x = self.find(FLOATS + INTS + ("bool",), 1, 3)
        real, axis = self.axis(x)
        least = self.least(x.dims[real])
        size, hop = self.rng.randint(1, least), self.rng.randint(1, 3)
        # a rounded division cannot be the size of an output
        hop = 1 if not x.dims[real].isdigit() else hop
        dims = x.dims[:real] + ["((%s)-%d)//%d+1" % (x.dims[real], size, hop) if hop > 1 else "(%s)-%d" % (x.dims[real], size - 1),
                                str(size)] + x.dims[real + 1:]
        if count(self.shape(dims)) > 3000:
            return
        text = "frame(%s, %d, %d%s)" % (x.name, size, hop, ", axis=%d" % axis if real < len(x.dims) - 1 or axis != -1 else "")
        self.add(text, [x], [(x.dtype, dims)], lambda t: ops.frame(t, size, hop, real))

    def clip(self):
        x = self.find(FLOATS + INTS)
        sides, texts, reads = [None, None], [], [x]
        for i in self.rng.choice([[0], [1], [0, 1], [0, 1]]):
            if self.rng.random() < 0.7:
                text, v = self.literal(x.dtype)
                sides[i] = Tensor(x.dtype, [], [round_to(x.dtype, v)])
            else:
                other = self.make_input(x.dtype, x.dims)
                text, sides[i] = other.name, len(reads)
                reads.append(other)
            texts.append("%s=%s" % (("min", "max")[i], text))
        pick = lambda side, values: values[side] if isinstance(side, int) else side
        self.add("clip(%s, %s)" % (x.name, ", ".join(texts)), reads, [(x.dtype, x.dims)],
                 lambda *t: ops.clip(t[0], pick(sides[0], t), pick(sides[1], t)))

    def leaky_relu(self):
        x, slope = self.find(FLOATS), self.rng.choice([0.01, 0.0, 0.25, -0.5, 2.0])
        self.add("leaky_relu(%s%s)" % (x.name, ", slope=%r" % slope if slope != 0.01 else ""), [x], [(x.dtype, x.dims)],
                 lambda t: ops.leaky_relu(t, slope))

    def ids(self, dims, below):
        v = self.make_input("i32", dims)
        t = self.inputs[v.name][1]
        t.data = [self.rng.randrange(below) for _ in t.data]
        return v

    def gather(self):
        x = self.find(FLOATS + INTS + ("bool",), 1, 3)
        real, axis = self.axis(x)
        ids = self.ids(self.dims(1, 2), self.size(x.dims[real]))
        if self.rng.random() < 0.2:  # beyond the ends: the nearest there is
            t = self.inputs[ids.name][1]
            t.data = [self.rng.choice([-7, v, v + 5, -2**31, 2**31 - 1]) for v in t.data]
        dims = x.dims[:real] + ids.dims + x.dims[real + 1:]
        if count(self.shape(dims)) <= 3000:
            self.add("gather(%s, %s, axis=%d)" % (x.name, ids.name, axis), [x, ids], [(x.dtype, dims)],
                     lambda t, i: ops.gather(t, i, real))

    def scatter(self):
        x = self.find(FLOATS + INTS + ("bool",), 1, 3)
        real, axis = self.axis(x)
        ids = self.ids(self.dims(1, 1), self.size(x.dims[real]))
        y = self.make_input(x.dtype, x.dims[:real] + ids.dims + x.dims[real + 1:])
        self.add("scatter(%s, %s, %s, axis=%d)" % (x.name, ids.name, y.name, axis), [x, ids, y], [(x.dtype, x.dims)],
                 lambda t, i, u: ops.scatter(t, i, u, real))

    def matmul(self):
        a = self.find(FLOATS, 2, 3)
        ta, tb = self.rng.random() < 0.4, self.rng.random() < 0.4
        m, k = (a.dims[-1], a.dims[-2]) if ta else (a.dims[-2], a.dims[-1])
        n = self.dim()
        lead = [] if self.rng.random() < 0.5 else [d if self.rng.random() < 0.7 else "1" for d in a.dims[:-2]]
        b = self.make_input(a.dtype, lead + ([n, k] if tb else [k, n]))
        text = "matmul(%s, %s%s%s)" % (a.name, b.name, ", transpose_a=true" if ta else "", ", transpose_b=true" if tb else "")
        self.add(text, [a, b], [(a.dtype, a.dims[:-2] + [m, n])], lambda t, u: ops.matmul(t, u, ta, tb))

    def einsum(self):
        one = self.rng.random() < 0.4
        a = self.find(FLOATS, 1, 3)
        left = "abc"[:len(a.dims)]
        dims = dict(zip(left, a.dims))
        if one:
            out = "".join(self.rng.sample(left, self.rng.randint(0, len(left))))
            if len(a.dims) == 2 and a.dims[0] == a.dims[1]:
                left, out = "aa", self.rng.choice(["a", ""])
                dims = {"a": a.dims[0]}
            self.add("einsum('%s->%s', %s)" % (left, out, a.name), [a], [(a.dtype, [dims[l] for l in out])],
                     lambda t: ops.einsum("%s->%s" % (left, out), t))
            return
        dims["x"], dims["y"] = self.dim(), str(self.rng.choice(SIZES[:6]))
        right = "".join(self.rng.sample(left + "xy", self.rng.randint(1, min(3, len(left) + 2))))
        everything = sorted(set(left + right))
        out = "".join(self.rng.sample(everything, self.rng.randint(0, min(4, len(everything)))))
        b = self.make_input(a.dtype, [dims[l] for l in right])
        if count(self.shape([dims[l] for l in everything])) > 20000:
            return
        spec = "%s,%s->%s" % (left, right, out)
        self.add("einsum(\"%s\", %s, %s)" % (spec, a.name, b.name), [a, b], [(a.dtype, [dims[l] for l in out])],
                 lambda t, u: ops.einsum(spec, t, u))

    def neural(self):
        x = self.find(["f32"], 1, 3)
        if not x.dims[-1].isdigit():
            return
        d, name = int(x.dims[-1]), self.rng.choice(["linear", "layer_norm", "rms_norm"])
        path, bias = self.fresh("w"), self.rng.random() < 0.6
        shape = [self.rng.choice(SIZES), d] if name == "linear" else [d]
        w = self.weights[path + ".weight"] = self.tensor("f32", shape)
        b = None
        if bias and name != "rms_norm":
            b = self.weights[path + ".bias"] = self.tensor("f32", shape[:1])
        if name == "linear":
            text = "linear(%s, '%s', %d, bias=%s)" % (x.name, path, shape[0], "true" if b else "false")
            self.add(text, [x], [("f32", x.dims[:-1] + [str(shape[0])])], lambda t: ops.linear(t, w, b))
        elif name == "layer_norm":
            self.add("layer_norm(%s, \"%s\", 0.01, bias=%s)" % (x.name, path, "true" if b else "false"), [x],
                     [("f32", x.dims)], lambda t: ops.norm(t, w, b, 0.01, True))
        else:
            self.add("rms_norm(%s, '%s', eps=0.01, plus_one=%s)" % (x.name, path, "true" if bias else "false"), [x],
                     [("f32", x.dims)], lambda t: ops.norm(t, w, None, 0.01, False, bias))

    def conv(self):
        axes = self.rng.randint(1, 2)
        kernel, stride, dilation = self.rng.randint(1, 3), self.rng.randint(1, 3), self.rng.randint(1, 2)
        padding, groups = self.rng.randint(0, 2), self.rng.choice([1, 1, 2, 3])
        channels, out = groups * self.rng.randint(1, 2), groups * self.rng.randint(1, 2)
        least = max(1, dilation * (kernel - 1) + 1 - 2 * padding)
        sizes = [str(self.rng.randint(least, least + 6)) for _ in range(axes)]
        if axes == 1 and least == 1 and self.rng.random() < 0.4:
            sizes = ["S"]
        x = self.make_input("f32", ["B"] + (sizes + [str(channels)] if axes == 1 else [str(channels)] + sizes))
        if self.rng.random() < 0.06:  # more taps than are taken one by one
            kernel, dilation, padding, sizes = (257, 1, 130, ["3"]) if axes == 1 else (17, 1, 8, ["3", "2"])
            x = self.make_input("f32", ["B"] + (sizes + [str(channels)] if axes == 1 else [str(channels)] + sizes))
        path, bias = self.fresh("w"), self.rng.random() < 0.5
        w = self.weights[path + ".weight"] = self.tensor("f32", [out, channels // groups] + [kernel] * axes)
        b = None
        if bias:
            b = self.weights[path + ".bias"] = self.tensor("f32", [out])
        new = ["((%s)+%d)//%d+1" % (s, 2 * padding - dilation * (kernel - 1) - 1, stride) for s in sizes]
        text = "conv%dd(%s, '%s', %d, %d, stride=%d, padding=%d, dilation=%d, groups=%d, bias=%s)" % (
            axes, x.name, path, out, kernel, stride, padding, dilation, groups, "true" if b else "false")

        def f(t):
            if axes == 2:
                return ops.conv(t, w, b, stride, padding, dilation, groups)
            y = ops.conv(ops.transpose(t, [0, 2, 1]), w, b, stride, padding, dilation, groups)
            transposed = ops.transpose(Tensor("f32", y.shape, y.size), [0, 2, 1])
            y = ops.transpose(y, [0, 2, 1])
            return ops.result("f32", y.shape, y.data, transposed.data)
        if sizes == ["S"] and stride > 1:  # a rounded division cannot be the size of an output
            self.add("sum(%s, axis=1)" % text, [x], [("f32", ["B", str(out)])], lambda t: summed(f(t)))
            return
        self.add(text, [x], [("f32", ["B"] + (new + [str(out)] if axes == 1 else [str(out)] + new))], f)

    def made(self):
        kind = self.rng.choice(["iota", "const", "embed", "param", "expect"])
        if kind == "iota":
            dim, start = self.dim(), self.rng.randint(-4, 4)
            self.add("iota(%s, start=%d)" % (dim, start), [], [("i32", [dim])],
                     lambda: ops.result("i32", [self.size(dim)], range(start, start + self.size(dim))))
        elif kind == "const":
            numbers = [float(self.rng.randint(-8, 8)) / 4 for _ in range(self.rng.randint(1, 5))]
            self.add("const(%s)" % numbers, [], [("f32", [str(len(numbers))])],
                     lambda: ops.result("f32", [len(numbers)], numbers))
        elif kind == "embed":
            rows, width, path = self.rng.choice(SIZES), self.rng.choice(SIZES), self.fresh("w")
            w = self.weights[path + ".weight"] = self.tensor("f32", [rows, width])
            ids = self.ids(self.dims(1, 2), rows)
            self.add("embed(%s, '%s', %d, %d)" % (ids.name, path, rows, width), [ids], [("f32", ids.dims + [str(width)])],
                     lambda i: ops.gather(w, i, 0))
        elif kind == "param":
            shape = [self.rng.choice(SIZES) for _ in range(self.rng.randint(1, 3))]
            if count(shape) < 1000:
                path = self.parameter(shape)
                self.add("param(\"%s\", %s)" % (path, shape), [], [("f32", [str(s) for s in shape])],
                         lambda: ops.result("f32", shape, self.weights[path].data))
        else:
            x = self.find(FLOATS + INTS + ("bool",))
            self.add("expect(%s, %s[%s])" % (x.name, x.dtype, ", ".join(x.dims)), [x], [(x.dtype, x.dims)],
                     lambda t: ops.result(t.dtype, t.shape, t.data))


def summed(t):
    y = ops.reduce("sum", t, 1, False)
    return ops.result(y.dtype, y.shape, y.data, ops.reduce("sum", Tensor("f32", t.shape, t.size), 1, False).data)


KINDS = [Program.unary, Program.unary, Program.binary, Program.binary, Program.binary, Program.binary, Program.logic,
         Program.where, Program.cast, Program.cast, Program.reduce, Program.reduce, Program.by_axis, Program.by_axis,
         Program.topk, Program.reshape, Program.transpose, Program.broadcast, Program.concat, Program.split, Program.slice,
         Program.index, Program.pad, Program.frame, Program.clip,
         Program.leaky_relu, Program.gather, Program.scatter, Program.matmul, Program.einsum, Program.neural,
         Program.conv, Program.made, Program.symbolic_slice, Program.symbolic_slice, Program.stepped_slice,
         Program.expression, Program.expression, Program.repeat]


def make(seed, number, statements):
    p = Program(seed, number)
    while len(p.statements) < statements:
        if len(p.inputs) > 14:
            break
        p.rng.choice(KINDS)(p)
    return p
