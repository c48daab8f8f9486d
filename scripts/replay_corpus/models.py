"""Neural networks written as graphs with random weights: what `relay.build` makes of each are programs of the corpus.

Transformers have one layer: all of theirs are the same program. Nothing is downloaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.relay import nn, testing
from tilewright.relay.testing import resnet, squeezenet


class Net:
    """A graph that grows; weights are variables, to which `finish` gives values."""

    def __init__(self, *shape: int, dtype: str = "float32") -> None:
        self.data = relay.var("data", shape=shape, dtype=dtype)
        self.weights: list[Any] = []

    def weight(self, *shape: int) -> Any:
        self.weights.append(relay.var(f"w{len(self.weights)}", shape=shape))
        return self.weights[-1]

    def finish(self, out: Any) -> tuple[Any, dict[str, Any]]:
        """The module, and its weights by name."""
        mod = tvm.IRModule.from_expr(relay.Function([self.data, *self.weights], out))
        rng, params = np.random.default_rng(0), {}
        for w in self.weights:
            shape = [int(d) for d in w.type_annotation.shape]
            scale = 1 / math.sqrt(math.prod(shape[1:]) or 1)
            params[w.name_hint] = tvm.nd.array(
                rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)
            )
        return mod, params

    # -- convolutions ------------------------------------------------------------------------------
    def conv(
        self,
        x: Any,
        taken: int,
        out: int,
        size: Any = 3,
        stride: Any = 1,
        groups: int = 1,
        bend: Any = nn.relu,
    ) -> Any:
        """A convolution with a bias, as it is when the norm behind it is folded in, and an activation."""
        high, wide = size if isinstance(size, tuple) else (size, size)
        strides = stride if isinstance(stride, tuple) else (stride, stride)
        weight = self.weight(out, taken // groups, high, wide)
        pads = (high // 2, wide // 2)
        y = nn.conv2d(x, weight, strides, pads, groups=groups, channels=out, kernel_size=(high, wide))
        y = nn.bias_add(y, self.weight(out))
        return y if bend is None else bend(y)

    # -- transformers ------------------------------------------------------------------------------
    def dense(self, x: Any, taken: int, out: int) -> Any:
        """A dense layer over the rows of [length, width]."""
        return nn.bias_add(nn.dense(x, self.weight(out, taken)), self.weight(out), axis=-1)

    def norm(self, x: Any, width: int) -> Any:
        return nn.layer_norm(x, self.weight(width), self.weight(width))

    def attend(self, x: Any, length: int, width: int, causal: bool) -> Any:
        """Attention with heads of 64, of rows [length, width]."""
        heads = width // 64
        parts = relay.split(self.dense(x, width, 3 * width), 3, axis=1)
        q, k, v = (relay.transpose(relay.reshape(p, (length, heads, 64)), (1, 0, 2)) for p in parts)
        scores = relay.multiply(nn.batch_matmul(q, k), relay.const(0.125))
        if causal:
            hidden = np.triu(np.full((length, length), -np.inf, np.float32), 1)
            scores = relay.add(scores, relay.const(hidden))
        mixed = nn.batch_matmul(nn.softmax(scores), v, transpose_b=False)
        return self.dense(relay.reshape(relay.transpose(mixed, (1, 0, 2)), (length, width)), width, width)

    def layer(self, x: Any, length: int, width: int, first: bool, bend: Any, causal: bool = False) -> Any:
        """A layer of a transformer; `first` says whether norms come before what they are of."""

        def inner(y: Any) -> Any:
            return self.dense(bend(self.dense(y, width, 4 * width)), 4 * width, width)

        if first:
            x = relay.add(x, self.attend(self.norm(x, width), length, width, causal))
            return relay.add(x, inner(self.norm(x, width)))
        x = self.norm(relay.add(x, self.attend(x, length, width, causal)), width)
        return self.norm(relay.add(x, inner(x)), width)

    def words(self, count: int, length: int, width: int) -> tuple[Any, Any]:
        """The rows of a table of words that the input names, with those of their places; and the table."""
        table = self.weight(count, width)
        rows = relay.take(table, self.data, axis=0)
        return relay.add(rows, self.weight(length, width)), table


def resnet50() -> Any:
    return resnet.get_workload(num_layers=50)


def squeezenet1() -> Any:
    return squeezenet.get_workload(version="1.1")


def mobilenetv2() -> Any:
    """Blocks that widen by a 1 x 1, filter each channel alone, and narrow by a 1 x 1."""
    net = Net(1, 3, 224, 224)

    def relu6(y: Any) -> Any:
        return relay.clip(y, 0.0, 6.0)

    x, taken = net.conv(net.data, 3, 32, 3, 2, bend=relu6), 32
    rows = [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ]
    for widen, out, count, first in rows:
        for number in range(count):
            stride, wide, y = (first if number == 0 else 1), taken * widen, x
            if widen > 1:
                y = net.conv(y, taken, wide, 1, bend=relu6)
            y = net.conv(y, wide, wide, 3, stride, wide, bend=relu6)
            y = net.conv(y, wide, out, 1, bend=None)
            x = relay.add(x, y) if stride == 1 and taken == out else y
            taken = out
    x = nn.global_avg_pool2d(net.conv(x, 320, 1280, 1, bend=relu6))
    return net.finish(net.dense(nn.batch_flatten(x), 1280, 1000))


def _gelu(x: Any) -> Any:
    """By the error function, as BERT and ViT have it."""
    half = relay.multiply(x, relay.const(0.5))
    return relay.multiply(
        half, relay.add(relay.const(1.0), relay.erf(relay.multiply(x, relay.const(0.5**0.5))))
    )


def _gelu_by_tanh(x: Any) -> Any:
    """As GPT-2 has it."""
    cubes = relay.multiply(relay.multiply(x, relay.multiply(x, x)), relay.const(0.044715))
    inner = relay.tanh(relay.multiply(relay.add(x, cubes), relay.const(math.sqrt(2 / math.pi))))
    return relay.multiply(relay.multiply(x, relay.const(0.5)), relay.add(relay.const(1.0), inner))


def bert() -> Any:
    net = Net(128, dtype="int64")
    x, _ = net.words(30522, 128, 768)
    return net.finish(net.layer(net.norm(x, 768), 128, 768, False, _gelu))


def gpt2() -> Any:
    net = Net(64, dtype="int64")
    x, table = net.words(50257, 64, 768)
    x = net.norm(net.layer(x, 64, 768, True, _gelu_by_tanh, causal=True), 768)
    return net.finish(nn.dense(x, table))


def vit() -> Any:
    """ViT-B/16: 196 patches and a token for the class."""
    net = Net(1, 3, 224, 224)
    patches = nn.conv2d(
        net.data, net.weight(768, 3, 16, 16), (16, 16), (0, 0), channels=768, kernel_size=(16, 16)
    )
    rows = relay.transpose(relay.reshape(patches, (768, 196)), (1, 0))
    x = relay.add(relay.concatenate([net.weight(1, 768), rows], 0), net.weight(197, 768))
    x = net.norm(net.layer(x, 197, 768, True, _gelu), 768)
    return net.finish(net.dense(relay.take(x, relay.const([0], "int64"), axis=0), 768, 1000))


def unet() -> Any:
    """Three levels down and up, with what was there on the way down put beside what comes up."""
    net = Net(1, 3, 128, 128)
    x, taken, kept = net.data, 3, []
    for wide in (32, 64, 128):
        x = net.conv(net.conv(x, taken, wide), wide, wide)
        kept.append(x)
        x, taken = nn.max_pool2d(x, (2, 2), (2, 2)), wide
    x = net.conv(net.conv(x, 128, 256), 256, 256)
    taken = 256
    for wide, beside in zip((128, 64, 32), reversed(kept)):
        if wide == 64:  # one of them resizes and convolves
            x = net.conv(nn.upsampling(x, 2, 2), taken, wide, bend=None)
        else:
            kernel = net.weight(taken, wide, 2, 2)
            x = nn.conv2d_transpose(x, kernel, (2, 2), (0, 0), channels=wide, kernel_size=(2, 2))
        x = relay.concatenate([beside, x], 1)
        x = net.conv(net.conv(x, 2 * wide, wide), wide, wide)
        taken = wide
    return net.finish(relay.sigmoid(net.conv(x, 32, 1, 1, bend=None)))


def ocr() -> Any:
    """Reads a line of text: a narrow convolutional network with gates, a layer of attention, letters."""
    net = Net(1, 3, 48, 320)

    def swish(y: Any) -> Any:
        gate = relay.clip(relay.add(y, relay.const(3.0)), 0.0, 6.0)
        return relay.multiply(relay.multiply(y, gate), relay.const(1 / 6))

    def gated(y: Any, wide: int) -> Any:
        small = net.conv(nn.global_avg_pool2d(y), wide, wide // 4, 1)
        return relay.multiply(y, relay.sigmoid(net.conv(small, wide // 4, wide, 1, bend=None)))

    x, taken = net.conv(net.data, 3, 16, 3, 2, bend=swish), 16
    for out, size, stride in (
        (32, 3, 1),
        (64, 3, 1),
        (128, 3, (2, 1)),
        (128, 5, 1),
        (256, 5, (2, 1)),
        (256, 5, 1),
    ):
        x = net.conv(x, taken, taken, size, stride, taken, bend=swish)
        if size == 5:
            x = gated(x, taken)
        x, taken = net.conv(x, taken, out, 1, bend=swish), out
    x = nn.avg_pool2d(x, (3, 2), (3, 2))  # [1, 256, 2, 80] -> a row of letters
    x = net.conv(x, 256, 128, (1, 3), bend=swish)
    x = relay.transpose(relay.reshape(x, (128, -1)), (1, 0))
    length = int(testing.run_infer_type(x).checked_type.shape[0])
    x = net.norm(net.layer(x, length, 128, True, swish), 128)
    return net.finish(nn.softmax(net.dense(x, 128, 6625)))


MODELS: dict[str, Callable[[], Any]] = {
    "resnet50": resnet50,
    "mobilenetv2": mobilenetv2,
    "squeezenet": squeezenet1,
    "bert": bert,
    "gpt2": gpt2,
    "unet": unet,
    "vit": vit,
    "ocr": ocr,
}


def halved(mod: Any) -> Any:
    """A model that computes in float16 where that is safe, as tensor cores want it."""
    return relay.transform.ToMixedPrecision("float16")(relay.transform.InferType()(mod))
