"""`tilewright.compile`: from a model of any kind to a function of its inputs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from ..ir.function import PrimFunc
from ..ir.module import IRModule
from ..ir.transform import PassContext
from ..relay import transform as graph
from ..relay.backend.tasks import extract
from ..relay.build_module import as_target
from ..relay.transform.infer_type import infer_module
from ..runtime.compiled import CompiledModel, Form
from ..runtime.errors import ArgumentTypeError, ArgumentValueError
from ..target import Target
from ..te import Tensor
from ..tune.auto import compile as compile_loops
from ..tune.records.database import Database
from ..tune.records.history import History
from ..tune.search.allocate import tune_tasks
from .building import compiled, wants_machine
from .display import searching
from .files import Imported
from .sources import is_graph, source_of

_FLOATS = ("float16", "bfloat16")


def compile(
    model: Any,
    example: Any = None,
    target: Any = None,
    dynamic: Any = None,
    dtype: str | None = None,
    trials: int = 0,
    *,
    params: Mapping[str, Any] | None = None,
    constants: Mapping[str, Any] | None = None,
    records: str | os.PathLike[str] | None = None,
    name: str | None = None,
    opt_level: int = 3,
    wait: bool | None = None,
) -> Any:
    """Compile a model to a function of its inputs.

        net = tilewright.compile(module, image)        # a torch.nn.Module and an example of its input
        net = tilewright.compile("net.onnx")
        scores = net(image)

    `model` is a module of PyTorch, a program of torch.export, the path of a model, an ONNX ModelProto, a Keras model, a
    JAX function, a graph with its `params`, or tensor expressions.

    `example` has inputs whose shapes the model is compiled for: one array, a tuple, or a dictionary by name. A module
    of PyTorch without an example is compiled when it is first called. `dynamic` leaves sizes open: True for all that
    the model allows, or {"x": {0: "batch"}} for some; the sizes that an ONNX file leaves open stay open if there is no
    example. `dtype`, "float16" or "bfloat16", is the type to compute in; inputs and results keep theirs.

    `trials` candidates are measured to find faster schedules, and kept in `records`, a file; records of an earlier
    search are applied from there. `target` is this machine's CPU by default. Tensor expressions and loops are compiled
    to a function over arrays, the result among its arguments: there the second argument is the target, and `constants`
    gives the values of parameters by name.

    The first call is answered at once, by NumPy if need be, while kernels are still being compiled, and later calls
    wait for them; `wait=True` compiles everything before it returns, `wait=False` lets no call wait. Answers before and
    after differ in the rounding of sums.
    """
    if _is_loops(model):
        return _loops(model, example, target, constants, trials, dynamic=dynamic, dtype=dtype, params=params)
    if constants is not None:
        raise ArgumentValueError(
            "constants are for tensor expressions; give the weights of a graph as params"
        )
    if trials < 0:
        raise ArgumentValueError(f"trials={trials}: the number of candidates to measure is not negative")
    if params is not None and not is_graph(model):
        raise ArgumentValueError("params are for graphs; other models have their weights")
    chosen = as_target(target)
    early = {None: 1, True: 0, False: None}[wait]
    options = _Options(chosen, dtype, trials, records, name, opt_level, early)
    if example is None and _is_torch_module(model):
        return _lazy(model, dynamic, options)
    source, form = source_of(model, example, dynamic, params)
    return options.built(source, form)


class _Options:
    """The arguments of `compile` that do not depend on the kind of model."""

    def __init__(
        self,
        target: Target,
        dtype: str | None,
        trials: int,
        records: Any,
        name: str | None,
        opt_level: int,
        early: int | None = 1,
    ) -> None:
        if dtype not in (None, "float32", *_FLOATS):
            raise ArgumentValueError(
                f"dtype={dtype!r}: a model is computed in {', '.join(_FLOATS)}, or as it is"
            )
        self.target, self.dtype, self.trials, self.records = target, dtype, trials, records
        self.name, self.opt_level, self.early = name, opt_level, early

    def built(self, model: Imported, form: Form | None) -> CompiledModel:
        mod = model.mod if self.dtype not in _FLOATS else self.narrowed(model.mod)
        with ExitStack() as stack:
            stack.enter_context(PassContext(self.opt_level, config=dict(PassContext.current().config)))
            if self.trials:
                database = stack.enter_context(Database(self.records or ":memory:"))
                self.tune(mod, model.params, database)
                stack.enter_context(History(database))
            elif self.records is not None:
                stack.enter_context(History(self.records))
            return compiled(mod, model.params, self.name or model.name, self.target, form, self.early)

    def narrowed(self, mod: IRModule) -> IRModule:
        """The graph computed in a smaller float type; inputs and results keep their types."""
        with PassContext(config={"relay.ToMixedPrecision.keep_orig_output_dtype": True}):
            made: IRModule = graph.ToMixedPrecision(self.dtype)(infer_module(mod))
        return made

    def tune(self, mod: IRModule, params: Mapping[str, Any], database: Database) -> None:
        machine = wants_machine(mod, self.target, params)
        found = extract(mod, params, self.target, self.opt_level, vm=machine)
        if not found:
            return
        with searching(self.trials) as told:
            tune_tasks(
                [t for t, _ in found], self.trials, database, [float(n) for _, n in found], callback=told
            )


def _is_loops(model: Any) -> bool:
    """Whether it is tensor expressions, or loops."""
    if isinstance(model, IRModule):
        return not is_graph(model)
    if isinstance(model, (list, tuple)):
        return bool(model) and all(isinstance(t, Tensor) for t in model)
    return isinstance(model, (Tensor, PrimFunc))


def _loops(model: Any, second: Any, target: Any, constants: Any, trials: int, **ignored: Any) -> Any:
    for name, value in ignored.items():
        if value is not None:
            raise ArgumentTypeError(f"{name} is for models; tensor expressions have their types and sizes")
    if second is not None and target is not None:
        raise ArgumentTypeError("tensor expressions take a target and no example: compile(tensors, target)")
    return compile_loops(model, target if second is None else second, constants, trials)


def _is_torch_module(model: Any) -> bool:
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        return False
    keras = sys.modules.get("keras")
    return not isinstance(model, (torch.jit.ScriptModule, getattr(keras, "Model", ())))


def _lazy(module: Any, dynamic: Any, options: _Options) -> Any:
    from .torch_models import LazyModel, exported, imported

    def make(args: tuple[Any, ...], kwargs: dict[str, Any]) -> CompiledModel:
        program = exported(module, args, kwargs, dynamic)
        return options.built(*imported(program, type(module).__name__, dynamic))

    return LazyModel(module, make, dynamic)
