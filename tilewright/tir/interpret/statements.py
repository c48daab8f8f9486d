"""Statements to Python source: loops become loops, barriers become `yield`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ...ir import stmt as S
from ...ir.buffer import Buffer, MatchBufferRegion
from ...ir.dtype import DataType
from ...ir.expr import BufferLoad, Call, CommReducer, IterVar, PrimExpr, StringImm, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import undefined_vars
from ...ir.node import methods_of_nodes
from ...ir.op import Op
from . import access
from .access import Regions, View
from .expressions import ExprTranslator, Options
from .facts import has_barrier, pointer_scope, several_threads, thread_axes, thread_axis, virtual
from .reductions import Steps, steps_below
from .source import Code, Frame, plus, times

_MANY_LOOPS = 12  # loops in one Python function (it may have 20); the rest go to functions of their own
_DEEP = 40  # levels of indentation in one Python function, likewise


class StmtTranslator(ExprTranslator):
    """The translation of a function's body."""

    def __init__(self, func: PrimFunc, options: Options) -> None:
        super().__init__(func, options)
        self.visible: Any = (
            None  # the variables that a report shows, innermost first: (outer, name, Python name)
        )
        self.pointers: dict[Var, str] = {}
        self.in_parallel = False
        self.virtual_names: list[str] = []
        self.extents: dict[str, list[str]] = {}  # extents of the thread axes of the kernel
        self._undo: list[tuple[dict[Any, Any], Any, Any]] = []
        self.inputs: list[Var] = []
        self.around: list[S.For] = []  # the loops inside the enclosing block
        self.reducers: set[Var] = set()  # the reduction iterators of the enclosing blocks

    def translate(self) -> Frame:
        """The function `run(rt, …)`, with a parameter for each variable in `inputs`."""
        func = self.func
        sizes: dict[Var, None] = {}
        for p in func.params:
            self.inputs.append(p)
        for b in func.buffer_map.values():
            self.owners.add(b)
            for e in (*b.shape, *b.strides, b.elem_offset):
                sizes.update((v, None) for v in undefined_vars(e) if v not in self.inputs)
        data = {b.data: None for b in func.buffer_map.values()}
        self.inputs += [v for v in sizes if v not in self.inputs]
        self.inputs += [v for v in data if v not in self.inputs]
        self.frame.params = ["rt", *(self.fresh(v.name) for v in self.inputs)]
        self.frame.emit("clock = rt.clock", None)
        for v, name in zip(self.inputs, self.frame.params[1:]):
            if v in data or (v.dtype.is_handle and v in self.facts.kinds):
                self.bind_pointer(v, name, None)
            else:
                code = self.full(v.dtype.element, name)
                positive = v in sizes and code.lo is not None
                self.bind(v, code._replace(lo=0) if positive else code, show=not v.dtype.is_handle)
        if "coproc_engines" in func.attrs:
            self._engines(func.body, [int(n) for n in func.attrs["coproc_engines"]])
        else:
            self.stmt(func.body)
        return self.frame

    # -- scopes ------------------------------------------------------------------------------
    def _set(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        self._undo.append((table, key, table.get(key)))
        table[key] = value

    def bind(self, v: Var, code: Code, *, show: bool = True) -> None:
        """Bind `v` to the Python variable `code` until the end of the statement."""
        self._set(self.scope, v, code)
        if show:
            self.visible = (self.visible, v.name, code.text)

    def bind_pointer(self, v: Var, name: str, text: str | None) -> None:
        """Bind `name` to the pointer `text`, with the views, mask and log that accesses need."""
        if text is not None:
            self.emit(f"{name} = {text}")
        for kind in self.facts.kinds_of(v):
            self.emit(f"{name}_{kind} = {name}.view({self.constant(kind, ('type', kind))})")
        if self.tracked(v):
            self.emit(f"{name}_w = {name}.written()")
        if self.facts.root(v) in self.logged:
            self.emit(f"{name}_l = {name}.log(clock)")
        if v in self.facts.windows:
            self.emit(f"{name}_o = {name}.cell")
            self.window_names.add(name)
        self._set(self.scope, v, Code(name))
        self._set(self.pointers, v, name)

    def emit(self, text: str) -> None:
        self.frame.emit(text, self.record())

    def record(self) -> Any:
        return (self.current, self.visible)

    # -- dispatch ----------------------------------------------------------------------------
    def stmt(self, s: Any) -> None:
        """Translate a statement. A handler returns the statement to continue with, so that long chains of bindings do
        not recurse."""
        mark, shown, before = len(self._undo), self.visible, self.current
        while s is not None:
            self.current = s
            handler = _HANDLERS.get(s.__class__.__name__)
            if handler is None:
                raise self.refuse(f"the interpreter has no meaning for a statement {type(s).__name__}")
            s = handler(self, s)
        while len(self._undo) > mark:
            table, key, old = self._undo.pop()
            if old is None:
                del table[key]
            else:
                table[key] = old
        self.visible, self.current = shown, before

    def inside(self, head: str, body: Callable[[], None], *, loop: bool = False) -> None:
        """`head:` and an indented body."""
        self.emit(f"{head}:")
        self.frame.indent += 1
        self.frame.loops += loop
        count = len(self.frame.lines)
        body()
        if len(self.frame.lines) == count:
            self.emit("pass")
        self.frame.indent -= 1
        self.frame.loops -= loop

    def function(self, frame: Frame, body: Callable[[], None]) -> None:
        """Translate `body` into a function of its own inside the current one."""
        outer, self.frame = self.frame, frame
        body()
        self.frame = outer
        outer.defs.append(frame)

    # -- loops -------------------------------------------------------------------------------
    def stmt_For(self, s: S.For) -> None:
        axis = thread_axis(s)
        if axis is not None and not self.facts.blocks:
            tag = axis[0]
            if virtual(tag):
                return self._virtual(s.loop_var, s.min, s.extent, s.body)
            if not self.in_kernel:
                return self._launch(s)
            return self._thread_loop(s, tag)
        for steps in steps_below(s, self.around, self.reducers) if self.facts.blocks else ():
            self._shallow(lambda steps=steps: self._points(steps.points, steps))  # type: ignore[misc]
        self.around.append(s)
        self._shallow(lambda: self._plain_loop(s))
        self.around.pop()
        return None

    def _shallow(self, body: Callable[[], None]) -> None:
        """Translate in place, or into a function of its own where this one nests too deep for Python."""
        if self.frame.loops < _MANY_LOOPS and self.frame.indent < _DEEP:
            body()
            return
        part = Frame(self.fresh("part"), [], "part")
        self.function(part, body)
        if part.generator:
            self.frame.generator = True
        self.emit(f"yield from {part.name}()" if part.generator else f"{part.name}()")

    def _plain_loop(self, s: S.For) -> None:
        race = (
            s.kind is S.ForKind.PARALLEL
            and self.options.detect_races
            and not self.in_parallel
            and not self.in_kernel
        )
        if not race:
            self._loop(s.loop_var, s.min, s.extent, s.body)
            return
        before = self.logged
        self.in_parallel = True
        self._log({self.facts.root(v) for v in self.pointers} & self.facts.written_in(s.body))
        self._loop(s.loop_var, s.min, s.extent, s.body, parallel=True)
        self.in_parallel, self.logged = False, before

    def _log(self, roots: set[Var]) -> None:
        """Log the accesses to these memories from here on."""
        self.logged = frozenset(roots)
        for v, name in self.pointers.items():
            if self.facts.root(v) in roots:
                self.emit(f"{name}_l = {name}.log(clock)")

    def _loop(self, v: Var, low: PrimExpr, extent: PrimExpr, body: Any, *, parallel: bool = False) -> None:
        lo, n = self.value(low), self.value(extent)
        name = self.fresh(v.name)
        stop = n.text if lo.text == "0" else f"{lo.text} + {n.text}"
        if parallel:
            head = f"for {name} in clock.iterations({v.name!r}, {lo.text}, {stop})"
        else:
            head = f"for {name} in range({stop if lo.text == '0' else f'{lo.text}, {stop}'})"
        code = self.full(v.dtype, name)
        if lo.lo is not None and lo.hi is not None and n.hi is not None:
            top = min(lo.hi + max(n.hi, 1) - 1, int(v.dtype.high))
            code = code._replace(lo=lo.lo, hi=top)

        def run() -> None:
            self.bind(v, code)
            if callable(body):
                body()
            else:
                self.stmt(body)

        self.inside(head, run, loop=True)

    def _points(self, points: list[S.For], steps: Steps) -> None:
        """Initialize the reduction at the points that have no step."""
        if points:
            f = points[0]
            self._loop(f.loop_var, f.min, f.extent, lambda: self._points(points[1:], steps))
            return
        found = self.fresh("step")
        self.emit(f"{found} = 0")
        self._find_step(steps.reducing, steps.condition, found)
        self.inside(f"if not {found}", lambda: self.stmt_BlockRealize(steps.start))

    def _find_step(self, loops: list[S.For], condition: PrimExpr, found: str) -> None:
        if not loops:
            self.inside(f"if {self.value(condition).text}", lambda: self.emit(f"{found} = 1"))
            return

        def run() -> None:
            self._find_step(loops[1:], condition, found)
            self.emit(f"if {found}: break")

        self._loop(loops[0].loop_var, loops[0].min, loops[0].extent, run)

    def stmt_While(self, s: S.While) -> None:
        head = f"while {self.value(s.condition).text}"
        self._shallow(lambda: self.inside(head, lambda: self.stmt(s.body), loop=True))

    def stmt_IfThenElse(self, s: S.IfThenElse) -> None:
        self._shallow(lambda: self._branches(s))

    def _branches(self, s: S.IfThenElse) -> None:
        self.inside(f"if {self.value(s.condition).text}", lambda: self.stmt(s.then_case))
        if s.else_case is not None:
            other = s.else_case
            self.inside("else", lambda: self.stmt(other))

    def stmt_SeqStmt(self, s: S.SeqStmt) -> None:
        for one in s.seq:
            self.stmt(one)

    # -- threads -----------------------------------------------------------------------------
    def _launch(self, s: Any) -> None:
        """The statement as a kernel: a generator that `launch` runs once for each thread."""
        sizes = []
        for tag, extents in thread_axes(s).items():
            texts = self.extents[tag] = list(dict.fromkeys(self.value(e).text for e in extents))
            widest = texts[0] if len(texts) == 1 else f"max({', '.join(texts)})"
            sizes.append(f"{tag!r}: {widest}")
        logged = self.logged
        if self.options.detect_races:
            seen = {self.facts.root(v) for v in self.pointers}
            self._log(seen & self.facts.written_in(s))
            self.logged |= self.facts.shared
        self.in_kernel = True
        kernel = Frame(self.fresh("kernel"), ["th"], "kernel")
        self.function(kernel, lambda: self.stmt(s))
        self.in_kernel, self.logged = False, logged
        self.emit(f"launch(clock, {kernel.name}, {{{', '.join(sizes)}}})")

    def _engines(self, s: Any, numbers: list[int]) -> None:
        """The statement as the program of each engine: a generator that executes the commands of that engine."""
        self.emit("clock.log_type = EngineLog")
        if self.options.detect_races:
            self._log(self.facts.written_in(s) | self.facts.tracked)
        self.in_engine = True
        engine = Frame(self.fresh("engine"), ["th"], "kernel")
        self.function(engine, lambda: self.stmt(s))
        self.in_engine = False
        self.emit(f"run_engines(clock, {engine.name}, {numbers})")

    def _token(self, e: Call) -> None:
        """A push or pop of a token, by the engine that it concerns."""
        source, target = (int(const_value(a) or 0) for a in e.args)
        if not self.in_engine:
            return
        if e.op.short_name == "coproc_dep_push":
            self.emit(f"if th.number == {source}: th.push({target}, {self.site()})")
        else:
            self.frame.generator = True
            self.emit(f"if th.number == {target}: yield Request('pop', {self.site()}, {source})")

    def _thread_attr(self, s: S.AttrStmt, tag: str) -> Any:
        sizes = self.extents[tag]
        if len(sizes) > 1:
            raise self.refuse(f"thread axis {tag} has the extents {' and '.join(sizes)} in one kernel")
        self._bind_thread(s.node.var, tag, self.value(s.value))
        return s.body

    def _bind_thread(self, v: Var, tag: str, extent: Code, low: str = "") -> None:
        name = self.fresh(v.name)
        self.emit(f"{name} = th.at[{tag!r}]{low}")
        code = self.full(v.dtype, name)
        if extent.hi is not None and not low:
            code = code._replace(lo=0, hi=max(extent.hi - 1, 0))
        self.bind(v, code)
        self._set(self.thread_tags, v, tag)

    def _thread_loop(self, s: S.For, tag: str) -> Any:
        lo, n = self.value(s.min), self.value(s.extent)

        def run() -> None:
            self._bind_thread(s.loop_var, tag, n, "" if lo.text == "0" else f" + {lo.text}")
            self.stmt(s.body)

        # a loop with a smaller extent than the launch masks the other threads
        self.inside(f"if th.at[{tag!r}] < {n.text}", run)
        return None

    def _virtual(self, v: Var, low: PrimExpr, extent: PrimExpr, body: Any) -> None:
        """Virtual threads: a loop, or in lockstep if they contain barriers."""
        if not (self.in_kernel and has_barrier(body)):
            self._loop(v, low, extent, body)
            return
        lo, n = self.value(low), self.value(extent)
        name = self.fresh(v.name)
        frame = Frame(self.fresh("vthread"), [name], "kernel")
        self.bind(v, self.full(v.dtype, name)._replace(lo=lo.lo, hi=(lo.hi or 0) + (n.hi or 1) - 1))
        self.virtual_names.append(name)
        self.function(frame, lambda: self.stmt(body))
        self.virtual_names.pop()
        self.frame.generator = True
        self.emit(f"yield from lockstep([{frame.name}({lo.text} + i) for i in range({n.text})])")

    def stmt_AttrStmt(self, s: S.AttrStmt) -> Any:
        axis = thread_axis(s)
        if axis is not None:
            tag = axis[0]
            if self.facts.blocks:
                if s.node.var in self.scope:
                    return s.body
                return self._loop(s.node.var, const(0, s.value.dtype), s.value, s.body)
            if virtual(tag):
                return self._virtual(s.node.var, const(0, s.value.dtype), s.value, s.body)
            return self._thread_attr(s, tag) if self.in_kernel else self._launch(s)
        if s.attr_key == "coproc_scope" and self.in_engine:
            self.inside(f"if th.number == {self.value(s.value).text}", lambda: self.stmt(s.body))
            return None
        if s.attr_key == "reduce_scope" and isinstance(s.node, CommReducer):
            before, self.reducer = self.reducer, s.node
            self.stmt(s.body)
            self.reducer = before
            return None
        return s.body

    def _allreduce(self, e: Call) -> None:
        """Combine a value over threads; each of them gets the result."""
        count = int(const_value(e.args[0]) or 1)
        values, condition = e.args[1 : 1 + count], e.args[1 + count]
        results, axes = e.args[2 + count : 2 + 2 * count], e.args[2 + 2 * count :]
        if self.reducer is None:
            raise self.refuse("tvm_thread_allreduce outside a reduce_scope that gives its reducer")
        if not self.in_kernel:
            raise self.refuse("tvm_thread_allreduce outside a kernel")
        tags = [self.thread_tags[a] for a in axes if isinstance(a, Var) and a in self.thread_tags]
        combine, identity = self._combiner(self.reducer)
        given = "".join(self.value(v).text + ", " for v in values)
        out = self.fresh("total")
        self.frame.generator = True
        data = f"({combine}, ({given}), {self.value(condition).text}, {tags!r}, {identity})"
        self.emit(f"{out} = yield Request('reduce', {self.site()}, {data})")
        for n, (target, value) in enumerate(zip(results, values)):
            if isinstance(target, BufferLoad):
                self._store_scalar(target.buffer, target.indices, None, f"{out}[{n}]")
            else:
                kind = self.constant(value.dtype, ("type", value.dtype))
                self.emit(f"rt.put({self.value(target).text}, {kind}, {out}[{n}])")

    def _combiner(self, r: CommReducer) -> tuple[str, str]:
        """The function that combines two tuples of values, and the tuple to start from."""
        names = []
        for v in (*r.lhs, *r.rhs):
            names.append(self.fresh(v.name))
            self._set(self.scope, v, self.full(v.dtype, names[-1]))
        frame = Frame(self.fresh("combine"), names, "value")
        self.function(
            frame, lambda: self.emit("return (" + "".join(self.value(x).text + ", " for x in r.result) + ")")
        )
        identity = "(" + "".join(self.value(x).text + ", " for x in r.identity_element) + ")"
        return frame.name, identity

    # -- memory ------------------------------------------------------------------------------
    def stmt_BufferStore(self, s: S.BufferStore) -> None:
        if s.value.dtype.lanes == 1:
            self._store_scalar(s.buffer, s.indices, None, self.value(s.value).text)
            return
        values, lane = self.fresh("x"), self.fresh("l")
        self.emit(f"{values} = {self.value(s.value).text}")
        chosen = f"range({s.value.dtype.lanes})"
        if s.predicate is not None:
            mask = self.fresh("m")
            self.emit(f"{mask} = {self.value(s.predicate).text}")
            chosen = f"[l for l in {chosen} if {mask}[l]]"
        self.lanes.append(lane)
        self.inside(
            f"for {lane} in {chosen}",
            lambda: self._store_scalar(s.buffer, s.indices, lane, f"{values}[{lane}]"),
            loop=True,
        )
        self.lanes.pop()

    def _store_scalar(self, b: Buffer, indices: Sequence[PrimExpr], lane: str | None, value: str) -> None:
        codes, sub = self.lane_indices(b, tuple(indices), lane)
        place = access.locate(self, b, codes, sub, write=True)
        for name, text in place.binds:
            self.emit(f"{name} = {text}")
        if place.position_tests and place.tests:
            self.emit(f"if not ({' and '.join(place.tests)}): {place.failure}")
        if (place.position_tests or place.mark) and place.position != place.flat:
            self.emit(f"{place.position} = {place.flat}")
        if not place.position_tests and place.tests:
            self.emit(f"if not ({' and '.join(place.tests)}): {place.failure}")
        held = None
        if place.position_tests:
            held = self.fresh("x")
            self.emit(f"{held} = {value}")
            self.emit(f"if not ({' and '.join(place.cell_tests)}): {place.failure}")
        self.emit(f"{place.memory}[{place.position}] = {held or value}")
        if place.mark:
            self.emit(place.mark)

    def new_memory(
        self, v: Var, kind: DataType, shape: list[int | str], count: int | str, scope: str, name: str
    ) -> None:
        """Allocate `count` elements for the pointer `v`: per thread, per block, or for the program."""
        held = self.fresh(v.name)
        kind_name = self.constant(kind, ("type", kind))
        dims = "".join(f"{d}, " for d in shape)
        args = f"{name!r}, {kind_name}, ({dims}), {count}, {scope!r}, {self.facts.unit(v)}, {self.tracked(v)}"
        if self.in_kernel and several_threads(scope):
            share = {"warp": "warp_shared", "shared.cluster": "cluster_shared"}.get(scope, "shared")
            self._count += 1
            key = f"({self._count}, {''.join(n + ', ' for n in self.virtual_names)})"
            self.bind_pointer(v, held, f"th.{share}({key}, rt.allocate, {args})")
        elif self.in_engine:
            self._count += 1
            self.bind_pointer(v, held, f"th.shared({self._count}, rt.allocate, {args})")
        else:
            self.bind_pointer(v, held, f"rt.allocate({args})")

    def stmt_Allocate(self, s: S.Allocate) -> Any:
        scope = pointer_scope(s.buffer_var)
        if scope != "global" and not self.in_kernel and not self.facts.blocks and thread_axes(s.body):
            return self._launch(s)  # memory of threads: each thread, or block, allocates its own
        count: int | str = 1
        for e in s.extents:
            count = times(count, self._closed(e))
        if isinstance(count, int):
            self._set(self.room, s.buffer_var, count * s.dtype.nbytes)
        shape = [self.number(e) for e in s.extents]
        self.new_memory(s.buffer_var, s.dtype, shape, count, scope, s.buffer_var.name)
        return s.body

    def _closed(self, e: PrimExpr) -> int | str:
        number = self.number(e)
        return number if isinstance(number, int) or number.isidentifier() else f"({number})"

    def _allocate_buffer(self, b: Buffer) -> None:
        """The memory of a buffer that a block allocates, padding included."""
        count: int | str = 1
        if b.strides:
            for d, stride in zip(b.shape, b.strides):
                count = plus(count, times(f"({self._closed(d)} - 1)", self._closed(stride)))
        else:
            for d in b.shape:
                count = times(count, self._closed(d))
        count = plus(count, self.number(b.elem_offset))
        shape = [self.number(d) for d in b.shape]
        self.new_memory(b.data, b.dtype, shape, count, b.scope_name, b.name)
        self.owners.add(b)

    def stmt_AllocateConst(self, s: S.AllocateConst) -> Any:
        kind = self.constant(s.dtype, ("type", s.dtype))
        shape = "".join(f"{self.number(e)}, " for e in s.extents)
        text = f"rt.constant({s.buffer_var.name!r}, {kind}, ({shape}), {self.constant(s.data)})"
        self.bind_pointer(s.buffer_var, self.fresh(s.buffer_var.name), text)
        return s.body

    def stmt_BufferRealize(self, s: S.BufferRealize) -> Any:
        """Memory for the box `bounds` of a buffer, whose indices keep their meaning."""
        b = s.buffer
        lows = [self.value(r.min) for r in s.bounds]
        extents = [self.value(r.extent) for r in s.bounds]
        strides: list[int | str] = []
        size: int | str = 1
        for r in reversed(s.bounds):
            strides.append(size)
            size = times(size, self._closed(r.extent))
        strides.reverse()
        offset: int | str = 0
        for r, stride in zip(s.bounds, strides):
            offset = plus(offset, times(times(-1, self._closed(r.min)), stride))
        self.new_memory(
            b.data, b.dtype, [self.number(r.extent) for r in s.bounds], size, b.scope_name, b.name
        )
        pointer = self.pointer(b.data)
        self._set(self.views, b, View(pointer, offset, strides, lows, extents, True))
        return s.body

    def _match(self, m: MatchBufferRegion) -> None:
        """An alias of a region: its pointer, offset, strides and shape follow from the source."""
        b, source = m.buffer, m.source.buffer
        view = self.view_of(source)
        if b.dtype is not source.dtype or len(b.shape) > len(source.shape):
            raise self.refuse(f"match_buffer of {b.name}: it cannot be a region of {source.name}")
        offset, tests = view.offset, []
        for r, low, extent, stride in zip(m.source.region, view.lows, view.extents, view.strides):
            start, size = self.value(r.min), self.value(r.extent)
            offset = plus(offset, times(f"({start.text})", stride))
            first, last = start, Code(f"({start.text} + {size.text} - 1)")
            for i in (first, last):
                tests.append(f"{low.text} <= {i.text} < {low.text} + {extent.text}")
        if self.options.check_bounds and tests:
            where = str(m.source.region)
            self.emit(f"if not ({' and '.join(tests)}): bad_region({b.name!r}, {source.name!r}, {where!r})")
        place = self.fresh(f"{b.name}_at")
        self.emit(f"{place} = {offset}")
        count = len(b.shape)
        strides = view.strides[len(view.strides) - count :]
        region = m.source.region[len(m.source.region) - count :]
        extents = [self._matched(b, d, self.value(r.extent)) for d, r in zip(b.shape, region)]
        for have, stride in zip(b.strides, strides):
            self._matched(b, have, Code(str(stride)))
        if isinstance(b.elem_offset, Var):
            self.bind(b.elem_offset, self.full(b.elem_offset.dtype, place), show=False)
        self._set(self.scope, b.data, Code(view.pointer))
        self._set(self.views, b, View(view.pointer, place, strides, [Code("0", 0, 0)] * count, extents, True))

    def _matched(self, b: Buffer, have: PrimExpr, want: Code) -> Code:
        """A dimension or stride of a matched buffer: bound if it is a free variable, else compared."""
        if isinstance(have, Var) and have not in self.scope:
            name = self.fresh(have.name)
            self.emit(f"{name} = {want.text}")
            code = self.full(have.dtype, name)
            self.bind(
                have, code._replace(lo=want.lo, hi=want.hi) if want.lo is not None else code, show=False
            )
            return self.lookup(have)
        code = self.value(have)
        if code.text != want.text:
            self.emit(
                f"if {code.text} != {want.text}: "
                f"bad_match({b.name!r}, {str(have)!r}, {code.text}, {want.text})"
            )
        return code

    # -- blocks ------------------------------------------------------------------------------
    def stmt_BlockRealize(self, s: S.BlockRealize) -> None:
        if const_value(s.predicate):
            self._block(s)
        else:
            self.inside(f"if {self.value(s.predicate).text}", lambda: self._block(s))

    def _block(self, s: S.BlockRealize) -> None:
        block = s.block
        values = [self.value(v) for v in s.iter_values]
        starts = []
        for iv, value in zip(block.iter_vars, values):
            name = self.fresh(iv.var.name)
            self.emit(f"{name} = {value.text}")
            code = value._replace(text=name, depth=0)
            low = self.value(iv.dom.min)
            starts.append(low.text)
            self.bind(iv.var, self._in_domain(block.name_hint, iv, code, low))
        inner = {m.buffer for m in block.match_buffers} | set(block.alloc_buffers)
        for outer in self.regions:
            outer.own |= inner
        declared = self._regions(block, inner)
        if declared is not None:
            self.regions.append(declared)
        for b in block.alloc_buffers:
            self._allocate_buffer(b)
        for m in block.match_buffers:
            self._match(m)
        if block.init is not None:
            self._init(block, block.init, starts)
        around, reducers = self.around, self.reducers
        own = {iv.var for iv in block.iter_vars if iv.is_reduction}
        # A block without iterators only holds allocations: the loops around it drive the blocks inside.
        self.around, self.reducers = [] if block.iter_vars else around, reducers | own
        self.stmt(block.body)
        self.around, self.reducers = around, reducers
        if declared is not None:
            self.regions.pop()

    def _in_domain(self, block: str, iv: IterVar, code: Code, low: Code) -> Code:
        """An iterator's value, checked against its domain."""
        extent = self.value(iv.dom.extent)
        if code.lo is None or code.hi is None or low.lo is None or low.hi is None:
            return code
        if extent.lo is None or extent.hi is None:
            return code
        stop = extent.text if low.text == "0" else f"{low.text} + {extent.text}"
        if not (low.hi <= code.lo and code.hi < low.lo + extent.lo):
            self.emit(
                f"if not ({low.text} <= {code.text} < {stop}): "
                f"bad_domain({iv.var.name!r}, {block!r}, {code.text}, {low.text}, {stop})"
            )
        return code._replace(lo=max(code.lo, low.lo), hi=min(code.hi, low.hi + extent.hi - 1))

    def _init(self, block: S.Block, init: S.Stmt, starts: list[str]) -> None:
        tests = [
            f"{self.lookup(iv.var).text} == {start}"
            for iv, start in zip(block.iter_vars, starts)
            if iv.is_reduction
        ]
        if tests:
            self.inside(f"if {' and '.join(tests)}", lambda: self.stmt(init))
        else:
            self.stmt(init)

    def _regions(self, block: S.Block, inner: set[Buffer]) -> Regions | None:
        """The declared regions as Python tuples of (start, stop), evaluated where the block begins."""
        if not self.options.check_regions or not (block.reads or block.writes):
            return None
        made = Regions(block.name_hint, own=inner)
        for declared, table in ((block.reads, made.reads), (block.writes, made.writes)):
            for r in declared:
                name = self.fresh("region")
                sides = ""
                for side in r.region:
                    low, n = self.value(side.min).text, self.value(side.extent).text
                    sides += f"({low}, {low} + {n}), "
                self.emit(f"{name} = ({sides})")
                table.setdefault(r.buffer, []).append(name)
        return made

    # -- the rest ----------------------------------------------------------------------------
    def stmt_LetStmt(self, s: S.LetStmt) -> Any:
        value = self.value(s.value)
        name = self.fresh(s.var.name)
        if s.var.dtype.is_handle and s.var in self.facts.kinds:
            self.bind_pointer(s.var, name, value.text)
        else:
            self.emit(f"{name} = {value.text}")
            self.bind(s.var, Code(name, value.lo, value.hi), show=not s.var.dtype.is_handle)
        return s.body

    def stmt_AssertStmt(self, s: S.AssertStmt) -> Any:
        message = s.message.value if isinstance(s.message, StringImm) else str(s.message)
        self.emit(f"if not {self.value(s.condition).text}: failed_assert({message!r})")
        return s.body

    def stmt_Evaluate(self, s: S.Evaluate) -> None:
        e = s.value
        if const_value(e) is not None:
            return
        if isinstance(e, Call) and isinstance(e.op, Op):
            name = e.op.short_name
            if name == "tvm_thread_allreduce":
                self._allreduce(e)
                return
            if name in ("coproc_dep_push", "coproc_dep_pop"):
                self._token(e)
                return
            if name in ("break_loop", "continue_loop"):
                if not self.frame.loops:
                    raise self.refuse(f"`{e}` outside a loop")
                self.emit(name.removesuffix("_loop"))
                return
        self.emit(self.value(e).text)

    def stmt_DeclBuffer(self, s: Any) -> Any:
        return s.body

    def stmt_Prefetch(self, s: Any) -> None:
        return None


_HANDLERS: Final = methods_of_nodes(StmtTranslator, "stmt_")
