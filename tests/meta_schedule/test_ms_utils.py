"""Helpers that programs import with MetaSchedule."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tvm
from tilewright import meta_schedule as ms
from tilewright import te
from tilewright.ir.errors import UnsupportedError
from tilewright.meta_schedule.testing import te_workload
from tilewright.meta_schedule.tune_context import _normalize_mod
from tilewright.meta_schedule.utils import cpu_count, derived_object, fork_seed, shash2hex


def test_derived_object_takes_a_class_as_it_is() -> None:
    @derived_object
    class Mine(ms.measure_callback.PyMeasureCallback):
        def apply(self, *args: Any) -> None:
            """Nothing."""

    assert Mine._cls is Mine and isinstance(Mine(), ms.MeasureCallback)  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"^derived_object: Other is derived from none of PyBuilder, "):

        @derived_object
        class Other:
            pass


def test_figures() -> None:
    assert cpu_count() >= cpu_count(logical=False) >= 1
    assert fork_seed(3, 4) == fork_seed(3, 4) and len(set(fork_seed(3, 4))) == 4
    one, two = (tvm.IRModule({"main": te.create_prim_func(te_workload.matmul(n, 8, 8))}) for n in (8, 16))
    assert int(shash2hex(one), 16) and shash2hex(one) != shash2hex(two)


def test_normalized_modules() -> None:
    func = te.create_prim_func(te_workload.matmul(8, 8, 8))
    named = tvm.IRModule({"mm": func})
    assert [gv.name_hint for gv in _normalize_mod(named).functions] == ["main"]
    assert [gv.name_hint for gv in _normalize_mod(func).functions] == ["main"]
    with pytest.raises(ValueError, match=r"mod has 2 functions \(a, b\), and one is tuned at a time"):
        _normalize_mod(tvm.IRModule({"a": func, "b": func}))
    with pytest.raises(TypeError, match="a PrimFunc or an IRModule, not int"):
        _normalize_mod(3)  # type: ignore[arg-type]


def test_names_before_0_10_say_what_to_use() -> None:
    with pytest.raises(UnsupportedError, match=r"use meta_schedule\.tune_tir\(mod, target, work_dir"):
        ms.TuneConfig(max_trials_global=4)
    with pytest.raises(UnsupportedError, match=r"use meta_schedule\.tune_tasks"):
        ms.tune.extract_task_from_relay(None, None, None)
