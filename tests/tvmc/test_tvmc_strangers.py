"""Model files of strangers run nothing when they are read."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.driver import tvmc
from tilewright.ir.errors import TVMError
from tilewright.model.pt2 import _plain

torch = pytest.importorskip("torch")


class Runs:
    """An object that makes a folder when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.mark,)


def saved(value: Any, **how: Any) -> bytes:
    out = io.BytesIO()
    torch.save(value, out, **how)
    return out.getvalue()


@pytest.fixture
def good(tmp_path: Path) -> Path:
    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.linear(x).view(x.shape[0] * 2, 2)

    sizes = {"x": {0: torch.export.Dim("n", min=2, max=64)}}
    program = torch.export.export(Net(), (torch.zeros(3, 4),), dynamic_shapes=sizes)
    torch.export.save(program, tmp_path / "net.pt2")
    return tmp_path / "net.pt2"


def changed(good: Path, name: str, data: Any) -> Path:
    """A copy of an archive with one member replaced (by a function of it), or added."""
    out = good.with_name("evil.pt2")
    with zipfile.ZipFile(good) as old, zipfile.ZipFile(out, "w") as new:
        found = False
        root = old.namelist()[0].split("/")[0]
        for entry in old.infolist():
            content = old.read(entry)
            if entry.filename == f"{root}/{name}":
                found = True
                content = data(content) if callable(data) else data
            new.writestr(entry.filename, content)
        if not found:
            new.writestr(f"{root}/{name}", data)
    return out


@pytest.mark.slow
def test_a_good_file_is_read(good: Path) -> None:
    assert tvmc.load(good).params


@pytest.mark.parametrize("form", ["zip", "legacy"])
@pytest.mark.slow
def test_sample_inputs_run_nothing(good: Path, form: str) -> None:
    mark = good.with_name("ran")
    evil = saved(Runs(mark), _use_new_zipfile_serialization=form == "zip")
    with pytest.raises(TVMError, match=r"evil\.pt2"):
        tvmc.load(changed(good, "data/sample_inputs/model.pt", evil))
    assert not mark.exists() and "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ


def test_pickled_weights_run_nothing(good: Path) -> None:
    mark = good.with_name("ran")

    def pickled(config: bytes) -> bytes:
        data = json.loads(config)
        for entry in data["config"].values():
            entry["use_pickle"] = True
        return json.dumps(data).encode()

    once = changed(good, "data/weights/model_weights_config.json", pickled)
    once.rename(good)
    with pytest.raises(TVMError, match=r"evil\.pt2"):
        tvmc.load(changed(good, "data/weights/weight_0", saved(Runs(mark))))
    assert not mark.exists()


@pytest.mark.parametrize(
    "name",
    [
        "data/constants/opaque_obj_0",
        "data/constants/custom_obj_0",
        "data/aotinductor/model/x.so",
        "code.py",
        "data.pkl",
    ],
)
def test_members_that_are_no_data_are_refused(good: Path, name: str) -> None:
    with pytest.raises(TVMError, match=f"the member '.*{name}' is neither a graph nor tensors"):
        tvmc.load(changed(good, name, b"x"))


def test_sizes_and_functions_run_nothing(good: Path) -> None:
    mark = good.with_name("ran")
    with zipfile.ZipFile(good) as archive:
        text = next(archive.read(n) for n in archive.namelist() if n.endswith("models/model.json"))
    assert b'"expr_str"' in text
    codes = "+".join(f"chr({ord(c)})" for c in f"import os; os.mkdir({str(mark)!r})")

    def sizes(data: bytes) -> bytes:
        graph = json.loads(data)
        stack = [graph]
        while stack:
            v = stack.pop()
            stack += v.values() if isinstance(v, dict) else v if isinstance(v, list) else []
            if isinstance(v, dict) and "expr_str" in v:
                v["expr_str"] = f"exec({codes})"
        return json.dumps(graph).encode()

    with pytest.raises(TVMError, match="is more than arithmetic"):
        tvmc.load(changed(good, "models/model.json", sizes))
    assert not mark.exists()
    with pytest.raises(TVMError, match=r"calls 'torch\.os\.system', which is not an operator"):
        tvmc.load(
            changed(
                good,
                "models/model.json",
                lambda d: d.replace(b"torch.ops.aten.linear.default", b"torch.os.system"),
            )
        )


def test_sizes_that_are_arithmetic() -> None:
    for expr in (
        "s77",
        "2*s77",
        "s0 + 3*(s1//2)",
        "Max(1, s0 - 1)",
        "FloorDiv(s0, 2)",
        "(s0**2)",
        "Eq(s0, 4) & (s1 < 3)",
        "Mul(Integer(2), Symbol('s77', positive=True, integer=True))",
    ):
        assert _plain(expr), expr
    for expr in (
        "exec(x)",
        "s0.__class__",
        "s0.subs",
        "(exec)(x)",
        "'a'",
        "open(s0)",
        "9**999999999",
        "2**3**4",
        "x[0]",
        "Symbol('__import__')",
        "lambda: 1",
        "f''",
    ):
        assert not _plain(expr), expr


def test_traced_modules_run_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    for form in (True, False):
        (tmp_path / "evil.pt").write_bytes(saved(Runs(mark), _use_new_zipfile_serialization=form))
        with pytest.raises(TVMError, match=r"evil\.pt"):
            tvmc.load(tmp_path / "evil.pt", shape_dict={"x": (2, 4)})
    assert not mark.exists()


def test_inputs_in_npz_run_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    np.savez(tmp_path / "evil.npz", x=np.array([Runs(mark)], object))
    from tilewright.driver.tvmc.runner import load_inputs

    with pytest.raises(TVMError, match=r"evil\.npz"):
        load_inputs(tmp_path / "evil.npz")
    assert not mark.exists()


def test_lambdas_in_keras_files_run_nothing(tmp_path: Path) -> None:
    keras = pytest.importorskip("keras")
    mark = tmp_path / "ran"
    code = f"lambda x: (__import__('os').mkdir({str(mark)!r}), x)[1]"
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Lambda(eval(code))])
    assert mark.exists()  # building it calls the function
    mark.rmdir()
    model.save(tmp_path / "evil.keras")
    with pytest.raises(TVMError, match=r"evil\.keras"):
        tvmc.load(tmp_path / "evil.keras")
    assert not mark.exists()


@pytest.mark.parametrize("whole", [False, True])
def test_files_of_torch_save_have_no_program(tmp_path: Path, whole: bool) -> None:
    """They are named, whether shapes are given or not, and nothing in them is executed."""
    path = tmp_path / "net.pt"
    net = torch.nn.Linear(3, 4)
    torch.save(net if whole else net.state_dict(), path)
    kind = "a pickled module" if whole else "a state_dict, the weights of a module without its code"
    load = (
        "torch.load(path, weights_only=False)" if whole else "Net(); model.load_state_dict(torch.load(path))"
    )
    for shapes in (None, {"x": [1, 3]}):
        with pytest.raises(tvmc.TVMCException) as caught:
            tvmc.load(path, shape_dict=shapes)
        assert str(caught.value) == (
            f"{path}: this is {kind}, as torch.save writes it, and has no program; export it in Python:\n"
            f"  model = {load}\n"
            "  torch.export.save(torch.export.export(model.eval(), (x,)), 'net.pt2')"
        )
