"""Random programs of the kinds that the automatic scheduler has sketches for."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from tilewright import te, tir
from tilewright.arith import Analyzer
from tilewright.ir.functor import substitute

SIZES = (1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 19, 31, 32, 33, 37, 47, 64, 97)
DTYPES = (
    "float32",
    "float32",
    "float32",
    "float64",
    "float16",
    "int8",
    "int32",
    "bfloat16",
    "int64",
    "uint8",
)
MOST = 1 << 15  # elements of a tensor
TOLERANCE = {"float16": 3e-2, "bfloat16": 2e-1, "float32": 2e-4, "float64": 1e-10}


@dataclass
class Program:
    """Stages over some inputs, and the values of the symbols in their shapes."""

    inputs: list[Any]
    outputs: list[Any]
    symbols: dict[Any, int]

    @property
    def args(self) -> list[Any]:
        return [*self.inputs, *self.outputs]

    def func(self) -> Any:
        return te.create_prim_func(self.args)

    def arrays(self, seed: int = 0) -> list[Any]:
        """Values for the arguments; small ones, so that sums in any order are the same but for the last bits."""
        rng = np.random.default_rng(seed)
        out = []
        for t in self.args:
            shape = [size_of(d, self.symbols) for d in t.shape]
            kind = ml_dtypes.bfloat16 if t.dtype == "bfloat16" else str(t.dtype)
            if t.op.name.startswith("index"):
                data: Any = rng.integers(0, 2, shape)
            elif "float" in str(t.dtype):
                data = rng.integers(-8, 8, shape) / 8.0
            else:
                data = rng.integers(
                    0 if t.dtype in ("uint8", "bool") else -5, 2 if t.dtype == "bool" else 6, shape
                )
            out.append(np.asarray(data).astype(kind))
        return out

    def compare(self, got: list[Any], want: list[Any]) -> None:
        """Integers are equal; floats agree but for rounding, and are infinite at the same places."""
        for g, w, t in zip(got, want, self.args, strict=True):
            if str(t.dtype) not in TOLERANCE:
                np.testing.assert_array_equal(g, w, err_msg=t.op.name)
                continue
            g, w = g.astype("float64"), w.astype("float64")
            fine = np.isfinite(w)
            if t.dtype not in ("float16", "bfloat16"):
                np.testing.assert_array_equal(np.isfinite(g), fine)
            fine &= np.isfinite(g)
            tol = TOLERANCE[str(t.dtype)]
            scale = max(1.0, float(np.abs(w[fine]).max(initial=0)))
            np.testing.assert_allclose(g[fine], w[fine], rtol=tol, atol=tol * scale, err_msg=t.op.name)


def size_of(dim: Any, symbols: dict[Any, int]) -> int:
    known = {v: tir.const(n, v.dtype) for v, n in symbols.items()}
    return int(Analyzer().simplify(substitute(tir.convert(dim), known)))


@dataclass
class Maker:
    """Draws stage after stage; each takes a tensor that is there and makes another."""

    draw: Any
    symbolic: bool
    inputs: list[Any] = field(default_factory=list)
    made: list[Any] = field(default_factory=list)
    symbols: dict[Any, int] = field(default_factory=dict)
    sizes: tuple[int, ...] = SIZES
    most: int = MOST
    count: int = 0

    def pick(self, *of: Any) -> Any:
        return self.draw(st.sampled_from(of))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def some(self, of: list[int], least: int = 0) -> list[int]:
        if not of:
            return []
        return sorted(self.draw(st.sets(st.sampled_from(of), min_size=least)))

    def order(self, of: list[Any]) -> list[Any]:
        return list(self.draw(st.permutations(of)))

    def size(self) -> Any:
        n = self.pick(*self.sizes)
        if self.symbolic and self.number(0, 3) == 0:
            v = te.var(f"n{len(self.symbols)}")
            self.symbols[v] = n
            return v
        return n

    def value(self, dim: Any) -> int:
        return size_of(dim, self.symbols)

    def elements(self, shape: Any) -> int:
        return math.prod(self.value(d) for d in shape)

    def shape(self, rank: int, most: int) -> list[Any]:
        out: list[Any] = []
        for _ in range(rank):
            d = self.size()
            out.append(d if self.elements([*out, d]) <= most else self.pick(1, 2, 3))
        return out

    def known(self, x: Any) -> list[int] | None:
        """The shape in numbers, if none is a symbol."""
        if any(not isinstance(d, (int, tir.IntImm)) for d in x.shape):
            return None
        return [int(d) for d in x.shape]

    def input(self, shape: Any, dtype: str) -> Any:
        t = te.placeholder(tuple(shape), dtype, name=f"X{len(self.inputs)}")
        self.inputs.append(t)
        return t

    def stage(self, shape: Any, body: Any, name: str = "S") -> Any:
        self.count += 1
        return te.compute(tuple(shape), body, name=f"{name}{self.count}")

    def axis(self, extent: Any, low: int = 0) -> Any:
        self.count += 1
        return te.reduce_axis((low, extent), f"k{self.count}")


def _wide(x: Any) -> str:
    return "int32" if x.dtype in ("int8", "uint8", "bool") else str(x.dtype)


def scale(m: Maker, x: Any) -> Any:
    factor = tir.const(m.number(1, 3), x.dtype)
    return m.stage(x.shape, lambda *v: x(*v) * factor + factor, "scale")


def function(m: Maker, x: Any) -> Any:
    if x.dtype not in ("float32", "float64"):
        zero = tir.const(0, x.dtype)
        return m.stage(x.shape, lambda *v: tir.max(x(*v), zero), "relu")
    f = m.pick(tir.tanh, tir.sigmoid, lambda e: tir.exp(tir.min(e, tir.const(2, e.dtype))), tir.abs)
    return m.stage(x.shape, lambda *v: f(x(*v)), "map")


def cast(m: Maker, x: Any) -> Any:
    kind = m.pick("float32", "int32") if x.dtype.startswith(("int", "uint")) else m.pick("float32", "float64")
    return m.stage(x.shape, lambda *v: x(*v).astype(kind), "cast")


def binary(m: Maker, x: Any) -> Any:
    """With another input that is repeated along some axes, or with a stage of the same shape."""
    op = m.pick(lambda a, b: a + b, lambda a, b: a - b, tir.max, lambda a, b: a * b)
    alike = [
        t
        for t in (*m.made, *m.inputs)
        if t is not x
        and len(t.shape) == len(x.shape)
        and t.dtype == x.dtype
        and all(
            a is b or (m.value(a) == m.value(b) and not m.symbolic)
            for a, b in zip(t.shape, x.shape, strict=True)
        )
    ]
    if alike and m.number(0, 1):
        other = m.pick(*alike)
        return m.stage(x.shape, lambda *v: op(x(*v), other(*v)), "join")
    skip = m.number(0, len(x.shape))
    ones = m.some(list(range(skip, len(x.shape))))
    b = m.input([1 if i in ones else x.shape[i] for i in range(skip, len(x.shape))], x.dtype)
    at = lambda v: [0 if i in ones else v[i] for i in range(skip, len(x.shape))]
    return m.stage(x.shape, lambda *v: op(x(*v), b(*at(v))), "broadcast")


def outer(m: Maker, x: Any) -> Any:
    """Broadcast to more axes."""
    if len(x.shape) > 3:
        return None
    place, size = m.number(0, len(x.shape)), m.pick(2, 3, 16, 33)
    if m.elements(x.shape) * size > m.most:
        return None
    shape = [*x.shape[:place], size, *x.shape[place:]]
    b = m.input((size,), x.dtype)
    return m.stage(shape, lambda *v: x(*v[:place], *v[place + 1 :]) + b[v[place]], "outer")


def transpose(m: Maker, x: Any) -> Any:
    order = m.order(list(range(len(x.shape))))
    back = [order.index(a) for a in range(len(order))]
    return m.stage([x.shape[a] for a in order], lambda *v: x(*[v[b] for b in back]), "transpose")


def reshape(m: Maker, x: Any) -> Any:
    dims = m.known(x)
    if dims is None or not dims:
        return None
    if len(dims) > 1 and m.number(0, 1):
        i = m.number(0, len(dims) - 2)
        rows, cols = dims[i], dims[i + 1]
        shape = [*dims[:i], rows * cols, *dims[i + 2 :]]
        body = lambda *v: x(*v[:i], v[i] // cols, v[i] % cols, *v[i + 1 :])
        return m.stage(shape, body, "flatten")
    i = m.number(0, len(dims) - 1)
    divisors = [d for d in range(1, dims[i] + 1) if dims[i] % d == 0]
    d = m.pick(*divisors)
    if len(dims) > 4:
        return None
    shape = [*dims[:i], dims[i] // d, d, *dims[i + 1 :]]
    return m.stage(shape, lambda *v: x(*v[:i], v[i] * d + v[i + 1], *v[i + 2 :]), "unflatten")


def pad(m: Maker, x: Any) -> Any:
    before = [m.number(0, 2) for _ in x.shape]
    after = [m.number(0, 2) for _ in x.shape]
    shape = [d + a + b for d, a, b in zip(x.shape, before, after, strict=True)]
    if not x.shape or m.elements(shape) > 2 * m.most:
        return None
    conditions = [i for i in range(len(x.shape)) if before[i] or after[i]]

    def body(*v: Any) -> Any:
        value = x(*[a - b for a, b in zip(v, before, strict=True)])
        tests = [tir.all(v[i] >= before[i], v[i] < x.shape[i] + before[i]) for i in conditions]
        return te.if_then_else(tir.all(*tests), value, tir.const(1, x.dtype)) if tests else value

    return m.stage(shape, body, "pad")


def strided(m: Maker, x: Any) -> Any:
    dims = m.known(x)
    if not dims:
        return None
    steps = [m.pick(1, 1, 2, 3, -1) for _ in dims]
    shape = [-(-d // abs(s)) for d, s in zip(dims, steps, strict=True)]
    at = lambda v: [a * s if s > 0 else d - 1 - a for a, s, d in zip(v, steps, dims, strict=True)]
    return m.stage(shape, lambda *v: x(*at(v)), "slice")


def gather(m: Maker, x: Any) -> Any:
    dims = m.known(x)
    if not dims or dims[0] < 2:
        return None
    index = te.placeholder((7,), "int32", name=f"index{len(m.inputs)}")
    m.inputs.append(index)
    return m.stage((7, *dims[1:]), lambda *v: x(index[v[0]], *v[1:]), "gather")


def concat(m: Maker, x: Any) -> Any:
    dims = m.known(x)
    if not dims or m.elements(dims) > m.most // 2:
        return None
    i = m.number(0, len(dims) - 1)
    b = m.input(dims, x.dtype)
    at = lambda v, d: [*v[:i], v[i] - d, *v[i + 1 :]]
    body = lambda *v: te.if_then_else(v[i] < dims[i], x(*v), b(*at(v, dims[i])))
    return m.stage([*dims[:i], 2 * dims[i], *dims[i + 1 :]], body, "concat")


def reduce(m: Maker, x: Any) -> Any:
    """A sum or extreme over some axes, which stay as 1 or go."""
    over = m.some(list(range(len(x.shape))), 1)
    if not over:
        return None
    how = m.pick(te.sum, te.sum, te.max, te.min)
    keep = bool(m.number(0, 1))
    low = 1 if m.known(x) and min(m.known(x)[a] for a in over) > 2 and not m.number(0, 7) else 0  # type: ignore[index]
    ks = {a: m.axis(x.shape[a] - low if low else x.shape[a], low) for a in over}
    shape = [1 if a in over else d for a, d in enumerate(x.shape) if keep or a not in over]
    kind = _wide(x) if how is te.sum else str(x.dtype)

    def body(*v: Any) -> Any:
        left = (
            list(v)
            if keep
            else [None if a in over else v[a - sum(o < a for o in over)] for a in range(len(x.shape))]
        )
        at = [ks[a] if a in over else left[a] for a in range(len(x.shape))]
        return how(x(*at).astype(kind) if kind != x.dtype else x(*at), axis=list(ks.values()))

    return m.stage(shape, body, "reduce")


def normalise(m: Maker, x: Any) -> Any:
    """A chain along rows: x less its extreme or mean over some axes, then divided or scaled by a second one."""
    over = m.some(list(range(len(x.shape))), 1)
    if not over:
        return None
    kind = str(x.dtype)
    at = lambda v: [a for i, a in enumerate(v) if i not in over]
    kept = [d for i, d in enumerate(x.shape) if i not in over]

    def reduced(t: Any, how: Any, name: str) -> Any:
        ks = {a: m.axis(t.shape[a]) for a in over}

        def body(*v: Any) -> Any:
            rest = iter(v)
            return how(
                t(*[ks[a] if a in over else next(rest) for a in range(len(t.shape))]), axis=list(ks.values())
            )

        return m.stage(kept, body, name)

    top = reduced(x, te.max, "top")
    soft = kind in ("float32", "float64")
    f = tir.exp if soft else lambda e: e * tir.const(2, kind)
    diff = m.stage(x.shape, lambda *v: f(x(*v) - top(*at(v))), "shifted")
    if m.number(0, 3) == 0:
        return diff
    total = reduced(diff, te.sum, "total")
    if soft:
        return m.stage(x.shape, lambda *v: diff(*v) / total(*at(v)), "normal")
    return m.stage(x.shape, lambda *v: diff(*v) - total(*at(v)), "normal")


def einsum(m: Maker, x: Any) -> Any:
    """A product with another tensor: some axes shared, some contracted, new ones; all in any order."""
    axes = list(range(len(x.shape)))
    if not axes:
        return None
    contract = m.some(axes, 1)
    batch = m.some([a for a in axes if a not in contract])
    new = m.shape(m.number(0 if len(axes) > 1 else 1, 2), 64)
    own = [("x", a) for a in axes if a not in contract]
    out = m.order([*own, *(("w", i) for i in range(len(new)))])
    held = m.order([*(("x", a) for a in [*contract, *batch]), *(("w", i) for i in range(len(new)))])
    extent = lambda key: x.shape[key[1]] if key[0] == "x" else new[key[1]]
    shape = [extent(key) for key in out]
    if m.elements(shape) > m.most or m.elements([*shape, *(x.shape[a] for a in contract)]) > 32 * m.most:
        return None
    if len(shape) > 5 or m.elements([extent(k) for k in held]) > 2 * m.most:
        return None
    w = m.input([extent(key) for key in held], x.dtype)
    ks = {("x", a): m.axis(x.shape[a]) for a in contract}
    kind, swap = _wide(x), bool(m.number(0, 1))

    def body(*v: Any) -> Any:
        at = {**ks, **dict(zip(out, v, strict=True))}
        a, b = x(*[at["x", i] for i in axes]).astype(kind), w(*[at[key] for key in held]).astype(kind)
        return te.sum(b * a if swap else a * b, axis=list(ks.values()))

    return m.stage(shape, body, "einsum")


def conv(m: Maker, x: Any) -> Any:
    """Windows over one or two axes, with strides, dilation and groups, channels before or after them."""
    dims = m.known(x)
    if dims is None or len(dims) not in (3, 4):
        return None
    last = bool(m.number(0, 1))
    space = dims[1:-1] if last else dims[2:]
    channels = dims[-1] if last else dims[1]
    if m.number(0, 1) and all(d >= 2 for d in space):
        kernel = [m.pick(*[k for k in (1, 2, 3, 3, 5) if k <= d]) for d in space]
    else:
        kernel = [1] * len(space)
    strides = [m.pick(1, 1, 2) for _ in space]
    dilation = [m.pick(1, 2) if (k - 1) * 2 + 1 <= d else 1 for k, d in zip(kernel, space, strict=True)]
    groups = m.pick(*[g for g in (1, 1, 2, 4, channels) if channels % g == 0])
    per = channels // groups
    outs = groups * m.pick(1, 2, 3, 8, 17)
    across = [
        (d - (k - 1) * e - 1) // s + 1 for d, k, e, s in zip(space, kernel, dilation, strides, strict=True)
    ]
    work = math.prod([dims[0], *across, outs, per, *kernel])
    if math.prod([dims[0], *across, outs]) > m.most or work > 32 * m.most:
        return None
    w = m.input([outs, per, *kernel] if m.number(0, 1) or last is False else [*kernel, per, outs], x.dtype)
    first = (
        len(w.shape)
        and int(w.shape[0]) == outs
        and int(w.shape[1]) == per
        and len(w.shape) == 2 + len(kernel)
    )
    flat = first and [int(d) for d in w.shape] == [outs, per, *kernel]
    c, ks = m.axis(per), [m.axis(k) for k in kernel]
    kind = _wide(x)

    def body(*v: Any) -> Any:
        n, o, at = (v[0], v[-1], v[1:-1]) if last else (v[0], v[1], v[2:])
        ch = c if groups == 1 else o // (outs // groups) * per + c
        place = [a * s + k * e for a, s, k, e in zip(at, strides, ks, dilation, strict=True)]
        a = x(n, *place, ch) if last else x(n, ch, *place)
        b = w(o, c, *ks) if flat else w(*ks, c, o)
        return te.sum(a.astype(kind) * b.astype(kind), axis=[c, *ks])

    return m.stage([dims[0], *across, outs] if last else [dims[0], outs, *across], body, "conv")


def pool(m: Maker, x: Any) -> Any:
    dims = m.known(x)
    if not dims or dims[-1] < 3:
        return None
    k, stride = m.axis(3), m.pick(1, 2, 3)
    how = m.pick(te.max, te.sum)
    return m.stage(
        [*dims[:-1], (dims[-1] - 3) // stride + 1],
        lambda *v: how(x(*v[:-1], v[-1] * stride + k), axis=k),
        "pool",
    )


STEPS = (
    scale, function, cast, binary, binary, outer, transpose, transpose, reshape, pad, strided, gather, concat,
    reduce, reduce, reduce, normalise, normalise, einsum, einsum, einsum, einsum, conv, conv, conv, pool,
)  # fmt: skip


@st.composite
def programs(draw: Any, most: int = 5, sizes: tuple[int, ...] = SIZES, elements: int = MOST) -> Program:
    """One to five stages over tensors of up to five axes, some with sizes known only at run time."""
    m = Maker(draw, symbolic=draw(st.integers(0, 4)) == 0, sizes=sizes, most=elements)
    x = m.input(m.shape(m.number(1, 4), elements // 4), m.pick(*DTYPES))
    for _ in range(m.number(1, most)):
        new = m.pick(*STEPS)(m, x)
        if new is not None:
            m.made.append(new)
            x = new if m.number(0, 9) else m.pick(*m.made)
    if not m.made:
        m.made.append(scale(m, x))
    outputs = [m.made[-1]]
    if len(m.made) > 1 and m.number(0, 5) == 0:
        outputs.insert(0, m.pick(*m.made[:-1]))
    used = _used(outputs)
    return Program([i for i in m.inputs if i in used], outputs, m.symbols)


def _used(outputs: list[Any]) -> set[Any]:
    seen: set[Any] = set()
    stack = list(outputs)
    while stack:
        t = stack.pop()
        if t not in seen:
            seen.add(t)
            stack += t.op.input_tensors
    return seen


@st.composite
def machines(draw: Any) -> dict[str, Any]:
    """Figures of a processor: several cores that start at no cost, small caches, narrow vectors."""
    out: dict[str, Any] = {}
    if draw(st.booleans()):
        out |= {"num_cores": draw(st.sampled_from([1, 2, 4])), "launch_us": 0.0}
    if draw(st.booleans()):
        out |= draw(
            st.sampled_from([{"l1d": 1024, "l2": 2048, "l3": 4096}, {"l1d": 4096, "l2": 8192, "l3": 1 << 20}])
        )
    if draw(st.integers(0, 2)) == 0:
        out["preferred_vector_bits"] = draw(st.sampled_from([128, 256, 512]))
    return out
