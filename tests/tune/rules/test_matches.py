"""Every rule of every family, asked about a corpus of programs: `match` answers from facts, and takes no step."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright
from tilewright import te, tir, topi
from tilewright.ir.transform import PassContext
from tilewright.target import Target
from tilewright.tune.explain import Explanation
from tilewright.tune.program.stages import Stage, Stages
from tilewright.tune.rules import Match, Refusal, family_of

CPUS = ("llvm -mcpu=sapphirerapids -num-cores=4", "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1")
GPUS = ("cuda -arch=sm_75", "cuda -arch=sm_80", "cuda -arch=sm_90a", "opencl")
CHIP = "ext_dev"


def over(f: Any, *shape: Any, dtype: str = "float32") -> list[Any]:
    x = te.placeholder(shape, dtype, name="x")
    return [x, f(x)]


def product(m: Any, n: int, k: int, dtype: str = "float32") -> list[Any]:
    a, b = te.placeholder((m, k), dtype, name="a"), te.placeholder((k, n), dtype, name="b")
    return [a, b, topi.nn.relu(topi.nn.matmul(a, b, out_dtype="int32" if "int" in dtype else "float32"))]


def conv(
    layout: str, channels: int, dtype: str, window: int = 3, pad: int = 1, groups: int = 1, stride: int = 1
) -> list[Any]:
    inner, out = channels // groups, "int32" if dtype == "int8" else "float32"
    image, kernel = [1, channels, 32, 32], [64, inner, window, window]
    if layout == "NHWC":
        image, kernel = [1, 16, 16, channels], [window, window, inner, 64]
    data, weights = te.placeholder(image, dtype, name="data"), te.placeholder(kernel, dtype, name="weights")
    if groups > 1:
        made = topi.nn.group_conv2d_nchw(data, weights, stride, pad, 1, groups, out_dtype=out)
    else:
        made = topi.nn.conv2d(data, weights, stride, pad, 1, layout, out_dtype=out)
    return [data, weights, topi.nn.relu(made)]


def with_transposed_operand() -> list[Any]:
    x, y = te.placeholder((96, 128), name="x"), te.placeholder((128, 96), name="y")
    return [x, y, te.compute((96, 128), lambda i, j: te.tanh(x[i, j]) + y[j, i], name="z")]


def attention() -> list[Any]:
    q, k, v = (te.placeholder((2, 64, 64), "float16", name=x) for x in "qkv")
    scores = topi.nn.softmax(topi.nn.batch_matmul(q, k, out_dtype="float32"))
    return [q, k, v, topi.nn.batch_matmul(topi.cast(scores, "float16"), v, transpose_b=False)]


def attention_of_a_query() -> list[Any]:
    q, k, v = (
        te.placeholder((1, 4, n, 64), "float16", name=x) for x, n in (("q", 1), ("k", 640), ("v", 640))
    )
    return [q, k, v, topi.nn.scaled_dot_product_attention(q, k, v)]


def packed_product() -> list[Any]:
    """A product in elements of the matrix unit."""
    a, b = te.placeholder((2, 4, 1, 16), "int8", name="a"), te.placeholder((8, 4, 16, 16), "int8", name="b")
    k, e = te.reduce_axis((0, 4), name="k"), te.reduce_axis((0, 16), name="e")

    def term(i: Any, j: Any, r: Any, c: Any) -> Any:
        return te.sum(a[i, k, r, e].astype("int32") * b[j, k, c, e].astype("int32"), axis=[k, e])

    whole = te.compute((2, 8, 1, 16), term, name="product")
    return [a, b, te.compute((2, 8, 1, 16), lambda *i: whole[i].astype("int8"), name="out")]


def blockwise_product() -> list[Any]:
    x, w = te.placeholder((2, 64), name="x"), te.placeholder((48, 32), "uint8", name="weights")
    scales, zero = te.placeholder((48, 2), name="scales"), te.placeholder((), name="zero")
    return [x, w, scales, zero, topi.nn.blockwise_dense(x, w, scales, zero)]


def packed_sum() -> list[Any]:
    x, y = (te.placeholder((4, 6, 1, 16), "int32", name=n) for n in "xy")
    return [x, y, te.compute((4, 6, 1, 16), lambda *i: te.max(x[i] + y[i], te.const(0, "int32")), name="out")]


PROGRAMS = {
    "product": lambda: product(96, 64, 128),
    "float16 product": lambda: product(64, 64, 64, "float16"),
    "product of few terms": lambda: product(96, 64, 3),
    "int8 product": lambda: product(64, 64, 64, "int8"),
    "uint8 product": lambda: product(64, 64, 64, "uint8"),
    "int16 product": lambda: product(64, 64, 64, "int16"),
    "bfloat16 product": lambda: product(64, 64, 64, "bfloat16"),
    "product with weights of 4 bits": blockwise_product,
    "dynamic product": lambda: product(te.var("n"), 64, 128),
    "convolution": lambda: conv("NCHW", 16, "float32"),
    "channels-last convolution": lambda: conv("NHWC", 64, "float16"),
    "convolution of few channels": lambda: conv("NHWC", 8, "float16", pad=0),
    "strided convolution": lambda: conv("NHWC", 16, "float16", stride=2),
    "int8 convolution": lambda: conv("NHWC", 16, "int8"),
    "convolution of one pixel": lambda: conv("NCHW", 32, "float32", 1, 0),
    "grouped convolution": lambda: conv("NCHW", 16, "float32", groups=4),
    "pooling": lambda: over(lambda x: topi.nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "max"), 1, 16, 12, 12),
    "softmax": lambda: over(topi.nn.softmax, 96, 128),
    "long softmax": lambda: over(topi.nn.softmax, 4, 100000),
    "short softmax": lambda: over(topi.nn.softmax, 96, 10),
    "softmax of columns": lambda: over(lambda x: topi.nn.softmax(x, axis=0), 96, 128),
    "attention": attention,
    "attention of a query": attention_of_a_query,
    "sum": lambda: over(topi.sum, 96, 128),
    "sum of columns": lambda: over(lambda x: topi.sum(x, axis=0), 96, 128),
    "cumsum": lambda: over(lambda x: topi.cumsum(x, axis=1), 1024, 3),
    "argmax": lambda: over(lambda x: topi.argmax(x, axis=1), 96, 128),
    "transpose": lambda: over(topi.transpose, 96, 128),
    "transposed operand": with_transposed_operand,
    "elementwise": lambda: over(topi.tanh, 96, 128),
    "dynamic rows": lambda: over(topi.nn.softmax, te.var("n"), 40),
    "packed product": packed_product,
    "packed sum": packed_sum,
}  # fmt: skip


class Asked:
    """The stages of a program, of which each rule is asked about each."""

    def __init__(self, args: list[Any], target: str) -> None:
        func = te.create_prim_func(args)
        constants = frozenset(x.name for x in args if x.name == "weights")
        self.sch, self.target = tir.Schedule(func), Target(target)
        self.program = Stages(self.sch, func, self.target, Explanation(""), constants)
        self.family, self.matched = family_of(self.target), set[str]()

    def run(self) -> set[str]:
        """The names of the rules that match a stage."""
        with PassContext(config={"tilewright.winograd": 4}):
            assert self.program.begin(self._early)
            for stage in self.program.next_stages(self.program.stages()):
                self._ask(stage, self.family.rules)
        return self.matched

    def _early(self) -> None:
        for f in self.program.stages():
            if f.kind == "reduction":
                self._ask(Stage(self.program, f, (f,)), self.family.early)

    def _ask(self, stage: Stage, rules: Any) -> None:
        machine = self.family.machine(self.target)
        for rule in rules:
            before = self._state()
            match = rule.match(stage, self.target)
            if isinstance(match, Refusal):
                assert match.why and not match.why.endswith("."), rule.name
            elif rule.needs <= self.family.capabilities(self.target):
                assert isinstance(match, Match)
                self.matched.add(rule.name)
                rule.table(match, machine)
                if match.simpler is not None:
                    match.simpler()
            assert self._state() == before, (
                f"{rule.name} changed the schedule when it was asked about {stage.name}"
            )

    def _state(self) -> Any:
        return id(self.sch.mod), list(map(id, self.sch.trace.insts)), set(self.program.done)


@pytest.mark.parametrize("target", [*CPUS, *GPUS, CHIP])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_match_changes_nothing(name: str, target: str) -> None:
    packed = name.startswith("packed")
    if packed is (target == CHIP):
        Asked(PROGRAMS[name](), target).run()


@pytest.mark.parametrize("targets", [CPUS, GPUS, (CHIP,)])
@pytest.mark.slow
def test_the_corpus_has_a_program_for_every_rule(targets: tuple[str, ...]) -> None:
    """A rule that matches no program of the corpus would not be tested above."""
    family, found = family_of(Target(targets[0])), set[str]()
    for target in targets:
        for name, make in PROGRAMS.items():
            if name.startswith("packed") is (target == CHIP):
                found |= Asked(make(), target).run()
    assert {rule.name for rule in (*family.early, *family.rules)} - found == set()


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("convolution", CPUS[0]),
        ("softmax", CPUS[0]),
        ("convolution of one pixel", GPUS[2]),
        ("channels-last convolution", GPUS[2]),
        ("attention", GPUS[1]),
        ("packed product", CHIP),
        ("packed sum", CHIP),
    ],
)
def test_a_trace_is_complete_without_the_questions_of_a_match(name: str, target: str) -> None:
    """A trace has the steps of `apply`, which name every block that a match has found."""
    func = te.create_prim_func(PROGRAMS[name]())
    made, again = tilewright.auto_schedule(func, target), tir.Schedule(func)
    made.trace.apply_to_schedule(again)
    assert str(again.mod) == str(made.mod)
