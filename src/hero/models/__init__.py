"""Networks, which need torch alone, their settings, and how backbones are built by name."""

from typing import TYPE_CHECKING

from hero.lazy import lazily

if TYPE_CHECKING:
    from hero.models.build import *
    from hero.models.settings import *

__getattr__, __dir__ = lazily(__name__, "hero.models.build")
