"""Every ONNX file inside six packages of PyPI: imported, compiled for any size and for fixed ones, run beside onnxruntime.

The packages themselves are never imported: only their files are read, so that `pip install --no-deps` is enough.
"""

from __future__ import annotations

import importlib.metadata
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.ty import TensorType

pytest.importorskip("onnx")

Shapes = dict[str, Any]  # the name of an input: its shape, or its value where it is a number


@dataclass(frozen=True)
class Model:
    """A file of a package, shapes to run it at, and the outputs that are inputs of the next run."""

    package: str
    file: str
    cases: list[Shapes]
    carried: dict[str, str] = field(default_factory=dict)
    fixed: dict[str, Any] = field(
        default_factory=dict
    )  # inputs that choose a branch: fixed sizes need their value
    steps: int = 1
    rounds: bool = False  # are there activations in 8 bits? One rounded the other way moves all that follows
    heavy: str = ""  # which of its tests take tens of seconds of processor time: "any", "fixed"

    def path(self) -> Path:
        for found in files_of(self.package):
            if found.as_posix().endswith(self.file):
                return found
        pytest.fail(f"{self.package} {importlib.metadata.version(self.package)} has no file {self.file}")


def files_of(package: str) -> list[Path]:
    """The ONNX files of an installed distribution."""
    try:
        listed = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"needs the Python package {package}")
    return [Path(str(f.locate())) for f in listed if f.suffix == ".onnx"]


def speech(batch: int, samples: int, sr: int | None = 16000) -> Shapes:
    given: Shapes = {"input": (batch, samples), "state": (2, batch, 128)}
    return given if sr is None else {**given, "sr": sr}


RAPIDOCR, SILERO, DDDDOCR = "rapidocr-onnxruntime", "silero-vad", "ddddocr"
STATE = {"state": "stateN"}
MODELS = {
    "text-detection": Model(
        RAPIDOCR,
        "ch_PP-OCRv4_det_infer.onnx",
        [{"x": (1, 3, 96, 128)}, {"x": (1, 3, 64, 192)}, {"x": (1, 3, 128, 96)}, {"x": (2, 3, 64, 96)}],
        heavy="any",
    ),
    "text-recognition": Model(
        RAPIDOCR,
        "ch_PP-OCRv4_rec_infer.onnx",
        [{"x": (1, 3, 48, 160)}, {"x": (1, 3, 48, 96)}, {"x": (1, 3, 48, 320)}, {"x": (2, 3, 48, 64)}],
        heavy="any",
    ),
    "text-direction": Model(
        RAPIDOCR,
        "ch_ppocr_mobile_v2.0_cls_infer.onnx",
        # not lower than 48: its last pool would get one row for windows of two, which is not a window by ONNX's formula
        # (floor) and one by onnxruntime's (towards zero)
        [{"x": (1, 3, 48, 192)}, {"x": (3, 3, 64, 96)}],
        heavy="any",
    ),
    "speech": Model(
        SILERO,
        "data/silero_vad.onnx",
        [speech(1, 576), speech(1, 288, 8000), speech(3, 576)],
        STATE,
        {"sr": 16000},
        3,
        heavy="any",
    ),
    "speech-opset-15": Model(
        SILERO,
        "data/silero_vad_16k_op15.onnx",
        [speech(1, 576), speech(3, 576)],
        STATE,
        {"sr": 16000},
        3,
        heavy="any",
    ),
    "speech-opset-18": Model(
        SILERO,
        "data/silero_vad_op18_ifless.onnx",
        [speech(1, 576), speech(1, 288, 8000), speech(3, 576)],
        STATE,
        {"sr": 16000},
        3,
        heavy="any",
    ),
    "speech-half": Model(
        SILERO,
        "data/silero_vad_half.onnx",
        [speech(1, 576, None), speech(3, 576, None)],
        STATE,
        {},
        3,
        heavy="any",
    ),
    "speech-openvino": Model(
        SILERO, "data/silero_vad_openvino_16k.onnx", [speech(1, 576, None)], STATE, {}, 3
    ),
    "speech-sequence": Model(
        SILERO,
        "data/silero_vad_16k_sequence.onnx",
        [
            {"input": (4, 576), "h": (1, 1, 128), "c": (1, 1, 128)},
            {"input": (11, 576), "h": (1, 1, 128), "c": (1, 1, 128)},
        ],
        {"h": "hn", "c": "cn"},
        {},
        2,
    ),
    "file-types": Model("magika", "/model.onnx", [{"bytes": (1, 2048)}, {"bytes": (5, 2048)}]),
    "detection": Model(
        "nudenet",
        "320n.onnx",
        [{"images": (1, 3, 96, 96)}, {"images": (1, 3, 128, 160)}, {"images": (2, 3, 64, 96)}],
        heavy="any fixed",
    ),
    "music": Model(
        "basic-pitch",
        "nmp.onnx",
        [{"serving_default_input_2:0": (1, 43844, 1)}, {"serving_default_input_2:0": (2, 43844, 1)}],
        heavy="any fixed",
    ),
    "captcha": Model(
        DDDDOCR,
        "ddddocr/common.onnx",
        [{"input1": (1, 1, 64, 96)}, {"input1": (1, 1, 64, 144)}],
        heavy="any",
    ),
    "captcha-detection": Model(
        DDDDOCR, "ddddocr/common_det.onnx", [{"images": (1, 3, 416, 416)}], heavy="any fixed"
    ),
    "captcha-int8": Model(
        DDDDOCR,
        "ddddocr/common_old.onnx",
        [{"input1": (1, 1, 64, 96)}, {"input1": (1, 1, 64, 144)}],
        rounds=True,
        heavy="any fixed",
    ),
}
PACKAGES = sorted({m.package for m in MODELS.values()})


