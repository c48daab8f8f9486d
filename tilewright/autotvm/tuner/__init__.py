"""Tuners, which choose the configurations to measure."""

from . import callback, metric
from .droplet_tuner import DropletTuner
from .ga_tuner import GATuner
from .index_based_tuner import GridSearchTuner, IndexBaseTuner, RandomTuner
from .model_based_tuner import CostModel, ModelBasedTuner
from .sa_model_optimizer import ModelOptimizer, SimulatedAnnealingOptimizer
from .tuner import Tuner
from .xgboost_tuner import XGBTuner

__all__ = [
    "CostModel",
    "DropletTuner",
    "GATuner",
    "GridSearchTuner",
    "IndexBaseTuner",
    "ModelBasedTuner",
    "ModelOptimizer",
    "RandomTuner",
    "SimulatedAnnealingOptimizer",
    "Tuner",
    "XGBTuner",
    "callback",
    "metric",
]
