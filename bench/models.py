"""The models of bench/cpu_models.py: as ONNX files with inputs and reference, and for PyTorch with the same weights.

resnet50, squeezenet    the structure of the light models in the onnx package, weights from a fixed seed
mobilenetv2             written here in PyTorch, and exported
bert, gpt2              BERT-base at 128 tokens and GPT-2 small at 64, written here in PyTorch, and exported
dynamic-ocr-…           the networks of the package rapidocr_onnxruntime, with batch, height and width left dynamic
dynamic-mobilenetv2     MobileNetV2 with batch, height and width left dynamic
int8-…                  the same networks in 8 bits by onnxruntime.quantization: with QuantizeLinear and
                        DequantizeLinear, weights per channel, ranges by calibration over random inputs
int8-dynamic-bert       BERT-base with MatMulInteger and DynamicQuantizeLinear
hf-…                    networks of Hugging Face's transformers (hugging_face.py), where that package is installed
pypi-…                  networks out of packages of PyPI at fixed sizes, where the package is installed
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hugging_face import NETWORKS, network

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Model:
    """A model by name. `light` is its structure in the onnx package, if it comes from there; `file` is a file of an
    installed package. A model with a `shape` is compiled for any size of its input, and runs at this one. Results may
    differ from the reference by `tolerance`: in 8 bits, a number in the middle of two steps goes to either."""

    name: str
    title: str
    light: str = ""
    file: str = ""
    shape: tuple[int, ...] = ()
    base: str = ""  # the model that this one is, in 8 bits
    sizes: tuple[tuple[int, ...], ...] = ()  # of a file's inputs, which is compiled for these sizes only
    hf: str = ""  # its row in hugging_face.py
    tolerance: float = 1e-3


class Absent(Exception):
    """A package that a model comes from is not installed."""


def _packaged() -> list[Model]:
    """Networks as packages ship them; their sizes are those of usual inputs."""
    rows = [
        ("magika", "magika/models/standard_v3_3/model.onnx", ((1, 2048),)),
        ("ocr-cls", _OCR.format("ch_ppocr_mobile_v2.0_cls"), ((1, 3, 48, 192),)),
        ("ocr-det", _OCR.format("ch_PP-OCRv4_det"), ((1, 3, 352, 480),)),
        ("ocr-rec", _OCR.format("ch_PP-OCRv4_rec"), ((1, 3, 48, 320),)),
        ("nudenet", "nudenet/320n.onnx", ((1, 3, 320, 320),)),
        ("basic-pitch", "basic_pitch/saved_models/icassp_2022/nmp.onnx", ((1, 43844, 1),)),
        ("ddddocr", "ddddocr/common.onnx", ((1, 1, 64, 160),)),
        ("ddddocr-old", "ddddocr/common_old.onnx", ((1, 1, 64, 160),)),
        ("ddddocr-det", "ddddocr/common_det.onnx", ((1, 3, 416, 416),)),
    ]
    # onnxruntime without optimizations and with them differ by 0.8% in ddddocr-old
    return [
        Model(f"pypi-{name}", f"{name}, {file.partition('/')[0]}", file=file, sizes=sizes, tolerance=2e-2)
        for name, file, sizes in rows
    ]


_OCR = "rapidocr_onnxruntime/models/{}_infer.onnx"
MODELS = {
    m.name: m
    for m in (
        Model("resnet50", "ResNet-50, 224 x 224", "light_resnet50.onnx"),
        Model("mobilenetv2", "MobileNetV2, 224 x 224"),
        Model("squeezenet", "SqueezeNet, 224 x 224", "light_squeezenet.onnx"),
        Model("bert", "BERT-base encoder, 128 tokens"),
        Model("gpt2", "GPT-2 small, 64 tokens"),
        Model(
            "dynamic-ocr-cls",
            "OCR classification, dynamic, 48 x 192",
            file=_OCR.format("ch_ppocr_mobile_v2.0_cls"),
            shape=(1, 3, 48, 192),
        ),
        Model(
            "dynamic-ocr-det",
            "OCR detection, dynamic, 352 x 480",
            file=_OCR.format("ch_PP-OCRv4_det"),
            shape=(1, 3, 352, 480),
        ),
        Model(
            "dynamic-ocr-rec",
            "OCR recognition, dynamic, 48 x 320",
            file=_OCR.format("ch_PP-OCRv4_rec"),
            shape=(1, 3, 48, 320),
        ),
        Model("int8-resnet50", "ResNet-50, int8", base="resnet50", tolerance=0.1),
        Model("int8-mobilenetv2", "MobileNetV2, int8", base="mobilenetv2", tolerance=0.1),
        Model("int8-bert", "BERT-base, int8", base="bert", tolerance=0.1),
        Model("int8-dynamic-bert", "BERT-base, int8 by dynamic quantization", base="bert", tolerance=0.1),
        Model("dynamic-mobilenetv2", "MobileNetV2, dynamic, 192 x 256", shape=(1, 3, 192, 256)),
        *(Model(f"hf-{name}", f"Hugging Face: {row.network}", hf=name) for name, row in NETWORKS.items()),
        *_packaged(),
    )
}


def write_model(m: Model, folder: Path) -> None:
    """Write the model, its inputs and what it should give, where they are not there already."""
    path = folder / f"{m.name}.onnx"
    if (folder / f"{m.name}.reference.npy").exists():
        return
    if m.base:
        inputs = _quantize(m, folder)
    elif m.light:
        inputs = _fill_light(m, path)
    elif m.file:
        inputs = _copy_file(m, path)
    else:
        module, inputs = _torch_defined(m)
        _export(module, inputs, path, bool(m.shape), m.hf != "")
    np.savez(folder / f"{m.name}.inputs.npz", **inputs)  # type: ignore[arg-type]
    np.save(folder / f"{m.name}.reference.npy", _reference(path, inputs))


def read_inputs(m: Model, folder: Path) -> dict[str, Array]:
    with np.load(folder / f"{m.name}.inputs.npz") as file:
        return {name: file[name] for name in file.files}


def torch_module(m: Model, folder: Path) -> Any:
    """The model for PyTorch, with the weights of the file."""
    if m.file:
        raise ValueError("its package has it as ONNX only")
    if m.light:
        return _as_torch(folder / f"{m.name}.onnx")
    return _torch_defined(m)[0]


def error_of(found: Array, reference: Array) -> float:
    """The greatest difference, as a part of the greatest value."""
    if found.shape != reference.shape:
        return float("inf")
    return float(np.abs(found.astype(np.float64) - reference).max() / max(1e-30, np.abs(reference).max()))


def _reference(path: Path, inputs: dict[str, Array]) -> Array:
    """What onnxruntime says with all its optimisations off."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, inputs)[0])


