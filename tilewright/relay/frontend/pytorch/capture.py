"""Capture of torch models as programs of torch.export over ATen.

    traced or scripted module ──▶ torch.export ──▶ decompositions, but for what the table has ──▶ ExportedProgram

A traced module is run by its own interpreter on fake tensors, so that lists, tuples, loops and arithmetic on shapes are
evaluated, and only calls of ATen remain.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ....ir.errors import FrontendError
from .build import torch_dtype
from .decompositions import own_decompositions
from .table import find


def as_program(model: Any, infos: Sequence[Any], default_dtype: str) -> Any:
    """An exported program of a model: itself, or that of a traced, scripted or plain module at some inputs."""
    import torch

    if isinstance(model, torch.export.ExportedProgram):
        return model
    if not callable(model):
        raise FrontendError(
            f"from_pytorch takes a traced module or an exported program, not {type(model).__name__}"
        )
    inputs = [_example(i, info, default_dtype) for i, info in enumerate(infos)]
    shapes = [_open_sizes(info) for info in infos]
    jit: Any = torch.jit
    is_script = isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction))
    wrapped = _wrap(model) if is_script or not isinstance(model, torch.nn.Module) else model
    if is_script and hasattr(model, "training") and model.training:
        model.eval()
    dynamic = (tuple(shapes),) if wrapped is not model else tuple(shapes)
    try:
        # A trace is run without torch's optimizations, which do not work for fake tensors.
        with warnings.catch_warnings(), torch.no_grad(), jit.optimized_execution(False):
            warnings.simplefilter("ignore")
            program = torch.export.export(
                wrapped, tuple(inputs), dynamic_shapes=dynamic if any(shapes) else None, strict=False
            )
    except Exception as error:  # whatever a model does when it runs
        name = getattr(model, "original_name", type(model).__name__)
        raise FrontendError(
            f"{name}: torch.export cannot run it on {_shown(infos, default_dtype)}: {_first_line(error)}"
        ) from error
    return _for_inference(program) if is_script else program


def _for_inference(program: Any) -> Any:
    """A trace that was made in training mode, for inference: by averages, without dropout and without counts.

    add_ = aten.add_.Tensor(count, 1)                        ->
    y = aten.batch_norm(x, …, mean, variance, True, …)               y = aten.batch_norm(x, …, False, …)
    z = aten.dropout(y, 0.5, True)                                   z = aten.dropout(y, 0.5, False)
    """
    import torch

    aten: Any = torch.ops.aten
    flags = {aten.batch_norm.default: 5, aten.dropout.default: 2, aten.feature_dropout.default: 2}
    graph, changed = program.graph_module.graph, False
    for node in [n for n in graph.nodes if n.op == "call_function"]:
        at = flags.get(node.target)
        if node.target is aten.batch_norm.default and node.args[3] is None:
            continue  # it has no averages but those of its input, as instance_norm
        if at is not None and node.args[at] is True:
            node.args, changed = (*node.args[:at], False, *node.args[at + 1 :]), True
        elif node.target is aten.add_.Tensor and not node.users and _is_count(node.args[0]):
            graph.erase_node(node)
            changed = True
    if changed:
        program.graph_module.recompile()
        warnings.warn(
            "from_pytorch: the module was traced in training mode and is imported for inference: batch_norm uses its "
            "running averages, and dropout does nothing; call model.eval() before torch.jit.trace",
            stacklevel=4,
        )
    return program


def _is_count(node: Any) -> bool:
    """Whether a value is a single integer that nothing else reads: the number of batches so far."""
    held = node.meta.get("val")
    alone = node.op == "placeholder" and len(node.users) == 1
    return alone and str(getattr(held, "dtype", "")) == "torch.int64" and not held.shape


def result_names(program: Any, count: int) -> list[str]:
    """Names for the results of a program: their keys, if it returns a dictionary or a dataclass; otherwise none.

    {"logits": t, "past": (k, v)}    ->    logits, past.0, past.1
    """
    from torch.utils import _pytree as pytree

    spec = program.call_spec.out_spec
    if spec is None or spec.num_leaves != count:
        return [""] * count
    paths, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten(list(range(count)), spec))
    names = [
        [str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", "")))) for k in path] for path, _ in paths
    ]
    keyed = [any(not isinstance(k, pytree.SequenceKey) for k in path) for path, _ in paths]
    return [".".join(name) if is_keyed else "" for name, is_keyed in zip(names, keyed, strict=True)]


def described(model: Any, infos: Sequence[Any], default_dtype: str) -> list[tuple[str, Any]]:
    """The inputs as ("x", (shape, dtype)): an element type that is not given is that of the trace, else the default."""
    traced = _traced_types(model)
    found = []
    for i, info in enumerate(infos):
        name, shape, dtype = _fields(info, (traced[i] if i < len(traced) else "") or default_dtype)
        found.append((name, (shape, dtype)))
    return found


def _traced_types(model: Any) -> list[str]:
    """The element types of the tensors that a module was traced with, in order; "" where the graph does not say."""
    import torch

    if not isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        return []
    inputs = list(model.graph.inputs())[isinstance(model, torch.jit.ScriptModule) :]
    kinds = (v.type().dtype() if v.type().kind() == "TensorType" else None for v in inputs)
    return ["" if kind is None else str(kind).removeprefix("torch.") for kind in kinds]


def _wrap(function: Callable[..., Any]) -> Any:
    import torch

    class Model(torch.nn.Module):
        """A function as a module, hidden from torch.export, which refuses script modules."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = [function]

        def forward(self, *args: Any) -> Any:
            return self.inner[0](*args)

    return Model().eval()