def picture(shape: tuple[int, ...], rng: Any) -> Any:
    """A line of letters, dark on light paper, from -1 to 1."""
    high, wide = shape[-2:]
    made = np.full(shape, 0.9)
    top, tall = high // 2 - 10, 20
    for x in range(8, wide - 16, 14):  # each has an upright, and bars at one or two of three heights
        made[..., top : top + tall, x : x + 3] = -0.9
        for bar in rng.choice(3, rng.integers(1, 3), replace=False):
            y = top + (0, 8, 17)[bar]
            made[..., y : y + 3, x : x + 10] = -0.9
    return made + rng.standard_normal(shape) * 0.02


def sound(shape: tuple[int, ...], rng: Any) -> Any:
    """A voice: a low tone with overtones, and breath."""
    t = np.arange(int(np.prod(shape)))
    tones = [np.sin(2 * np.pi * 140 * k * t / 16000) / k for k in range(1, 12)]
    return (0.2 * np.sum(tones, 0) + 0.02 * rng.standard_normal(t.shape)).reshape(shape)


def value_of(name: str, shape: Any, kind: Any, rng: Any) -> Any:
    if not isinstance(shape, tuple):
        return np.asarray(shape, kind)
    if name == "bytes":
        text = Path(__file__).read_bytes()
        made = np.frombuffer(text[: 1024 * shape[0]].ljust(1024 * shape[0]), np.uint8).reshape(shape[0], 1024)
        return np.concatenate([made, np.full((shape[0], shape[1] - 1024), 256)], 1).astype(kind)
    if name in ("state", "h", "c"):
        return np.zeros(shape, kind)
    if len(shape) == 4:
        return picture(shape, rng).astype(kind)
    return sound(shape, rng).astype(kind)


