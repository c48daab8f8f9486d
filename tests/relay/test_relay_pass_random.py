"""Random networks through sequences of passes: what they compute stays the same."""

from __future__ import annotations

import random

import numpy as np
import pytest
from relay_eval import apply, evaluate, inputs

from tilewright import relay
from tilewright.ir.errors import TVMError

nn = relay.nn
T = relay.transform

SEQUENCES = {
    "simplified": lambda: [T.SimplifyInference(), T.SimplifyExpr(), T.EliminateCommonSubexpr()],
    "factors folded": lambda: [T.SimplifyInference(), T.FoldConstant(), T.FoldScaleAxis(), T.FoldConstant()],
    "in NHWC": lambda: [T.ConvertLayout({"nn.conv2d": ["NHWC", "default"]})],
    "in NCHW4c": lambda: [T.ConvertLayout({"nn.conv2d": ["NCHW4c", "default"]})],
    "packed": lambda: [T.SimplifyInference(), T.CanonicalizeOps(), T.AlterOpLayout(), T.SimplifyExpr()],
    "there and back": lambda: [T.ConvertLayout({"nn.conv2d": [to, "default"]}) for to in ("NHWC", "NCHW")],
    "named and unnamed": lambda: [T.ToANormalForm(), T.DeadCodeElimination(), T.ToGraphNormalForm()],
    "named and in NHWC": lambda: [T.ToANormalForm(), *SEQUENCES["in NHWC"]()],
    "combined": lambda: [T.CombineParallelConv2D(2), T.FoldExplicitPadding()],
}


class _Maker:
    """Grows a network by one operator at a time."""

    def __init__(self, seed):
        self.choice, self.rng = random.Random(seed), np.random.default_rng(seed)
        channels = self.choice.choice([4, 8, 16])
        self.x = relay.var("x", shape=(1, channels, 6, 6))
        self.made = [self.x]

    def const(self, *shape, positive=False):
        values = (self.rng.standard_normal(shape) * 0.5).astype("float32")
        return relay.const(np.abs(values) + 0.2 if positive else values)

    def shape(self, expr):
        return tuple(T.infer_type(expr).checked_type.shape)

    def step(self):
        pick = self.choice
        a = self.made[-1] if pick.random() < 0.7 else pick.choice(self.made)
        shape = self.shape(a)
        if len(shape) != 4:
            return relay.exp(relay.tanh(a))
        c, (h, w) = shape[1], shape[2:]
        steps = [
            lambda: nn.conv2d(a, self.const(pick.choice([4, 8, 16]), c, 3, 3), padding=(1, 1)),
            lambda: nn.conv2d(a, self.const(pick.choice([8, 16]), c, 1, 1)),
            lambda: nn.conv2d(a, self.const(c, 1, 3, 3), padding=(1, 1), groups=c),
            lambda: nn.relu(a),
            lambda: a * self.const(c, 1, 1, positive=pick.random() < 0.5),
            lambda: nn.bias_add(a, self.const(c)),
            lambda: nn.batch_norm(a, *(self.const(c) for _ in range(3)), self.const(c, positive=True))[0],
            lambda: nn.max_pool2d(a, (2, 2), padding=(1, 1)) if min(h, w) > 1 else nn.relu(a),
            lambda: nn.avg_pool2d(a, (2, 2)) if min(h, w) > 1 else nn.relu(a),
            lambda: nn.global_avg_pool2d(a) * a,
            lambda: relay.transpose(a, pick.choice([(0, 1, 3, 2), (0, 2, 3, 1)])),
            lambda: relay.concatenate([a, relay.tanh(a)], axis=pick.choice([1, 2, -1])),
            lambda: relay.mean(a, axis=pick.choice([[1], [2, 3]]), keepdims=True) + a,
            lambda: nn.softmax(a, axis=pick.choice([1, -1])),
            lambda: relay.add(*relay.split(a, 2, axis=1)) if c % 2 == 0 else nn.relu(a),
            lambda: nn.pad(a, ((0, 0), (0, 0), (1, 0), (0, 1))),
            lambda: relay.strided_slice(a, [0, 0, 0, 0], [1, c, max(1, h - 1), w]),
            lambda: nn.dropout(a),
            lambda: relay.reshape(relay.reshape(a, (-1,)), shape),
            lambda: nn.layer_norm(a, self.const(w), self.const(w)),
        ]
        return pick.choice(steps[: 3 if pick.random() < 0.3 else None])()

    def joined(self, y):
        """The expression beside another one that it broadcasts with, if there is such."""
        for other in self.choice.sample(self.made, min(3, len(self.made))):
            try:
                z = self.choice.choice([relay.add, relay.multiply, relay.maximum, relay.subtract])(y, other)
                if np.prod(self.shape(z)) < 5000:
                    return z
            except TVMError:
                continue
        return y

    def network(self):
        for _ in range(self.choice.randint(6, 12)):
            y = self.step()
            self.made.append(self.joined(y) if self.choice.random() < 0.3 else y)
        several = self.choice.random() < 0.3
        return relay.Function([self.x], relay.Tuple(self.made[-2:]) if several else self.made[-1])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_random_networks(seed):
    before = _Maker(seed).network()
    arrays = inputs(before, seed)
    expected = evaluate(before, *arrays)
    for name, passes in SEQUENCES.items():
        made = evaluate(apply(before, *passes()), *arrays)
        rows = zip(expected, made, strict=True) if isinstance(expected, list) else [(expected, made)]
        for a, b in rows:
            size = max(1.0, float(np.abs(a).max()))
            np.testing.assert_allclose(b, a, rtol=2e-3, atol=2e-3 * size, err_msg=f"{name}\n{before}")
