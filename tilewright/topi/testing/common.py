"""Schedules by target for tests, and the comparison of an operator with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ... import te
from ...homes import home_of
from .. import cuda, generic, nn


def _target(target: Any) -> Any:
    return home_of("targets").Target(target)


def dispatch(target: Any, dispatch_map: Mapping[str, Any]) -> Any:
    """The entry of the first key of a target ("cuda", "gpu", "cpu", …) that a table has, else its "generic" one."""
    for key in _target(target).keys:
        if key in dispatch_map:
            return dispatch_map[key]
    return dispatch_map["generic"]


def _schedules_of(target: Any) -> Any:
    """The module of plain schedules for a target: loops on processors, threads on GPUs."""
    return cuda if target is not None and _target(target).is_gpu else generic


def get_injective_schedule(target: Any = None) -> Callable[..., Any]:
    """The schedule function of injective operators for a target."""
    found: Callable[..., Any] = _schedules_of(target).schedule_injective
    return found


get_elemwise_schedule = get_broadcast_schedule = get_injective_schedule


def get_reduce_schedule(target: Any = None) -> Callable[..., Any]:
    """The schedule function of reductions for a target."""
    found: Callable[..., Any] = _schedules_of(target).schedule_reduce
    return found


def get_conv2d_nchw_implement(target: Any = None) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The compute of an NCHW convolution with OIHW, and its schedule function for a target."""
    return nn.conv2d_nchw, _schedules_of(target).schedule_conv2d_nchw


def compare_numpy_tvm(
    inputs: Sequence[Any],
    output: Any,
    target: Any,
    device: Any,
    compute: Callable[..., Any],
    schedule: Callable[..., Any],
) -> None:
    """Compile an operator with a schedule, run it on arrays and compare the result with the expected one."""
    arguments = [te.placeholder(i.shape, str(i.dtype)) for i in inputs]
    build, array = home_of("compiler").build, home_of("arrays").array
    with _target(target):
        made = compute(*arguments)
        func = build(schedule([made]), [*arguments, made])
    result = array(np.zeros(output.shape, output.dtype), device)
    func(*(array(i, device) for i in inputs), result)
    np.testing.assert_allclose(result.numpy(), output, rtol=1e-4, atol=1e-4)