def _fields(info: Any, default_dtype: str) -> tuple[str, Any, str]:
    """(name, shape, element type) of `("x", shape)` or `("x", (shape, dtype))`."""
    if not isinstance(info, (tuple, list)) or len(info) != 2 or not isinstance(info[0], str):
        raise FrontendError(
            f'an input is described by ("name", shape) or ("name", (shape, dtype)), not {info!r}'
        )
    name, shape = info
    if len(shape) == 2 and isinstance(shape[1], str):
        return name, tuple(shape[0]), _DTYPES.get(shape[1], shape[1])
    return name, tuple(shape), _DTYPES.get(default_dtype, default_dtype)


_DTYPES = {"float": "float32", "double": "float64", "half": "float16", "int": "int32", "long": "int64"}
_OPEN_SIZE = 3  # the example value of a dynamic size; torch specializes 0 and 1


def _example(index: int, info: Any, default_dtype: str) -> Any:
    import torch

    name, shape, dtype = _fields(info, default_dtype)
    sizes = [d if isinstance(d, int) else _OPEN_SIZE + index for d in shape]
    try:
        return torch.zeros(sizes, dtype=torch_dtype(dtype))
    except (AttributeError, TypeError, RuntimeError) as error:
        raise FrontendError(
            f"input {name!r}: {shape} of {dtype} is not a tensor: {_first_line(error)}"
        ) from None


def _open_sizes(info: Any) -> dict[int, Any]:
    """The dynamic dimensions of an input (`relay.Any()`)."""
    import torch

    _, shape, _ = _fields(info, "float32")
    return {i: torch.export.Dim.DYNAMIC for i, d in enumerate(shape) if not isinstance(d, int)}


def _shown(infos: Sequence[Any], default_dtype: str) -> str:
    fields = (_fields(info, default_dtype) for info in infos)
    return ", ".join(f"{name}: {shape}" for name, shape, _ in fields) or "no inputs"


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or ["no reason given"]
    # The interpreter of traced modules tells where, at length, and why in the end.
    if "TorchScript interpreter" in lines[0] and "Error: " in lines[-1]:
        return lines[-1]
    return f"{type(error).__name__}: {lines[0]}"


def decomposed(program: Any, own: Collection[str]) -> Any:
    """The program with every operator decomposed that neither the table nor `own` has, if torch can."""
    import torch

    known: Any = {**torch.export.default_decompositions(), **own_decompositions()}
    rows = {op: how for op, how in known.items() if find(op) is None and op._schema.name not in own}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return program.run_decompositions(rows)
    except Exception as error:  # a rule of torch's that does not hold for this program
        raise FrontendError(f"torch.export cannot decompose the program: {_first_line(error)}") from error


def parameter_names(model: Any) -> dict[Any, str]:
    """Where the parameters and buffers of a traced module lie in memory -> their names."""
    if not hasattr(model, "state_dict"):
        return {}
    return {place(t): name for name, t in model.state_dict(keep_vars=True).items() if hasattr(t, "data_ptr")}


def place(t: Any) -> Any:
    """The identity of a tensor's memory."""
    return (t.data_ptr(), tuple(t.shape), tuple(t.stride()), t.dtype) if t.numel() else None
