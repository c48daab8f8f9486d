"""Layers and functions of torch in breadth, by family: (name, function or module, inputs)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Case = tuple[str, Any, tuple[Any, ...]]
FAMILIES: dict[str, Any] = {}


def _rand(*shape: int, low: float = -2.0, high: float = 2.0) -> torch.Tensor:
    made = torch.rand(*shape, generator=_GENERATOR)
    return made * (high - low) + low


def _ints(*shape: int, low: int = 0, high: int = 8, dtype: Any = torch.int64) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=_GENERATOR).to(dtype)


_GENERATOR = torch.Generator()


def family(name: str) -> Any:
    """Enter a function that lists cases: (name, function, input, …)."""

    def take(listed: Any) -> Any:
        FAMILIES[name] = listed
        return listed

    return take


def cases(name: str) -> list[Case]:
    """The cases of a family; the same numbers each time."""
    _GENERATOR.manual_seed(0)
    torch.manual_seed(0)
    return [(row[0], row[1], row[2:]) for row in FAMILIES[name]()]


@family("unary")
def _unary() -> list[Any]:
    x = _rand(2, 5)
    names = "abs neg sign exp exp2 expm1 tanh sigmoid sin cos tan sinh cosh asinh atan erf erfc floor ceil trunc round"
    rows: list[Any] = [
        (n, getattr(torch, n), x) for n in [*names.split(), "frac", "square", "isnan", "signbit"]
    ]
    positive = _rand(2, 5, low=0.1, high=3.0)
    rows += [(n, getattr(torch, n), positive) for n in "log log2 log10 log1p sqrt rsqrt reciprocal".split()]
    inside = _rand(2, 5, low=-0.9, high=0.9)
    rows += [(n, getattr(torch, n), inside) for n in "asin acos atanh".split()]
    rows += [
        ("acosh", torch.acosh, positive + 1),
        ("small log1p", torch.log1p, x * 1e-6),
        ("small expm1", torch.expm1, x * 1e-6),
        ("logit", lambda v: torch.logit(v, 1e-3), _rand(2, 5, low=0, high=1)),
        ("sqrt of ints", torch.sqrt, _ints(6)),
        ("floor of ints", torch.floor, _ints(6)),
        ("neg ints", torch.neg, _ints(6)),
        ("logical_not", torch.logical_not, _ints(6, high=2)),
        ("bitwise_not", torch.bitwise_not, _ints(6)),
        ("bitwise_not bool", torch.bitwise_not, _ints(6, high=2).bool()),
        (
            "special values",
            lambda v: (v.isinf(), v.isnan(), v.isfinite()),
            torch.tensor([1.0, torch.inf, torch.nan]),
        ),
        ("nan_to_num", torch.nan_to_num, torch.tensor([1.0, torch.inf, -torch.inf, torch.nan])),
        ("rounded to 2", lambda v: torch.round(v, decimals=2), x),
        ("deg2rad", torch.deg2rad, x),
        ("sinc", torch.sinc, x),
        ("softsign", F.softsign, x),
    ]
    return rows


@family("binary")
def _binary() -> list[Any]:
    x, y, row = _rand(2, 3, 4), _rand(2, 3, 4), _rand(4)
    some = _rand(2, 3, 4, low=0.5, high=2.0)
    i, j = _ints(3, 4, low=-8), _ints(3, 4, low=1, high=5)
    b, c = _ints(3, 4, high=2).bool(), _ints(3, 4, high=2).bool()
    return [
        ("add", torch.add, x, row),
        ("add alpha", lambda a, v: torch.add(a, v, alpha=2), x, y),
        ("add scalar", lambda a: a + 1.5, x),
        ("add int to float", lambda a, v: a + v, x, _ints(4)),
        ("add int32 to int64", lambda a, v: a + v, i, j.int()),
        ("add float to int", lambda a: a + 0.5, i),
        ("add bools", torch.add, b, c),
        ("sub", torch.sub, x, y),
        ("rsub", lambda a: 1 - a, x),
        ("rsub alpha", lambda a, v: torch.rsub(a, v, alpha=3), x, y),
        ("mul", torch.mul, x, row),
        ("mul bool", lambda a, v: a * v, x[0], b),
        ("div", torch.div, x, some),
        ("div ints", torch.div, i, j),
        ("div floor", lambda a, v: torch.div(a, v, rounding_mode="floor"), x, some),
        ("div trunc", lambda a, v: torch.div(a, v, rounding_mode="trunc"), x, some),
        ("div floor ints", lambda a, v: torch.div(a, v, rounding_mode="floor"), i, j),
        ("div trunc ints", lambda a, v: torch.div(a, v, rounding_mode="trunc"), i, j),
        ("floor_divide", torch.floor_divide, i, j),
        ("remainder", torch.remainder, x, some),
        ("remainder ints", torch.remainder, i, j),
        ("fmod", torch.fmod, x, some),
        ("fmod ints", torch.fmod, i, j),
        ("pow", torch.pow, some, x),
        ("pow scalars", lambda a: (a**2, a**3, a**0.5, a**-1, a**-0.5, a**1.7, 2**a), some),
        ("pow ints", lambda a: (a**2, a**5, a**0), i),
        ("maximum", torch.maximum, x, y),
        ("minimum", torch.minimum, x, row),
        ("fmax", torch.fmax, x, y),
        ("atan2", torch.atan2, x, y),
        ("hypot", torch.hypot, x, y),
        ("copysign", torch.copysign, x, y),
        ("logaddexp", torch.logaddexp, x, y),
        ("xlogy", torch.xlogy, x, some),
        ("lerp", lambda a, v: torch.lerp(a, v, 0.3), x, y),
        ("lerp tensor", torch.lerp, x, y, some),
        ("addcmul", lambda a, v, w: torch.addcmul(a, v, w, value=0.5), x, y, some),
        ("addcdiv", lambda a, v, w: torch.addcdiv(a, v, w, value=0.5), x, y, some),
        ("bits", lambda a, v: (a & v, a | v, a ^ v), i, j),
        ("bits of bools", lambda a, v: (a & v, a | v, a ^ v), b, c),
        ("shifts", lambda a, v: (a << v, a >> v), j, j),
        ("logic", lambda a, v: (a.logical_and(v), a.logical_or(v), a.logical_xor(v)), i, b),
        ("heaviside", torch.heaviside, x, y),
        ("float64", lambda a, v: a * v + 0.1, x.double(), y.double()),
    ]


@family("comparison")
def _comparison() -> list[Any]:
    x, y, i = _rand(3, 4), _rand(3, 4), _ints(3, 4)
    b = _ints(3, 4, high=2).bool()
    return [
        *[(n, getattr(torch, n), x, y) for n in "eq ne lt le gt ge".split()],
        ("scalars", lambda v: (v > 0, v <= 1.5, v == 0), x),
        ("int with float", lambda v: (v > 2.5, v != 3), i),
        ("bools", lambda v, w: (v == w, v != w), b, ~b),
        ("int with tensor", lambda v, w: v < w, i, x),
        ("where", torch.where, b, x, y),
        ("where scalars", lambda c, v: (torch.where(c, v, 0.0), torch.where(c, 1.0, v)), b, x),
        ("masked_fill", lambda v, c: v.masked_fill(c, -1e9), x, b),
        ("clamp", lambda v: (v.clamp(-1, 1), v.clamp(min=0), v.clamp(max=0.5)), x),
        ("clamp ints", lambda v: (v.clamp(2, 5), v.clamp(min=3)), i),
        ("clamp tensors", torch.clamp, x, y - 1, y + 1),
        ("isclose", torch.isclose, x, x + 1e-9),
        ("to int", lambda v: (v.int(), v.long(), v.to(torch.int8)), x),
        ("to bool", lambda v: v.bool(), _ints(6, high=3)),
        ("to bool from float", lambda v: v.bool(), torch.tensor([0.0, 0.5, -2.0])),
        ("to double", lambda v: v.double(), x),
        ("bool to float", lambda v: v.float(), b),
        ("type_as", lambda v, w: v.type_as(w), i, x),
    ]


@family("activation")
def _activation() -> list[Any]:
    x, image = _rand(2, 6, low=-4, high=4), _rand(1, 4, 3, 3)
    modules = [
        nn.ReLU(), nn.ReLU6(), nn.LeakyReLU(0.2), nn.ELU(0.7), nn.SELU(), nn.CELU(1.3), nn.GELU(), nn.GELU("tanh"),
        nn.SiLU(), nn.Mish(), nn.Sigmoid(), nn.Tanh(), nn.Softplus(), nn.Softplus(2, 1), nn.Softshrink(), nn.Hardshrink(),
        nn.Hardtanh(), nn.Hardsigmoid(), nn.Hardswish(), nn.LogSigmoid(), nn.Tanhshrink(), nn.Softsign(),
        nn.Threshold(0.1, 3), nn.Softmax(1), nn.LogSoftmax(-1), nn.Softmin(0), nn.GLU(1), nn.Dropout(0.5),
        nn.AlphaDropout(0.5), nn.RReLU(), nn.Identity(),
    ]  # fmt: skip
    rows: list[Any] = [(str(m), m, x) for m in modules]
    rows += [
        ("PReLU", nn.PReLU(), image),
        ("PReLU channels", nn.PReLU(4), image),
        ("Softmax2d", nn.Softmax2d(), image),
        ("Dropout2d", nn.Dropout2d(), image),
        ("softmax dtype", lambda v: F.softmax(v, 1, dtype=torch.float64), x),
        ("in place", lambda v: F.relu_(v * 2), x),
        ("normalize", lambda v: F.normalize(v, dim=1), x),
        ("gumbel free", lambda v: torch.special.log_softmax(v, 0), x),
    ]
    return rows


@family("reduction")
def _reduction() -> list[Any]:
    x, i, b = _rand(2, 3, 4), _ints(3, 4), _ints(3, 4, high=2).bool()
    return [
        ("sum", lambda v: (v.sum(), v.sum(1), v.sum((0, 2), keepdim=True)), x),
        ("sum ints", lambda v: (v.sum(), v.sum(-1)), i.int()),
        ("sum bools", lambda v: v.sum(0), b),
        ("mean", lambda v: (v.mean(), v.mean(-1), v.mean((1, 2), True)), x),
        ("prod", lambda v: (v.prod(), v.prod(1)), x),
        ("amax amin", lambda v: (v.amax(1), v.amin((0, 1)), v.amax()), x),
        ("max min", lambda v: (v.max(), v.min()), x),
        ("max dim", lambda v: v.max(1), x),
        ("min dim", lambda v: v.min(-1, keepdim=True), x),
        ("max ints", lambda v: v.max(1), i),
        ("argmax", lambda v: (v.argmax(), v.argmax(1), v.argmin(-1, keepdim=True)), x),
        ("any all", lambda v: (v.any(), v.all(), v.any(0), v.all(1, keepdim=True)), b),
        ("any of floats", lambda v: v.relu().any(2), x),
        ("var std", lambda v: (v.var(), v.std(1), v.var((0, 2), correction=0), v.std(-1, keepdim=True)), x),
        ("var_mean", lambda v: torch.var_mean(v, 1), x),
        ("std_mean", lambda v: torch.std_mean(v, (0, 1), keepdim=True), x),
        ("logsumexp", lambda v: (v.logsumexp(1), v.logsumexp((0, 2), True)), x),
        ("norms", lambda v: (v.norm(), v.norm(dim=1), v.norm(p=1, dim=(0, 2)), v.norm(p=3, dim=1)), x),
        (
            "vector_norm",
            lambda v: (torch.linalg.vector_norm(v, torch.inf, 1), torch.linalg.vector_norm(v, 0)),
            x,
        ),
        ("cumsum", lambda v: (v.cumsum(1), v.cumsum(-1)), x),
        ("cumsum bools", lambda v: v.cumsum(1), b),
        ("cumprod", lambda v: v.cumprod(1), x),
        ("logcumsumexp", lambda v: v.logcumsumexp(1), x),
        ("topk", lambda v: v.topk(2), x),
        ("topk smallest", lambda v: v.topk(2, 1, largest=False), x),
        ("sort", lambda v: v.sort(1), x),
        ("sort descending", lambda v: v.sort(-1, descending=True), x),
        ("argsort", lambda v: v.argsort(1), x),
        ("median", lambda v: v.median(1), x),
        ("kthvalue", lambda v: v.kthvalue(2, 1), x),
        ("count_nonzero", lambda v: v.count_nonzero(1), i),
        ("aminmax", lambda v: tuple(v.aminmax(dim=1)), x),
        ("nansum", torch.nansum, x),
        ("diff", lambda v: v.diff(dim=1), x),
        ("searchsorted", torch.searchsorted, torch.tensor([-1.0, 0.0, 1.0]), x[0, 0]),
        ("bucketize", torch.bucketize, x, torch.tensor([-1.0, 0.0, 1.0])),
        ("trace", torch.trace, x[0]),
        ("cosine_similarity", lambda v, w: F.cosine_similarity(v, w, 1), x, x.flip(2)),
        ("pairwise_distance", F.pairwise_distance, x[0], x[1]),
        ("histc", lambda v: torch.histc(v, 5, -1.0, 1.0), x),
        ("histc of its range", lambda v: (torch.histc(v, 4), torch.histc(torch.ones_like(v), 3)), x),
        ("cdist", torch.cdist, x, x.flip(1)),
        ("cdist 1", lambda v, w: torch.cdist(v, w, 1), x, x.flip(1)),
        ("mse", F.mse_loss, x, x.flip(0)),
        ("smooth l1", F.smooth_l1_loss, x, x.flip(0)),
        ("kl_div", F.kl_div, x, x.flip(0).softmax(-1)),
        ("cross_entropy", F.cross_entropy, x[0], torch.tensor([1, 3, 0])),
        ("bce", F.binary_cross_entropy_with_logits, x, (x > 0).float()),
    ]


@family("product")
def _product() -> list[Any]:
    x, y = _rand(2, 3, 4), _rand(2, 4, 5)
    q, k, v = _rand(2, 4, 5, 8), _rand(2, 4, 6, 8), _rand(2, 4, 6, 8)
    mask = _ints(5, 6, high=2).bool()
    mask[0] = False
    few = _rand(2, 2, 6, 8)
    sdpa = F.scaled_dot_product_attention
    return [
        ("Linear", nn.Linear(4, 6), x),
        ("Linear without bias", nn.Linear(4, 6, bias=False), x),
        ("Linear of a vector", nn.Linear(4, 6), x[0, 0]),
        ("Bilinear", nn.Bilinear(4, 5, 3), _rand(6, 4), _rand(6, 5)),
        ("matmul", torch.matmul, x, y),
        ("matmul broadcast", torch.matmul, _rand(3, 1, 2, 4), _rand(2, 4, 3)),
        ("matmul by one matrix", torch.matmul, x, y[0]),
        ("matmul vectors", lambda a, b: (a[0, 0] @ a[0, 1], a @ a[0, 0], a[0, 0] @ b[0]), x, y),
        ("mm", torch.mm, x[0], y[0]),
        ("bmm", torch.bmm, x, y),
        ("mv", torch.mv, x[0], x[0, 0]),
        ("dot", torch.dot, x[0, 0], x[0, 1]),
        ("outer", torch.outer, x[0, 0], x[0, 1]),
        ("addmm", lambda b, m, w: torch.addmm(b, m, w, beta=0.5, alpha=2), _rand(5), x[0], y[0]),
        ("baddbmm", torch.baddbmm, _rand(2, 3, 5), x, y),
        ("einsum ij", lambda a, b: torch.einsum("bij,bjk->bik", a, b), x, y),
        ("einsum heads", lambda a, b: torch.einsum("bhqd,bhkd->bhqk", a, b), q, k),
        (
            "einsum swapped",
            lambda a, b: torch.einsum("bhqk,bkhd->bqhd", a, b),
            _rand(2, 4, 5, 6),
            _rand(2, 6, 4, 8),
        ),
        ("einsum outer", lambda a, b: torch.einsum("i,j->ij", a, b), _rand(3), _rand(4)),
        (
            "einsum three",
            lambda a, b, c: torch.einsum("ij,jk,kl->il", a, b, c),
            _rand(2, 3),
            _rand(3, 4),
            _rand(4, 2),
        ),
        ("einsum dots", lambda a, b: torch.einsum("...ij,jk->...ik", a, b), x, y[0]),
        ("tensordot", lambda a, b: torch.tensordot(a, b, dims=([2], [1])), x, y),
        ("kron", torch.kron, _rand(2, 2), _rand(2, 3)),
        ("attention", sdpa, q, k, v),
        ("attention causal", lambda a, b, c: sdpa(a, b, c, is_causal=True), q, k, v),
        ("attention mask", lambda a, b, c, m: sdpa(a, b, c, attn_mask=m), q, k, v, mask),
        (
            "attention bias",
            lambda a, b, c, m: sdpa(a, b, c, attn_mask=m, scale=0.3),
            q,
            k,
            v,
            _rand(2, 1, 5, 6),
        ),
        ("attention grouped", lambda a, b, c: sdpa(a, b, c, enable_gqa=True), q, few, few * 2),
        ("attention flat", sdpa, _rand(3, 5, 8), _rand(3, 6, 8), _rand(3, 6, 4)),
        ("MultiheadAttention", nn.MultiheadAttention(8, 2, batch_first=True), *[_rand(2, 5, 8)] * 3),
        ("TransformerEncoderLayer", nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), _rand(2, 5, 8)),
        ("TransformerDecoderLayer", nn.TransformerDecoderLayer(8, 2, 16), _rand(5, 2, 8), _rand(4, 2, 8)),
        ("Embedding", nn.Embedding(10, 4), _ints(2, 3)),
        ("Embedding padded", nn.Embedding(10, 4, padding_idx=0), _ints(2, 3)),
        ("EmbeddingBag", nn.EmbeddingBag(10, 4), _ints(2, 3)),
        ("EmbeddingBag sum", nn.EmbeddingBag(10, 4, mode="sum"), _ints(2, 3)),
        ("EmbeddingBag max", nn.EmbeddingBag(10, 4, mode="max"), _ints(2, 3)),
        ("one_hot", lambda a: F.one_hot(a, 9), _ints(2, 3)),
    ]


@family("convolution")
def _convolution() -> list[Any]:
    line, image, volume = _rand(2, 4, 9), _rand(2, 4, 8, 9), _rand(1, 4, 5, 6, 7)
    return [
        ("Conv1d", nn.Conv1d(4, 6, 3), line),
        ("Conv1d all", nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2), line),
        ("Conv1d same", nn.Conv1d(4, 6, 4, padding="same"), line),
        ("Conv2d", nn.Conv2d(4, 6, 3), image),
        (
            "Conv2d all",
            nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2),
            image,
        ),
        ("Conv2d depthwise", nn.Conv2d(4, 8, 3, padding=1, groups=4, bias=False), image),
        ("Conv2d pointwise", nn.Conv2d(4, 6, 1), image),
        ("Conv2d same", nn.Conv2d(4, 6, 3, padding="same"), image),
        ("Conv2d reflect", nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), image),
        ("Conv2d circular", nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"), image),
        ("Conv2d of one image", nn.Conv2d(4, 6, 3), image[0]),
        ("Conv3d", nn.Conv3d(4, 3, 3, padding=1), volume),
        ("Conv3d groups", nn.Conv3d(4, 4, (1, 2, 3), stride=(1, 2, 1), groups=2), volume),
        ("ConvTranspose1d", nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1), line),
        ("ConvTranspose2d", nn.ConvTranspose2d(4, 6, 3), image),
        ("ConvTranspose2d all", nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2, bias=False), image),
        ("ConvTranspose2d dilated", nn.ConvTranspose2d(4, 2, 3, dilation=2), image),
        ("ConvTranspose3d", nn.ConvTranspose3d(4, 3, 3, stride=2, padding=1), volume),
        ("weight norm", nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 6, 3)), line),
        ("Unfold", nn.Unfold((3, 2), padding=1, stride=2), image),
        ("Fold", nn.Fold((6, 7), (3, 2), padding=1, stride=2), _rand(2, 12, 12)),
    ]


@family("pooling")
def _pooling() -> list[Any]:
    line, image, volume = _rand(2, 4, 9), _rand(2, 4, 8, 9), _rand(1, 4, 5, 6, 7)
    return [
        ("MaxPool1d", nn.MaxPool1d(3, 2, 1), line),
        ("MaxPool2d", nn.MaxPool2d(2), image),
        ("MaxPool2d all", nn.MaxPool2d((3, 2), (2, 1), (1, 0), (1, 2)), image),
        ("MaxPool2d ceil", nn.MaxPool2d(3, 2, 1, ceil_mode=True), image),
        ("MaxPool3d", nn.MaxPool3d(2, 2), volume),
        ("AvgPool1d", nn.AvgPool1d(3, 2), line),
        ("AvgPool2d", nn.AvgPool2d(3, 2, 1), image),
        ("AvgPool2d without pad", nn.AvgPool2d(3, 2, 1, count_include_pad=False), image),
        ("AvgPool2d ceil", nn.AvgPool2d(3, 2, ceil_mode=True), image),
        ("AvgPool2d ceil pad", nn.AvgPool2d(3, 2, 1, ceil_mode=True), image),
        ("AvgPool2d divisor", nn.AvgPool2d(2, divisor_override=3), image),
        ("AvgPool3d", nn.AvgPool3d(2), volume),
        ("LPPool2d", nn.LPPool2d(2, 3), image),
        ("AdaptiveAvgPool1d", nn.AdaptiveAvgPool1d(4), line),
        ("AdaptiveAvgPool2d", nn.AdaptiveAvgPool2d((3, 4)), image),
        ("AdaptiveAvgPool2d to 1", nn.AdaptiveAvgPool2d(1), image),
        ("AdaptiveAvgPool2d None", nn.AdaptiveAvgPool2d((None, 3)), image),
        ("AdaptiveAvgPool3d", nn.AdaptiveAvgPool3d(2), volume),
        ("AdaptiveMaxPool1d", nn.AdaptiveMaxPool1d(4), line),
        ("AdaptiveMaxPool2d", nn.AdaptiveMaxPool2d((3, 4)), image),
        ("places of the greatest", lambda v: F.max_pool2d(v, 3, 2, 1, return_indices=True)[1], image),
        (
            "and back again",
            lambda v: F.max_unpool2d(*F.max_pool2d(v, 2, return_indices=True), 2),
            image[:, :, :, :8],
        ),
        (
            "MaxUnpool2d",
            lambda v, i: F.max_unpool2d(v, i, 2),
            *F.max_pool2d(image[:, :, :, :8], 2, return_indices=True),
        ),
    ]


@family("norm")
def _norm() -> list[Any]:
    line, image, volume = _rand(2, 4, 9), _rand(2, 4, 5, 6), _rand(1, 4, 3, 4, 5)

    def warm(m: Any) -> Any:
        for p in m.state_dict().values():
            if p.dtype.is_floating_point:
                p.copy_(torch.rand(p.shape, generator=_GENERATOR) + 0.5)
        return m

    return [
        ("BatchNorm1d", warm(nn.BatchNorm1d(4)), line),
        ("BatchNorm1d flat", warm(nn.BatchNorm1d(4)), line[:, :, 0]),
        ("BatchNorm2d", warm(nn.BatchNorm2d(4)), image),
        ("BatchNorm2d plain", nn.BatchNorm2d(4, affine=False), image),
        ("BatchNorm2d without statistics", nn.BatchNorm2d(4, track_running_stats=False), image),
        ("BatchNorm3d", warm(nn.BatchNorm3d(4)), volume),
        ("InstanceNorm1d", nn.InstanceNorm1d(4), line),
        ("InstanceNorm2d", warm(nn.InstanceNorm2d(4, affine=True)), image),
        ("InstanceNorm2d tracked", warm(nn.InstanceNorm2d(4, affine=True, track_running_stats=True)), image),
        ("LayerNorm", warm(nn.LayerNorm(6)), image),
        ("LayerNorm of two", warm(nn.LayerNorm((5, 6))), image),
        ("LayerNorm plain", nn.LayerNorm(6, elementwise_affine=False), image),
        ("GroupNorm", warm(nn.GroupNorm(2, 4)), image),
        ("GroupNorm of lines", nn.GroupNorm(4, 4, affine=False), line),
        ("RMSNorm", warm(nn.RMSNorm(6)), image),
        ("RMSNorm eps", nn.RMSNorm(6, eps=1e-3, elementwise_affine=False), image),
        ("LocalResponseNorm", nn.LocalResponseNorm(3), image),
        ("native_layer_norm", lambda v: torch.native_layer_norm(v, (6,), None, None, 1e-5), image),
    ]


@family("shape")
def _shape() -> list[Any]:
    x = _rand(2, 3, 4)
    return [
        ("view", lambda v: (v.view(6, 4), v.view(2, -1), v.reshape(4, 6)), x),
        ("squeeze", lambda v: (v[:, :1].squeeze(1), v[:1].squeeze(), v.unsqueeze(1), v.unsqueeze(-1)), x),
        ("flatten", lambda v: (v.flatten(1), v.flatten(), v.unflatten(2, (2, 2))), x),
        ("permute", lambda v: (v.permute(2, 0, 1), v.transpose(0, 2), v[0].t(), v.movedim(0, 2), v.mT), x),
        (
            "expand",
            lambda v: (v[:, :1].expand(-1, 5, -1), v.expand(2, 2, 3, 4), v[:1].broadcast_to(3, 3, 4)),
            x,
        ),
        (
            "repeat",
            lambda v: (v.repeat(1, 2, 1), v.repeat(2, 1, 1, 1), v.tile(2), v.repeat_interleave(2, 1)),
            x,
        ),
        ("cat", lambda v: (torch.cat([v, v], 1), torch.cat([v, v * 2], -1), torch.stack([v, v], 1)), x),
        ("cat types", lambda v, w: torch.cat([v, w]), x[0], _ints(1, 4)),
        ("hstack", lambda v: (torch.hstack([v, v]), torch.vstack([v, v]), torch.dstack([v, v])), x),
        ("split", lambda v: (v.split(2, 2), v.split([1, 2], 1), v.chunk(2, 2), v.chunk(2, 1)), x),
        ("unbind", lambda v: v.unbind(1), x),
        ("slice", lambda v: (v[:, 1:], v[:, -2:, ::2], v[1:, :, 1:3], v[..., :-1]), x),
        ("select", lambda v: (v[0], v[:, -1], v[..., 2], v.select(1, 1), v.narrow(2, 1, 2)), x),
        ("flip", lambda v: (v.flip(0), v.flip(1, 2), v.fliplr()), x),
        ("roll", lambda v: (v.roll(1, 0), v.roll((1, -2), (1, 2)), v.roll(3)), x),
        ("rot90", lambda v: v.rot90(1, (1, 2)), x),
        ("tril", lambda v: (v.tril(), v.triu(), v.tril(1), v.triu(-1)), x),
        (
            "diagonal",
            lambda v: (v.diagonal(), v.diagonal(1, 1, 2), v[0].diag(), v[0, 0].diag(), v.diag_embed()),
            x,
        ),
        ("unfold", lambda v: v.unfold(2, 2, 1), x),
        ("as_strided", lambda v: v.as_strided((2, 2), (4, 1), 1), x),
        ("pixel_shuffle", nn.PixelShuffle(2), _rand(1, 8, 3, 2)),
        ("pixel_unshuffle", nn.PixelUnshuffle(2), _rand(1, 2, 4, 6)),
        ("channel_shuffle", nn.ChannelShuffle(2), _rand(1, 4, 3, 2)),
        ("Flatten", nn.Flatten(), x),
        ("Unflatten", nn.Unflatten(2, (2, 2)), x),
        ("meshgrid", lambda v: torch.meshgrid(v[0, 0], v[0, :, 0], indexing="ij"), x),
        ("atleast", lambda v: (torch.atleast_3d(v[0]), torch.atleast_2d(v[0, 0])), x),
        ("contiguous", lambda v: v.transpose(1, 2).contiguous().view(2, 12), x),
        ("in place slice", lambda v: _set_slice(v), x),
        ("copy_", lambda v: torch.empty_like(v).copy_(v[0]), x),
        ("swapaxes", lambda v: v.swapaxes(0, 1), x),
        ("view_as", lambda v, w: (v.view_as(w), v.expand_as(v)), x, _rand(4, 6)),
    ]


def _set_slice(v: torch.Tensor) -> torch.Tensor:
    v = v.clone()
    v[:, 1:] = 0
    v[0, 0, ::2] += 1
    v[..., -1] = v[..., 0]
    return v


@family("padding")
def _padding() -> list[Any]:
    line, image, volume = _rand(2, 3, 5), _rand(1, 2, 4, 5), _rand(1, 1, 3, 4, 5)
    return [
        ("pad", lambda v: (F.pad(v, (1, 2)), F.pad(v, (0, 1, 2, 0), value=1.5)), line),
        ("pad negative", lambda v: (F.pad(v, (-1, 2)), F.pad(v, (-1, -1))), line),
        ("ConstantPad2d", nn.ConstantPad2d((1, 2, 0, 3), 0.5), image),
        ("ZeroPad2d", nn.ZeroPad2d(1), image),
        ("ReflectionPad1d", nn.ReflectionPad1d((1, 2)), line),
        ("ReflectionPad2d", nn.ReflectionPad2d((1, 2, 3, 0)), image),
        ("ReflectionPad3d", nn.ReflectionPad3d(1), volume),
        ("ReplicationPad1d", nn.ReplicationPad1d(2), line),
        ("ReplicationPad2d", nn.ReplicationPad2d((1, 2, 3, 0)), image),
        ("ReplicationPad3d", nn.ReplicationPad3d(1), volume),
        ("CircularPad2d", nn.CircularPad2d((1, 2, 1, 0)), image),
    ]


@family("creation")
def _creation() -> list[Any]:
    x = _rand(2, 3)
    return [
        ("like", lambda v: (torch.zeros_like(v) + v, torch.ones_like(v) * v, torch.full_like(v, 2.5) + v), x),
        ("new", lambda v: (v.new_zeros(3) + v, v.new_ones(2, 3) + v, v.new_full((3,), 4.0) + v), x),
        ("arange", lambda v: v + torch.arange(3), x),
        ("arange steps", lambda v: v + torch.arange(0.5, 2, 0.5), x),
        ("linspace", lambda v: v * torch.linspace(0, 1, 3), x),
        ("eye", lambda v: v @ torch.eye(3), x),
        ("constants", lambda v: v + torch.tensor([1.0, 2.0, 3.0]), x),
        ("sizes as values", lambda v: v * v.size(1) / v.shape[0], x),
        ("mask", lambda v: v.masked_fill(torch.ones(2, 3).triu(1).bool(), 0.0), x),
        ("zeros output", lambda v: (v, torch.zeros(2, dtype=torch.int64)), x),
        ("fill", lambda v: v.clone().fill_(3.0), x),
    ]


@family("index")
def _index() -> list[Any]:
    x, i = _rand(4, 5, 6), _ints(2, 3, high=4)
    rows = torch.tensor([3, 0, -1])
    places = _ints(4, 2, 6, high=5)
    mask = _ints(4, 5, high=2).bool()
    return [
        ("one", lambda v, p: (v[p], v[:, p], v[..., p]), x, i),
        ("negative", lambda v, p: v[p], x, rows),
        ("two", lambda v, p, q: (v[p, q], v[:, p, q], v[p, :, q]), x, i, i.flip(0)),
        ("known", lambda v: (v[[0, 2]], v[:, [1, -1]], v[[0, 1], [2, 3]]), x),
        ("slice and index", lambda v, p: v[:, 1:][p], x, i),
        ("index_select", lambda v, p: (v.index_select(1, p), v.index_select(0, p)), x, i[0]),
        ("gather", lambda v, p: v.gather(1, p), x, places),
        ("take", torch.take, x, i),
        ("take_along_dim", lambda v, p: torch.take_along_dim(v, p, 1), x, places),
        ("scatter", lambda v, p, s: v.scatter(1, p, s), x, _perm(4, 2, 6), _rand(4, 2, 6)),
        ("scatter value", lambda v, p: v.scatter(1, p, 2.0), x, places),
        ("scatter_add", lambda v, p, s: v.scatter_add(1, p, s), x, places, _rand(4, 3, 6)),
        ("scatter_reduce", lambda v, p, s: v.scatter_reduce(1, p, s, "amax"), x, places, _rand(4, 2, 6)),
        (
            "scatter mean",
            lambda v, p, s: v.scatter_reduce(1, p, s, "mean", include_self=False),
            x,
            places,
            _rand(4, 2, 6),
        ),
        ("index_add", lambda v, p, s: v.index_add(1, p, s), x, i[0], _rand(4, 3, 6)),
        ("index_copy", lambda v, p, s: v.index_copy(0, p, s), x, torch.tensor([2, 0]), _rand(2, 5, 6)),
        ("index_fill", lambda v, p: v.index_fill(1, p, -1.0), x, i[0]),
        ("index_put", lambda v, p, s: v.index_put((p,), s), x, torch.tensor([2, 0]), _rand(2, 5, 6)),
        ("index_put two", lambda v, p, q: v.index_put((p, q), torch.tensor(1.0)), x, i[0], i[1]),
        ("index_put adds", lambda v, p, s: v.index_put((p,), s, accumulate=True), x, i[0], _rand(3, 5, 6)),
        ("index_put by mask", lambda v, m: _set_mask(v, m), x, mask),
        ("select_scatter", lambda v, s: v.select_scatter(s, 1, 2), x, _rand(4, 6)),
        ("slice_scatter", lambda v, s: v.slice_scatter(s, 1, 1, 5, 2), x, _rand(4, 2, 6)),
        ("masked by where", lambda v, m: torch.where(m[..., None], v, v * 2), x, mask),
        ("isin", lambda v: torch.isin(v, torch.tensor([1, 2])), i),
    ]


def _perm(a: int, b: int, c: int) -> torch.Tensor:
    """Places along the middle dimension, no two the same."""
    return (
        torch.stack([torch.randperm(5, generator=_GENERATOR)[:b] for _ in range(a * c)])
        .view(a, c, b)
        .mT.contiguous()
    )


def _set_mask(v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    v = v.clone()
    v[m] = 0.5
    return v


@family("interpolation")
def _interpolation() -> list[Any]:
    line, image, volume = _rand(1, 2, 5), _rand(1, 2, 5, 6), _rand(1, 1, 3, 4, 5)
    grid, grid3 = _rand(1, 3, 4, 2, low=-1.2, high=1.2), _rand(1, 2, 3, 4, 3, low=-1.2, high=1.2)

    def to(mode: str, **how: Any) -> Any:
        return lambda v: F.interpolate(v, mode=mode, **how)

    return [
        ("nearest 1d", to("nearest", size=8), line),
        ("nearest", to("nearest", scale_factor=2), image),
        ("nearest odd", to("nearest", size=(7, 4)), image),
        ("nearest scale", to("nearest", scale_factor=1.5), image),
        ("nearest exact", to("nearest-exact", size=(8, 4)), image),
        ("nearest 3d", to("nearest", scale_factor=2), volume),
        ("linear", to("linear", size=8), line),
        ("bilinear", to("bilinear", scale_factor=2), image),
        ("bilinear corners", to("bilinear", size=(8, 9), align_corners=True), image),
        ("bilinear down", to("bilinear", size=(3, 4)), image),
        ("bilinear scale", to("bilinear", scale_factor=1.3), image),
        ("bilinear aa", to("bilinear", size=(3, 4), antialias=True), image),
        ("bicubic", to("bicubic", scale_factor=2), image),
        ("bicubic aa", to("bicubic", size=(3, 4), antialias=True), image),
        ("bicubic corners", to("bicubic", size=(8, 9), align_corners=True), image),
        ("trilinear", to("trilinear", scale_factor=2), volume),
        ("area", to("area", size=(3, 3)), image),
        ("Upsample", nn.Upsample(scale_factor=2), image),
        ("grid_sample", lambda v, g: F.grid_sample(v, g, align_corners=False), image, grid),
        ("grid_sample corners", lambda v, g: F.grid_sample(v, g, align_corners=True), image, grid),
        (
            "grid_sample nearest",
            lambda v, g: F.grid_sample(v, g, mode="nearest", align_corners=False),
            image,
            grid,
        ),
        (
            "grid_sample border",
            lambda v, g: F.grid_sample(v, g, padding_mode="border", align_corners=False),
            image,
            grid,
        ),
        (
            "grid_sample reflection",
            lambda v, g: F.grid_sample(v, g, padding_mode="reflection", align_corners=True),
            image,
            grid,
        ),
        ("grid_sample 3d", lambda v, g: F.grid_sample(v, g, align_corners=False), volume, grid3),
        ("affine_grid", lambda t: F.affine_grid(t, (1, 2, 3, 4), align_corners=False), _rand(1, 2, 3)),
    ]


@family("recurrent")
def _recurrent() -> list[Any]:
    x = _rand(4, 2, 3)
    return [
        ("LSTM", nn.LSTM(3, 5), x),
        ("LSTM two ways", nn.LSTM(3, 5, num_layers=2, bidirectional=True, batch_first=True), x),
        ("LSTM projected", nn.LSTM(3, 5, proj_size=2), x),
        ("LSTM state", Resumed(), x, _rand(1, 2, 5), _rand(1, 2, 5)),
        ("GRU", nn.GRU(3, 5), x),
        ("GRU two ways", nn.GRU(3, 5, num_layers=2, bidirectional=True, bias=False), x),
        ("RNN", nn.RNN(3, 5), x),
        ("RNN relu", nn.RNN(3, 5, nonlinearity="relu", batch_first=True), x),
        ("LSTM of one sequence", nn.LSTM(3, 5), x[:, 0]),
        ("LSTMCell", nn.LSTMCell(3, 5), x[0]),
        ("GRUCell", nn.GRUCell(3, 5), x[0]),
        ("RNNCell", nn.RNNCell(3, 5), x[0]),
    ]


class Resumed(nn.Module):
    """A layer that starts from a state that is given."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(3, 5)

    def forward(self, x: Any, h: Any, c: Any) -> Any:
        return self.layer(x, (h, c))


