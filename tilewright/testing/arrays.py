"""Comparison of results with expected values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def assert_allclose(
    actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7, verbose: bool = True
) -> None:
    """Fail unless two arrays have one shape and agree in each element within `atol + rtol * |desired|`."""
    import numpy as np

    got, want = _plain(actual), _plain(desired)
    # NumPy would broadcast a scalar or a row to the other array, and call them equal.
    np.testing.assert_equal(got.shape, want.shape, err_msg="the shapes differ", verbose=verbose)
    np.testing.assert_allclose(got, want, rtol=rtol, atol=atol, verbose=verbose)


def check_numerical_grads(
    function: Callable[..., Any],
    input_values: Sequence[Any] | Mapping[str, Any],
    grad_values: Sequence[Any] | Mapping[str, Any],
    function_value: Any = None,
    delta: float = 1e-3,
    atol: float = 1e-2,
    rtol: float = 0.1,
) -> None:
    """Fail unless gradients are near (f(x + delta) - f(x - delta)) / (2 delta), measured for each input as a whole.

    `function` takes the arrays one by one, by name if they are a mapping, and gives a number. An input passes if the
    distance of its gradient is at most `atol * sqrt(elements) + rtol * |differences|`. `function_value`, where it is
    given, is what `function` must give for the inputs.
    """
    import numpy as np

    named = isinstance(input_values, Mapping)
    values = {k: np.array(_plain(v)) for k, v in _items(input_values)}
    grads = {k: _plain(v) for k, v in _items(grad_values)}
    if set(grads) - set(values):
        raise ValueError(f"there are gradients of {sorted(grads)} for inputs {sorted(values)}")

    def call() -> float:
        made = function(**values) if named else function(*values.values())
        return float(np.asarray(_plain(made)))

    if function_value is not None:
        assert_allclose(call(), float(np.asarray(_plain(function_value))), rtol=1e-5, atol=1e-5)
    for key, grad in grads.items():
        x = values[key]
        want = np.zeros(x.shape, "float64")
        for at in np.ndindex(x.shape):
            center = x[at]
            x[at] = center + delta
            above, high = call(), float(x[at])
            x[at] = center - delta
            below, low = call(), float(x[at])
            x[at] = center
            want[at] = (above - below) / (high - low)  # the step that the type of the values could hold
        np.testing.assert_equal(grad.shape, want.shape, err_msg=f"the gradient of {key!r} has another shape")
        distance = float(np.linalg.norm(np.asarray(grad, "float64") - want))
        limit = atol * x.size**0.5 + rtol * float(np.linalg.norm(want))
        if not distance <= limit:
            raise AssertionError(
                f"the gradient of input {key!r} is {distance:.3g} away from differences of the function's values, "
                f"and {limit:.3g} is allowed:\n{grad}\nagainst\n{want}"
            )


def _items(values: Sequence[Any] | Mapping[str, Any]) -> list[tuple[Any, Any]]:
    return list(values.items() if isinstance(values, Mapping) else enumerate(values))


def _plain(value: Any) -> Any:
    import numpy as np

    copied = getattr(value, "numpy", None)
    return np.asarray(copied() if callable(copied) else value)
