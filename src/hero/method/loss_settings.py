"""Section `loss`: the settings of the absolute losses, apart from the losses, which need torch alone."""

from __future__ import annotations

from typing import Annotated, Literal

from hero.config.settings import Settings, per_dims, setting


class BalancedSettings(Settings):
    """The balanced loss."""

    w_max: float = setting(100.0, "Largest weight of a mode; the smallest is 1.", ge=1)
    spectrum: Literal["error", "data"] = setting(
        "error", "S: the spectrum of the error, or, as a control, of the data."
    )
    reach: Annotated[Literal["kept", "all"], per_dims({1: "all", 2: "kept", 3: "kept"})] = setting(
        "Modes whose weight may rise above 1: those that the backbone keeps, or all."
    )