def _copy_file(m: Model, path: Path) -> dict[str, Array]:
    """Write a model out of an installed package; gives inputs."""
    from importlib.util import find_spec

    import onnx

    package, _, rest = m.file.partition("/")
    found = find_spec(package)
    if found is None or found.origin is None:
        raise Absent(f"the package {package} is not installed")
    model = onnx.load(Path(found.origin).parent / rest)
    weights = {i.name for i in model.graph.initializer}
    values = [i for i in model.graph.input if i.name not in weights]
    inputs: dict[str, Array] = {}
    rng = np.random.default_rng(zlib.crc32(m.name.encode()))
    for value, size in zip(values, m.sizes or (m.shape,)):
        kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        made = rng.standard_normal(size) if kind.kind == "f" else rng.integers(0, 200, size)
        inputs[value.name] = np.asarray(made, kind)
        for dim, n in zip(value.type.tensor_type.shape.dim, size) if m.sizes else ():
            dim.dim_value = n
    if m.sizes:
        del model.graph.value_info[:]  # inferred for other sizes
    onnx.save(model, path)
    return inputs


# -- networks in 8 bits -------------------------------------------------------------------------------
class _Samples:
    """Random inputs for calibration, as onnxruntime reads them."""

    def __init__(self, like: dict[str, Array], count: int = 4) -> None:
        rng = np.random.default_rng(3)
        self.left = [{name: self._one(rng, v) for name, v in like.items()} for _ in range(count)]

    @staticmethod
    def _one(rng: Any, like: Array) -> Array:
        if like.dtype.kind == "f":
            return np.asarray(rng.standard_normal(like.shape), like.dtype)
        return np.asarray(rng.integers(0, like.max() + 1, like.shape), like.dtype)

    def get_next(self) -> dict[str, Array] | None:
        return self.left.pop() if self.left else None


