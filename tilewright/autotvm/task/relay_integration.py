"""The tasks of models: the fused functions that the graph compiler schedules, in the space of the engine's rules.

Operators have no templates here. The space of such a task has a knob for each stage of the fused function, with a
candidate for each row of the table of the stage. `apply_history_best` around `relay.build` applies the records.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.module import IRModule
from ...tune.search.search import flop_of
from ...tune.space import Sketches, Space, Stage
from ...tune.workload import Task as EngineTask
from .args import sketch_args
from .knobs import OtherOptionEntity, TransformSpace
from .space import ConfigSpace
from .task import Task

Array = Any


class StageSpace(TransformSpace):
    """The rows of the table of a stage as the candidates of a knob, each made on demand. The row of the zero-trial
    schedule is the first candidate."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.stage = stage

    def row(self, index: Any) -> Any:
        """The row of a candidate, or the candidate of a row: the first and the default row are exchanged."""
        default = self.stage.default
        return np.where(index == 0, default, np.where(index == default, 0, index))

    def __len__(self) -> int:
        return len(self.stage)

    def __getitem__(self, index: int) -> OtherOptionEntity:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return OtherOptionEntity(self.stage.decision(int(self.row(index))))

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"Stage({self.stage.name}, {self.stage.rule}) len={len(self)}"


class SketchSpace(ConfigSpace):
    """The space of the sketches of a program. Configuration 0, which is measured first, is the zero-trial schedule."""

    known = (0,)

    def __init__(self, space: Space) -> None:
        super().__init__()
        self.space = space
        for number, stage in enumerate(space.stages):
            name = stage.name if stage.name not in self.space_map else f"{stage.name}.{number}"
            self.space_map[name] = StageSpace(stage)
            self._entity_map[name] = self.space_map[name][0]

    def rows(self, indices: Array) -> Array:
        """Configurations in the form of the engine: a row for each stage."""
        points = self.points(indices)
        spaces = [s for s in self.space_map.values() if isinstance(s, StageSpace)]
        return np.stack([s.row(points[:, k]) for k, s in enumerate(spaces)], axis=1)

    def _indices_of(self, rows: Array) -> Array:
        spaces = [s for s in self.space_map.values() if isinstance(s, StageSpace)]
        return self.indices(np.stack([s.row(rows[:, k]) for k, s in enumerate(spaces)], axis=1))

    # A stage is one knob; the engine knows the decisions that a row consists of.
    def random_walks(self, indices: Array, rng: Any) -> Array:
        return self._indices_of(self.space.mutate(rng, self.rows(indices)))

    def crossed(self, one: int, other: int, rng: Any) -> int:
        parents = self.rows(np.array([one, other]))
        return int(self._indices_of(self.space.cross(rng, parents[:1], parents[1:]))[0])

    def mutated(self, index: int, chance: float, rng: Any) -> int:
        return self.random_walk(index, rng) if rng.random() < chance else index

    def knob_features(self, indices: Array) -> Array:
        """The features of the engine; the first column is the prediction of the analytical model."""
        return self.space.features(self.rows(indices))


class SketchTask(Task):
    """A fused function of a model as a task."""

    def __init__(self, engine: EngineTask, weight: int = 1) -> None:
        super().__init__(engine.name, sketch_args(engine.workload))
        self._engine, self.weight = engine, weight
        self.target, self.flop = engine.target, float(flop_of(engine)) or 1.0
        self.sketches = Sketches(engine)
        self._space: SketchSpace | None = None

    @property
    def config_space(self) -> Any:
        """The space of the stages; computed at first use."""
        if self._space is None:
            self._space = SketchSpace(self.sketches.space.first)
        return self._space

    @config_space.setter
    def config_space(self, value: Any) -> None:
        if value is not None:
            self._space = value

    def decisions(self, config: Any) -> list[dict[str, Any]]:
        """The decisions of a configuration, for the engine."""
        return [config[name].val for name in config]

    def instantiate(self, config: Any) -> tuple[Any, list[Any]]:
        """The tir.Schedule of a configuration, which contains its parameters."""
        config.errors = []
        return self.sketches.apply(self.decisions(config)), []

    def candidate(self, config: Any) -> Any:
        return self.decisions(config)


def operators_of(name: str) -> set[str]:
    """The operators in the name of a fused function: nn.conv2d and nn.relu of fused_nn_conv2d_nn_relu."""
    from ...relay.op import registry

    by_label = {re.sub(r"\W", "_", op): op for op in registry.list_names()}
    labels = "|".join(sorted(by_label, key=len, reverse=True))  # conv2d_transpose before conv2d
    return {by_label[found] for found in re.findall(rf"(?<=_)(?:{labels})(?=_|$)", name)}


def extract_from_program(
    mod: Any,
    params: Mapping[str, Any] | None = None,
    target: Any = None,
    target_host: Any = None,
    ops: Sequence[Any] | None = None,
) -> list[Task]:
    """The tasks of a model; with `ops`, only those with one of these operators. `target_host` changes nothing."""
    return extract_from_multiple_program([mod], [params], target, target_host, ops)


def extract_from_multiple_program(
    mods: Iterable[Any],
    params: Iterable[Mapping[str, Any] | None],
    target: Any = None,
    target_host: Any = None,
    ops: Sequence[Any] | None = None,
) -> list[Task]:
    """The tasks of several models, without repetitions."""
    from ...relay.backend import tasks as graph_tasks  # the graph compiler is loaded only for models

    wanted = None if ops is None else {str(getattr(op, "name", op)) for op in ops}
    found: dict[tuple[str, str], SketchTask] = {}
    for mod, values in zip(mods, params, strict=True):
        graph = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
        for engine, weight in graph_tasks.extract(graph, values, target):
            if wanted is not None and not wanted & operators_of(engine.name):
                continue
            task = found.setdefault((engine.workload, str(engine.target)), SketchTask(engine, 0))
            task.weight += weight
    return list(found.values())
