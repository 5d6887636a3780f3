"""Section `loss`: the settings of the absolute losses, apart from the losses, which need torch alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from hero.config.settings import Derived, Facts, Settings, per_dims, setting
from hero.method.losses import basis_of


def basis_by_boundary(facts: Facts, given: Mapping[str, Any]) -> str:
    """The basis that the data have."""
    return "graph" if facts.cloud else basis_of(facts.periodic)


class SpectralSettings(Settings):
    """The modes of a loss."""

    basis: Annotated[
        Literal["fourier", "cosine", "mixed", "graph"],
        Derived(basis_by_boundary, "fourier where every axis is periodic, cosine where none is, else mixed"),
    ] = setting(
        "fourier on a periodic grid, cosine between walls, mixed for axes of both kinds, graph on scattered points."
    )


class BalancedSettings(SpectralSettings):
    """The balanced loss."""

    w_max: float = setting(100.0, "Largest weight of a mode; the smallest is 1.", ge=1)
    spectrum: Literal["error", "data"] = setting(
        "error", "S: the spectrum of the error, or, as a control, of the data."
    )
    reach: Annotated[Literal["kept", "all"], per_dims({1: "all", 2: "kept", 3: "kept"})] = setting(
        "Modes whose weight may rise above 1: those that the backbone keeps, or all."
    )