# ---------------------------------------------------------------------------- running them
class Many(nn.Module):
    """Many cases as one model, so that they are compiled at once."""

    def __init__(self, rows: list[Case]) -> None:
        super().__init__()
        self.rows = rows
        self.parts = nn.ModuleList([f for _, f, _ in rows if isinstance(f, nn.Module)])

    def forward(self, *inputs: Any) -> Any:
        out, at = [], 0
        for _, work, given in self.rows:
            out.append(work(*inputs[at : at + len(given)]))
            at += len(given)
        return out


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in what a model returns, from left to right."""
    if isinstance(value, torch.Tensor):
        return [value]
    if hasattr(value, "values") and not isinstance(value, (list, tuple)):
        value = list(value.values())
    return [t for v in value for t in tensors(v)] if isinstance(value, (list, tuple)) else []


def describe(inputs: tuple[Any, ...]) -> list[Any]:
    """Inputs as `from_pytorch` wants them described."""
    return [(f"x{i}", (tuple(t.shape), str(t.dtype).removeprefix("torch."))) for i, t in enumerate(inputs)]


def run_compiled(mod: Any, params: Any, inputs: Any) -> list[Any]:
    """The outputs of an imported model, compiled, on the inputs of its first variables."""
    import tilewright
    from tilewright import relay
    from tilewright.contrib import graph_executor

    library = relay.build(mod, target="llvm", params=params)
    runner = graph_executor.GraphModule(library["default"](tilewright.cpu()))
    for variable, tensor in zip(mod["main"].params, inputs, strict=False):
        runner.set_input(variable.name_hint, tilewright.nd.array(tensor.numpy()))
    runner.run()
    return [runner.get_output(i).numpy() for i in range(runner.get_num_outputs())]


def difference(want: torch.Tensor, got: Any) -> str:
    """What is wrong with a result, or nothing: within 1e-4 of torch's, absolute and relative."""
    import numpy as np

    expected = want.detach().numpy()
    if expected.shape != got.shape or expected.dtype != got.dtype:
        return f"{got.dtype}{got.shape} instead of {expected.dtype}{expected.shape}"
    if np.allclose(expected, got, rtol=1e-4, atol=1e-4, equal_nan=True):
        return ""
    return f"differs by {np.abs(np.asarray(expected, 'float64') - np.asarray(got, 'float64')).max()}"
