"""The operators of topi, each at a size that models have and at an odd one.

A case lists the shapes of the inputs at both sizes; a shape may begin with an element type, which is float32 otherwise.
The last `weights` inputs are constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from tilewright import te, topi
from tilewright.topi import image, nn, vision

Shape = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """An operator, its inputs at two sizes, and how many of the last inputs are constants."""

    name: str
    compute: Callable[..., Any]
    usual: list[Shape]
    odd: list[Shape]
    weights: int = 0

    def programs(self) -> Iterator[tuple[str, Callable[[], list[Any]], tuple[str, ...]]]:
        """A name, what makes the tensors of a program, and the names of its constants, for each of the sizes."""
        for size, shapes in (("usual", self.usual), ("odd", self.odd)):
            constants = tuple(f"p{i}" for i in range(len(shapes) - self.weights, len(shapes)))
            yield f"{self.name} {size}", partial(self.tensors, shapes), constants

    def tensors(self, shapes: list[Shape]) -> list[Any]:
        """Inputs of some shapes, and what the operator makes of them."""
        inputs = [_placeholder(shape, f"p{i}") for i, shape in enumerate(shapes)]
        made = self.compute(*inputs)
        return [*inputs, *(made if isinstance(made, (list, tuple)) else [made])]


def _placeholder(shape: Shape, name: str) -> Any:
    dtype = shape[0] if shape and isinstance(shape[0], str) else "float32"
    return te.placeholder(tuple(d for d in shape if not isinstance(d, str)), dtype, name)


def cases() -> list[Case]:
    """Everything, family by family."""
    return [*_elementwise(), *_moved(), *_indexed(), *_reduced(), *_products(), *_convolutions(), *_windows(),
            *_norms(), *_attentions(), *_quantised(), *_seen(), *_loops()]  # fmt: skip


def _each(names: str, module: Any, *shapes: list[Shape]) -> list[Case]:
    return [Case(name, getattr(module, name), *shapes) for name in names.split()]


def _elementwise() -> list[Case]:
    usual, odd = [(16, 4096)], [(3, 7, 131)]
    return [
        *_each("exp erf sigmoid", topi, usual, odd),
        *_each("relu gelu mish", nn, usual, odd),
        *_each("add power", topi, [(128, 768), (768,)], [(5, 1, 77), (13, 1)]),
        Case(
            "where", topi.where, [("bool", 64, 512), (64, 512), (64, 512)], [("bool", 7, 1), (7, 31), (31,)]
        ),
        Case("cast f16", lambda x: topi.cast(x, "float16"), [(1 << 20,)], [(1013,)]),
        Case("floor_divide i32", topi.floor_divide, [("int32", 1 << 16)] * 2, [("int32", 977)] * 2),
        Case("add f16", topi.add, [("float16", 1 << 20)] * 2, [("float16", 1013)] * 2),
        Case("prelu", nn.prelu, [(1, 64, 56, 56), (64,)], [(2, 5, 7, 11), (5,)], 1),
        Case("scale_shift", nn.scale_shift_nchw, [(1, 64, 56, 56), (64,), (64,)], [(2, 3, 5, 7), (3,), (3,)]),
    ]


def _moved() -> list[Case]:
    """Elements that go elsewhere."""
    pads = ((0, 0, 1, 1), (0, 0, 2, 3))
    return [
        Case("transpose", topi.transpose, [(1024, 1024)], [(131, 77)]),
        Case("transpose 4d", lambda x: topi.transpose(x, (0, 2, 1, 3)), [(1, 128, 12, 64)], [(3, 5, 7, 11)]),
        Case("transpose f16", topi.transpose, [("float16", 2048, 512)], [("float16", 77, 131)]),
        Case("nchw to nhwc", lambda x: topi.transpose(x, (0, 2, 3, 1)), [(1, 64, 56, 56)], [(2, 5, 7, 9)]),
        Case("layout_transform", lambda x: topi.layout_transform(x, "NCHW", "NCHW16c"), [(1, 64, 56, 56)],
             [(2, 32, 7, 9)]),
        Case("concatenate", lambda *x: topi.concatenate(x, 1), [(1, 64, 56, 56), (1, 64, 56, 56)],
             [(3, 5, 7), (3, 2, 7), (3, 9, 7)]),
        Case("stack", lambda *x: topi.stack(x, 1), [(128, 768)] * 3, [(7, 13)] * 2),
        Case("split", lambda x: topi.split(x, [x.shape[1] // 3, x.shape[1] // 3 * 2], 1), [(128, 2304)], [(7, 39)]),
        Case("strided_slice", lambda x: topi.strided_slice(x, [1, 3], [60, 500], [1, 2]), [(64, 512)], [(61, 503)]),
        Case("reshape", lambda x: topi.reshape(x, (-1, x.shape[0])), [(128, 768)], [(35, 33)]),
        Case("flip", lambda x: topi.flip(x, 1), [(256, 1024)], [(5, 77)]),
        Case("tile", lambda x: topi.tile(x, (2, 3)), [(128, 256)], [(5, 7)]),
        Case("repeat", lambda x: topi.repeat(x, 2, 1), [(128, 256)], [(5, 7)]),
        Case("roll", lambda x: topi.roll(x, 3, 1), [(64, 4096)], [(3, 77)]),
        Case("pad", lambda x: nn.pad(x, *pads), [(1, 64, 56, 56)], [(2, 3, 13, 7)]),
        Case("mirror_pad", lambda x: nn.mirror_pad(x, pads[0], pads[1], "REFLECT"), [(1, 16, 56, 56)], [(2, 3, 13, 7)]),
        Case("depth_to_space", lambda x: nn.depth_to_space(x, 2), [(1, 64, 56, 56)], [(2, 12, 5, 7)]),
        Case("space_to_depth", lambda x: nn.space_to_depth(x, 2), [(1, 16, 56, 56)], [(2, 3, 10, 14)]),
        Case("dilate", lambda x: nn.dilate(x, (1, 1, 2, 2)), [(1, 16, 28, 28)], [(2, 3, 5, 7)]),
        Case("channel_shuffle", lambda x: nn.channel_shuffle(x, 2), [(1, 64, 28, 28)], [(2, 6, 5, 7)]),
        Case("trilu", lambda x: topi.trilu(x, te.const(0, "int32"), True), [(512, 512)], [(3, 31, 17)]),
    ]  # fmt: skip


def _indexed() -> list[Case]:
    return [
        Case("take rows", lambda x, i: topi.take(x, i, 0), [(30522, 768), ("int64", 1, 128)], [(31, 17), ("int32", 7)]),
        Case("take", topi.take, [(4096,), ("int32", 1024)], [(77,), ("int32", 3, 5)]),
        Case("gather", lambda x, i: topi.gather(x, 1, i), [(128, 1024), ("int64", 128, 64)], [(5, 7), ("int64", 5, 3)]),
        Case("gather_nd", topi.gather_nd, [(64, 128, 32), ("int32", 2, 1000)], [(5, 7), ("int32", 2, 3)]),
        Case("one_hot", lambda i: topi.one_hot(i, 1.0, 0.0, 1000, -1, "float32"), [("int32", 128)], [("int32", 3, 5)]),
        Case("scatter_elements", lambda x, i, u: topi.scatter_elements(x, i, u, 0),
             [(1024, 64), ("int64", 128, 64), (128, 64)], [(7, 5), ("int64", 3, 5), (3, 5)]),
        Case("scatter_nd", lambda x, i, u: topi.scatter_nd(x, i, u, "add"),
             [(1024, 64), ("int64", 1, 128), (128, 64)], [(7, 5), ("int64", 2, 3), (3,)]),
        Case("sequence_mask", topi.sequence_mask, [(128, 8, 64), ("int32", 8)], [(7, 3), ("int32", 3)]),
        Case("reverse_sequence", topi.reverse_sequence, [(8, 128), ("int32", 8)], [(3, 7), ("int32", 3)]),
        Case("sliding_window", lambda x: topi.sliding_window(x, 0, [3, 4], [1, 2]), [(128, 128)], [(7, 9)]),
        Case("embedding sums", lambda x, i: topi.sum(topi.take(x, i, 0), 1), [(10000, 64), ("int32", 128, 16)],
             [(31, 17), ("int32", 3, 5)]),
    ]  # fmt: skip


def _reduced() -> list[Case]:
    rows, odd = [(512, 1024)], [(13, 331)]
    return [
        *[Case(f"{name} rows", partial(getattr(topi, name), axis=1), rows, odd)
          for name in "sum max prod argmax argmin".split()],
        Case("sum columns", lambda x: topi.sum(x, 0), [(1024, 1024)], [(331, 13)]),
        Case("sum all", topi.sum, [(1024, 1024)], [(3, 331)]),
        Case("mean of one row", lambda x: topi.mean(x, 1), [(1, 1000003)], [(1, 50257)]),
        Case("mean middle", lambda x: topi.sum(x, 1), [(8, 128, 768)], [(3, 31, 17)]),
        Case("sum outer and inner", lambda x: topi.sum(x, (0, 2, 3)), [(8, 64, 28, 28)], [(3, 5, 7, 11)]),
        Case("sum f16", lambda x: topi.sum(x, 1), [("float16", 512, 1024)], [("float16", 13, 331)]),
        Case("sum i8", lambda x: topi.sum(topi.cast(x, "int32"), 1), [("int8", 512, 1024)], [("int8", 13, 331)]),
        Case("all", lambda x: topi.all(x, 1), [("bool", 512, 1024)], [("bool", 13, 331)]),
        Case("logsumexp", lambda x: topi.logsumexp(x, 1), rows, odd),
        Case("global_pool", lambda x: nn.global_pool(x, "avg"), [(1, 2048, 7, 7)], [(3, 5, 13, 11)]),
    ]  # fmt: skip


def _products() -> list[Case]:
    def f16(x: Any, y: Any) -> Any:
        return nn.matmul(x, y, out_dtype="float32")

    def with_relu(x: Any, w: Any, b: Any) -> Any:
        return nn.relu(nn.dense(x, w, b))

    half, bf16, eight, double = "float16", "bfloat16", "int8", "float64"
    return [
        Case("matmul f16", topi.matmul, [(half, 512, 512)] * 2, [(half, 77, 131), (half, 131, 33)]),
        Case("matmul f16 in f32", f16, [(half, 1024, 1024)] * 2, [(half, 197, 768), (half, 768, 771)]),
        Case("matmul bf16", topi.matmul, [(bf16, 512, 512)] * 2, [(bf16, 77, 131), (bf16, 131, 33)]),
        Case("matmul f64", topi.matmul, [(double, 256, 256)] * 2, [(double, 77, 31), (double, 31, 33)]),
        Case("matmul i8", lambda x, y: nn.dense(x, y, out_dtype="int32"), [(eight, 512, 512)] * 2,
             [(eight, 77, 132), (eight, 33, 132)], 1),
        Case("matmul i32", topi.matmul, [("int32", 256, 256)] * 2, [("int32", 17, 31), ("int32", 31, 33)]),
        Case("matmul transposed", lambda x, y: topi.matmul(x, y, True, True), [(512, 384), (256, 512)],
             [(31, 17), (33, 31)]),
        Case("dense", nn.dense, [(128, 768), (3072, 768)], [(7, 131), (33, 131)], 1),
        Case("dense+relu", with_relu, [(1, 2048), (1000, 2048), (1000,)], [(5, 77), (31, 77), (31,)], 2),
        Case("dense f16", with_relu, [(half, 197, 768), (half, 3072, 768), (half, 3072)],
             [(half, 7, 131), (half, 33, 131), (half, 33)], 2),
        Case("batch_matmul", nn.batch_matmul, [(12, 128, 64)] * 2, [(3, 7, 31), (3, 17, 31)]),
        Case("batch_matmul f16", nn.batch_matmul, [(half, 12, 128, 64)] * 2, [(half, 3, 7, 31), (half, 3, 17, 31)]),
        Case("tensordot", lambda x, y: topi.tensordot(x, y, 2), [(64, 32, 64), (32, 64, 128)], [(5, 7, 3), (7, 3, 11)]),
        Case("einsum", lambda *x: topi.einsum("bhqd,bkhd->bqhk", *x), [(1, 12, 128, 64), (1, 128, 12, 64)],
             [(2, 3, 5, 7), (2, 11, 3, 7)]),
        Case("vector by matrix f16", nn.dense, [(half, 1, 4096), (half, 4096, 4096)],
             [(half, 1, 131), (half, 77, 131)], 1),
    ]  # fmt: skip


def _conv(x: Any, w: Any) -> Any:
    return nn.conv2d(x, w, 1, 1, 1)


def _convolutions() -> list[Case]:
    def nhwc(x: Any, w: Any) -> Any:
        return nn.conv2d(x, w, 1, 1, 1, "NHWC", "HWIO", str(x.dtype))

    def with_bias(x: Any, w: Any, b: Any) -> Any:
        return nn.relu(topi.add(nn.conv2d(x, w, 2, 1, 1), b))

    half = "float16"
    return [
        Case("conv1d", lambda x, w: nn.conv1d(x, w, 2, 1), [(1, 80, 3000), (384, 80, 3)], [(2, 5, 31), (7, 5, 3)], 1),
        Case("conv2d", _conv, [(1, 64, 56, 56), (64, 64, 3, 3)], [(2, 17, 13, 19), (31, 17, 3, 3)]),
        Case("conv2d weights", _conv, [(1, 128, 28, 28), (128, 128, 3, 3)], [(2, 16, 14, 14), (32, 16, 3, 3)], 1),
        Case("conv2d+bias+relu", with_bias, [(1, 64, 56, 56), (128, 64, 3, 3), (128, 1, 1)],
             [(2, 5, 13, 11), (7, 5, 3, 3), (7, 1, 1)], 2),
        Case("conv2d dilated", lambda x, w: nn.conv2d(x, w, 1, 2, 2), [(1, 32, 56, 56), (32, 32, 3, 3)],
             [(1, 5, 13, 11), (7, 5, 3, 3)], 1),
        Case("conv2d nhwc", nhwc, [(1, 56, 56, 64), (3, 3, 64, 64)], [(2, 13, 11, 5), (3, 3, 5, 7)], 1),
        Case("conv2d nhwc f16", nhwc, [(half, 8, 28, 28, 128), (half, 3, 3, 128, 128)],
             [(half, 1, 13, 11, 8), (half, 3, 3, 8, 16)], 1),
        Case("conv2d f16", _conv, [(half, 8, 64, 56, 56), (half, 64, 64, 3, 3)],
             [(half, 1, 16, 13, 11), (half, 24, 16, 3, 3)], 1),
        Case("conv2d 1x1 f16", lambda x, w: nn.conv2d(x, w, 1, 0, 1), [(half, 8, 256, 28, 28), (half, 512, 256, 1, 1)],
             [(half, 1, 24, 13, 11), (half, 40, 24, 1, 1)], 1),
        Case("group conv2d", lambda x, w: nn.conv2d(x, w, 1, 1, 1, groups=4), [(1, 128, 28, 28), (128, 32, 3, 3)],
             [(1, 12, 7, 9), (8, 3, 3, 3)], 1),
        Case("depthwise", lambda x, w: nn.depthwise_conv2d_nchw(x, w, 1, 1, 1), [(1, 144, 56, 56), (144, 1, 3, 3)],
             [(2, 5, 13, 11), (5, 1, 5, 5)], 1),
        Case("depthwise nhwc", lambda x, w: nn.depthwise_conv2d_nhwc(x, w, 2, 1, 1), [(1, 56, 56, 144), (3, 3, 144, 1)],
             [(2, 13, 11, 5), (3, 3, 5, 1)], 1),
        Case("conv3d", lambda x, w: nn.conv3d_ncdhw(x, w, 1, 1, 1), [(1, 16, 8, 28, 28), (32, 16, 3, 3, 3)],
             [(1, 3, 5, 7, 9), (4, 3, 3, 3, 3)], 1),
        Case("conv2d_transpose", lambda x, w: nn.conv2d_transpose_nchw(x, w, (2, 2), (1, 1), "float32", (0, 0)),
             [(1, 64, 28, 28), (64, 32, 4, 4)], [(1, 5, 7, 9), (5, 3, 3, 3)], 1),
        Case("deformable_conv2d", lambda x, o, w: nn.deformable_conv2d_nchw(x, o, w, 1, 1, 1),
             [(1, 64, 28, 28), (1, 18, 28, 28), (64, 64, 3, 3)], [(1, 4, 7, 9), (1, 18, 7, 9), (3, 4, 3, 3)], 1),
        Case("conv2d NCHWc", lambda x, w: nn.conv2d_NCHWc(x, w, 1, 1, 1, "NCHW16c", "NCHW16c"),
             [(1, 4, 56, 56, 16), (4, 4, 3, 3, 16, 16)], [(1, 2, 7, 9, 16), (3, 2, 3, 3, 16, 16)], 1),
    ]  # fmt: skip


def _windows() -> list[Case]:
    pads = (1, 1, 1, 1)
    return [
        Case("max_pool2d", lambda x: nn.pool2d(x, (3, 3), (2, 2), (1, 1), pads, "max"), [(1, 64, 112, 112)],
             [(2, 5, 13, 11)]),
        Case("avg_pool2d", lambda x: nn.pool2d(x, (3, 3), (1, 1), (1, 1), pads, "avg", count_include_pad=False),
             [(1, 64, 28, 28)], [(2, 5, 13, 11)]),
        Case("max_pool2d nhwc", lambda x: nn.pool2d(x, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max", layout="NHWC"),
             [(1, 56, 56, 64)], [(2, 13, 11, 5)]),
        Case("adaptive_pool", lambda x: nn.adaptive_pool(x, (7, 5), "avg"), [(1, 256, 14, 14)], [(2, 5, 13, 11)]),
        Case("lrn", lambda x: nn.lrn(x, 5), [(1, 96, 54, 54)], [(2, 7, 5, 3)]),
        Case("upsampling", lambda x: nn.upsampling(x, 2, 2), [(1, 64, 28, 28)], [(2, 3, 5, 7)]),
    ]  # fmt: skip


def _norms() -> list[Case]:
    half = "float16"
    return [
        Case("softmax", nn.softmax, [(1536, 128)], [(7, 1237)]),
        Case("softmax long", nn.softmax, [(8, 50257)], [(3, 30011)]),
        Case("softmax middle", lambda x: nn.softmax(x, 1), [(8, 64, 196)], [(3, 5, 7)]),
        Case("softmax f16", nn.softmax, [(half, 1536, 128)], [(half, 7, 1237)]),
        Case("log_softmax", nn.log_softmax, [(128, 1000)], [(7, 331)]),
        Case("layer_norm", lambda x, g, b: nn.layer_norm(x, g, b, [1]), [(128, 768), (768,), (768,)],
             [(7, 331), (331,), (331,)], 2),
        Case("layer_norm f16", lambda x, g, b: nn.layer_norm(x, g, b, [1]),
             [(half, 197, 768), (half, 768), (half, 768)], [(half, 7, 331), (half, 331), (half, 331)], 2),
        Case("rms_norm", lambda x, w: nn.rms_norm(x, w, [1]), [(128, 4096), (4096,)], [(7, 331), (331,)], 1),
        Case("group_norm", lambda x, g, b: nn.group_norm(x, g, b, 4, 1, [2, 3]), [(1, 64, 32, 32), (64,), (64,)],
             [(2, 12, 5, 7), (12,), (12,)], 2),
        Case("instance_norm", lambda x, g, b: nn.instance_norm(x, g, b, [2, 3], channel_axis=1),
             [(1, 64, 56, 56), (64,), (64,)], [(2, 5, 13, 11), (5,), (5,)], 2),
        Case("batch_norm", lambda *x: nn.batch_norm(*x)[0], [(1, 64, 56, 56), *[(64,)] * 4],
             [(2, 5, 13, 11), *[(5,)] * 4], 4),
        Case("l2_normalize", lambda x: nn.l2_normalize(x, 1e-6, [1]), [(128, 512)], [(7, 131)]),
        Case("batch_norm training", lambda *x: nn.batch_norm(*x, training=True), [(8, 32, 28, 28), *[(32,)] * 4],
             [(2, 5, 13, 11), *[(5,)] * 4]),
    ]  # fmt: skip


def _attentions() -> list[Case]:
    half = "float16"
    attend = nn.scaled_dot_product_attention

    def causal(*x: Any) -> Any:
        return attend(*x, is_causal=True)

    def by_hand(q: Any, k: Any, v: Any) -> Any:
        scores = nn.batch_matmul(q, k, out_dtype="float32")
        weights = topi.cast(nn.softmax(topi.multiply(scores, te.const(0.125, "float32"))), "float16")
        return topi.cast(nn.batch_matmul(weights, v, out_dtype="float32", transpose_b=False), "float16")

    return [
        Case("attention", attend, [(1, 12, 128, 64)] * 3, [(2, 3, 77, 80)] * 3),
        Case("attention f16", attend, [(half, 1, 12, 512, 64)] * 3, [(half, 2, 3, 77, 80)] * 3),
        Case("causal attention f16", causal, [(half, 1, 12, 512, 128)] * 3, [(half, 1, 2, 197, 64)] * 3),
        Case("attention of a row", attend, [(half, 1, 32, 1, 128), *[(half, 1, 32, 1024, 128)] * 2],
             [(1, 3, 1, 64), *[(1, 3, 77, 64)] * 2]),
        Case("attention by hand f16", by_hand, [(half, 12, 128, 64)] * 3, [(half, 3, 197, 64)] * 3),
        Case("rotary_embedding", nn.rotary_embedding, [(1, 32, 128, 128), (128, 64), (128, 64)],
             [(2, 3, 7, 16), (7, 8), (7, 8)]),
    ]  # fmt: skip


def _quantised() -> list[Case]:
    eight = "int8"

    def conv(x: Any, w: Any) -> Any:
        return nn.conv2d(x, w, 1, 1, 1, out_dtype="int32")

    def requantised(x: Any, w: Any) -> Any:
        sums = nn.dense(x, w, out_dtype="int32")
        scaled = topi.multiply(topi.cast(sums, "float32"), te.const(0.01, "float32"))
        return topi.cast(topi.clip(topi.round(scaled), -128, 127), eight)

    return [
        Case("conv2d i8", conv, [(eight, 1, 64, 56, 56), (eight, 64, 64, 3, 3)],
             [(eight, 1, 5, 13, 11), (eight, 7, 5, 3, 3)], 1),
        Case("dense i8 requantised", requantised, [(eight, 128, 768), (eight, 768, 768)],
             [(eight, 7, 132), (eight, 33, 132)], 1),
        Case("dense u8 i8", lambda x, w: nn.dense(x, w, out_dtype="int32"), [("uint8", 128, 768), (eight, 768, 768)],
             [("uint8", 7, 130), (eight, 33, 130)], 1),
        Case("dense u4", nn.blockwise_dense,
             [(4, 768), ("uint8", 768, 384), (768, 24), ("uint8", 768, 24)],
             [(7, 64), ("uint8", 33, 32), (33, 4), ("uint8", 33, 4)], 3),
        Case("quantize", lambda x: nn.quantize(x, te.const(0.1, "float32"), te.const(3, "int32")), [(128, 768)],
             [(7, 33)]),
    ]  # fmt: skip


def _seen() -> list[Case]:
    """Operators of pictures."""
    return [
        Case("resize2d", lambda x: image.resize2d(x, None, (64, 96)), [(1, 3, 224, 224)], [(2, 5, 13, 11)]),
        Case("resize2d nearest", lambda x: image.resize2d(x, None, (56, 56), method="nearest_neighbor",
             coordinate_transformation_mode="asymmetric"), [(1, 64, 28, 28)], [(2, 5, 13, 11)]),
        Case("grid_sample", image.grid_sample, [(1, 16, 64, 64), (1, 2, 64, 64)], [(2, 3, 7, 5), (2, 2, 3, 4)]),
        Case("roi_align", lambda x, r: vision.roi_align_nchw(x, r, (7, 7), 0.25, "avg", 2),
             [(1, 64, 56, 56), (100, 5)], [(2, 3, 13, 11), (3, 5)]),
        Case("dilation2d", lambda x, w: image.dilation2d_nchw(x, w, 1, 1, 1), [(1, 16, 56, 56), (16, 3, 3)],
             [(2, 3, 13, 11), (3, 3, 3)]),
    ]  # fmt: skip


def _loops() -> list[Case]:
    """What runs in an order of its own: scans, sorts, recurrences."""
    return [
        Case("cumsum", lambda x: topi.cumsum(x, 1), [(128, 1024)], [(5, 77)]),
        Case("sort", topi.sort, [(128, 256)], [(5, 31)]),
        Case("argsort", topi.argsort, [(128, 256)], [(5, 31)]),
        Case("topk", lambda x: topi.topk(x, 5), [(8, 1000)], [(3, 31)]),
        Case("lstm", nn.lstm, [(16, 1, 128), (512, 128), (512, 128)], [(3, 2, 7), (20, 7), (20, 5)], 2),
        Case("gru", nn.gru, [(16, 1, 128), (384, 128), (384, 128)], [(3, 2, 7), (15, 7), (15, 5)], 2),
    ]
