"""Models of Keras: layers in breadth, structures, names, layouts; what is refused and how."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
pytest.importorskip("tf2onnx", reason="needs tf2onnx: pip install 'tilewright[tensorflow]'")
pytest.importorskip("tensorflow", reason="needs tensorflow: pip install 'tilewright[tensorflow]'")
pytest.importorskip("keras", reason="needs keras: pip install 'tilewright[tensorflow]'")

import keras
import tensorflow as tf
from keras_cases import ACTIVATIONS, LAYERS, MERGES, WORDS

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.ir.errors import FrontendError

L = keras.layers
THIN = {"dense", "conv2d", "lstm", "add", "relu"}  # of the tables, what test-fast runs


def table(names: Any) -> list[Any]:
    return [pytest.param(n, marks=() if n in THIN else pytest.mark.slow) for n in names]


@pytest.fixture(autouse=True)
def same_weights_every_time() -> None:
    keras.utils.set_random_seed(3)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def run(mod: Any, params: Any, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    lib = relay.build(mod, "llvm", params=params)
    made = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    made.set_input(**inputs)
    made.run()
    return [made.get_output(i).numpy() for i in range(made.get_num_outputs())]


def compare(model: Any, inputs: dict[str, np.ndarray], layout: str = "NHWC") -> Any:
    """Import, compile, run; the answers are those of Keras. Gives back the module."""
    outside = {n: first(a) if layout == "NCHW" else a for n, a in inputs.items()}
    mod, params = relay.frontend.from_keras(model, {n: a.shape for n, a in outside.items()}, layout)
    assert [p.name_hint for p in mod["main"].params if p.name_hint not in params] == list(inputs)
    found = run(mod, params, outside)
    wanted = [np.asarray(t) for t in tf.nest.flatten(model.predict(_as_asked(model, inputs), verbose=0))]
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted):
        np.testing.assert_allclose(a, first(b) if layout == "NCHW" else b, rtol=1e-4, atol=1e-4)
    return mod


def _as_asked(model: Any, inputs: dict[str, np.ndarray]) -> Any:
    return next(iter(inputs.values())) if len(inputs) == 1 else inputs


def first(a: np.ndarray) -> np.ndarray:
    return np.moveaxis(a, -1, 1) if a.ndim >= 4 else a


# -- layers -------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", table(LAYERS))
def test_layer(name: str) -> None:
    shape, make = LAYERS[name]
    model = keras.Sequential([keras.Input(shape, name="x"), make()])
    compare(model, {"x": floats(2, *shape)})


@pytest.mark.parametrize("name", table(ACTIVATIONS))
def test_activation(name: str) -> None:
    model = keras.Sequential([keras.Input(WORDS, name="x"), L.Activation(name)])
    compare(model, {"x": floats(2, *WORDS) * 3})


@pytest.mark.parametrize("name", table(MERGES))
def test_merge(name: str) -> None:
    a, b = (keras.Input(WORDS, name=n) for n in ("left", "right"))
    model = keras.Model([a, b], MERGES[name]()([a, b]))
    compare(model, {"left": floats(2, *WORDS), "right": floats(2, *WORDS)[::-1].copy()})


# -- structures ---------------------------------------------------------------------------------
def test_embedding() -> None:
    model = keras.Sequential([keras.Input((7,), dtype="int32", name="ids"), L.Embedding(11, 4), L.Dense(3)])
    compare(model, {"ids": np.arange(14, dtype="int32").reshape(2, 7) % 11})


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["LSTM", "GRU"])
def test_masked_words(layer: str) -> None:
    ids = np.array([[3, 1, 0, 0], [2, 2, 5, 0]], "int32")
    words = L.Embedding(7, 4, mask_zero=True)
    model = keras.Sequential([keras.Input((4,), dtype="int32", name="ids"), words, getattr(L, layer)(3)])
    compare(model, {"ids": ids})


@pytest.mark.slow
def test_states_of_a_recurrent_layer() -> None:
    x = keras.Input(WORDS, name="x")
    start = [keras.Input((5,), name=n) for n in ("h", "c")]
    model = keras.Model(
        [x, *start], L.LSTM(5, return_state=True, return_sequences=True)(x, initial_state=start)
    )
    compare(model, {"x": floats(2, *WORDS), "h": floats(2, 5), "c": floats(2, 5) * 2})


def residual() -> Any:
    """A small residual network, of images in Keras' own layout."""
    x = keras.Input((16, 16, 3), name="image")
    y = L.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(x)
    y = L.BatchNormalization()(y)
    y = short = L.ReLU()(y)
    y = L.DepthwiseConv2D(3, padding="same")(y)
    y = L.Conv2D(8, 1, activation="relu6")(y)
    y = L.Add()([y, short])
    y = L.GlobalAveragePooling2D()(y)
    return keras.Model(x, L.Dense(10, activation="softmax")(y))


