"""`tilewright.quantize`: a float ONNX network as one of 8-bit integers, with a report of the loss of accuracy."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..relay.quantize.histogram import Histogram
from ..runtime.errors import ArgumentTypeError, ArgumentValueError
from .blockwise_weights import with_blockwise_weights
from .compiling import compile
from .quantized_graph import (
    Graph,
    Plan,
    Scale,
    dynamically_quantized,
    planned,
    prepared,
    quantized,
    with_outputs,
)

CALIBRATIONS: Final = ("percentile", "max", "entropy", "dynamic")
_CHECKED: Final = 4  # samples that the report compares

Sample = Mapping[str, Any]
Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Layer:
    """A quantized product: the range of its data, and the signal-to-noise ratio of its result in decibels, with the
    noise of all layers before it."""

    name: str
    op: str
    low: float
    high: float
    decibels: float


@dataclass(frozen=True, slots=True)
class Output:
    """A result of the network: its largest error, relative to its largest value, its signal-to-noise ratio, and in how
    many of the rows the largest element is the same one."""

    name: str
    relative: float
    decibels: float
    agreement: float


@dataclass
class Quantized:
    """A quantized network: the ONNX `model`, and how far it is from the float one, by layer and by result."""

    model: Any
    calibration: str
    samples: int
    layers: list[Layer] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    bytes_before: int = 0
    bytes_after: int = 0
    weight_bits: int = 0  # where only weights are quantized

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model as an ONNX file, which onnxruntime reads too."""
        import onnx

        onnx.save(self.model, os.fspath(path))
        return Path(path)

    def __str__(self) -> str:
        wide = max((len(x.name) for x in self.layers), default=5)
        lines = [f"{'layer':<{wide}}  {'operator':<8}  {'range of its data':>22}  {'noise':>8}"]
        for x in self.layers:
            bounds = f"{x.low:.4g} … {x.high:.4g}"
            if x.low != x.low:  # not measured
                bounds = "when it runs" if self.calibration == "dynamic" else "float"
            lines.append(f"{x.name:<{wide}}  {x.op:<8}  {bounds:>22}  {-x.decibels:>5.1f} dB")
        for o in self.outputs:
            lines.append(
                f"result {o.name}: largest error {o.relative:.2%} of the largest value, noise {-o.decibels:.1f} dB, "
                f"the same largest element in {o.agreement:.0%} of the rows"
            )
        before, after = (f"{n / 1e6:.2f} MB" for n in (self.bytes_before, self.bytes_after))
        how = f"calibrated on {self.samples} samples ({self.calibration})"
        if self.weight_bits:
            how = f"weights of {self.weight_bits} bits"
        lines.append(f"{before} -> {after}; {how}")
        return "\n".join(lines)


