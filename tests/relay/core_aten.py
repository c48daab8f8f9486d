"""One small program for each operator of the core ATen set: (its overload, arguments); tensors are the inputs."""

from __future__ import annotations

from typing import Any

import torch

A: Any = torch.ops.aten
_RANDOM = torch.Generator()


def f(*shape: int, low: float = -2.0, high: float = 2.0) -> torch.Tensor:
    return torch.rand(*shape, generator=_RANDOM) * (high - low) + low


def i(*shape: int, low: int = 0, high: int = 3) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=_RANDOM)


def b(*shape: int) -> torch.Tensor:
    return i(*shape, high=2).bool()


def overloads() -> list[Any]:
    """The operators of the set."""
    packets = [getattr(A, name) for name in sorted(dir(A))]
    found = [getattr(p, o) for p in packets if hasattr(p, "overloads") for o in p.overloads()]
    return [op for op in found if torch.Tag.core in op.tags]


# Operators whose other results are of use to training alone, or have no elements.
FIRST_ALONE = {
    "_native_batch_norm_legit_no_training.default",
    "_embedding_bag.default",
    "native_dropout.default",
}

# These give no tensor, or one whose values are not defined.
WITHOUT_TENSORS = {
    "sym_numel.default", "sym_size.int", "sym_storage_offset.default", "sym_stride.int", "_local_scalar_dense.default",
    "empty.memory_format", "empty_strided.default", "atan2.out", "resize_.default", "sym_is_contiguous.default",
}  # fmt: skip


def elementwise() -> dict[str, tuple[Any, ...]]:
    x, y, positive, inside = f(2, 3), f(3), f(2, 3, low=0.5), f(2, 3, low=-0.9, high=0.9)
    of_one = (
        "abs ceil cos cosh erf exp expm1 floor neg relu round sigmoid sign sin sinh tan tanh trunc asinh atan isinf "
        "isnan alias clone gelu elu leaky_relu hardtanh clamp"
    )
    rows: dict[str, tuple[Any, ...]] = {f"{name}.default": (x,) for name in of_one.split()}
    rows["clamp.default"] = (x, -1.0, 1.0)
    rows |= {f"{n}.default": (positive,) for n in "log log10 log1p log2 reciprocal rsqrt sqrt".split()}
    rows |= {f"{n}.default": (inside,) for n in "acos asin atanh".split()}
    rows |= {"acosh.default": (positive + 1,), "atan2.default": (x, y), "clamp.Tensor": (x, y - 1, y + 1)}
    for name in "add sub mul div fmod remainder eq ne lt le gt ge".split():
        rows |= {f"{name}.Tensor": (x, y), f"{name}.Scalar": (x, 1.5)}
    for mode in ("Tensor_mode", "Scalar_mode"):
        rows[f"div.{mode}"] = (x, y if mode == "Tensor_mode" else 0.7)
    rows |= {"pow.Tensor_Tensor": (positive, y), "pow.Tensor_Scalar": (positive, 2.5), "pow.Scalar": (2.0, x)}
    for name in ("and", "or", "xor"):
        rows |= {f"bitwise_{name}.Tensor": (i(3, 4), i(4)), f"bitwise_{name}.Scalar": (i(3, 4), 5)}
        rows[f"logical_{name}.default"] = (b(3, 4), b(4))
    rows |= {
        "bitwise_not.default": (i(5),),
        "logical_not.default": (b(5),),
        "maximum.default": (x, y),
        "minimum.default": (x, y),
        "where.self": (b(2, 3), x, y),
        "copy.default": (x, y),
        "fill.Scalar": (x, 2.0),
        "full_like.default": (x, 3.0),
        "_to_copy.default": (x,),
    }
    return rows


def reductions() -> dict[str, tuple[Any, ...]]:
    x = f(2, 3, 4)
    return {
        "amax.default": (x, [1]), "amin.default": (x, [1], True), "any.default": (b(2, 3),), "any.dim": (b(2, 3), 1),
        "any.dims": (b(2, 3, 4), [0, 2]), "argmax.default": (x, 1), "argmin.default": (x,), "cumsum.default": (x, 1),
        "max.dim": (x, 1), "min.dim": (x, 2, True), "mean.default": (x,), "mean.dim": (x, [0, 2]), "prod.default": (x,),
        "prod.dim_int": (x, 1), "sum.dim_IntList": (x, [1], True), "var.dim": (x, [1]), "var.correction": (x, [0, 1]),
        "sort.default": (x, 2, True), "topk.default": (x, 2), "_softmax.default": (x, 1, False),
        "_log_softmax.default": (x, 2, False),
    }  # fmt: skip