class Peer:
    """The model in onnxruntime, and values for its inputs."""

    def __init__(self, path: Path) -> None:
        ort = pytest.importorskip("onnxruntime")
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        self.session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.outputs = [o.name for o in self.session.get_outputs()]

    def values(self, case: Shapes) -> dict[str, Any]:
        rng = np.random.default_rng(0)
        kinds = {"tensor(float)": np.float32, "tensor(int32)": np.int32, "tensor(int64)": np.int64}
        return {i.name: value_of(i.name, case[i.name], kinds[i.type], rng) for i in self.session.get_inputs()}

    def spread(self, values: dict[str, Any], wanted: list[Any]) -> float:
        """How far onnxruntime's own answers lie apart for inputs that differ by a millionth."""
        far = 0.0
        for factor in (1 - 1e-6, 1 + 1e-6, 1 + 2e-6):
            near = {k: (v * factor).astype(v.dtype) for k, v in values.items()}
            for a, b in zip(self.session.run(None, near), wanted, strict=True):
                far = max(far, float(np.abs(a - b).max()))
        assert far < 0.05 * max(float(np.abs(w).max()) for w in wanted)
        return far


def agree(run: Callable[[dict[str, Any]], list[Any]], model: Model, peer: Peer, case: Shapes) -> None:
    """The same answers as onnxruntime's, step by step where the model has a state."""
    values = peer.values(case)
    for _ in range(model.steps):
        wanted = peer.session.run(None, values)
        assert max(float(np.abs(w).max()) for w in wanted) > 0.05  # there is something to see
        slack = peer.spread(values, wanted) if model.rounds else 0.0
        found = run(values)
        assert len(found) == len(wanted)
        for name, f, w in zip(peer.outputs, found, wanted, strict=True):
            assert f.shape == w.shape and f.dtype == w.dtype, name
            # onnxruntime's sigmoid is 1e-7 off near zero
            np.testing.assert_allclose(
                f,
                w,
                rtol=1e-3,
                atol=1e-6 + 1e-4 * float(np.abs(w).max()) + slack,
                err_msg=f"{name} at {case}",
            )
        by_name = dict(zip(peer.outputs, wanted, strict=True))
        values = {**values, **{i: by_name[o] for i, o in model.carried.items()}}


