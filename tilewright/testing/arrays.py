"""Comparison of results with expected values."""

from __future__ import annotations

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


def _plain(value: Any) -> Any:
    import numpy as np

    copied = getattr(value, "numpy", None)
    return np.asarray(copied() if callable(copied) else value)
