"""Classic names that are absent can be imported, and say what to use instead when they are used."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tilewright as tvm
from tilewright import absent, te, tir
from tilewright.absent import Absent
from tilewright.ir.errors import UnsupportedError

# What programs import at their top, there or absent: (module, name in it or "").
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
    ("relay.expr", "RefCreate"),
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
    ("vta", "Config"),
    ("meta_schedule", "FeatureExtractor"),
    ("meta_schedule.feature_extractor", "PerStoreFeature"),
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
    if isinstance(thing, Absent):  # what is there answers for itself
        with pytest.raises(UnsupportedError, match=rf"^{module}\.{name} is not part of tilewright: "):
            thing(1, key=2)


def found(path: str) -> Any:
    """What a program gets under a path of the table."""
    if path.endswith(".*"):
        module = importlib.import_module(f"tilewright.{path.removesuffix('.*')}")
        there = getattr(module, "__file__", None) is not None
        assert there == (path in ("topi.cuda.*", "topi.generic.*")), (
            f"{path} has a file: take it out of the table"
        )
        return module.anything
    home, _, name = path.rpartition(".")
    if home == "tir.Schedule":
        A = te.placeholder((4,), name="A")
        return getattr(tir.Schedule(te.create_prim_func([A, te.compute((4,), lambda i: A[i])])), name)
    module = importlib.import_module(f"tilewright.{home}")
    assert inspect.isclass(getattr(module, name)), f"{path} exists: take it out of the table"
    return getattr(module, name)


@pytest.mark.parametrize("path", absent.names())
def test_a_name_of_the_table_raises_its_remedy(path: str) -> None:
    whole = path.replace("*", "anything")
    with pytest.raises(UnsupportedError) as caught:
        found(path)(1, key=2)
    assert str(caught.value) == absent.text_of(whole)
    assert str(caught.value).startswith(f"{whole} is not part of tilewright: ")


def test_no_row_says_the_same_name_twice() -> None:
    listed = [
        f"{home}.{name}"
        for homes, names, *_ in absent.TABLE
        for home in homes.split() or [""]
        for name in names.split()
    ]
    assert len(listed) == len(set(listed)) == len(absent.names())


def exists(path: str) -> bool:
    thing: Any = tvm
    for part in path.removeprefix("tvm.").removeprefix("tilewright.").split("."):
        try:
            thing = getattr(thing, part)
        except AttributeError:
            try:
                thing = importlib.import_module(f"{thing.__name__}.{part}")
            except (AttributeError, ImportError):
                return False
    return not isinstance(thing, Absent)


ROOTS = "relay|tir|topi|te|tvm|tilewright|autotvm|auto_scheduler|contrib"


@pytest.mark.parametrize("row", absent.TABLE, ids=lambda row: f"{row[0]} {row[1].split()[0]}")
def test_what_a_remedy_names_exists(row: tuple[str, str, str, str]) -> None:
    names = re.findall(rf"\b(?:{ROOTS})(?:\.\w+)+", " ".join(row[2:]))
    names += [f"tir.Schedule.{n}" for n in re.findall(r"\bsch\.(\w+)", " ".join(row[2:]))]
    assert [n for n in names if not exists(n)] == []
    assert not re.search(r"\byet\b", " ".join(row[2:])), "a message that says `yet` is stale one day"


def test_the_error_says_what_is_missing_and_what_to_do() -> None:
    with pytest.raises(UnsupportedError) as caught:
        tvm.contrib.spirv.optimize(b"")
    assert str(caught.value) == (
        "contrib.spirv.optimize is not part of tilewright: no target has SPIR-V for its code; use target opencl, "
        "whose code is OpenCL C"
    )
    assert isinstance(caught.value, NotImplementedError)
    assert isinstance(caught.value, tvm.TVMError)


def test_classes_can_be_derived_from_and_asked_about() -> None:
    from tilewright import meta_schedule

    class Mine(meta_schedule.FeatureExtractor):  # type: ignore[misc]
        def extract_from(self, context: object) -> bool:
            return False

    assert not isinstance(1, meta_schedule.FeatureExtractor)
    assert meta_schedule.FeatureExtractor is meta_schedule.FeatureExtractor
    with pytest.raises(UnsupportedError, match=r"^meta_schedule\.FeatureExtractor is not part"):
        Mine()


def test_members_of_what_is_absent_are_absent_too() -> None:
    from tilewright import relay

    with pytest.raises(UnsupportedError, match=r"^relay\.prelude\.TensorArrayOps\.of is not .*; use a List"):
        relay.prelude.TensorArrayOps.of()


def test_a_name_that_never_was_is_an_ordinary_error() -> None:
    from tilewright import relay

    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("tilewright.relay.nonsense")
    for home in (tvm, relay, relay.transform, relay.analysis, relay.testing, tir.transform, te):
        with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
            home.nonsense  # noqa: B018
        assert not hasattr(home, "nonsense")


@pytest.mark.slow
def test_a_folder_that_is_left_over_is_no_module(tmp_path: Path) -> None:
    """Version control leaves the folder of a module that went, with what Python has compiled in it."""
    shutil.copytree(
        Path(tvm.__file__).parent, tmp_path / "tilewright", ignore=shutil.ignore_patterns("*.json", "*.gz")
    )
    left = tmp_path / "tilewright" / "meta_schedule" / "feature_extractor" / "__pycache__"
    left.mkdir(parents=True, exist_ok=True)
    code = (
        "from tilewright.meta_schedule import feature_extractor as f\n"
        "try: f.PerStoreFeature()\nexcept NotImplementedError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith("meta_schedule.feature_extractor.PerStoreFeature is not part"), done.stderr
