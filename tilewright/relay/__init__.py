"""The graph compiler: models as expressions over whole tensors.

    x = relay.var("x", shape=(1, 64), dtype="float32")
    w = relay.var("w", shape=(10, 64), dtype="float32")
    mod = IRModule.from_expr(relay.Function([x, w], relay.nn.softmax(relay.nn.dense(x, w))))

Absent classic names can be imported, and raise an error with the alternative when they are used.
"""

# ruff: noqa: F403
from __future__ import annotations

import sys
from types import ModuleType
from typing import Any as _Anything

from ..absent import attributes
from ..homes import lazily
from ..ir.function import BaseFunc
from ..ir.module import IRModule
from ..ir.op import Op
from ..ir.span import SourceName, Span
from . import (
    adt,
    analysis,
    binding,
    expr,
    op,
    parser,
    qnn,
    scope_builder,
    text,
    transform,
    ty,
    visitor,
    with_fields,
)
from . import contrib as _contrib  # the code generators that come with the package
from . import equal as _equal  # structural equality of graphs, which `ir.equal` asks for
from .adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    TypeData,
)
from .analysis import Feature
from .binding import bind_params_by_name
from .expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    RelayExpr,
    Tuple,
    TupleGetItem,
    TupleWrapper,
    Var,
    bind,
    const,
    var,
)
from .op import image, nn, random, vision
from .op.annotation import device_copy as device_copy
from .op.broadcast import *
from .op.creation import *
from .op.elementwise import *
from .op.index import *
from .op.product import einsum as einsum
from .op.rearrange import *
from .op.reduce import *
from .op.registry import RelayTypeError, get, register
from .op.signal import *
from .op.sorting import *
from .op.sparse import *
from .op.trees import *
from .parser import fromtext, parse, parse_expr
from .scope_builder import ScopeBuilder
from .transform import FunctionPass, ModulePass, Pass, PassContext, PassInfo, Sequential
from .transform.infer_type import infer_type
from .ty import (
    Any,
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    ShapeVar,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeConstraint,
    TypeKind,
    TypeRelation,
    TypeVar,
    scalar_type,
)
from .visitor import ExprFunctor, ExprMutator, ExprVisitor, TypeFunctor, TypeMutator, TypeVisitor
from .with_fields import *

# The classic homes of names that live elsewhere here.
for _name, _home in (
    ("annotation", op.annotation),
    ("expr_functor", visitor),
    ("function", expr),
    ("image", image),
    ("nn", nn),
    ("op.op", op.op),
    ("random", random),
    ("type_functor", visitor),
    ("vision", vision),
):
    sys.modules[f"{__name__}.{_name}"] = _home
expr_functor = type_functor = visitor
for _name in with_fields.__all__:  # the classic home of these is that of the expressions
    setattr(expr, _name, getattr(with_fields, _name))
function = expr
op.contrib = _contrib  # type: ignore[attr-defined]

_absent = attributes(__name__)


def _family_or_absent(name: str) -> _Anything:
    family = vars(op).get(name)  # `relay.dyn` is `relay.op.dyn`
    return family if isinstance(family, ModuleType) else _absent(name)


# The compiler and the importers are loaded when they are first used.
__getattr__ = lazily(
    __name__,
    {
        "build_module": "build build_config create_executor optimize",
        "loops": "while_loop",
        "param_dict": "load_param_dict save_param_dict",
    },
    "backend build_module data_dep_optimization dataflow_pattern frontend library loops param_dict prelude quantize "
    "sizes testing vm",
    _family_or_absent,
)
