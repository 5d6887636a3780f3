"""Train neural operators whose autoregressive rollouts stay accurate for hundreds of steps, and measure it.

Public names are those of `hero.core`, the method alone, and of `hero.public`. They are imported when they are first
used: `import hero` loads neither torch nor matplotlib.
"""

from typing import TYPE_CHECKING, Any

from hero.errors import HeroError as HeroError
from hero.lazy import lazily

if TYPE_CHECKING:
    from hero.core import *
    from hero.public import *

_find, __dir__ = lazily(__name__, "hero.core", "hero.public")


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("hero-operators")
    return _find(name)