def imported(path: Path, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a size that a branch takes to be 1
        mod, params = relay.frontend.from_onnx(path, **options)
    assert not params
    return mod


def names_of(mod: Any) -> list[str]:
    return [p.name_hint for p in mod["main"].params]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_file_is_forgotten(package: str) -> None:
    tested = [m.path() for m in MODELS.values() if m.package == package]
    assert sorted(tested) == sorted(files_of(package))


@pytest.mark.parametrize("name", MODELS)
def test_dynamic_sizes_stay(name: str) -> None:
    model = MODELS[name]
    mod = imported(model.path())
    params = mod["main"].params
    dynamic = {(p, i) for p in params for i, d, _ in sizes(p, model.cases[0]) if not isinstance(d, int)}
    seen: dict[Any, set[int]] = {}
    for case in model.cases:
        for p in params:
            for i, d, n in sizes(p, case):
                assert not isinstance(d, int) or d == n
                seen.setdefault((p, i), set()).add(n)
    assert {k for k, v in seen.items() if len(v) > 1} <= dynamic


def sizes(p: Any, case: Shapes) -> Iterator[tuple[int, Any, int]]:
    """Each dimension of a parameter: its place, its size in the program, its size in a case."""
    assert isinstance(p.checked_type, TensorType)
    given = case[p.name_hint] if isinstance(case[p.name_hint], tuple) else ()
    assert len(p.checked_type.shape) == len(given)
    yield from ((i, d, n) for i, (d, n) in enumerate(zip(p.checked_type.shape, given, strict=True)))


def models_for(what: str) -> list[Any]:
    return [pytest.param(n, marks=[pytest.mark.heavy] * (what in m.heavy.split())) for n, m in MODELS.items()]


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", models_for("any"))
def test_any_size_agrees_with_onnxruntime(name: str) -> None:
    model = MODELS[name]
    path = model.path()
    peer, mod = Peer(path), imported(path)
    function = relay.create_executor("vm", mod, tvm.cpu(), "llvm").evaluate()

    def run(values: dict[str, Any]) -> list[Any]:
        made = function(*(values[n] for n in names_of(mod)))
        return [m.numpy() for m in (made if len(peer.outputs) > 1 else [made])]

    for case in model.cases:
        agree(run, model, peer, case)


@pytest.mark.sample(1)
@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", models_for("fixed"))
def test_fixed_sizes_agree_with_onnxruntime(name: str) -> None:
    model = MODELS[name]
    path, case = model.path(), model.cases[0]
    peer = Peer(path)
    shapes = {k: s for k, s in case.items() if isinstance(s, tuple)}
    mod = imported(path, shape=shapes, values={k: np.asarray(v) for k, v in model.fixed.items()})
    module = graph_executor.GraphModule(relay.build(mod, "llvm")["default"](tvm.cpu()))

    def run(values: dict[str, Any]) -> list[Any]:
        for n in names_of(mod):
            module.set_input(n, values[n])
        module.run()
        return [module.get_output(i).numpy() for i in range(len(peer.outputs))]

    agree(run, model, peer, case)


# ---------------------------------------------------------------------------- whose the difference in 8 bits is
def convolutions_of(path: Path, double: bool) -> Any:
    """The model up to its LSTM, which quantizes 21 times on the way; with `double`, all else in 64 bits."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def wide(t: Any) -> None:
        if t.data_type == TensorProto.FLOAT:
            t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype(np.float64), t.name))

    model = onnx.load(path)
    graph = model.graph
    end = next(n for n in graph.node if n.op_type == "DynamicQuantizeLSTM").input[0]
    wanted, kept = {end}, []
    for n in reversed(graph.node):
        if wanted & set(n.output):
            kept.append(n)
            wanted |= set(n.input)
    weights = [t for t in graph.initializer if t.name in wanted]
    kind = TensorProto.DOUBLE if double else TensorProto.FLOAT
    if double:
        graph.input[0].type.tensor_type.elem_type = kind
        for t in (*weights, *(a.t for n in kept for a in n.attribute if a.HasField("t"))):
            wide(t)
        for n in kept:
            if n.op_type == "Cast" and n.attribute[0].i == TensorProto.FLOAT:
                n.attribute[0].i = kind
    ends = [helper.make_tensor_value_info(end, kind, None)]
    cut = helper.make_graph(kept[::-1], "convolutions", list(graph.input), ends, weights)
    return helper.make_model(cut, opset_imports=model.opset_import, ir_version=model.ir_version)


@pytest.mark.slow
@pytest.mark.heavy
def test_neither_rounds_as_exact_arithmetic_does() -> None:
    """Why `rounds` is needed: onnxruntime is 2% away from 64-bit arithmetic itself, and tilewright is no farther.

    A number that lies between two steps of a quantization goes up or down by its last bit. Here the first one does so
    in the sixth of 21 quantizations, and every fourth number differs by a step or more in the last.
    """
    ort = pytest.importorskip("onnxruntime")
    from onnx.reference import ReferenceEvaluator

    model = MODELS["captcha-int8"]
    case, path = model.cases[0], model.path()
    values = Peer(path).values(case)
    (name, x), *_ = values.items()
    exact = ReferenceEvaluator(convolutions_of(path, True)).run(None, {name: x.astype(np.float64)})[0]
    plain = convolutions_of(path, False)
    session = ort.InferenceSession(plain.SerializeToString(), providers=["CPUExecutionProvider"])
    mod, _ = relay.frontend.from_onnx(plain, shape=case)
    module = graph_executor.GraphModule(relay.build(mod, "llvm")["default"](tvm.cpu()))
    module.run(**{name: x})
    theirs, ours = session.run(None, values)[0] - exact, module.get_output(0).numpy() - exact
    scale = np.abs(exact).max()
    assert np.abs(theirs).max() > 1e-3 * scale
    assert np.abs(ours).max() < 0.05 * scale
    assert np.sqrt((ours**2).mean()) < 1.5 * np.sqrt((theirs**2).mean())