def quantize(
    model: Any,
    data: Iterable[Sample] | Sample | None = None,
    *,
    calibration: str = "percentile",
    activations: str = "uint8",
    per_channel: bool = True,
    skip: Sequence[str] = (),
    weights_only: int | None = None,
    block: int = 32,
    data_bits: int = 0,
    compare: bool = True,
    note: Note | None = None,
) -> Quantized:
    """Quantize a float ONNX network to 8-bit integers.

        small = tilewright.quantize("net.onnx", ({"image": x} for x in images))
        print(small)                                  # the noise of each layer, and of the results
        net = tilewright.compile(small.model)         # or small.save("net.int8.onnx")

    `model` is a path or a ModelProto, and `data` are samples, mappings from the names of inputs to arrays. Convolutions
    and matrix products compute with integers; weights are int8 with a scale for each output channel (`per_channel`),
    `activations` are "uint8", or "int8" and symmetric. The names of nodes or operators in `skip` stay float.

    `calibration` chooses the ranges of activations: "max" takes all values that occur, "percentile" all but one in
    100,000, "entropy" the range whose quantized values are distributed most like the floats. "dynamic" takes the range
    of each tensor when the network runs: it needs no data, and quantizes matrix products with constant weights only.

    With `weights_only`, 4 or 8, activations stay float: the constant weights of matrix products become integers of so
    many bits, with a scale and a zero point for each `block` of neighbours. This needs no data either, and makes
    networks faster that wait for their weights, as models of language do when they decode. `data_bits=8` allows to
    round the activations of these products to 8 bits as well, with a scale for each block of a row, found when the
    network runs: processors that multiply bytes are faster then.

    With `compare`, both networks run on some of the samples, and the result has the noise of each layer. `note` is
    called with lines of progress.
    """
    say = note or (lambda text: None)
    if calibration not in CALIBRATIONS:
        raise ArgumentValueError(f"calibration={calibration!r}: it is one of {', '.join(CALIBRATIONS)}")
    if activations not in ("uint8", "int8"):
        raise ArgumentValueError(f"activations={activations!r}: they are uint8 or int8")
    proto = _proto(model)
    _check_weights(weights_only, block, data_bits)
    if weights_only:
        calibration = "none"
    graph = prepared(proto)
    _check_names(graph, skip)
    plan = planned(graph, frozenset(skip))
    if not plan.products:
        raise ArgumentValueError(
            "quantize: no node can be quantized: there is no Conv, Gemm or MatMul with constant float32 weights"
            f"{' besides those in skip' if skip else ''}"
        )
    samples = _samples(data, calibration, proto)
    ranges: dict[str, tuple[float, float]] = {}
    ends = [o.name for o in proto.graph.output]
    compared = [*dict.fromkeys([*(n.output[0] for n in plan.products.values()), *ends])]
    needs_ranges = calibration in ("percentile", "max", "entropy")
    names = {*(plan.tensors if needs_ranges else ()), *(compared if compare else ())}
    floats = None
    if samples:
        made_there = sorted(names - {i.name for i in graph.model.graph.input})
        say(f"compiling the float network with {len(made_there)} results of its nodes")
        floats = compile(with_outputs(graph.model, made_there), dict(samples[0])) if made_there else None
    if weights_only:
        made = with_blockwise_weights(graph, plan, weights_only, block, data_bits)
        if made is None:
            raise ArgumentValueError("quantize: there is no MatMul or Gemm with constant float32 weights")
    elif calibration == "dynamic":
        made = dynamically_quantized(graph, plan, per_channel)
    else:
        ranges = _ranges(floats, plan, samples, calibration, say)
        scales = {group: Scale.of_range(*r, activations) for group, r in ranges.items()}
        made = quantized(graph, plan, scales, per_channel)
    result = Quantized(made, calibration, len(samples), weight_bits=weights_only or 0)
    result.bytes_before, result.bytes_after = proto.ByteSize(), made.ByteSize()
    if samples and compare:
        say(f"comparing {min(_CHECKED, len(samples))} samples with the float network")
        _compare(result, floats, ends, plan, ranges, samples[:_CHECKED])
    return result


def _proto(model: Any) -> Any:
    import onnx

    if isinstance(model, onnx.ModelProto):
        return model
    if not isinstance(model, (str, os.PathLike)):
        raise ArgumentTypeError(
            f"quantize: model is {type(model).__name__}; give the path of an ONNX file or a ModelProto "
            "(torch.onnx.export writes one from a module)"
        )
    if not Path(model).is_file():
        raise ArgumentValueError(f"quantize: {os.fspath(model)}: there is no such file")
    try:
        return onnx.load(os.fspath(model))
    except Exception as why:  # protobuf has no public base class of its errors
        raise ArgumentValueError(f"quantize: {os.fspath(model)} is no ONNX file: {why}") from None


def _check_weights(bits: int | None, block: int, data_bits: int) -> None:
    if bits not in (None, 4, 8):
        raise ArgumentValueError(f"weights_only={bits!r}: weights have 4 or 8 bits")
    if block not in (16, 32, 64, 128, 256):
        raise ArgumentValueError(f"block={block!r}: blocks have 16, 32, 64, 128 or 256 weights")
    if data_bits not in (0, 8) or (data_bits and not bits):
        raise ArgumentValueError(f"data_bits={data_bits!r}: it is 8, with weights_only, or 0 for float data")


def _check_names(graph: Graph, skip: Container[str]) -> None:
    known = {x for n in graph.model.graph.node for x in (n.name, n.op_type)}
    for name in skip if isinstance(skip, Sequence) else ():
        if name not in known:
            raise ArgumentValueError(f"skip={name!r}: no node and no operator of the network has this name")