def _quantize(m: Model, folder: Path) -> dict[str, Array]:
    """Write a network in 8 bits; gives the inputs of the one in floats."""
    import onnx
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    base = MODELS[m.base]
    write_model(base, folder)
    inputs, before, path = (
        read_inputs(base, folder),
        folder / f"{m.name}.float.onnx",
        folder / f"{m.name}.onnx",
    )
    model = onnx.load(folder / f"{base.name}.onnx")
    # per-channel scales came with this version, and the operators of these networks did not change before it
    model.opset_import[0].version = max(model.opset_import[0].version, 13)
    onnx.save(model, before)
    quant_pre_process(str(before), str(before), skip_symbolic_shape=True)
    if "dynamic" in m.name:
        quantization.quantize_dynamic(
            before, path, per_channel=True, weight_type=quantization.QuantType.QInt8
        )
    else:
        quantization.quantize_static(
            before, path, _Samples(inputs), quant_format=quantization.QuantFormat.QDQ, per_channel=True,
            activation_type=quantization.QuantType.QUInt8, weight_type=quantization.QuantType.QInt8,
        )  # fmt: skip
    before.unlink()
    return inputs


# -- the light models of the onnx package -----------------------------------------------------------
def _fill_light(m: Model, path: Path) -> dict[str, Array]:
    """Write a light model with weights in the place of its constant fillings; gives inputs."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(Path(onnx.__file__).parent / "backend/test/data/light" / m.light)
    graph, rng = model.graph, np.random.default_rng(zlib.crc32(m.name.encode()))
    known = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    shapes = {n.output[0]: known[n.input[0]] for n in graph.node if n.op_type == "ConstantOfShape"}
    nodes = [n for n in graph.node if n.op_type != "ConstantOfShape"]
    made: dict[str, Array] = {}
    for n in nodes:
        for place, name in enumerate(n.input):
            if name in shapes and name not in made:
                made[name] = _weight(n.op_type, place, tuple(int(d) for d in shapes[name]), rng)
    used = {name for n in nodes for name in n.input}
    kept = [i for i in graph.initializer if i.name in used]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend([*kept, *(numpy_helper.from_array(w, name) for name, w in made.items())])
    inputs = [i for i in graph.input if i.name in used and i.name not in {k.name for k in kept}]
    del graph.input[:]
    graph.input.extend(inputs)
    onnx.save(model, path)
    sizes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in inputs}
    return {name: rng.standard_normal(s, dtype=np.float32) for name, s in sizes.items()}


def _weight(op: str, place: int, shape: tuple[int, ...], rng: Any) -> Array:
    """Weights that keep the size of the values from layer to layer."""
    noise = rng.standard_normal(shape)
    if op == "BatchNormalization":  # scale, shift, mean, variance
        made = {1: 0.6 + 0.1 * noise, 4: 1 + 0.1 * np.abs(noise)}.get(place, 0.1 * noise)
    elif place == 1:
        inputs = np.prod(shape[1:]) if op == "Conv" else max(shape)
        made = noise * np.sqrt((2.0 if op == "Conv" else 1.0) / inputs)
    else:
        made = 0.01 * noise
    return np.asarray(made, np.float32)


def _as_torch(path: Path) -> Any:
    """A module of torch.fx that does what the nodes of a convolutional ONNX model do."""
    import onnx
    import torch
    from onnx import helper, numpy_helper

    proto = onnx.load(path).graph
    known = {i.name: torch.from_numpy(numpy_helper.to_array(i).copy()) for i in proto.initializer}
    root, graph = torch.nn.Module(), torch.fx.Graph()
    values = {i.name: graph.placeholder("x") for i in proto.input if i.name not in known}
    for number, n in enumerate(proto.node):
        a = {at.name: helper.get_attribute_value(at) for at in n.attribute}
        args = [values[name] for name in n.input if name in values]
        weights = [known[name] for name in n.input if name in known]
        if n.op_type in ("Dropout", "Identity"):
            values[n.output[0]] = args[0]
            continue
        layer = _LAYERS[n.op_type](a, weights)
        if isinstance(layer, torch.nn.Module):
            name = f"n{number}"
            root.add_module(name, layer)
            values[n.output[0]] = graph.call_module(name, tuple(args))
        else:
            values[n.output[0]] = graph.call_function(layer, (args,))
    graph.output(values[proto.output[0].name])
    return torch.fx.GraphModule(root, graph).eval()


def _conv(a: dict[str, Any], w: list[Any]) -> Any:
    from torch import nn

    groups, out = a.get("group", 1), w[0].shape[0]
    made = nn.Conv2d(w[0].shape[1] * groups, out, tuple(a["kernel_shape"]), bias=len(w) > 1, groups=groups)
    made.stride, made.padding = tuple(a.get("strides", (1, 1))), _even(a)
    made.weight.data = w[0]
    if len(w) > 1:
        made.bias.data = w[1]
    return made


def _even(a: dict[str, Any]) -> tuple[int, int]:
    pads = a.get("pads", [0, 0, 0, 0])
    if pads[:2] != pads[2:]:
        raise ValueError(f"padding {pads} differs between the sides")
    return (pads[0], pads[1])


def _norm(a: dict[str, Any], w: list[Any]) -> Any:
    from torch import nn

    made = nn.BatchNorm2d(len(w[0]), eps=a.get("epsilon", 1e-5))
    made.weight.data, made.bias.data, made.running_mean, made.running_var = w
    return made


def _pool(a: dict[str, Any], average: bool) -> Any:
    from torch import nn

    pads, size, stride = a.get("pads", [0] * 4), tuple(a["kernel_shape"]), tuple(a.get("strides", (1, 1)))
    before: list[Any] = []
    if pads[:2] != pads[2:]:
        fill = 0.0 if average else float("-inf")
        before = [nn.ConstantPad2d((pads[1], pads[3], pads[0], pads[2]), fill)]
        pads = [0] * 4
    kind = nn.AvgPool2d if average else nn.MaxPool2d
    return nn.Sequential(*before, kind(size, stride, tuple(pads[:2])))


def _gemm(a: dict[str, Any], w: list[Any]) -> Any:
    from torch import nn

    matrix = w[0] if a.get("transB") else w[0].T.contiguous()
    made = nn.Linear(matrix.shape[1], matrix.shape[0])
    made.weight.data, made.bias.data = matrix, w[1]
    return made


def _layer(name: str, *args: Any) -> Any:
    from torch import nn

    return getattr(nn, name)(*args)


def _add(args: list[Any]) -> Any:
    return args[0] + args[1]


def _concat(args: list[Any]) -> Any:
    import torch

    return torch.cat(args, 1)


_LAYERS: dict[str, Callable[[dict[str, Any], list[Any]], Any]] = {
    "Conv": _conv,
    "BatchNormalization": _norm,
    "Relu": lambda a, w: _layer("ReLU"),
    "MaxPool": lambda a, w: _pool(a, False),
    "AveragePool": lambda a, w: _pool(a, True),
    "GlobalAveragePool": lambda a, w: _layer("AdaptiveAvgPool2d", 1),
    "Gemm": _gemm,
    "Softmax": lambda a, w: _layer("Softmax", 1),
    "Reshape": lambda a, w: _layer("Flatten", 1),
    "Flatten": lambda a, w: _layer("Flatten", 1),
    "Sum": lambda a, w: _add,
    "Add": lambda a, w: _add,
    "Concat": lambda a, w: _concat,
}


# -- models written in PyTorch ------------------------------------------------------------------------
def _torch_defined(m: Model) -> tuple[Any, dict[str, Array]]:
    """A module and its inputs, the same every time."""
    from importlib.util import find_spec

    import torch

    if m.hf:
        if find_spec("transformers") is None:
            raise Absent("the package transformers is not installed")
        return network(m.hf)
    torch.manual_seed(zlib.crc32(m.name.encode()))
    rng = np.random.default_rng(1)
    if m.name.endswith("mobilenetv2"):
        shape = m.shape or (1, 3, 224, 224)
        return _mobilenet().eval(), {"data": rng.standard_normal(shape, dtype=np.float32)}
    if m.name == "bert":
        made = _transformer(30522, 512, causal=False)
        return made.eval(), {"input_ids": rng.integers(0, 30522, (1, 128))}
    return _transformer(50257, 1024, causal=True).eval(), {"input_ids": rng.integers(0, 50257, (1, 64))}


def _export(
    module: Any, inputs: dict[str, Array], path: Path, dynamic: bool = False, needs_newer: bool = False
) -> None:
    """As ONNX; by the newer exporter of PyTorch where its package is installed. If `dynamic`, batch, height and width
    of images are left open."""
    from importlib.util import find_spec

    import torch

    newer = find_spec("onnxscript") is not None
    if needs_newer and not newer:
        raise Absent("the package onnxscript is not installed")
    options: dict[str, Any] = {"dynamo": newer and not dynamic, "opset_version": 18 if newer else 17}
    if dynamic:
        options["dynamic_axes"] = {name: {0: "batch", 2: "height", 3: "width"} for name in inputs}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            tuple(torch.from_numpy(v) for v in inputs.values()),
            str(path),
            input_names=list(inputs),
            output_names=["out"],
            external_data=False,
            verbose=False,
            **options,
        )


def _mobilenet() -> Any:
    """MobileNetV2: blocks that widen by a 1 x 1, filter each channel alone, and narrow by a 1 x 1."""
    import torch
    from torch import nn

    def layer(i: int, o: int, size: int, stride: int = 1, groups: int = 1, bend: bool = True) -> Any:
        conv = nn.Conv2d(i, o, size, stride, size // 2, groups=groups, bias=False)
        nn.init.kaiming_normal_(conv.weight)
        norm = nn.BatchNorm2d(o)
        assert norm.running_mean is not None and norm.running_var is not None
        norm.running_mean.normal_(0, 0.1)
        norm.running_var.uniform_(0.9, 1.1)
        return nn.Sequential(conv, norm, *([nn.ReLU6()] if bend else []))

    class Block(nn.Module):
        def __init__(self, i: int, o: int, stride: int, widen: int) -> None:
            super().__init__()
            wide = i * widen
            first = [layer(i, wide, 1)] if widen > 1 else []
            self.way = nn.Sequential(
                *first, layer(wide, wide, 3, stride, wide), layer(wide, o, 1, bend=False)
            )
            self.adds = stride == 1 and i == o

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.way(x) if self.adds else self.way(x)

    rows = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2)]
    parts, channels = [layer(3, 32, 3, 2)], 32
    for widen, out, count, stride in [*rows, (6, 320, 1, 1)]:
        for number in range(count):
            parts.append(Block(channels, out, stride if number == 0 else 1, widen))
            channels = out
    parts += [layer(320, 1280, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(1280, 1000)]
    return nn.Sequential(*parts)


def _transformer(words: int, places: int, causal: bool, layers: int = 12, width: int = 768) -> Any:
    """BERT-base (norms behind, exact GELU, sees everything) or GPT-2 small (norms ahead, tanh, sees what was)."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

        def attend(self, x: torch.Tensor) -> torch.Tensor:
            size, heads = x.shape[1], width // 64
            q, k, v = (p.reshape(1, size, heads, 64).transpose(1, 2) for p in self.qkv(x).chunk(3, -1))
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
            return self.out(mixed.transpose(1, 2).reshape(1, size, width))

        def bend(self, x: torch.Tensor) -> torch.Tensor:
            return self.down(functional.gelu(self.up(x), approximate="tanh" if causal else "none"))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if causal:
                x = x + self.attend(self.norm1(x))
                return x + self.bend(self.norm2(x))
            x = self.norm1(x + self.attend(x))
            return self.norm2(x + self.bend(x))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(places, width)
            self.norm = nn.LayerNorm(width)
            self.layers = nn.Sequential(*(Layer() for _ in range(layers)))
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.02)

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            x = self.words(input_ids) + self.places.weight[: input_ids.shape[1]]
            if not causal:
                return self.layers(self.norm(x))  # type: ignore[no-any-return]
            return functional.linear(self.norm(self.layers(x)), self.words.weight)

    return Net()
