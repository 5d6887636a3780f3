"""What the names of many files say: trajectory {b}, channel {c} and time {t}, as in `sim_{b}/{c}_{t}.npy`.

    rule = find_rule(["sim_0/u_9.npy", "sim_0/u_10.npy"])   # pattern sim_0/u_{t}.npy
    rule.places["sim_0/u_10.npy"].time   # 10.0: by value, after 9

A rule is a pattern and nothing else, so a user corrects a wrong guess by typing another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from os.path import commonprefix, splitext

from hero.data.files.recording import SPELLINGS
from hero.errors import HeroError

TIMES = "t time step timestep frame snap snapshot iter iteration it out output state dump cycle ts"
RUNS = "traj trajectory sim simulation run case sample seed ic member ens ensemble exp experiment"
"""Words before a number that is a time, or a trajectory."""
QUANTITIES = (
    "u v w p h q x y z vx vy vz ux uy uz bx by bz rho temp temperature pressure velocity density vorticity height "
    "depth wind energy phi psi omega theta salinity concentration potential momentum streamfunction real imag"
)
"""Words that make names without a number channels of one recording; other such names are trajectories."""
DATES = {len(form) + 2: form for form in ("%Y%m", "%Y%m%d", "%Y%m%d%H", "%Y%m%d%H%M", "%Y%m%d%H%M%S")}
"""Formats of dates by the number of their digits."""
DATE = r"(?:18|19|20|21)\d\d[-_.]?(?:0[1-9]|1[0-2])(?:[-_.]?[0-3]\d(?:[-_.T]?[0-2]\d(?:[-_.:h]?[0-5]\d){0,2})?)?"
NUMBER = r"\d+\.\d+|\d+"
FIELDS = {"b": r"[^/]+?", "c": r"[^/]*?[^/\d][^/]*?", "t": f"{DATE}|{NUMBER}"}
SECONDS_OF_DAY = 86400.0
_common = commonprefix  # character by character


@dataclass(frozen=True)
class Place:
    """What the name of one file says; "" and None where the pattern has no such part."""

    run: str
    field: str
    time: float | None


@dataclass(frozen=True)
class NameRule:
    """A pattern and what it says of each name that it fits."""

    pattern: str
    places: Mapping[str, Place]
    dated: bool  # whether times are dates, in days
    left: tuple[str, ...] = ()  # names that do not fit
    sure: bool = True  # whether a word in the names says what the number is
    counted: bool = True  # whether whole numbers count steps; else they are times

    def sentence(self) -> str:
        """The rule as the doctor prints it, with an example."""
        words = {"b": "trajectory", "c": "channel", "t": "time"}
        found = [words[letter] for letter in re.findall(r"\{([bct])\}", self.pattern)]
        left = f"; {len(self.left)} others are not read, such as {self.left[0]}" if self.left else ""
        example = next(iter(self.places))
        return f"{example}: {', '.join(found)} (data.layout='{self.pattern}'){left}."


def split_pattern(layout: str) -> tuple[str, str]:
    """("sim_{b}/{t}.npy", "cxy") of a layout for a folder, ("", "cxy") of one for its files."""
    if "{" not in layout:
        return "", layout
    found = re.fullmatch(r"(.*?\S)\s+((?:[btcxyzp\s]|\([^{}]*\))+)", layout)
    return (found[1], found[2]) if found else (layout, "")


def follow(pattern: str, names: Sequence[str]) -> NameRule:
    unknown = re.findall(r"\{(?![bct]\})[^}]*\}?", pattern)
    letters = re.findall(r"\{([bct])\}", pattern)
    if unknown or len(set(letters)) < len(letters):
        raise HeroError(f"data.layout={pattern!r} is not understood; write {{b}}, {{c}} and {{t}} at most once each.")
    parts = re.split(r"\{([bct])\}", pattern)
    text = "".join(f"(?P<{part}>{FIELDS[part]})" if i % 2 else re.escape(part) for i, part in enumerate(parts))
    matches = {name: re.fullmatch(text, name) for name in names}
    fitting = {name: found.groupdict() for name, found in matches.items() if found}
    if not fitting:
        raise HeroError(f"no file fits data.layout={pattern!r}, such as {names[0]}; correct the pattern.")
    dates = {name: _date(found["t"]) for name, found in fitting.items()} if "t" in letters else {}
    dated = bool(dates) and None not in dates.values()
    places: dict[str, Place] = {}
    for name, found in fitting.items():
        number = re.fullmatch(NUMBER, found.get("t", ""))
        time = dates[name] if dated else float(number[0]) if number else None
        places[name] = Place(found.get("b", ""), found.get("c", ""), time)
    order = sorted(places, key=lambda name: (natural(places[name].run), places[name].field, places[name].time or 0))
    return NameRule(pattern, {n: places[n] for n in order}, dated, tuple(n for n in names if n not in places))


def _date(text: str) -> float | None:
    """Days since 1970 of a date such as 1979-01 or 20200101T0600; None for another number."""
    digits = re.sub(r"\D", "", text)
    if not re.fullmatch(DATE, text) or len(digits) not in DATES:
        return None
    try:
        day = datetime.strptime(digits, DATES[len(digits)])
    except ValueError:
        return None
    return (day - datetime(1970, 1, 1)).total_seconds() / SECONDS_OF_DAY


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts data_2 before data_10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def find_rule(names: Sequence[str]) -> NameRule | None:
    """The rule that the names of files follow, in one folder or one level of folders; None where they follow none."""
    split = [name.rpartition("/") for name in names]
    folders = sorted({folder for folder, _, _ in split})
    if any("/" in folder or folder in SPELLINGS for folder in folders) or len(names) < 2:
        return None
    if len({splitext(name)[1] for name in names}) > 1:
        return None
    found = _file_pattern([stem for _, _, stem in split], in_folders=len(folders) > 1)
    if found is None:
        return None
    pattern, sure = found
    if len(folders) > 1:
        prefix = re.sub(r"[^_\-. ]*$", "", _common(folders))
        bare = not prefix and not any(re.search(r"\d", folder) for folder in folders)
        if bare and "{c}" not in pattern and "{t}" in pattern:  # velocity, pressure share no word and have no number
            pattern = f"{{c}}/{pattern}"
        elif "{b}" not in pattern:  # sim_{b} for sim_0, sim_1
            pattern = f"{prefix}{{b}}/{pattern}"
        else:
            return None
    elif folders[0]:
        pattern = f"{folders[0]}/{pattern}"
    if "{" not in pattern:
        return None
    rule = follow(pattern, names)
    fields = {place.field.lower() for place in rule.places.values()}
    known = {re.split(r"[_\-. ]", field)[-1] for field in fields} <= set(QUANTITIES.split())
    if rule.left or fields & set(SPELLINGS) or ("{c}" in pattern and not known and not re.search("{[bt]}", pattern)):
        return None
    return replace(rule, sure=sure)


def _file_pattern(names: Sequence[str], in_folders: bool) -> tuple[str, bool] | None:
    """The pattern of names in a folder: texts that differ are channels, numbers trajectories and times."""
    _, dot, ending = names[0].rpartition(".")
    ending = dot + ending if dot and not re.fullmatch(r"\d+", ending) else ""
    stems = sorted({name.removesuffix(ending) for name in names})
    for number in (f"{DATE}(?!\\d)|{NUMBER}", r"\d+"):
        tokens = [re.split(f"({number})", stem) for stem in stems]
        if len({len(row) for row in tokens}) == 1:
            break
    else:
        return None
    columns = list(zip(*tokens, strict=True))
    varying = [i for i, column in enumerate(columns) if len(set(column)) > 1]
    texts, numbers = [i for i in varying if i % 2 == 0], [i for i in varying if i % 2]
    if len(texts) > 1 or len(numbers) > 2:
        return None
    shown, sure = [column[0] for column in columns], True
    if texts:
        before, after = _around(columns[texts[0]])
        shown[texts[0]] = f"{before}{{c}}{after}"
    words = [["", *re.findall(r"[^\W\d_]+", columns[i - 1][0].lower())][-1] for i in numbers]
    kinds = ["t" if word in TIMES.split() else "b" if word in RUNS.split() else "" for word in words]
    if len(numbers) == 2:
        letters = ["t", "b"] if kinds[0] == "t" and kinds[1] != "t" else ["b", "t"]
    else:
        sure = bool(kinds and (kinds[0] or in_folders)) or not numbers
        letters = [kinds[0] or "t"] if kinds else []
    for i, letter in zip(numbers, letters, strict=True):
        shown[i] = f"{{{letter}}}"
    return "".join(shown) + ending, sure


def _around(texts: Sequence[str]) -> tuple[str, str]:
    """What is common before and after texts that differ: signs, and words where more than a letter is left between."""
    start, end = _common(texts), _common([text[::-1] for text in texts])[::-1]
    signs, ending = start[: len(start) - len(start.lstrip("_-. "))], end[len(end.rstrip("_-. ")) :]
    prefix = re.sub(r"[^_\-. ]*$", "", start)
    shortest = min(len(text.removeprefix(prefix).removesuffix(ending)) for text in texts)
    return (prefix if shortest > 1 else signs), ending
