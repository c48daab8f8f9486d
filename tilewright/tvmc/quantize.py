"""`tilewright quantize`: an ONNX model in 8-bit integers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..model.quantization import Quantized, quantize
from .app import words
from .compare import given_inputs
from .errors import TVMCException
from .runner import load_inputs

if TYPE_CHECKING:
    from .app import Quantize
    from .command_line import Desk


def quantize_command(desk: Desk, given: Quantize) -> None:
    """Quantize a model, write it, and print the report."""
    if given.data is not None and given.random:
        raise TVMCException("--data and --random exclude each other")
    suffix = f".w{given.weights_only}.onnx" if given.weights_only else ".int8.onnx"
    output = given.output or given.model.with_suffix(suffix)
    if output.resolve() == given.model.resolve():
        raise TVMCException(f"--output {output} is the model itself; give another file")
    made = quantize(
        given.model,
        _samples(desk, given),
        calibration=given.calibration,
        activations=given.activations,
        per_channel=given.per_channel,
        skip=words(given.skip) or (),
        weights_only=given.weights_only or None,
        block=given.block,
        data_bits=given.data_bits,
        compare=given.compare,
        note=desk.note,
    )
    made.save(output)
    desk.result(_as_data(made, output), f"{made}\nwrote {output}")


def _samples(desk: Desk, given: Quantize) -> list[dict[str, Any]] | None:
    if given.random:
        desk.note("random samples: the ranges fit no real data, and the result is for measuring speed only")
        fill = "random"
        return [given_inputs(given.model, None, given.shapes, fill) for _ in range(given.random)]
    if given.data is None:
        if given.calibration != "dynamic" and not given.weights_only:
            raise TVMCException(
                f"--calibration {given.calibration} needs samples: --data FILE; or --random 8 to measure speed only, "
                "or --calibration dynamic or --weights-only 4, which need none"
            )
        return None
    if given.data.is_dir():
        files = sorted(given.data.glob("*.npz"))
        if not files:
            raise TVMCException(f"--data {given.data}: there is no .npz file in this folder")
        return [dict(load_inputs(f)) for f in files]
    return _rows(given.data)


def _rows(file: Path) -> list[dict[str, Any]]:
    """The samples of one file: the first dimension of its arrays counts them."""
    arrays = {name: np.asarray(value) for name, value in load_inputs(file).items()}
    counts = {name: len(x) if x.ndim else 0 for name, x in arrays.items()}
    if len(set(counts.values())) != 1 or not all(counts.values()):
        told = ", ".join(f"{name} {list(x.shape)}" for name, x in arrays.items())
        raise TVMCException(
            f"--data {file}: the first dimension of its arrays must be the number of samples, the same for all, and "
            f"they are {told}"
        )
    return [{name: x[i] for name, x in arrays.items()} for i in range(next(iter(counts.values())))]


def _as_data(made: Quantized, output: Path) -> dict[str, Any]:
    return {
        "output": str(output),
        "calibration": made.calibration,
        "samples": made.samples,
        "bytes_before": made.bytes_before,
        "bytes_after": made.bytes_after,
        "layers": [asdict(x) for x in made.layers],
        "outputs": [asdict(x) for x in made.outputs],
    }
