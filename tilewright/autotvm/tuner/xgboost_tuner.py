"""The tuner with a learned cost model: gradient-boosted trees and simulated annealing."""

from __future__ import annotations

from typing import Any

from .model_based_tuner import ModelBasedTuner
from .sa_model_optimizer import ModelOptimizer, SimulatedAnnealingOptimizer
from .xgboost_cost_model import XGBoostCostModel


class XGBTuner(ModelBasedTuner):
    """Plans of `plan_size` configurations, by simulated annealing (`optimizer`) on a model of trees.

    `feature_type` and `loss_type` are those of `XGBoostCostModel`, and `diversity_filter_ratio` is that of
    `ModelBasedTuner`; `num_threads` and `log_interval` change nothing. With features of loops (itervar, curve), which
    require an instantiation of each configuration, annealing is shorter.
    """

    def __init__(
        self,
        task: Any,
        plan_size: int = 64,
        feature_type: str = "knob",
        loss_type: str = "reg",
        num_threads: int | None = None,
        optimizer: str | ModelOptimizer = "sa",
        diversity_filter_ratio: float | None = None,
        log_interval: int = 50,
        seed: int = 0,
    ) -> None:
        model = XGBoostCostModel(task, feature_type, loss_type, num_threads, log_interval // 2, seed=seed)
        if optimizer == "sa":
            few: dict[str, Any] = (
                {"n_iter": 24, "parallel_size": 32, "early_stop": 12} if model.costly else {}
            )
            optimizer = SimulatedAnnealingOptimizer(task, log_interval=log_interval, seed=seed, **few)
        if not isinstance(optimizer, ModelOptimizer):
            raise ValueError(f'optimizer={optimizer!r} must be "sa" or a ModelOptimizer')
        super().__init__(task, model, optimizer, plan_size, diversity_filter_ratio, seed)
