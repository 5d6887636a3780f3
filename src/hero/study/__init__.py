"""The studies of the paper, many runs for one table: `run_study("main", runs_dir, data_dir)` is `hero study main`."""

from hero.study.plans import STUDIES, Plan, Study, plan
from hero.study.run import carry_out, run_study

__all__ = ["STUDIES", "Plan", "Study", "carry_out", "plan", "run_study"]
