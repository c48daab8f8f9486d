"""Functions of the C family: statements, declarations, parameters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...ir.buffer import Buffer
from ...ir.dtype import INT32, INT64, DataType
from ...ir.errors import LoweringError
from ...ir.expr import Add, BufferLoad, Call, FloatImm, IntImm, IterVar, PrimExpr, StringImm, Var, const_value
from ...ir.expr_text import UNARY, Piece
from ...ir.function import PrimFunc
from ...ir.functor import pre_order, vars_used
from ...ir.node import methods_of_nodes
from ...ir.op import Op
from ...ir.ops import add
from ...ir.stmt import BufferStore, ForKind, Stmt
from ...ir.types import PointerType, PrimType
from ..marks import refuse_engine_mark
from .dialect import Dialect, Parameter
from .expressions import FIRST_CHECK, REPORT
from .vectors import Vectors

_STACK_BYTES = 64 * 1024  # most bytes of an allocation on the stack in C
_MOST_UNROLLED = 64  # most iterations of an unrolled loop
_OFFSET = "tilewright.dynamic_shared_offset"
CLUSTER = "shared.cluster"  # the scope of memory that the blocks of a cluster share, each with a part of it
TENSOR_MAP = "tensor_map"  # the scope of tensor maps, the parameters of bulk copies


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of a program, and its requirements on arguments."""

    name: str
    text: str
    alignment: dict[Var, int]  # alignment in bytes that vector accesses require of each pointer
    checks: tuple[
        tuple[str, str], ...
    ] = ()  # checks of its data: kinds and messages; see `runtime/reports.py`


