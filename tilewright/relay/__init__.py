"""The graph compiler: models as expressions over whole tensors.

    x = relay.var("x", shape=(1, 64), dtype="float32")
    w = relay.var("w", shape=(10, 64), dtype="float32")
    mod = IRModule.from_expr(relay.Function([x, w], relay.nn.softmax(relay.nn.dense(x, w))))

What is not there yet can be imported, and says so when it is used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path as _Path
from typing import Any as _Anything

from .._later import announce
from ..ir.function import BaseFunc
from ..ir.module import IRModule
from ..ir.op import Op
from . import analysis, binding, equal, expr, op, parser, qnn, scope_builder, text, transform, ty, visitor
from .binding import bind_params_by_name
from .expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    RelayExpr,
    Tuple,
    TupleGetItem,
    TupleWrapper,
    Var,
    bind,
    const,
    var,
)
from .op import *  # noqa: F403
from .op import image, nn, vision
from .op.registry import RelayTypeError
from .parser import fromtext, parse, parse_expr
from .scope_builder import ScopeBuilder
from .transform.infer_type import infer_type
from .ty import Any, FuncType, IncompleteType, RefType, TensorType, TupleType, Type, TypeVar, scalar_type
from .visitor import ExprFunctor, ExprMutator, ExprVisitor, TypeFunctor, TypeMutator, TypeVisitor

_REASON = "this part of the graph compiler is not there yet; write the computation with te or as a tir script"
# The classic homes of names that live elsewhere here.
for _name, _home in (
    ("expr_functor", visitor),
    ("type_functor", visitor),
    ("function", expr),
    ("nn", nn),
    ("op.op", op.registry),
):
    sys.modules[f"{__name__}.{_name}"] = _home
expr_functor = type_functor = visitor
function = expr

_HERE = _Path(__file__).parent


def _is_built(name: str) -> bool:
    """Whether a part has a file by now, in the package or (a family of operators) in `op`."""
    path = _HERE / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


_CLASSIC = (
    "adt",
    "analysis.sparse_dense",
    "annotation",
    "backend",
    "backend.executor_factory",
    "backend.graph_executor_codegen",
    "build_module",
    "dataflow_pattern",
    "debug",
    "frontend",
    "image",
    "loops",
    "op.annotation",
    "op.contrib",
    "op.strategy",
    "prelude",
    "qnn",
    "qnn.op",
    "qnn.transform",
    "quantize",
    "random",
    "vision",
    "vm",
)


def _is_open(name: str) -> bool:
    """Whether a name is still to be announced: neither built, nor below something built that is not loaded."""
    above = name.partition(".")[0]
    hidden = above != name and _is_built(above) and f"{__name__}.{above}" not in sys.modules
    return not (_is_built(name) or _is_built(f"op.{name}") or hidden)


for _name in _CLASSIC:
    if _is_built(f"op.{_name}"):  # `relay.image` is `relay.op.image`
        sys.modules[f"{__name__}.{_name}"] = import_module(f".op.{_name}", __name__)
_later: _Anything = announce(__name__, _REASON, [n for n in _CLASSIC if _is_open(n)])
from . import testing  # noqa: E402

_MODELS = "inception_v3 init lstm mlp mobilenet resnet squeezenet synthetic temp_op_attr vgg".split()
announce(testing.__name__, _REASON, [n for n in _MODELS if not _is_built(f"testing.{n}")])
if not _is_built("build_module"):
    sys.modules[f"{__name__}.build_module"].__dict__["bind_params_by_name"] = bind_params_by_name


# The compiler is loaded when it is first used.
_LOADED_LATE = {
    "build": "build_module",
    "build_config": "build_module",
    "create_executor": "build_module",
    "optimize": "build_module",
    "load_param_dict": "param_dict",
    "save_param_dict": "param_dict",
}


def __getattr__(name: str) -> _Anything:
    if name in _LOADED_LATE and _is_built(_LOADED_LATE[name]):
        return getattr(import_module(f".{_LOADED_LATE[name]}", __name__), name)
    if not name.startswith("_"):
        for home in (name, f"op.{name}"):  # `relay.frontend`, and `relay.image` for `relay.op.image`
            if _is_built(home):
                return import_module(f".{home}", __name__)
    return _later(name)