def _samples(data: Any, calibration: str, proto: Any) -> list[Sample]:
    if data is None and calibration not in ("dynamic", "none"):
        raise ArgumentValueError(
            f"quantize: calibration={calibration!r} chooses ranges by values: give data, samples of the inputs; "
            'or calibration="dynamic"'
        )
    samples = [data] if isinstance(data, Mapping) else list(data or ())
    if data is not None and not samples:
        raise ArgumentValueError("quantize: data is empty; give at least one sample")
    stored = {i.name for i in proto.graph.initializer}
    names = {i.name for i in proto.graph.input} - stored
    for i, sample in enumerate(samples):
        if not isinstance(sample, Mapping) or set(sample) != names:
            given = sorted(sample) if isinstance(sample, Mapping) else type(sample).__name__
            raise ArgumentValueError(
                f"quantize: sample {i} is {given}; each sample maps the inputs {sorted(names)} to arrays"
            )
    return samples


# ---------------------------------------------------------------------------- calibration
def _ranges(
    floats: Any, plan: Plan, samples: Sequence[Sample], calibration: str, say: Note
) -> dict[str, tuple[float, float]]:
    """The range of each group of tensors over the samples, in the float network."""
    seen = {group: Histogram() for group in set(plan.group.values())}
    ends = {group: [0.0, 0.0] for group in seen}
    for number, sample in enumerate(samples, 1):
        say(f"calibrating: sample {number} of {len(samples)}")
        found = {} if floats is None else floats.run(dict(sample))
        for name, group in plan.group.items():
            values = np.asarray(found[name] if name in found else sample[name])
            if not np.isfinite(values).all():
                raise ArgumentValueError(
                    f"quantize: the tensor {name!r} contains an infinity or NaN in sample {number}; repair the data or "
                    "the weights"
                )
            seen[group].add(values)
            ends[group][0] = min(ends[group][0], float(values.min(initial=0)))
            ends[group][1] = max(ends[group][1], float(values.max(initial=0)))
    out = {}
    for group, (low, high) in ends.items():
        limit = max(-low, high)
        if calibration == "percentile":
            limit = seen[group].percentile()
        elif calibration == "entropy":
            limit = seen[group].least_divergence(128)
        out[group] = max(low, -limit), min(high, limit)
    return out


# ---------------------------------------------------------------------------- the report
def _compare(
    result: Quantized,
    floats: Any,
    ends: Sequence[str],
    plan: Plan,
    ranges: Mapping[str, tuple[float, float]],
    samples: Sequence[Sample],
) -> None:
    """Measure the noise of the products and the results over some samples."""
    made = {o for n in result.model.graph.node for o in n.output}
    products = {name: n for name, n in plan.products.items() if n.output[0] in made}
    names = [*dict.fromkeys([*(n.output[0] for n in products.values()), *ends])]
    after = compile(with_outputs(result.model, names), dict(samples[0]))
    pairs: dict[str, list[tuple[Any, Any]]] = {name: [] for name in names}
    for sample in samples:
        wanted, found = floats.run(dict(sample)), after.run(dict(sample))
        for name in names:
            pairs[name].append((np.asarray(wanted[name], np.float64), np.asarray(found[name], np.float64)))
    for name, n in products.items():
        low, high = ranges.get(plan.group.get(n.input[0], ""), (float("nan"), float("nan")))
        result.layers.append(Layer(name, n.op_type, low, high, _decibels(pairs[n.output[0]])))
    for name in ends:
        largest = max(float(np.abs(w).max(initial=0)) for w, _ in pairs[name]) or 1.0
        error = max(float(np.abs(w - f).max(initial=0)) for w, f in pairs[name])
        same = [w.argmax(-1) == f.argmax(-1) for w, f in pairs[name] if w.ndim and w.size]
        agreement = float(np.mean([np.mean(x) for x in same])) if same else 1.0
        result.outputs.append(Output(name, error / largest, _decibels(pairs[name]), agreement))


def _decibels(pairs: Sequence[tuple[Any, Any]]) -> float:
    """The signal-to-noise ratio: 10 log10 of the sum of squares over that of the errors."""
    signal = sum(float((w**2).sum()) for w, _ in pairs)
    noise = sum(float(((w - f) ** 2).sum()) for w, f in pairs)
    return 10 * float(np.log10(max(signal, 1e-300) / noise)) if noise else 200.0