class Program:
    """Functions of one dialect, and the helpers that they need."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.helpers: dict[str, None] = {}
        self.kinds: set[str] = set()
        self.constants: list[str] = []
        self.imported: dict[str, None] = {}  # source that a schedule brings along (pragma import_c)
        self.kernels: list[Kernel] = []

    def add(self, func: PrimFunc, name: str) -> Kernel:
        """Write a kernel."""
        writer = SourceWriter(self)
        made = Kernel(name, writer.kernel(func, name), writer.alignment, tuple(writer.checks))
        self.kernels.append(made)
        return made

    def text(self) -> str:
        """The whole program."""
        d = self.dialect
        parts = [
            "\n".join(d.prologue(self.kinds)),
            "\n".join(self.imported),
            "\n".join(d.helper(name) for name in self.helpers),
            "\n".join(self.constants),
            "\n".join(k.text for k in self.kernels),
        ]
        return "\n".join(p for p in parts if p)


class SourceWriter(Vectors):
    """The body of one function."""

    def __init__(self, program: Program) -> None:
        super().__init__(program.dialect, program.helpers)
        self.program = program
        self.shared: list[str] = []  # declarations that belong to the kernel as a whole
        self.uses_dynamic = False
        self.sets_registers = False
        self.together = 1  # thread blocks that an SM should have room for (pragma_min_blocks)
        self.cluster = 1  # blocks of a cluster, which can read each other's shared memory
        self.lines_of: dict[Var, int] = {}  # elements of each block in memory that a cluster shares

    # -- whole functions -----------------------------------------------------------------------
    def kernel(self, func: PrimFunc, name: str) -> str:
        """A kernel; its parameters are pointers to global memory and numbers."""
        params = self.parameters(func)
        threads = func.attrs.get("tilewright.threads_per_block")
        self.program.kinds |= {str(k.element) for k in _kinds(func)}
        self.cluster = int(func.attrs.get("tilewright.blocks_per_cluster", 1))
        self.stmt(func.body)
        self.report_failures()
        if self.checks:
            params += [Parameter(REPORT, INT64, True), Parameter(FIRST_CHECK, INT32, False)]
        head = self.dialect.kernel_head(
            name,
            params,
            None if threads is None else int(threads),
            bool(func.attrs.get("tir.noalias", False)),
        )
        if self.sets_registers or self.together > 1:
            # with setmaxnreg, the compiler then assumes the registers of the launch
            head = head.replace(
                f"__launch_bounds__({threads})", f"__launch_bounds__({threads}, {self.together})"
            )
        if self.cluster > 1:
            head = self.dialect.clustered(head, self.cluster)
        if self.lines_of:
            self.leave_cluster()
        if self.uses_dynamic:
            declared = self.dialect.dynamic_shared()
            if declared:
                self.shared.insert(0, f"  {declared}")
            else:
                char = self.dialect.pointer(DataType("uint8"), "shared")
                head = f"{head.removesuffix(')')}{', ' if params else ''}{char} tw_dynamic_shared)"
        last = ["  return 0;"] if self.dialect.is_host else []
        return "\n".join([f"{head} {{", *self.shared, *self.lines, *last, "}", ""])

    def leave_cluster(self) -> None:
        """Let no block end before the others have read its memory: each arrives at a cluster barrier after its reads,
        and waits at its end, if all threads reach both."""
        reads = [i for i, line in enumerate(self.lines) if "tw_cluster_load(" in line]
        last = reads[-1] + 1 if reads else len(self.lines)
        waits = any("tw_cluster_wait()" in line for line in self.lines[last:])
        if reads and not waits and re.match(r"  \S", self.lines[last - 1]):
            self.need("tw_cluster_leave")
            self.lines[last:last] = ["  tw_cluster_leave();"]
            self.emit("tw_cluster_end();")
        else:
            self.emit(self.dialect.barrier(CLUSTER))

    def parameters(self, func: PrimFunc) -> list[Parameter]:
        elements, written = _pointers(func)
        out = []
        for p in func.params:
            if p.dtype.is_handle and pointer_scope(p) == TENSOR_MAP:
                self.need("tw_tensor_map")
                out.append(Parameter(self.define(p), p.dtype, True, is_map=True))
                self.names[p] = f"&{self.names[p]}"
            elif p.dtype.is_handle:
                kind = elements.get(p) or pointed(p)
                self.memory[p] = (kind, "global")
                if p not in written:
                    self.constant_data.add(p)
                out.append(Parameter(self.define(p), kind, True, p not in written))
            else:
                out.append(Parameter(self.define(p), p.dtype, False))
                if p.dtype.is_bool:
                    self.names[p] = f"({self.names[p]} != 0)"
        return out

    def text_BufferLoad(self, e: BufferLoad) -> Any:
        line = self.lines_of.get(e.buffer.data)
        if line is None:
            return super().text_BufferLoad(e)
        block = self.at(UNARY, e.indices[0])
        where = self.address(e.buffer, e.indices[0])
        return Piece(f"tw_cluster_load({where}, {block if line == 1 else f'{block} / {line}'})")

    # -- statements ----------------------------------------------------------------------------
    def stmt(self, s: Stmt) -> None:
        handler = _STMT.get(s.__class__.__name__)
        if handler is None:
            raise LoweringError(
                f"{self.dialect.name}: no code for {s.__class__.__name__}; lower the function first"
            )
        handler(self, s)
        if self.at_once:
            self.report_failures()

    def block(self, body: Stmt) -> None:
        """Statements between braces."""
        before, self.failures = self.failures, []
        self.depth += 1
        self.stmt(body)
        self.report_failures()
        self.depth -= 1
        self.failures = before

    def stmt_SeqStmt(self, s: Any) -> None:
        for one in s.seq:
            self.stmt(one)

    def stmt_LetStmt(self, s: Any) -> None:
        if isinstance(s.value, Add) and any(v in self.unrolled for v in vars_used(s.value)):
            self.sums[s.var] = s.value
        var, value = s.var, s.value
        if var.dtype.lanes > 1:
            self.bind_lanes(var, value)
        elif self.may_be_large(value):
            text = self.widely(value).text
            name = self.name(var.name)
            self.names[var] = self.wide[var] = name
            self.emit(f"const {self.dialect.type(DataType('int64'))} {name} = {text};")
            self.ana.bind(var, value, override=True)
        elif var.dtype.is_handle:
            kind, scope = pointed(var), self.scope_of(value)
            text = self.expr(value)
            self.memory[var] = (kind, scope)
            self.emit(f"{self.dialect.pointer(kind, scope)} {self.define(var)} = {text};")
        else:
            self.emit(self.bind_value(var, value))
            if var.dtype.is_integral:
                self.ana.bind(var, value, override=True)
        if self.at_once:
            self.report_failures()
        self.stmt(s.body)

    def may_be_large(self, e: PrimExpr) -> bool:
        """Whether it is a part of an address that may overflow 32 bits: sizes are large, or symbolic."""
        if e.dtype != "int32":
            return False
        return self.ana.const_int_bound(e).max_value >= 1 << 31 or any(
            m.__class__.__name__ == "Mul" and const_value(m.a) is None and const_value(m.b) is None
            for m in pre_order(e)
        )

    def stmt_AttrStmt(self, s: Any) -> None:
        refuse_engine_mark(s.attr_key, "this target")
        if s.attr_key == "thread_extent" and isinstance(s.node, IterVar):
            self.thread(s)
        elif s.attr_key == "pragma_import_c" and isinstance(s.value, StringImm):
            self.program.imported[s.value.value] = None
        elif s.attr_key == "pragma_min_blocks":
            self.together = max(self.together, int(const_value(s.value) or 1))
        before, self.once = self.once, self.once or s.attr_key == "pragma_nontemporal"
        self.stmt(s.body)
        self.once = before

    def thread(self, s: Any) -> None:
        var, tag = s.node.var, s.node.thread_tag
        kind = self.dialect.type(var.dtype)
        self.ana.bind_loop(var, s.node.dom.min if s.node.dom is not None else IntImm(var.dtype, 0), s.value)
        index = self.dialect.thread("blockIdx.x" if tag == "clusterCtaIdx.x" else tag)
        if self.cluster > 1 and tag in (
            "blockIdx.x",
            "clusterCtaIdx.x",
        ):  # blocks of a cluster are neighbours
            index = f"{index} {'/' if tag == 'blockIdx.x' else '%'} {self.cluster}"
        elif tag == "clusterCtaIdx.x":
            index = "0"
        self.emit(f"const {kind} {self.define(var)} = {index};")

    def stmt_AssertStmt(self, s: Any) -> None:
        if self.dialect.is_host:  # a kernel cannot report it
            self.emit(f"if (!{self.at(UNARY, s.condition)}) return 1;")
        self.stmt(s.body)

    def stmt_IfThenElse(self, s: Any) -> None:
        self.emit(f"if ({self.expr(s.condition)}) {{")
        self.block(s.then_case)
        if s.else_case is not None:
            self.emit("} else {")
            self.block(s.else_case)
        self.emit("}")

    def stmt_For(self, s: Any) -> None:
        if s.kind is ForKind.THREAD_BINDING:
            raise LoweringError(f"loop `{s.loop_var}` is still bound to a thread: lower the function first")
        kind = self.dialect.type(s.loop_var.dtype)
        low, end = self.expr(s.min), self.at(9, add(s.min, s.extent))
        if any(isinstance(m, BufferLoad) for m in pre_order(s.extent)):  # the body may write there
            name = self.name("end")
            self.emit(f"const {kind} {name} = {end};")
            end = name
        self.ana.bind_loop(s.loop_var, s.min, s.extent)
        name = self.define(s.loop_var)
        if s.kind is ForKind.UNROLLED or self.walks_registers(s):
            if self.dialect.unroll:
                self.emit(self.dialect.unroll)
                self.unrolled.add(s.loop_var)
        self.emit(f"for ({kind} {name} = {low}; {name} < {end}; ++{name}) {{")
        self.block(s.body)
        self.emit("}")

    def walks_registers(self, s: Any) -> bool:
        """Whether a loop indexes thread-private memory: registers have no addresses, so it must be unrolled."""
        if (
            not self.dialect.registers_need_unrolling
            or not 1 < (const_value(s.extent) or 0) <= _MOST_UNROLLED
        ):
            return False
        for m in pre_order(s.body):
            if isinstance(m, (BufferLoad, BufferStore)) and self._is_private(m.buffer.data):
                if any(v is s.loop_var for v in pre_order(m.indices[0])):
                    return True
            elif isinstance(m, Call) and any(isinstance(a, Var) and self._is_private(a) for a in m.args):
                numbers = [a for a in m.args if not a.dtype.is_handle]
                if any(v is s.loop_var for a in numbers for v in pre_order(a)):  # a fragment, by its number
                    return True
        return False

    def _is_private(self, data: Var) -> bool:
        held = self.memory.get(data)
        return data.dtype.is_handle and (held[1] if held is not None else pointer_scope(data)) == "local"

    def stmt_While(self, s: Any) -> None:
        count = len(self.failures)
        with self.aside() as lines:
            condition = self.at(UNARY, s.condition)
            self.report_failures(count)
        if not lines:
            self.emit(f"while ({condition}) {{")
        else:
            self.emit("while (true) {")
            self.lines += lines
            self.emit(f"  if (!{condition}) break;")
        self.block(s.body)
        self.emit("}")

    def stmt_Allocate(self, s: Any) -> None:
        nbytes = _bytes(s)
        if self.dialect.is_host and (nbytes is None or nbytes > _STACK_BYTES):
            self.from_heap(s)
            return
        size, scope = self._size(s), pointer_scope(s.buffer_var)
        kind, lanes = s.dtype.element, s.dtype.lanes
        at = s.annotations.get(_OFFSET)
        if at is not None:
            self.uses_dynamic, kept = True, "shared.dyn"
            char = self.dialect.pointer(kind, kept)
            name = self.define(s.buffer_var)
            start = f"(tw_dynamic_shared + {at})" if at else "tw_dynamic_shared"
            self.shared.append(f"  {char} {name} = ({char}){start};")
        elif scope.startswith("shared"):
            kept = "shared"
            if scope == CLUSTER:
                self.lines_of[s.buffer_var] = size // self.cluster
                self.need("tw_cluster_load")
                self.need("tw_cluster_wait")
            self.shared.append(
                f"  {self.dialect.shared_array(kind, self.define(s.buffer_var), size * lanes)}"
            )
        else:
            kept = "local"
            self.emit(self.dialect.local_array(kind, self.define(s.buffer_var), size * lanes))
        self.memory[s.buffer_var] = (kind, kept)
        self.stmt(s.body)

    def from_heap(self, s: Any) -> None:
        """An allocation on the heap for the lifetime of the body."""
        kind, name = s.dtype.element, self.define(s.buffer_var)
        size = " * ".join([f"(size_t)({self.widely(e).text})" for e in s.extents] + [str(s.dtype.nbytes)])
        pointer = self.dialect.pointer(kind, "global")
        self.emit(f"{pointer} {name} = ({pointer})malloc({size});\nif ({name} == NULL) return 4;")
        self.memory[s.buffer_var] = (kind, "local")
        self.stmt(s.body)
        self.emit(f"free({name});")

    def _size(self, s: Any) -> int:
        sizes = [const_value(e) for e in s.extents]
        if any(size is None for size in sizes):
            raise LoweringError(
                f"{s.buffer_var.name} is allocated inside a kernel with a size that is not known when it is "
                "compiled; give its loops constant extents, or compute it in a kernel of its own"
            )
        out = 1
        for size in sizes:
            out *= int(size or 0)
        return max(1, out)

    def stmt_AllocateConst(self, s: Any) -> None:
        import numpy as np

        data = np.ascontiguousarray(s.data.numpy() if hasattr(s.data, "numpy") else s.data).reshape(-1)
        name = self.names[s.buffer_var] = f"tw_constant_{len(self.program.constants)}"
        kind = s.dtype.element
        values = [self.expr(_imm(kind, v)) for v in data.tolist()]
        self.program.constants.append(self.dialect.constant_array(kind, name, values))
        self.memory[s.buffer_var] = (kind, "constant")
        self.stmt(s.body)

    def stmt_DeclBuffer(self, s: Any) -> None:
        self.stmt(s.body)

    def stmt_Evaluate(self, s: Any) -> None:
        if isinstance(s.value, IntImm):
            return
        text = self.expr(s.value)
        if isinstance(s.value, Call) and isinstance(s.value.op, Op) and text != "0":
            self.emit(f"{text};")

    def stmt_Prefetch(self, s: Any) -> None:
        return


def _bytes(s: Any) -> int | None:
    """The bytes of an allocation, None where they are not known."""
    out = s.dtype.nbytes
    for e in s.extents:
        size = const_value(e)
        if size is None:
            return None
        out *= int(size)
    return int(out)


def _imm(kind: DataType, value: Any) -> PrimExpr:
    if kind.is_float:
        return FloatImm(kind, float(value))
    return IntImm(DataType("uint8") if kind.is_bool else kind, int(value))


def pointed(v: Var) -> DataType:
    """The element type of a pointer."""
    kind = v.type_annotation
    if isinstance(kind, PointerType) and isinstance(kind.element_type, PrimType):
        held = kind.element_type.dtype
        return DataType("uint8") if held.code == "void" else held.element
    return DataType("uint8")


def pointer_scope(v: Var) -> str:
    kind = v.type_annotation
    return (kind.storage_scope or "global") if isinstance(kind, PointerType) else "global"


def _pointers(func: PrimFunc) -> tuple[dict[Var, DataType], set[Var]]:
    """The element type of each pointer at its first access, and the pointers that are written through."""
    elements: dict[Var, DataType] = {}
    written: set[Var] = set()
    hinted: set[Any] = set()  # addresses of prefetches
    for m in pre_order(func.body):
        if isinstance(m, (BufferLoad, BufferStore)):
            buffer: Buffer = m.buffer
            elements.setdefault(buffer.data, buffer.dtype.element)
            if isinstance(m, BufferStore):
                written.add(buffer.data)
        elif isinstance(m, Call):
            written.update(a for a in m.args if isinstance(a, Var) and a.dtype.is_handle)
            if isinstance(m.op, Op) and m.op.short_name == "prefetch":
                hinted.add(m.args[0])
            elif isinstance(m.op, Op) and m.op.short_name == "address_of" and m not in hinted:
                written.add(m.args[0].buffer.data)  # type: ignore[attr-defined]
    return elements, written


def _kinds(func: PrimFunc) -> Sequence[DataType]:
    return [m.dtype for m in pre_order(func.body) if isinstance(m, PrimExpr)]


_STMT: Final = methods_of_nodes(SourceWriter, "stmt_")
