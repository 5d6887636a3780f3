"""How settings are declared, checked and read; the sections themselves belong to the parts that read them."""

from hero.config.parse import parse_override, read_toml
from hero.config.registry import Registry
from hero.config.settings import Derived, Facts, Settings, from_strategy, per_dims, per_size, setting, share

__all__ = [
    "Derived",
    "Facts",
    "Registry",
    "Settings",
    "from_strategy",
    "parse_override",
    "per_dims",
    "per_size",
    "read_toml",
    "setting",
    "share",
]
