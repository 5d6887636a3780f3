"""How settings are declared, checked and read; the sections themselves belong to the parts that read them."""

from typing import TYPE_CHECKING

from hero.lazy import lazily

if TYPE_CHECKING:
    from hero.config.parse import *
    from hero.config.registry import *
    from hero.config.settings import *

__getattr__, __dir__ = lazily(__name__, "hero.config.registry", "hero.config.parse", "hero.config.settings")