@pytest.mark.parametrize("layout", ["NCHW", pytest.param("NHWC", marks=pytest.mark.slow)])
def test_images_in_either_layout(layout: str) -> None:
    mod = compare(residual(), {"image": floats(2, 16, 16, 3)}, layout)
    if layout == "NCHW":  # nothing is left of turning the image around
        assert "transpose(%image" not in mod.astext()


@pytest.mark.slow
def test_results_are_images_too() -> None:
    x = keras.Input((8, 8, 3), name="x")
    inner = L.Conv2D(5, 3, padding="same")(x)
    model = keras.Model(x, [inner, L.Flatten()(inner), L.Conv2DTranspose(2, 2, strides=2)(inner)])
    compare(model, {"x": floats(1, 8, 8, 3)}, "NCHW")


def test_the_layout_is_nchw_where_none_is_given() -> None:
    mod, params = relay.frontend.from_keras(residual(), shape={"image": (1, 3, 16, 16)})
    (image,) = [p for p in mod["main"].params if p.name_hint not in params]
    assert str(image.type_annotation) == "Tensor[(1, 3, 16, 16), float32]"
    assert {a.dtype for a in params.values()} == {"float32"}


def test_inputs_have_the_names_of_their_layers() -> None:
    keras.backend.clear_session()
    for model in (
        keras.Sequential([keras.Input((4,)), L.Dense(3)]),
        keras.Model(x := keras.Input((4,)), L.Dense(3)(x)),
    ):
        mod, params = relay.frontend.from_keras(model)
        (name,) = [p.name_hint for p in mod["main"].params if p.name_hint not in params]
        assert name == (model.inputs[0]._keras_history.operation.name)
        assert name.startswith("input_layer")


