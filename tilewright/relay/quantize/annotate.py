"""QuantizeAnnotate: marks where a float program will be rounded to integers."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ...ir.errors import TVMError
from .. import op as R
from ..analysis import post_order
from ..expr import Call, Constant, Expr, Function, Var
from ..op.annotation import simulated_quantize
from ..op.traits import traits_of
from ..transform.rewriting import Mutator, is_call, name_of, typed_pass
from ..visitor import below
from .config import QAnnotateKind, QConfig, current_qconfig
from .forms import Form, form_of, is_convolution, operands, over


def quantize_annotate(func: Function) -> Function:
    """Round the operands of products, and the sums that are stored; their scales are left to `calibrate`.

        nn.relu(add(nn.conv2d(%x, w), b))
            ->
        %0 = nn.conv2d(simulated_quantize(%x, kind=INPUT), simulated_quantize(w, kind=WEIGHT));
        simulated_quantize(nn.relu(add(%0, simulated_quantize(b, kind=ACTIVATION))), kind=INPUT)

    Operators without an integer form, those that the configuration skips, and those that read no product stay float.
    """
    uses = Counter(b for e in post_order(func) for b in below(e))
    return _Annotate(current_qconfig(), uses).visit(func)  # type: ignore[no-any-return]


class _Annotate(Mutator):
    def __init__(self, config: QConfig, uses: Counter[Any]) -> None:
        super().__init__()
        self.config, self.uses = config, uses
        self.convolutions = 0
        self.narrow: set[Expr] = set()  # values of 8 bits
        self.wide: set[Expr] = set()  # sums of 32 bits
        self.sum_of: dict[Expr, Expr] = {}  # the sum that a stored value was rounded from
        self.rounded: dict[tuple[Expr, QAnnotateKind], Call] = {}

    def visit_call(self, call: Call) -> Any:
        new = super().visit_call(call)
        form = form_of(call)
        if form is None:
            return new
        parts = operands(new, form)
        known = [p in self.narrow or p in self.wide for p in parts]
        skipped = self.is_skipped(call)
        if not any(known) and (skipped or not traits_of(call).product):
            return new
        if skipped:
            return over(new, [self.mark(p, QAnnotateKind.IDENTITY) if k else p for p, k in zip(parts, known)])
        if form is Form.PRODUCT:
            taken = [self.factor(call, p) for p in parts]
        elif form is Form.SUM:
            taken = self.summands(call, parts)
        elif form is Form.CLAMP:
            taken = [self.unrounded(operands(call, form)[0], parts[0])]
        else:
            taken = [self.input(parts[0])]
        made = over(new, taken)
        if form in (Form.CLAMP, Form.MOVE) and taken[0] in self.narrow:
            self.narrow.add(made)
            return made
        self.wide.add(made)
        stored = is_convolution(call) or (
            not traits_of(call).product and any(p in self.narrow for p in parts)
        )
        if not (stored and self.config.store_lowbit_output):
            return made
        result = self.input(made)
        self.sum_of[result] = made
        return result

    def is_skipped(self, call: Call) -> bool:
        """Whether the configuration excludes an operator; convolutions are counted here."""
        config = self.config
        if is_convolution(call):
            self.convolutions += 1
            if self.convolutions - 1 in (config.skip_conv_layers or ()):
                return True
        elif _is_dense(call) and config.skip_dense_layer:
            return True
        return config.debug_enabled_ops is not None and name_of(call) not in config.debug_enabled_ops

    # -- operands ------------------------------------------------------------------------------
    def factor(self, call: Call, part: Expr) -> Expr:
        """An operand of a product."""
        if isinstance(part, Constant):
            return self.mark(part, QAnnotateKind.WEIGHT)
        weighted = is_convolution(call) or _is_dense(call)
        if isinstance(part, Var) and weighted and part is call.args[1]:
            raise TVMError(
                f"quantize: the weight %{part.name_hint} of {name_of(call)} has no value; pass the weights as params"
            )
        return self.input(part)

    def summands(self, call: Call, parts: tuple[Expr, ...]) -> list[Expr]:
        """The operands of a sum: constants take the scale of the others, and one operand at most has 32 bits."""
        computed = [p for p in parts if not isinstance(p, Constant)]
        before = operands(call, Form.SUM)
        out: list[Expr] = []
        free = len(computed) == 1 or not self.config.store_lowbit_output
        for old, part in zip(before, parts, strict=True):
            if isinstance(part, Constant):
                out.append(self.mark(part, QAnnotateKind.ACTIVATION))
                continue
            taken = self.unrounded(old, part) if free else self.input(part)
            if taken in self.wide:
                free = False
            out.append(taken if taken in self.wide else self.input(part))
        return out

    def unrounded(self, old: Expr, part: Expr) -> Expr:
        """The sum behind a stored value, unless something else reads the value: then it exists in 8 bits anyway."""
        return self.sum_of.get(part, part) if self.uses[old] == 1 else part

    def input(self, part: Expr) -> Expr:
        """A value of 8 bits."""
        if part in self.narrow:
            return part
        made = self.mark(part, QAnnotateKind.INPUT)
        self.narrow.add(made)
        return made

    def mark(self, part: Expr, kind: QAnnotateKind) -> Call:
        """A rounding of a value, one for all its readers."""
        config = self.config
        if (part, kind) not in self.rounded:
            bits = {
                QAnnotateKind.INPUT: config.nbit_input,
                QAnnotateKind.WEIGHT: config.nbit_weight,
            }.get(kind, config.nbit_activation)
            down = part in self.wide and not config.round_for_shift
            self.rounded[part, kind] = simulated_quantize(
                part, kind=int(kind), bits=bits, rounding="floor" if down else "round"
            )
        return self.rounded[part, kind]


def _is_dense(call: Call) -> bool:
    return is_call(call, R.nn.dense, R.nn.matmul)


QuantizeAnnotate = typed_pass(quantize_annotate, name="QuantizeAnnotate")