def arrangement() -> dict[str, tuple[Any, ...]]:
    x, image = f(2, 3, 4), f(1, 2, 5, 6)
    volume = f(1, 2, 3, 4, 5)
    index = i(2, 2, 4)
    return {
        "as_strided.default": (f(12), [2, 3], [4, 1], 1), "cat.default": ([f(2, 3), f(1, 3)],),
        "constant_pad_nd.default": (x, [1, 2], 0.5), "diagonal.default": (x, 1), "expand.default": (f(1, 3), [2, 3]),
        "flip.default": (x, [0, 2]), "gather.default": (x, 1, index), "index.Tensor": (x, [None, i(5)]),
        "index_put.default": (x, [i(1), torch.tensor([2])], f(4)), "index_select.default": (x, 1, i(5)),
        "permute.default": (x, [2, 0, 1]), "reflection_pad1d.default": (x, [1, 2]),
        "reflection_pad2d.default": (image, [1, 2, 0, 1]), "reflection_pad3d.default": (volume, [1, 2, 0, 1, 1, 1]),
        "replication_pad2d.default": (image, [1, 2, 0, 1]), "replication_pad3d.default": (volume, [1, 2, 0, 1, 1, 1]),
        "repeat.default": (x, [2, 1, 3]), "scatter.value": (x, 1, index, 9.0), "scatter.src": (x, 0, i(1, 3, 4, high=2), f(1, 3, 4)),
        "scatter_add.default": (x, 1, index, f(2, 2, 4)), "scatter_reduce.two": (x, 1, index, f(2, 2, 4), "amax"),
        "select.int": (x, 1, 2), "select_scatter.default": (x, f(2, 4), 1, 1), "slice.Tensor": (x, 2, 1, 4, 2),
        "slice_scatter.default": (x, f(2, 2, 4), 1, 1, 3), "split_with_sizes.default": (x, [1, 2], 1),
        "squeeze.dim": (f(2, 1, 3), 1), "squeeze.dims": (f(1, 2, 1), [0, 2]), "unsqueeze.default": (x, 1),
        "view.default": (x, [6, 4]), "col2im.default": (f(1, 8, 4), [3, 3], [2, 2], [1, 1], [0, 0], [1, 1]),
        "masked_scatter.default": (x, b(2, 3, 4), f(24)),
        "arange.start_step": (1, 9, 2), "full.default": ([2, 3], 1.5), "scalar_tensor.default": (2.5,),
    }  # fmt: skip


def products() -> dict[str, tuple[Any, ...]]:
    image, volume = f(2, 4, 6, 5), f(1, 2, 4, 5, 6)
    four, five = f(4), f(5)
    grid = f(2, 3, 4, 2, low=-1, high=1)
    norm = (f(4), f(4), f(4), f(4, low=0.5))
    return {
        "addmm.default": (f(4), f(2, 3), f(3, 4)), "bmm.default": (f(2, 3, 4), f(2, 4, 5)), "mm.default": (f(2, 3), f(3, 4)),
        "convolution.default": (image, f(6, 2, 3, 3), f(6), [1, 1], [1, 1], [1, 1], False, [0, 0], 2),
        "_adaptive_avg_pool2d.default": (image, [3, 2]), "_adaptive_avg_pool3d.default": (volume, [2, 2, 3]),
        "adaptive_avg_pool1d.default": (f(2, 3, 8), [3]), "avg_pool1d.default": (f(2, 3, 8), [3], [2]),
        "avg_pool2d.default": (image, [2, 2]), "avg_pool3d.default": (volume, [2, 2, 2], [1, 1, 1]),
        "max_pool2d_with_indices.default": (image, [3, 3], [2, 2], [1, 1]),
        "max_pool3d_with_indices.default": (volume, [2, 2, 2]),
        "_cdist_forward.default": (f(3, 4), f(2, 4), 2.0, None), "_pdist_forward.default": (f(4, 3), 2.0),
        "embedding.default": (f(6, 3), i(2, 4)),
        "_embedding_bag.default": (f(6, 3), i(5), torch.tensor([0, 2])),
        "grid_sampler_2d.default": (image, grid, 0, 0, False),
        "_native_batch_norm_legit.no_stats": (image, four, norm[1], True, 0.1, 1e-5),
        "_native_batch_norm_legit.default": (image, *norm, True, 0.1, 1e-5),
        "_native_batch_norm_legit_no_training.default": (image, *norm, 0.1, 1e-5),
        "native_group_norm.default": (image, four, norm[1], 2, 4, 30, 2, 1e-5),
        "native_layer_norm.default": (image, [5], five, f(5), 1e-5), "native_dropout.default": (image, 0.5, False),
        "upsample_bilinear2d.vec": (image, [9, 8], False, None), "upsample_nearest2d.vec": (image, None, [2.0, 2.0]),
    }  # fmt: skip


