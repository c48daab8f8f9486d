"""What is not built yet can be imported, and says so when it is used."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import tilewright as tvm
from tilewright._later import Later
from tilewright.ir.errors import UnsupportedError

# What programs import at their top: (module, name in it or "").
IMPORTS = [
    ("relay", ""),
    ("relay", "Expr"),
    ("relay", "create_executor"),
    ("relay.analysis", "free_vars"),
    ("relay.backend", "Executor"),
    ("relay.backend", "Runtime"),
    ("relay.backend", "graph_executor_codegen"),
    ("relay.build_module", "bind_params_by_name"),
    ("relay.dataflow_pattern", "wildcard"),
    ("relay.frontend", "from_pytorch"),
    ("relay.op", "add"),
    ("relay.op", "op"),
    ("relay.prelude", "Prelude"),
    ("relay.qnn.transform", "CanonicalizeOps"),
    ("relay.testing", "run_infer_type"),
    ("relay.testing", "mlp"),
    ("relay.testing.resnet", "get_workload"),
    ("relay.testing.temp_op_attr", "TempOpAttr"),
    ("relay.transform", "InferType"),
    ("relay.vm", "compile"),
    ("topi", "add"),
    ("topi.cuda.conv3d_winograd", "_infer_tile_size"),
    ("topi.math", "cast"),
    ("topi.nn.conv2d", "_get_workload"),
    ("topi.nn.pooling", "pool2d"),
    ("topi.nn.utils", "get_pad_tuple"),
    ("topi.testing", "conv2d_nchw_python"),
    ("topi.utils", "get_const_tuple"),
    ("topi.x86.conv2d_avx_common", "_fallback_schedule"),
    ("autotvm", "measure_option"),
    ("autotvm.measure", "MeasureErrorNo"),
    ("autotvm.measure", "MeasureInput"),
    ("autotvm.record", "ApplyHistoryBest"),
    ("autotvm.record", "encode"),
    ("autotvm.task.space", "ConfigSpace"),
    ("autotvm.tuner", "XGBTuner"),
    ("auto_scheduler", "SearchTask"),
    ("auto_scheduler.utils", "get_const_tuple"),
    ("auto_scheduler", "workload_registry"),
    ("rpc", "connect"),
    ("vta", "get_env"),
    ("meta_schedule", "tune_tir"),
    ("meta_schedule.database", "JSONDatabase"),
    ("contrib", "graph_executor"),
    ("contrib", "cblas"),
    ("contrib.cublas", "matmul"),
    ("contrib.cuda_graph", "cuda_graph_executor"),
    ("contrib.dlpack", "to_pytorch_func"),
    ("contrib.graph_runtime", "create"),
    ("contrib.tar", "tar"),
    ("contrib.util", "tempdir"),
    ("contrib.graph_executor", "GraphModule"),
    ("contrib.ndk", "create_shared"),
    ("contrib.pickle_memoize", "memoize"),
    ("contrib.relay_viz", "RelayVisualizer"),
    ("driver", "tvmc"),
    ("driver.tvmc", "load"),
    ("driver.tvmc.shape_parser", "parse_shape_string"),
    ("testing.auto_scheduler", "matmul_auto_scheduler_test"),
    ("testing.autotvm", "get_sample_task"),
    ("tir.tensor_intrin.cuda", "get_wmma_intrin_group"),
]


@pytest.mark.parametrize(("module", "name"), IMPORTS)
def test_programs_get_past_their_imports(module: str, name: str) -> None:
    if not name:
        importlib.import_module(f"tilewright.{module}")
        return
    scope: dict[str, Any] = {}
    exec(f"from tilewright.{module} import {name}", scope)
    thing = scope[name]
    if isinstance(thing, Later):  # what is built by now answers for itself
        with pytest.raises(UnsupportedError, match=rf"^{module}\.{name}: .*yet"):
            thing(1, key=2)


def test_the_error_says_what_is_missing_and_what_to_do() -> None:
    with pytest.raises(UnsupportedError) as caught:
        tvm.vta.get_env()
    assert str(caught.value) == "vta.get_env: the example accelerator is not there yet"
    assert isinstance(caught.value, NotImplementedError)
    assert isinstance(caught.value, tvm.TVMError)


def test_classes_can_be_derived_from_and_asked_about() -> None:
    from tilewright import meta_schedule

    class Mine(meta_schedule.PyDatabase):  # type: ignore[misc]
        def has_workload(self, mod: object) -> bool:
            return False

    assert not isinstance(1, meta_schedule.PyDatabase)
    assert meta_schedule.PyDatabase is meta_schedule.PyDatabase
    with pytest.raises(UnsupportedError, match=r"^meta_schedule\.PyDatabase: "):
        Mine()


def test_members_of_what_is_missing_are_missing_too() -> None:
    from tilewright import relay

    with pytest.raises(UnsupportedError, match=r"^relay\.PatternVar\.of: "):
        relay.PatternVar.of()


def test_a_module_that_never_was_does_not_import() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("tilewright.relay.nonsense")
    with pytest.raises(AttributeError):
        tvm.nonsense  # noqa: B018
