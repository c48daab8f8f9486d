"""The choice of a schedule: the rules of a target compete for each stage, and the cheapest row of all tables wins.

    stage      rule          row                                    predicted
    T_matmul   tile          14 rows x 2 vectors, threads            4.6 us    <- applied
               tile          7 rows x 4 vectors, threads             4.9 us
               …
               stream        512 bits, threads                      21.0 us    the best rival

A stage is scheduled before the next one is examined: the applied rule decides which stages remain. Where a primitive
refuses a rule (`Schedule.attempt`), or `apply` returns a refusal, the steps are undone, the rows of the rule are masked
and the next best row is taken. Given decisions select rows of the same tables.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..ir.errors import ScheduleError
from ..ir.function import PrimFunc
from ..ir.module import IRModule
from ..target import Target
from ..tir.schedule import Schedule
from ..tir.schedule.primitive import BlockRV
from ..tir.schedule.schedule import Position
from .cost.table import Table
from .explain import Explanation
from .program.facts import facts_of
from .program.long_sums import bound_chains
from .program.stages import Stage, Stages, reason_of
from .rules import Applied, Family, Match, Refusal, Row, Rule, family_of

__all__ = ["Choice", "Decisions", "Offer", "Plan", "Shared", "plan_of"]

# A rule and a row for each stage, in order; None is the zero-trial schedule.
Decisions = list[dict[str, Any]] | None
Shared = dict[Any, tuple[Position, Applied]]


@dataclass
class Offer:
    """A rule that matches a stage: its table, and the predicted times with which it competes."""

    rule: Rule
    match: Match
    table: Table
    figures: Mapping[str, Any]
    seconds: Any  # the predicted times with which its rows compete
    machine: Any
    family: Family
    best: int  # the row that the rule would take

    @property
    def least(self) -> float:
        return float(self.seconds[self.best])

    def row(self, number: int) -> Row:
        figures = {k: float(v[number]) for k, v in self.figures.items()}
        competing = predicted = own = float(self.seconds[number])
        seconds, table = self.family.cost.seconds, self.table
        if table.margins:
            predicted = own = float(seconds(table.without(table.margins), self.machine)[number])
        if table.left:
            own = float(seconds(table.alone(), self.machine)[number])
        return Row(table.values(number), figures, competing, predicted, own, len(self.seconds))


@dataclass
class Choice:
    """A scheduled stage: the winning rule and row, the offers of the other rules, and the reasons of the refusals."""

    stage: Stage
    winner: Offer
    row: Row
    rivals: list[Offer] = field(default_factory=list)
    refused: dict[str, Refusal] = field(default_factory=dict)

    def __str__(self) -> str:
        """The best row of each rule, cheapest first, then the refusals."""
        offers = sorted([self.winner, *self.rivals], key=lambda o: o.least)
        wide = max(len(name) for name in (*(o.rule.name for o in offers), *self.refused))
        lines = []
        for o in offers:
            row = ", ".join(f"{k} {v}" for k, v in o.table.values(o.best).items())
            applied = "  <- applied" if o is self.winner else ""
            time = o.row(o.best).predicted * 1e6
            lines.append(f"  {o.rule.name:<{wide}}  {time:9.2f} us  {row}{applied}")
        lines += [f"  {name:<{wide}}  refused: {no.why}" for name, no in self.refused.items()]
        return "\n".join([self.stage.name, *lines])


def plan_of(
    func: PrimFunc,
    target: Target,
    constants: Collection[str] = (),
    forced: Mapping[int, str] | None = None,
    lacking: Collection[str] = (),
) -> Plan:
    """Schedule a function, and return the plan: its choices with their tables.

    `constants` are the names of parameters whose values are known at compile time. `forced` maps numbers of stages to
    the names of their rules. Rules that need one of the capabilities in `lacking` are left out.
    """
    name = str(func.attrs.get("global_symbol", "main"))
    sch = Schedule(IRModule({name: func}))
    sch.work_on(name)
    sch.explanation = Explanation(str(target))
    plan = Plan(
        Stages(sch, func, target, sch.explanation, frozenset(constants)), forced=forced, lacking=lacking
    )
    plan.run()
    return plan


class Plan:
    """Schedules the stages of a function, one after the other.

    `decisions` name the rule and the row of each stage. `forced` maps numbers of stages to the names of their rules.
    `shared` caches the first steps of schedules that begin with the same rows. Rules that need one of the capabilities
    in `lacking` are left out.
    """

    def __init__(
        self,
        program: Stages,
        decisions: Decisions = None,
        forced: Mapping[int, str] | None = None,
        shared: Shared | None = None,
        lacking: Collection[str] = (),
    ) -> None:
        self.program, self.sch, self.target = program, program.sch, program.target
        self.family = family_of(self.target)
        self.machine = self.family.machine(self.target)
        self.lacking = lacking
        self.capabilities = self.family.capabilities(self.target).difference(lacking)
        self.decisions, self.forced, self.shared = decisions, forced or {}, shared
        self.choices: list[Choice] = []
        self.left: dict[
            str, dict[str, Refusal]
        ] = {}  # stages that no rule takes, with the reasons of the rules

    def run(self) -> None:
        """Schedule all stages."""
        if not self.program.begin(self.early):
            return
        while left := self.program.stages():
            for stage in self.program.next_stages(left):
                if stage.facts.rv.key in self.program.done:  # it may be the epilogue of another by now
                    continue
                if stage.facts.rv.key in self.program.undecided:
                    self._without_decision(stage)
                else:
                    self.schedule(stage)
        if self.decisions is not None and len(self.decisions) != len(self.choices):
            raise ScheduleError(
                f"there are {len(self.decisions)} decisions for the {len(self.choices)} stages of "
                f"{self.sch.func_working_on.name_hint}"
            )
        if self.program.policy.bounds_sums:
            self.program.notes.long_sums(bound_chains(self.sch))

    def early(self) -> None:
        """Schedule the stages that the family's early rules take, before others are inlined."""
        able = any(rule.needs <= self.capabilities for rule in self.family.early)
        for f in self.program.stages() if able else ():
            if f.kind == "reduction" and f.rv.key not in self.program.done:
                self.schedule(Stage(self.program, f, (f,)), early=True)

    # -- one stage -----------------------------------------------------------------------------------
    def schedule(self, stage: Stage, early: bool = False) -> None:
        """Apply the cheapest row to a stage; leave it as it is if there is none."""
        program, notes, number = self.program, self.program.notes, len(self.choices)
        if stage.facts.kind == "opaque" and program.policy.leaves_opaque:
            program.done.add(stage.facts.rv.key)
            return notes.untouched(stage.facts)
        offers, refused = self.offers(stage, number, early)
        if early and not offers:
            return None
        before, recorded = program.at_root(), len(notes.records)
        failed = ""
        while offers:
            offer = min(offers, key=lambda o: o.least)
            choice = Choice(
                stage, offer, offer.row(offer.best), [o for o in offers if o is not offer], refused
            )
            self.choices.append(choice)
            back = self.sch.way_back()
            applied = self.sch.attempt(partial(self._apply, choice, before, number))
            if isinstance(applied, Applied):
                return notes.chosen(choice, applied, failed, at=recorded)
            if isinstance(applied, Refusal):
                back()
                applied = ScheduleError(applied.why)
            del self.choices[number:], notes.records[recorded:]
            refused[offer.rule.name] = Refusal(reason_of(applied), near=True)
            failed = failed or reason_of(applied)
            offers = self._without(offers, offer, number)
            if not offers and (self.decisions is not None or self._must(number)):
                raise applied
        if not failed and self.target.is_accelerator and number not in self.forced:
            reasons = "".join(f"\n  {name}: {no.why}" for name, no in refused.items())
            raise ScheduleError(
                f"no rule for `{self.target}` schedules the stage {stage.name}, and the chip runs no plain loops"
                f"{reasons}\n  hint: write the program in elements of the chip, or compile it for a processor"
            )
        program.done.update(f.rv.key for f in stage.chain)
        self.left[stage.name] = refused
        return notes.untouched(stage.facts, failed)

    def _apply(self, choice: Choice, before: set[object], number: int) -> Applied | Refusal:
        """Apply a row, then schedule the stages that the rule wants to be scheduled at once, and finish."""
        applied = self._shared_steps(choice) if number == 0 else None
        if applied is None:
            applied = choice.winner.rule.apply(self.sch, choice.winner.match, choice.row)
        if isinstance(applied, Refusal):
            return applied
        if not (applied.next or applied.beside or applied.finish):
            self._taken(choice.stage, before, applied)
            return applied
        program = self.program
        with program.all_or_nothing():
            self._taken(choice.stage, before, applied)
            for rv in applied.beside:
                self._without_decision(self._single(rv))
            for rv in applied.next:
                if program.is_left(rv):
                    self.schedule(self._single(rv))
            if applied.finish is not None:
                applied.finish(self.sch)
                program.take(program.at_root())
        return applied

    def _without_decision(self, stage: Stage) -> None:
        Plan(self.program, lacking=self.lacking).schedule(stage)

    def _must(self, number: int) -> bool:
        """Whether a stage that nobody schedules is an error: there is no host that would run its loops."""
        return not self.program.policy.leaves_opaque and number not in self.forced

    def _single(self, rv: BlockRV) -> Stage:
        f = facts_of(self.sch, rv)
        return Stage(self.program, f, (f,))

    def _shared_steps(self, choice: Choice) -> Applied | Refusal | None:
        """The position after the first row of a schedule, if the same row was applied before and other rows follow:
        candidates of a search often begin with the same row."""
        key = (choice.winner.rule.name, *choice.row.values.items())
        if self.shared is None or choice.winner.table.left == ():
            return None
        if key in self.shared:
            position, known = self.shared[key]
            self.sch.go_to(position)
            return known
        applied = choice.winner.rule.apply(self.sch, choice.winner.match, choice.row)
        if isinstance(applied, Applied):
            self.shared[key] = self.sch.position(), applied
        return applied

    def _taken(self, stage: Stage, before: set[object], applied: Applied) -> None:
        """Mark the blocks that are scheduled now as done."""
        self.program.done.update(applied.done)
        self.program.undecided.update(applied.undecided)
        if not applied.opened:
            self.program.done.update(f.rv.key for f in stage.chain)
        self.program.take(before | set(applied.keys))

    # -- offers --------------------------------------------------------------------------------------
    def offers(
        self, stage: Stage, number: int, early: bool = False
    ) -> tuple[list[Offer], dict[str, Refusal]]:
        """The offers of the rules that match a stage, and the reasons of the others."""
        found: list[Offer] = []
        refused: dict[str, Refusal] = {}
        rules = self.family.early if early else self.family.rules
        if self.decisions is not None:
            return self._decided(stage, number, early), refused
        for rule in rules:
            match = self._match(rule, stage)
            if isinstance(match, Refusal):
                refused[rule.name] = match
            elif len(table := rule.table(match, self.machine)):
                found.append(self._offer(rule, match, table))
            else:
                refused[rule.name] = Refusal("it has no row for this stage", near=True)
        wanted = self.forced.get(number)
        if wanted is not None:
            found = [o for o in found if o.rule.name == wanted]
        return found, refused

    def _match(self, rule: Rule, stage: Stage) -> Match | Refusal:
        missing = rule.needs - self.capabilities
        match = rule.match(stage, self.target)
        if isinstance(match, Match) and missing:
            return Refusal(f"the target has no {', '.join(sorted(missing))}", near=True)
        return match

    def _offer(self, rule: Rule, match: Match, table: Table) -> Offer:
        figures = self.family.cost.evaluate(table, self.machine)
        best = self.family.cost.best_row(table, self.machine, figures)
        return Offer(rule, match, table, figures, figures["seconds"], self.machine, self.family, best)

    def _without(self, offers: list[Offer], refused: Offer, number: int) -> list[Offer]:
        """The offers without one that was refused; the simpler match of its rule, if there is one, takes its place."""
        rest = [o for o in offers if o is not refused]
        simpler = refused.match.simpler() if refused.match.simpler is not None else None
        if not isinstance(simpler, Match):
            return rest
        only = self._values(number) if self.decisions is not None else None
        table = refused.rule.table(simpler, self.machine, only)
        return [self._offer(refused.rule, simpler, table), *rest] if len(table) else rest

    # -- given decisions -----------------------------------------------------------------------------
    def _values(self, number: int) -> dict[str, int]:
        assert self.decisions is not None
        return {k: v for k, v in self.decisions[number].items() if k not in ("stage", "rule")}

    def _decided(self, stage: Stage, number: int, early: bool) -> list[Offer]:
        """The offer that a decision names, with its only row; none if no early rule is named."""
        decisions: Sequence[Mapping[str, Any]] = self.decisions or []
        rules = self.family.early if early else self.family.rules
        decision = decisions[number] if number < len(decisions) else {}
        rule = next((r for r in rules if r.name == decision.get("rule")), None)
        if early and (rule is None or decision.get("stage", stage.name) != stage.name):
            return []
        if number >= len(decisions):
            raise ScheduleError(f"there is no decision for the stage {stage.name}")
        if decision.get("stage", stage.name) != stage.name:
            raise ScheduleError(f"the decision is for {decision.get('stage')}, and the stage is {stage.name}")
        if rule is None:
            raise ScheduleError(
                f"the decision for {stage.name} names the rule {decision.get('rule')!r}; there are "
                f"{', '.join(r.name for r in rules)}"
            )
        match = self._match(rule, stage)
        if isinstance(match, Refusal):
            if early:
                return []
            raise ScheduleError(f"{rule.name} cannot schedule {stage.name} as decided: {match.why}")
        try:
            table = rule.table(match, self.machine, self._values(number))
        except (
            KeyError,
            TypeError,
            ValueError,
            IndexError,
            ArithmeticError,
        ) as why:  # somebody has edited it
            raise ScheduleError(f"the decision for {stage.name} is damaged: {why}") from None
        if len(table) != 1:
            raise ScheduleError(f"{rule.name} has no such row for {stage.name}: {decision}")
        return [self._offer(rule, match, table)]
