"""What `hero train TASK` trains: the preset that is recommended, and the paper's one word away."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.evidence import BALANCED
from benchmarks.tuning import grid, read_rows, summary, tune
from conftest import TINY, Call, options
from hero.data import TASKS
from hero.runs.config import PRESETS, make_config
from hero.runs.folder import Run
from hero.study.plans import plan
from hero.training.loop import train

PUBLISHED = [["--strategy", "hero"], ["--preset", "paper"], ["--set", "hero.margin=0.02"], ["--set", "strategy=hero"]]


@pytest.mark.parametrize("words", [[], ["--strategy", "push_forward"], *PUBLISHED])
def test_without_words_the_recommended_preset_is_trained_and_named_and_the_published_is_one_word_away(
    words: list[str], call: Call, tmp_path: Path, data_dir: Path
) -> None:
    code, out, err = call("train", "burgers", *words, *options(train__steps=1), "--runs", tmp_path, "--data", data_dir)
    assert (code, err) == (0, "")
    assert ("preset recipe, which we recommend: soap, the invariants" in " ".join(out.split())) == (not words)
    (run,) = (path for path in tmp_path.iterdir() if (path / "config.toml").is_file())
    config = Run(run).config
    if words in PUBLISHED:
        assert config == make_config("paper", overrides={**TINY, "train.steps": 1})
    else:
        assert (config.strategy, config.train.loss) == ("push_forward", "relative")
        assert config.train.optimizer == ("adamw" if words else "soap")


@pytest.mark.parametrize("task", TASKS)
def test_the_recipe_is_one_set_of_numbers_for_every_task(task: str) -> None:
    config = make_config("recipe", overrides={"task.name": task})
    found = config.to_dict()
    for key, value in PRESETS["recipe"].items():
        section, _, name = key.rpartition(".")
        assert (found[section] if section else found)[name] == value


@pytest.mark.usefixtures("foresight")
def test_the_runs_of_the_evidence_are_those_of_their_commands(tmp_path: Path, data_dir: Path) -> None:
    """Kept runs name it as it was before (`benchmarks/evidence.py`): the same weights, bit for bit."""
    as_kept = {"strategy": "foresight", "foresight.power": 0.0, "train.optimizer": "soap"}
    configs = [make_config("paper", overrides={**TINY, **arm}) for arm in (BALANCED, as_kept)]
    now, before = (Run(train(config, tmp_path, data_dir)).path / "model.safetensors" for config in configs)
    assert now != before
    assert now.read_bytes() == before.read_bytes()


def test_the_study_of_the_recipe_has_the_runs_of_the_commands() -> None:
    control = make_config("paper", overrides={"strategy": "push_forward", "train.optimizer": "soap"})
    expected = [make_config("paper"), control, make_config("recipe")]
    assert [config.run_id() for config in plan("recipe", seeds=[0]).configs] == [one.run_id() for one in expected]


def tuned(table: Path, runs: Path, data: Path, *arms: str) -> list[dict[str, str]]:
    settings = " ".join(f"{key}={value}" for key, value in TINY.items() if key not in ("train.steps", "task.name"))
    tune(["burgers"], 6, [0], [f"{arm} {settings}" for arm in arms], table, runs, data, workers=0)
    return list(read_rows(table))


def test_a_table_of_tuning_grows_by_what_is_missing_and_keeps_failures(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    arms = ["strategy=push_forward", "strategy=one_step", "strategy=refiner train.bundle=2"]
    first = tuned(table, tmp_path / "runs", tmp_path / "data", *arms[:1])
    rows = tuned(table, tmp_path / "runs", tmp_path / "data", *arms)
    assert rows[0] == first[0]
    assert len(rows) == 3
    failed = [row for row in rows if row["failure"]]
    assert [row["failure"] for row in failed] == [
        "train.bundle=2 is not for the strategy refiner, which refines one step at a time; leave it at 1."
    ]
    assert all(float(row["nrmse@100"]) > 0 for row in rows if not row["failure"])
    lines = summary(table)
    assert lines[0] == "| arm | burgers, 6 | ratio |"
    assert lines[2].endswith("| 1.00 |")
    assert any("| inf | inf |" in line for line in lines)


def test_the_grid_has_the_control_and_the_recipe() -> None:
    control, *others = [make_config(overrides=["strategy=push_forward", *arm.split()]) for arm in grid()]
    assert control == make_config(overrides={"strategy": "push_forward"})
    recipe = make_config("recipe")
    assert (recipe.backbone, recipe.train.loss) in [(one.backbone, one.train.loss) for one in others]
