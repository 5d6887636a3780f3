"""Public names beyond `hero.core`: configurations, runs, data and models by name."""

from hero.api import compare as compare, evaluate as evaluate, load as load, predict as predict, train as train
from hero.data.public import get_task as get_task, load_split as load_split
from hero.deploy.model_folder import Operator as Operator
from hero.evaluation.check import RolloutCheck as RolloutCheck
from hero.models.build import build_backbone as build_backbone
from hero.optimizers.build import OPTIMIZERS as OPTIMIZERS
from hero.results import Comparison as Comparison, Evaluation as Evaluation, Result as Result
from hero.runs.config import RunConfig as RunConfig, make_config as make_config
from hero.strategies import STRATEGIES as STRATEGIES, Strategy as Strategy
from hero.training.journal import Progress as Progress
