"""Sources of data: the benchmark tasks as a table on our own solver with their trajectories on disk, and files.

task = get_task("burgers", {"viscosity": 1e-3})
train = load_split(task, Split("train", 50, 50, seed=0), Path("data"))  # (50, 51, 1, 160) float32
"""

from typing import TYPE_CHECKING

from hero.lazy import lazily

if TYPE_CHECKING:
    from hero.data.public import *

__getattr__, __dir__ = lazily(__name__, "hero.data.public")
