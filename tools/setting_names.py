"""Writes the names of all settings for completion on the command line: `python tools/setting_names.py`."""

from pathlib import Path

import hero.cli
from hero.runs.sections import all_settings

names = ["task.name", *(name for name, _ in all_settings())]
Path(hero.cli.__file__).with_name("settings.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
