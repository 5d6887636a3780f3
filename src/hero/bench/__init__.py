"""What things cost, as ratios measured in one run: strategies against push_forward, our FNO against its peers."""

from hero.bench.peers import compare, paper_workloads
from hero.bench.scaling import measure_scaling, paper_sweeps, scaling_figure
from hero.bench.strategies import print_cost, strategy_cost
from hero.bench.tables import print_comparison
from hero.bench.unroll_memory import unroll_memory, unroll_memory_figure

__all__ = [
    "compare",
    "measure_scaling",
    "paper_sweeps",
    "paper_workloads",
    "print_comparison",
    "print_cost",
    "scaling_figure",
    "strategy_cost",
    "unroll_memory",
    "unroll_memory_figure",
]