def gradients() -> dict[str, tuple[Any, ...]]:
    x, w = f(2, 4, 6, 5), f(6, 2, 3, 3)
    pooled, where = A.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1])
    group = A.native_group_norm(x, None, None, 2, 4, 30, 2, 1e-5)
    layer = A.native_layer_norm(x, [5], None, None, 1e-5)
    every = [True, True, True]
    return {
        "_adaptive_avg_pool2d_backward.default": (f(2, 4, 3, 2), x),
        "avg_pool2d_backward.default": (f(2, 4, 3, 2), x, [2, 2], [2, 2], [0, 0], False, True, None),
        "convolution_backward.default": (f(2, 6, 3, 3), x, w, [6], [2, 2], [1, 1], [1, 1], False, [0, 0], 2, every),
        "embedding_dense_backward.default": (f(2, 4, 3), i(2, 4), 6, -1, False),
        "max_pool2d_with_indices_backward.default": (
            f(*pooled.shape), x, [3, 3], [2, 2], [1, 1], [1, 1], False, where,
        ),
        "native_group_norm_backward.default": (f(2, 4, 6, 5), x, *group[1:], f(4), 2, 4, 30, 2, every),
        "native_layer_norm_backward.default": (f(2, 4, 6, 5), x, [5], *layer[1:], f(5), f(5), every),
    }  # fmt: skip


def frequencies() -> dict[str, tuple[Any, ...]]:
    return {
        "_fft_r2c.default": (f(3, 8), [1], 0, True),
        "_fft_c2r.default": (torch.fft.rfft(f(3, 8)), [1], 2, 8),
    }


def of_dynamic_size() -> dict[str, tuple[Any, ...]]:
    return {"nonzero.default": (b(3, 4),)}


def random() -> dict[str, tuple[Any, ...]]:
    return {"rand.default": ([2, 300],), "randn.default": ([2, 300],), "randperm.default": (50,)}


FAMILIES: dict[str, Any] = {
    g.__name__: g
    for g in (elementwise, reductions, arrangement, products, gradients, frequencies, of_dynamic_size, random)
}


def cases(family: str) -> dict[str, tuple[Any, ...]]:
    """The programs of a family; the same numbers each time."""
    _RANDOM.manual_seed(0)
    return FAMILIES[family]()  # type: ignore[no-any-return]


class Calls(torch.nn.Module):
    """Calls of operators, of which the tensors among the arguments are inputs."""

    def __init__(self, rows: dict[str, tuple[Any, ...]]) -> None:
        super().__init__()
        self.rows = rows

    def forward(self, *inputs: Any) -> list[Any]:
        left = iter(inputs)
        out = []
        for name, args in self.rows.items():
            packet, overload = name.split(".")
            options = {"dtype": torch.float64} if packet == "_to_copy" else {}
            options |= {"rounding_mode": "floor"} if overload.endswith("_mode") else {}
            made = getattr(getattr(A, packet), overload)(*(_filled(a, left) for a in args), **options)
            out.append(made[0] if name in FIRST_ALONE else made)
        return out


def _filled(value: Any, left: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return next(left)
    return [_filled(v, left) for v in value] if isinstance(value, list) else value


def inputs_of(rows: dict[str, tuple[Any, ...]]) -> tuple[torch.Tensor, ...]:
    flat = [v for args in rows.values() for a in args for v in (a if isinstance(a, list) else [a])]
    return tuple(v for v in flat if isinstance(v, torch.Tensor))
