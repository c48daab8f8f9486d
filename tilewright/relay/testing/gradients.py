"""Gradients compared with differences of values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.devices import cpu
from ...runtime.ndarray import NDArray, array
from ...target import Target
from ..analysis import list_op_freqs
from ..transform.gradient import gradient
from ..transform.infer_type import infer_type


def rand(dtype: str, *shape: int) -> NDArray:
    """An array of random numbers between 0 and 1."""
    return array(np.random.rand(*shape).astype(dtype))


def count_ops(expr: Any) -> Counter[str]:
    """How often each operator is called."""
    return Counter({name: int(count) for name, count in list_op_freqs(expr).items()})


def _np_randn_from_type(t: Any, scale: float = 1, mean: float = 0) -> Any:
    """A normal random array of a tensor type."""
    made = mean + scale * np.random.randn(*(int(d) for d in t.shape))
    return np.asarray(made).astype(str(t.dtype))


def check_grad(
    func: Any,
    inputs: Sequence[Any] | None = None,
    test_inputs: Sequence[Any] | None = None,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    scale: float | None = None,
    mean: float = 0,
    mode: str = "higher_order",
    target_devices: Sequence[tuple[Any, Any]] | None = None,
    executor_kind: str = "debug",
) -> None:
    """Compare the gradients of a function with (f(x + eps) - f(x - eps)) / (2 eps), element by element.

    `test_inputs` are those of `inputs` to vary, all by default. Without inputs, they are random, as small as `eps`
    allows: differences of large numbers are not exact.
    """
    from ..build_module import create_executor

    forward = infer_type(func)
    backward = gradient(forward, mode=mode)
    scale = 10 * eps if scale is None else scale
    if inputs is None:
        inputs = [_np_randn_from_type(p.checked_type, scale, mean) for p in forward.params]
    varied = inputs if test_inputs is None else test_inputs
    places = [next(i for i, given in enumerate(inputs) if given is x) for x in varied]
    if not places:
        raise ValueError("check_grad: there is no input to test")
    for target, device in target_devices or [(Target("llvm"), cpu(0))]:
        run, run_back = (
            create_executor(executor_kind, device=device, target=target).evaluate(f)
            for f in (forward, backward)
        )
        grads = run_back(*inputs)[1]
        for i, x in zip(places, varied, strict=True):
            found = grads[i].numpy().astype("float64")
            np.testing.assert_allclose(found, _differences(run, inputs, x, eps), atol=atol, rtol=rtol)


def _differences(run: Any, inputs: Sequence[Any], x: Any, eps: float) -> Any:
    """The derivatives of the sum of the result by each element of `x`, which is one of the inputs."""
    made = np.zeros(x.shape)
    for at in np.ndindex(*x.shape):
        value = x[at].item()
        sums = []
        for moved in (value + eps, value - eps):
            x[at] = moved
            sums.append(run(*inputs).numpy().astype("float64"))
        x[at] = value
        made[at] = np.sum((sums[0] - sums[1]) / (2 * eps))
    return made
