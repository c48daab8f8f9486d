"""A small convolutional network, trained: gradients from `relay.transform.gradient`, each step one compiled function.

The images are noise with a stroke in one of four directions, made here from a seed; the network learns the direction.
A step takes a batch, the weights and their momenta, and returns the loss and the new ones:

    gradient(loss)  ->  (loss, (grad of x, …, grad of w1, …))  ->  m = 0.9·m + grad,  w = w - rate·m

    python examples/train.py --steps 60
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from rich.console import Console

from tilewright import relay
from tilewright.relay.transform import gradient

SIZE, CLASSES, BATCH = 12, 4, 32
SHAPES = {
    "w1": (8, 1, 3, 3),
    "b1": (8,),
    "w2": (16, 8, 3, 3),
    "b2": (16,),
    "w3": (CLASSES, 16),
    "b3": (CLASSES,),
}
Arrays = list[Any]


# -- the network ---------------------------------------------------------------------------------
def network(image: relay.Expr, w: dict[str, relay.Var]) -> relay.Expr:
    """The logarithms of the probabilities of the classes."""
    x = relay.nn.bias_add(relay.nn.conv2d(image, w["w1"], padding=1), w["b1"])
    x = relay.nn.max_pool2d(relay.nn.relu(x), pool_size=(2, 2), strides=(2, 2))
    x = relay.nn.bias_add(relay.nn.conv2d(x, w["w2"], padding=1), w["b2"])
    x = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(relay.nn.relu(x)))
    return relay.nn.log_softmax(relay.nn.bias_add(relay.nn.dense(x, w["w3"]), w["b3"]))


def loss_function(batch: int = BATCH) -> relay.Function:
    """fn (image, label, w1, b1, …) -> the mean loss of a batch."""
    image = relay.var("image", shape=(batch, 1, SIZE, SIZE))
    label = relay.var("label", shape=(batch,), dtype="int32")
    weights = {name: relay.var(name, shape=shape) for name, shape in SHAPES.items()}
    even = relay.const(np.ones(CLASSES, "float32"))
    loss = relay.nn.nll_loss(network(image, weights), label, even)
    return relay.Function([image, label, *weights.values()], loss)


def training_step(rate: float, momentum: float = 0.9) -> relay.Function:
    """fn (image, label, w1, b1, …, momenta…) -> (loss, new weights…, new momenta…)."""
    func = gradient(loss_function())
    both = func(*func.params)
    grads = relay.TupleGetItem(both, 1)
    moving = [relay.var(f"m_{name}", shape=shape) for name, shape in SHAPES.items()]
    made: Arrays = [relay.TupleGetItem(both, 0)]
    new_momenta: Arrays = []
    for i, (weight, m) in enumerate(zip(func.params[2:], moving, strict=True)):
        m = m * relay.const(momentum) + relay.TupleGetItem(grads, i + 2)
        made.append(weight - m * relay.const(rate))
        new_momenta.append(m)
    return relay.Function([*func.params, *moving], relay.Tuple([*made, *new_momenta]))


# -- the task ------------------------------------------------------------------------------------
def images(count: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Noise with a stroke: across, down, falling or rising."""
    label = rng.integers(0, CLASSES, count).astype("int32")
    image = rng.normal(0, 0.3, (count, 1, SIZE, SIZE)).astype("float32")
    steps = [(0, 1), (1, 0), (1, 1), (-1, 1)]
    for i, kind in enumerate(label):
        down, right = steps[kind]
        length = int(rng.integers(5, 9))
        y = int(rng.integers(length, SIZE) if down < 0 else rng.integers(0, SIZE - down * length))
        x = int(rng.integers(0, SIZE - right * length))
        for t in range(length):
            image[i, 0, y + t * down, x + t * right] += 1.5
    return image, label


def initial_weights(rng: np.random.Generator) -> Arrays:
    """He's initialization."""
    made = []
    for shape in SHAPES.values():
        scale = np.sqrt(2 / np.prod(shape[1:])) if len(shape) > 1 else 0.0
        made.append((rng.standard_normal(shape) * scale).astype("float32"))
    return made


def accuracy(weights: Arrays, rng: np.random.Generator, count: int = 256) -> float:
    """The share of new images whose direction the network finds."""
    image = relay.var("image", shape=(count, 1, SIZE, SIZE))
    constants: Any = {n: relay.const(w) for n, w in zip(SHAPES, weights, strict=True)}
    run = relay.create_executor("graph").evaluate(relay.Function([image], network(image, constants)))
    x, label = images(count, rng)
    return float(np.mean(np.argmax(run(x).numpy(), axis=1) == label))


def train(steps: int, rate: float, report: Any) -> tuple[Arrays, list[float]]:
    """The weights after some steps, and the loss of each step."""
    rng = np.random.default_rng(0)
    step = relay.create_executor("graph").evaluate(training_step(rate))
    weights = initial_weights(rng)
    momenta: Arrays = [np.zeros_like(w) for w in weights]
    losses = []
    for i in range(steps):
        loss, *rest = step(*images(BATCH, rng), *weights, *momenta)
        weights, momenta = rest[: len(SHAPES)], rest[len(SHAPES) :]
        losses.append(float(loss.numpy()))
        if i % max(1, steps // 6) == 0 or i == steps - 1:
            report(f"step {i:3d}   loss {losses[-1]:.3f}   {'█' * round(20 * losses[-1])}")
    return [w.numpy() for w in weights], losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--rate", type=float, default=0.1)
    args = parser.parse_args()
    console = Console()
    weights, losses = train(args.steps, args.rate, console.print)
    count = sum(int(np.prod(s)) for s in SHAPES.values())
    console.print(f"{count} weights; the loss fell from {losses[0]:.2f} to {losses[-1]:.2f}")
    console.print(f"directions found of new images: {accuracy(weights, np.random.default_rng(1)):.0%}")


if __name__ == "__main__":
    main()
