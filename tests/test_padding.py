"""The FNO between walls: zeros that keep the two ends of an axis apart."""

from __future__ import annotations

import pytest
import torch

from hero.config import Facts
from hero.errors import HeroError
from hero.models import FNO, Transolver, build_backbone
from hero.models.fno import added_points
from hero.models.settings import FNOSettings, TransolverSettings
from hero.runs.config import make_config


def settings(periodic: tuple[bool, ...], **given: object) -> FNOSettings:
    return FNOSettings.from_values("backbone", given, Facts(dims=len(periodic), periodic=periodic))


def test_points_are_rounded_up_but_not_by_the_rounding_of_a_product() -> None:
    assert added_points((0.25, 0.25, 0.0), (8, 9, 100)) == (2, 3, 0)
    assert added_points((0.07, 0.1), (100, 30)) == (7, 3)  # 0.07 * 100 = 7.000000000000001


def test_the_default_follows_the_boundary_and_is_stored_as_numbers() -> None:
    assert settings((True, True)).padding == (0.0, 0.0)
    assert settings((True, False)).padding == (0.0, 0.25)
    assert settings((True, False), padding=0.5).padding == (0.0, 0.5)
    assert settings((True, False), padding=[0.5, 0]).padding == (0.5, 0.0)
    assert settings((True, False), padding="0.1, 0.2").padding == (0.1, 0.2)
    assert settings((True, True), padding=0.5).padding == (0.5, 0.5)
    config = make_config(overrides={"task.name": "decaying_turbulence"})
    assert config.to_dict()["backbone"]["padding"] == (0.0, 0.0)
    mixed = build_backbone(settings((True, False), modes=[2, 3]), (8, 8), 1, 1, 0)
    assert isinstance(mixed, FNO)
    assert mixed.padding == (0.0, 0.25)


@pytest.mark.parametrize("value", [-0.1, 1.5, "much", [], True, [0.1, "x"], [0.1, 0.2, 0.3]])
def test_other_shares_are_refused(value: object) -> None:
    with pytest.raises(HeroError, match=r"backbone\.padding="):
        settings((False, False), padding=value)


def test_modes_are_checked_on_the_padded_grid() -> None:
    """12 points carry 7 modes, 15 points 8."""
    settings((False,), modes=8).check((12,))
    for refused in (settings((False,), modes=9), settings((True,), modes=8)):
        with pytest.raises(HeroError, match=r"backbone.modes=\d does not fit"):
            refused.check((12,))


def test_the_reach_is_counted_in_the_box_of_the_data() -> None:
    assert settings((True, False), modes=[10, 10]).reach == (10, 8)
    assert settings((True, True), modes=[10, 10]).reach == (10, 10)


def test_transolver_on_scattered_points_knows_no_order_of_them() -> None:
    """Coordinates come as conditioning channels; permuted points give permuted values."""
    made = TransolverSettings.from_values(
        "backbone", {"name": "transolver", "width": 8, "heads": 2, "slices": 4}, Facts()
    )
    model = build_backbone(made, (30,), 3, 1, seed=0, cloud=True).double()
    assert isinstance(model, Transolver)
    u, order = torch.randn(2, 3, 30, dtype=torch.float64), torch.randperm(30)
    torch.testing.assert_close(model(u[..., order]), model(u)[..., order], rtol=1e-11, atol=1e-12)
