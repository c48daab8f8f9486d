"""Knobs and spaces: how many candidates there are, in which order, and what becomes of a schedule by one of them."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tvm
from tilewright import te
from tilewright.autotvm.task.space import (
    AnnotateEntity,
    ConfigEntity,
    ConfigSpace,
    FallbackConfigEntity,
    InstantiationError,
    OtherOptionEntity,
    ReorderEntity,
    SplitEntity,
    get_factors,
    get_pow2s,
)
from tilewright.tir.interpret import interpret


def product(m: int = 16, n: int = 24, k: int = 8) -> tuple[Any, list[te.Tensor]]:
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="r")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    return te.create_schedule(C.op), [A, B, C]


# ---------------------------------------------------------------------------- splits
@pytest.mark.parametrize(
    ("length", "policy", "outputs", "count"),
    [
        (256, "factors", 3, 45),
        (256, "power2", 3, 45),
        (256, "verbose", 3, 45),
        (224, "factors", 3, 63),
        (224, "power2", 3, 36),
        (224, "verbose", 3, 84),
        (1, "factors", 4, 1),
        (7, "factors", 1, 1),
    ],
)
def test_how_many_splits_there_are(length: int, policy: str, outputs: int, count: int) -> None:
    cfg = ConfigSpace()
    axes = cfg.define_split("tile", cfg.axis(length), policy=policy, num_outputs=outputs)
    assert len(axes) == outputs and len(cfg.space_map["tile"]) == len(cfg) == count
    sizes = {tuple(e.size) for e in cfg.space_map["tile"]}
    assert len(sizes) == count and all(s[0] == -1 and math.prod(s[1:]) <= length for s in sizes)


def test_the_innermost_loop_changes_slowest() -> None:
    cfg = ConfigSpace()
    cfg.define_split("tile", cfg.axis(4), num_outputs=3)
    assert [e.size for e in cfg.space_map["tile"]] == [
        [-1, 1, 1],
        [-1, 2, 1],
        [-1, 4, 1],
        [-1, 1, 2],
        [-1, 2, 2],
        [-1, 1, 4],
    ]


def test_splits_by_what_is_asked_for() -> None:
    cfg = ConfigSpace()
    cfg.define_split("few", cfg.axis(64), num_outputs=2, max_factor=8)
    cfg.define_split("narrow", cfg.axis(64), num_outputs=2, filter=lambda e: e.size[-1] in (2, 4))
    cfg.define_split("exact", cfg.axis(24), policy="verbose", num_outputs=2, no_tail=True)
    cfg.define_split("listed", cfg.axis(64), policy="candidate", num_outputs=2, candidate=[[-1, 3], [4, 16]])
    sizes = {name: [e.size[-1] for e in space] for name, space in cfg.space_map.items()}
    assert sizes == {
        "few": [1, 2, 4, 8],
        "narrow": [2, 4],
        "exact": [1, 2, 3, 4, 6, 8, 12, 24],
        "listed": [3, 16],
    }


@pytest.mark.parametrize(
    ("kwargs", "error", "told"),
    [
        ({}, ValueError, r"define_split\(.*\): give the number of loops: num_outputs=2"),
        (
            {"num_outputs": 2, "policy": "all"},
            ValueError,
            "there is no policy 'all'; there are factors, power2",
        ),
        (
            {"num_outputs": 2, "policy": "candidate", "candidate": [[1, 2, 3]]},
            ValueError,
            r"the candidate \[1, 2, 3\] has 3 sizes, and num_outputs is 2",
        ),
        (
            {"num_outputs": 2, "filter": lambda e: False},
            InstantiationError,
            "the knob 'tile' has no candidate",
        ),
    ],
)
def test_refused_splits(kwargs: dict[str, Any], error: type[Exception], told: str) -> None:
    cfg = ConfigSpace()
    with pytest.raises(error, match=told):
        cfg.define_split("tile", cfg.axis(8), **kwargs)


def test_a_length_must_be_known() -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1, name="B")
    with pytest.raises(InstantiationError, match=r"the axis i has the extent `n`.*cfg\.axis\(n\)"):
        ConfigSpace().define_split("tile", B.op.axis[0], num_outputs=2)
    with pytest.raises(TypeError, match="a knob needs an axis, which is a te loop or a length"):
        ConfigSpace().define_split("tile", "i", num_outputs=2)


@settings(max_examples=40, derandomize=True, deadline=None)
@given(st.integers(1, 5000))
def test_factors(n: int) -> None:
    assert get_factors(n) == [i for i in range(1, n + 1) if n % i == 0]
    assert get_pow2s(n) == [1 << i for i in range(20) if 1 << i <= n]


@pytest.mark.parametrize("index", [0, 7, 23])
def test_a_split_is_applied(index: int) -> None:
    s, args = product()
    C = args[-1]
    y, x = s[C].op.axis
    cfg = ConfigSpace()
    cfg.define_split("x", x, num_outputs=3)
    chosen = cfg.get(index)["x"]
    loops = chosen.apply(s, C, x)
    assert len(loops) == 3
    mod = tvm.lower(s, args)
    arrays = [np.ones((16, 8), "float32"), np.ones((8, 24), "float32"), np.zeros((16, 24), "float32")]
    interpret(mod["main"], *arrays)
    assert (arrays[-1] == 8).all()
    assert [int(v.dom.extent) for v in loops[1:]] == chosen.size[1:]
    assert s[C].leaf_iter_vars[:4] == [y, *loops]


# ---------------------------------------------------------------------------- orders and annotations
def test_orders() -> None:
    cfg = ConfigSpace()
    axes = [cfg.axis(i + 2) for i in range(4)]
    cfg.define_reorder("all", axes, policy="all")
    cfg.define_reorder("same", axes, policy="identity")
    cfg.define_reorder("middle", axes, policy="interval_all", interval=(1, 3))
    cfg.define_reorder("two", axes[:2], policy="candidate", candidate=[axes[:2], axes[1::-1]])
    assert len(cfg.space_map["all"]) == 24
    perms = {name: [e.perm for e in space] for name, space in cfg.space_map.items() if name != "all"}
    assert perms == {
        "same": [[0, 1, 2, 3]],
        "middle": [[0, 1, 2, 3], [0, 2, 1, 3]],
        "two": [[0, 1], [1, 0]],
    }
    with pytest.raises(ValueError, match="there is no policy 'any'"):
        cfg.define_reorder("x", axes, policy="any")
    with pytest.raises(ValueError, match="is not one of the axes to reorder"):
        cfg.define_reorder("x", axes[:2], policy="candidate", candidate=[[axes[2], axes[0]]])


def test_chains_of_axes_are_interleaved() -> None:
    cfg = ConfigSpace()
    yo, yi = cfg.define_split("y", cfg.axis(8), num_outputs=2)
    xo, xi = cfg.define_split("x", cfg.axis(8), num_outputs=2)
    (k,) = cfg.define_split("k", cfg.axis(8), num_outputs=1)
    axes = [yo, yi, xo, xi, k]
    cfg.define_reorder("order", axes, policy="interleave", spatial=[[yo, yi], [xo, xi]], reduce=[[k]])
    # the outer tiles first, then the sum around the inner ones or inside of them
    assert [e.perm for e in cfg.space_map["order"]] == [[0, 2, 4, 1, 3], [0, 2, 1, 3, 4]]


def test_an_order_is_applied() -> None:
    s, args = product()
    C = args[-1]
    y, x = s[C].op.axis
    assert ReorderEntity([1, 0]).apply(s, C, [y, x]) == [x, y]
    assert s[C].leaf_iter_vars[:2] == [x, y]
    with pytest.raises(InstantiationError, match="the order is for 3 loops, and 2 were given"):
        ReorderEntity([1, 0, 2]).apply(s, C, [y, x])


@pytest.mark.parametrize(
    ("policy", "axes", "anns"),
    [
        ("unroll", 2, [["unroll", "unroll"]]),
        ("try_unroll", 1, [["none"], ["unroll"]]),
        ("try_vec", 2, [["none", "none"], ["none", "vec"], ["vec", "none"]]),
        ("bind_gpu", 2, [["blockIdx.x", "threadIdx.x"]]),
        ("bind_gpu", 5, [["fuse", "blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x"]]),
        ("bind_gpu_virtual", 3, [["blockIdx.x", "vthread", "threadIdx.x"]]),
    ],
)
def test_annotations(policy: str, axes: int, anns: list[list[str]]) -> None:
    cfg = ConfigSpace()
    cfg.define_annotate("ann", [cfg.axis(4)] * axes, policy=policy)
    assert [e.anns for e in cfg.space_map["ann"]] == anns


def test_annotations_that_cannot_be() -> None:
    cfg = ConfigSpace()
    with pytest.raises(ValueError, match=r"there is no policy 'try_parallel': 'parallel' is not one of"):
        cfg.define_annotate("a", [cfg.axis(4)], policy="try_parallel")
    with pytest.raises(ValueError, match="1 axes are too few to bind"):
        cfg.define_annotate("a", [cfg.axis(4)], policy="bind_gpu")


def test_annotations_are_applied() -> None:
    s, args = product()
    C = args[-1]
    y, x = s[C].op.axis
    (r,) = s[C].op.reduce_axis
    config = ConfigEntity(0)
    s[C].reorder(y, r, x)
    AnnotateEntity(["unroll", "vec"]).apply(
        s, C, [r, x], axis_lens=[8, 24], max_unroll=4, vec_size=[8], cfg=config
    )
    assert config.errors == [
        "a loop of 8 iterations exceeds the limit of 4 for unrolling",
        "vectors of 24 elements are not among the sizes [8]",
    ]
    assert not config.valid()
    text = tvm.driver.build_module.schedule_to_module(s, args).script()
    assert "T.unroll(8)" in text and "T.vectorized(24)" in text
    with pytest.raises(InstantiationError, match="a loop of 24 iterations exceeds the limit of 4"):
        AnnotateEntity(["unroll"]).apply(s, C, [x], axis_lens=[24], max_unroll=4)


def test_threads_are_bound() -> None:
    s, args = product()
    C = args[-1]
    cfg = ConfigSpace()
    axes = list(s[C].op.axis)
    cfg.define_annotate("bind", axes, policy="bind_gpu")
    cfg["bind"].apply(s, C, axes)
    text = tvm.driver.build_module.schedule_to_module(s, args).script()
    assert 'thread="blockIdx.x"' in text and 'thread="threadIdx.x"' in text


def test_caches_are_filled_at_a_loop() -> None:
    s, args = product()
    A, _, C = args
    cached = s.cache_read(A, "local", [C])
    cfg = ConfigSpace()
    axes = [*s[C].op.axis, *s[C].op.reduce_axis]
    cfg.define_annotate("where", axes, policy="locate_cache", num_anchor=1)
    assert [e.anns for e in cfg.space_map["where"]] == [[0], [1], [2]]
    cfg.get(1)["where"].apply(s, C, axes, source=[[cached]])
    place = s[cached].attached()
    assert place is not None and place[1] is axes[1]


# ---------------------------------------------------------------------------- spaces
def space() -> ConfigSpace:
    cfg = ConfigSpace()
    cfg.define_split("y", cfg.axis(16), num_outputs=2)
    cfg.define_knob("unroll", [0, 4, 16])
    cfg.define_knob("word", ["a", "b"])
    return cfg


def test_an_index_is_a_number_for_each_knob() -> None:
    cfg = space()
    assert len(cfg) == cfg.range_length == 30 and cfg.dims == [5, 3, 2]
    for index in range(30):
        point = cfg.point2knob(index)
        assert cfg.knob2point(point) == index
        config = cfg.get(index)
        assert config.index == index
        assert [config["y"].size[1], config["unroll"].val, config["word"].val] == [
            1 << point[0],
            (0, 4, 16)[point[1]],
            "ab"[point[2]],
        ]
    every = np.arange(30)
    assert (cfg.indices(cfg.points(every)) == every).all()
    assert [list(p) for p in cfg.points(every)] == [cfg.point2knob(i) for i in range(30)]
    assert not cfg.is_index_valid(30) and not cfg.is_index_valid(-1)
    with pytest.raises(IndexError, match="indices 0 to 29, not 30"):
        cfg.get(30)
    with pytest.raises(KeyError, match="there is no knob 'x'; there are: y, unroll, word"):
        cfg["x"]


def test_the_last_definition_of_a_knob_counts() -> None:
    cfg = space()
    names = list(cfg.space_map)
    cfg.define_knob("unroll", [1, 2, 3, 4, 5])
    assert len(cfg.space_map["unroll"]) == 5 and list(cfg.space_map) == names
    config = cfg.get(7)
    assert len(config.define_split("y", config.axis(64), num_outputs=2)) == 2  # only asked, not defined
    assert config["y"].size == [-1, 4]


def test_a_filter_of_all_knobs() -> None:
    cfg = space()
    cfg.multi_filter(lambda c: c["y"].size[1] * max(1, c["unroll"].val) <= 16)
    every = [space().get(i) for i in range(cfg.range_length)]
    good = [c.index for c in every if c["y"].size[1] * max(1, c["unroll"].val) <= 16]
    bad = next(i for i in range(cfg.range_length) if i not in good)
    with pytest.raises(IndexError, match=f"the filter of the space excludes the configuration {bad}"):
        cfg.get(bad)
    assert len(cfg) == len(good) == 18 and cfg.range_length == 30
    assert [i for i in range(-2, 33) if cfg.is_index_valid(i)] == good
    assert cfg.subrange_length(3, 20) == sum(3 <= i < 20 for i in good)
    assert cfg.get_next_index(good[3]) == good[4] and cfg.get_next_index(good[3], n=-2) == good[1]
    assert cfg.get_next_index(good[-1]) is None
    assert cfg.get_next_index(-1, n=1) == good[0]
    rng = np.random.default_rng(0)
    assert sorted(cfg.sample_ints(100, rng)) == good
    walked = cfg.random_walks(np.array(good), rng)
    assert set(walked) <= set(good)
    assert all(cfg.get_rand_index(to_exclude=good[1:]) == good[0] for _ in range(3))
    with pytest.raises(ValueError, match="no configuration is left"):
        cfg.get_rand_index(to_exclude=good)


def test_ranges() -> None:
    cfg = space()
    assert cfg.subrange_length(3, 20) == 17 and cfg.get_next_index(4, n=3) == 7
    assert cfg.get_next_index(19, start=3, end=20) is None
    assert all(3 <= cfg.get_rand_index(3, 9) < 9 for _ in range(20))
    with pytest.raises(ValueError, match="the range 3:31 is not within the space 0:30"):
        cfg.subrange_length(3, 31)


def test_a_walk_changes_one_knob() -> None:
    cfg = space()
    rng = np.random.default_rng(3)
    begin = np.repeat(np.arange(30), 4)
    moved = cfg.random_walks(begin, rng)
    differ = (cfg.points(begin) != cfg.points(moved)).sum(axis=1)
    assert set(differ) == {1}
    assert cfg.random_walk(5, rng) != 5
    single = ConfigSpace()
    single.define_knob("only", [1])
    assert single.random_walk(0) == 0


def test_samples_of_a_large_space_are_different() -> None:
    cfg = ConfigSpace()
    for i in range(8):
        cfg.define_split(f"s{i}", cfg.axis(1 << 12), num_outputs=3)
    assert cfg.range_length == 91**8
    found = cfg.sample_ints(200, np.random.default_rng(0))
    assert len(set(found.tolist())) == 200 and cfg.are_valid(found).all()
    assert (cfg.indices(cfg.points(found)) == found).all()
    assert (cfg.random_walks(found, np.random.default_rng(1)) != found).all()
    for i in range(2):
        cfg.define_split(f"t{i}", cfg.axis(1 << 12), num_outputs=3)
    with pytest.raises(InstantiationError, match=r"3894161181.* combinations: define fewer of them"):
        cfg.sample_ints(3)


# ---------------------------------------------------------------------------- configurations
def test_configurations_as_json() -> None:
    cfg = space()
    axes = [cfg.axis(2), cfg.axis(3)]
    cfg.define_reorder("order", axes, policy="all")
    cfg.define_annotate("ann", axes, policy="try_unroll")
    config = cfg.get(217)
    text = json.dumps(config.to_json_dict())
    assert json.loads(text) == {
        "index": 217,
        "code_hash": None,
        "entity": [
            ["y", "sp", [-1, 4]],
            ["unroll", "ot", 4],
            ["word", "ot", "a"],
            ["order", "re", [1, 0]],
            ["ann", "an", ["unroll", "unroll"]],
        ],
    }
    again = ConfigEntity.from_json_dict(json.loads(text))
    assert again == config and hash(again) == hash(config) and again != cfg.get(3)
    assert repr(again) == repr(config)
    assert again.get_other_option() == {"unroll": 4, "word": "a"}
    assert list(config.get_flatten_feature()) == [-1, 4, 4, 1, 0, 2, 2]
    with pytest.raises(ValueError, match="of the kind 'xx'; there are sp, re, an, ot"):
        ConfigEntity.from_json_dict({"index": 0, "entity": [["a", "xx", 1]]})


def test_features_tell_configurations_apart() -> None:
    cfg = space()
    rows = cfg.knob_features(np.arange(30))
    assert len({row.tobytes() for row in rows}) == 30


def test_what_is_not_tuned_is_decided_by_the_template() -> None:
    for length, wanted in ((128, [4, 8, 4]), (49, [7, 7, 1]), (6, [1, 2, 3])):
        cfg = FallbackConfigEntity()
        cfg.define_split("tile", cfg.axis(length), num_outputs=3)
        assert cfg["tile"].size == [-1, 1, 1]
        cfg.fallback_split("tile", [-1, 8, 4])
        cfg.define_split("tile", cfg.axis(length), num_outputs=3)  # asked again: it stays
        assert cfg["tile"].size == wanted and cfg.is_fallback
    cfg["tile"] = SplitEntity([-1, 2, 2])
    assert cfg["tile"].size == [-1, 2, 2]
    with pytest.raises(KeyError, match="there is no split 'other'"):
        cfg.fallback_split("other", [-1, 2])
    with pytest.raises(ValueError, match="2 sizes for 3 loops"):
        cfg.fallback_split("tile", [-1, 2])


def test_options_are_plain() -> None:
    assert OtherOptionEntity(te.const(3, "int32")).val == 3
    cfg = ConfigSpace()
    cfg.add_flop(te.const(1e3, "float32"))
    cfg.add_flop(24)
    assert cfg.flop == 1024
