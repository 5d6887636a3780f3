"""SOAP, which needs torch alone, and how optimizers are built by name."""

from typing import TYPE_CHECKING

from hero.lazy import lazily

if TYPE_CHECKING:
    from hero.optimizers.build import *

__getattr__, __dir__ = lazily(__name__, "hero.optimizers.build")
