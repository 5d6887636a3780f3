"""How settings are declared, checked and read; the sections themselves belong to the parts that read them."""

from hero.config.parse import parse_override, read_toml
from hero.config.registry import Registry
from hero.config.settings import Facts, FromStrategy, PerDims, Rule, Settings, Share, setting

__all__ = [
    "Facts",
    "FromStrategy",
    "PerDims",
    "Registry",
    "Rule",
    "Settings",
    "Share",
    "parse_override",
    "read_toml",
    "setting",
]
