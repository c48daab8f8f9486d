"""Cost models: names of the engine's (`tune.search.cost_models`)."""

from __future__ import annotations

from typing import Any

from ..ir.errors import UnsupportedError


class CostModel:
    """A model that predicts which candidates are fast; `engine` is its name in the engine, or the model itself."""

    engine: Any = "auto"

    @staticmethod
    def create(kind: Any, *args: Any, **kwargs: Any) -> CostModel:
        """A cost model by its name: xgb, mlp, random or none."""
        if isinstance(kind, CostModel):
            return kind
        made: dict[str, type[CostModel]] = {
            "xgb": XGBModel,
            "random": RandomModel,
            "mlp": MLPModel,
            "none": RandomModel,
        }
        if kind not in made:
            raise ValueError(f"there is no cost model {kind!r}; there are {', '.join(made)}")
        return made[kind](*args, **kwargs)


class XGBModel(CostModel):
    """Trees that learn from measurements; before there are some, the analytical model predicts."""

    def __init__(self, **settings: Any) -> None:
        if settings:
            raise UnsupportedError(
                f"XGBModel({', '.join(settings)}=…): the trees have settings of their own; leave the arguments out"
            )


class RandomModel(CostModel):
    """No preference."""

    engine = "random"

    def __init__(
        self, *, seed: int | None = None, path: str | None = None, max_range: int | None = None
    ) -> None:
        if path is not None:
            raise UnsupportedError("RandomModel(path=…): it learns nothing that could be kept; leave it out")


class MLPModel(CostModel):
    """A neural network, which is not there."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedError("MLPModel: there is no cost model of this kind; use XGBModel()")


class PyCostModel(CostModel):
    """A model of your own, which is refused: candidates are scored as rows of a table, before they are schedules."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.engine = property(_refused)


def _refused(self: Any) -> Any:
    raise UnsupportedError(
        f"{type(self).__name__}: candidates are scored as rows of a table, by the thousand, before they are schedules; "
        "give an object with predict(features) and update(features, seconds) as cost_model= of "
        "tilewright.tune.search.SearchOptions, or auto_scheduler.PythonBasedModel, which scores schedules"
    )


create = CostModel.create
