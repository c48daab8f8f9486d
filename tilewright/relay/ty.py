"""Types of graph expressions; `ir.types` and `ir.tensor_type` define them."""

from __future__ import annotations

from ..ir.tensor_type import MOST_DIMENSIONS as MOST_DIMENSIONS
from ..ir.tensor_type import Any as Any
from ..ir.tensor_type import TensorType as TensorType
from ..ir.tensor_type import is_dynamic as is_dynamic
from ..ir.tensor_type import scalar_type as scalar_type
from ..ir.tensor_type import tensor_fields as tensor_fields
from ..ir.types import FuncType as FuncType
from ..ir.types import GlobalTypeVar as GlobalTypeVar
from ..ir.types import IncompleteType as IncompleteType
from ..ir.types import RefType as RefType
from ..ir.types import ShapeVar as ShapeVar
from ..ir.types import TupleType as TupleType
from ..ir.types import Type as Type
from ..ir.types import TypeCall as TypeCall
from ..ir.types import TypeConstraint as TypeConstraint
from ..ir.types import TypeKind as TypeKind
from ..ir.types import TypeRelation as TypeRelation
from ..ir.types import TypeVar as TypeVar
from ..ir.types import map_type as map_type
from ..ir.types import substituted as substituted
from ..ir.types import type_parts as type_parts
from ..ir.types import with_parts as with_parts