@pytest.mark.slow
def test_inputs_by_name() -> None:
    parts = {n: keras.Input((4,), name=n) for n in ("price", "size")}
    y = L.Dense(3)(L.Concatenate()([parts["size"], parts["price"]]))
    model = keras.Model(parts, {"total": y, "best": L.Softmax()(y)})
    mod, params = relay.frontend.from_keras(model, {"price": (2, 4), "size": (2, 4)})
    inputs = {"price": floats(2, 4), "size": floats(2, 4) + 1}
    wanted = model.predict(inputs, verbose=0)
    for a, b in zip(run(mod, params, inputs), tf.nest.flatten(wanted)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_layer_used_twice_and_a_model_in_a_model() -> None:
    a, b = (keras.Input(WORDS, name=n) for n in ("a", "b"))
    shared = keras.Sequential([L.Dense(5, activation="gelu"), L.LayerNormalization()])
    compare(
        keras.Model([a, b], L.Subtract()([shared(a), shared(b)])),
        {"a": floats(2, *WORDS), "b": floats(2, *WORDS) * 2},
    )


@pytest.mark.slow
def test_a_transformer_block() -> None:
    ids = keras.Input((12,), dtype="int32", name="ids")
    y = L.Embedding(20, 16)(ids)
    seen = L.MultiHeadAttention(4, 4)(y, y, use_causal_mask=True)
    y = L.LayerNormalization()(L.Add()([y, seen]))
    more = L.Dense(16)(L.Dense(32, activation="gelu")(y))
    model = keras.Model(ids, L.Dense(20)(L.LayerNormalization()(L.Add()([y, more]))))
    compare(model, {"ids": np.arange(24, dtype="int32").reshape(2, 12) % 20})


@pytest.mark.slow
def test_operations_of_keras() -> None:
    x = keras.Input(WORDS, name="x")
    y = keras.ops.einsum("bij,bkj->bik", x, x) * 0.5
    y = keras.ops.where(y > 0, keras.ops.log1p(keras.ops.abs(y)), keras.ops.cumsum(y, axis=1))
    model = keras.Model(
        x, [keras.ops.top_k(y, 2)[0], keras.ops.argmax(y, axis=-1), keras.ops.logsumexp(y, axis=1)]
    )
    compare(model, {"x": floats(2, *WORDS)})


@pytest.mark.slow
def test_a_model_that_is_a_class() -> None:
    @keras.saving.register_keras_serializable("tests")
    class Mine(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.inner = L.Dense(3)

        def call(self, x: Any, training: bool = False) -> Any:
            return keras.ops.relu(self.inner(x)) + (100.0 if training else 0.0)

    model, x = Mine(), floats(2, 4)
    wanted = np.asarray(model(x))
    with pytest.raises(FrontendError, match=r"has no input specification: give shape="):
        relay.frontend.from_keras(model)
    mod, params = relay.frontend.from_keras(model, {"x": x.shape})
    np.testing.assert_allclose(run(mod, params, {"x": x})[0], wanted, rtol=1e-4, atol=1e-5)


def test_sizes_stay_open() -> None:
    model = keras.Sequential([keras.Input((None, 4), name="x"), L.Dense(3, activation="relu")])
    mod, params = relay.frontend.from_keras(model)
    assert str(mod["main"].params[0].type_annotation) == "Tensor[(batch, x_1, 4), float32]"
    call = relay.create_executor("vm", mod, tvm.cpu(), "llvm", params).evaluate()
    for x in (floats(1, 3, 4), floats(5, 2, 4)):
        np.testing.assert_allclose(call(x).numpy(), np.asarray(model(x)), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["net.keras", "net.h5"])
def test_files(name: str, tmp_path: Path) -> None:
    model = residual()
    model.save(tmp_path / name)
    mod, params = relay.frontend.from_keras(tmp_path / name, {"image": (1, 3, 16, 16)})
    x = floats(1, 16, 16, 3)
    found = run(mod, params, {"image": first(x)})[0]
    np.testing.assert_allclose(found, np.asarray(model(x)), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size"), [("MobileNetV2", 64), ("ResNet50V2", 64), ("EfficientNetB0", 64), ("DenseNet121", 64)]
)
def test_applications(name: str, size: int) -> None:
    """The structures that come with Keras, with random weights."""
    model = getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=10)
    compare(model, {model.layers[0].name: floats(1, size, size, 3)}, "NCHW")


# -- refusals -----------------------------------------------------------------------------------
def test_refusals(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((4,), name="x"), L.Dense(3)])
    (tmp_path / "bad.keras").write_bytes(b"no model")
    for work, reason in [
        (lambda: relay.frontend.from_keras(model, layout="CHWN"), "layout='CHWN': it must be one of NCHW"),
        (lambda: relay.frontend.from_keras(model, {"y": (1, 4)}), "shape has 'y', and the inputs are x"),
        (lambda: relay.frontend.from_keras(model, {"x": (1, 5)}), "the model takes (None, 4)"),
        (lambda: relay.frontend.from_keras(3), "takes a model of Keras or its file, not int"),
        (lambda: relay.frontend.from_keras(tmp_path / "no.keras"), "no.keras: there is no such file"),
        (
            lambda: relay.frontend.from_keras(tmp_path / "bad.keras"),
            "bad.keras: is not a model of Keras, or a damaged",
        ),
    ]:
        with pytest.raises(FrontendError) as caught:
            work()
        assert reason in str(caught.value)


def test_operators_that_cannot_be_converted_are_listed() -> None:
    x = keras.Input((4,), name="x")
    odd = L.Lambda(lambda t: tf.math.bessel_i0(t) + tf.math.lgamma(t), output_shape=(4,))
    with pytest.raises(FrontendError, match=r"cannot be converted to ONNX:(.|\n)*BesselI0(.|\n)*Lgamma"):
        relay.frontend.from_keras(keras.Model(x, odd(x)), {"x": (1, 4)})
