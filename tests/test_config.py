"""The configuration: what it refuses, what it derives, and the id that names a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.evidence import BALANCED
from conftest import TINY, Call, options
from hero.config import parse_override
from hero.data import TASKS, FileSettings
from hero.errors import HeroError
from hero.method.losses import LOSSES
from hero.optimizers import OPTIMIZERS
from hero.runs.config import PRESETS, make_config
from hero.runs.folder import Run
from hero.runs.sections import OTHER_WORDS, all_settings
from hero.strategies import STRATEGIES
from hero.study.plans import plan
from hero.training.loop import train


def refusal(**kwargs: Any) -> str:
    with pytest.raises(HeroError) as error:
        make_config(**kwargs)
    assert str(error.value).endswith((".", "?"))
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("task", TASKS)
def test_the_default_is_the_papers_implementation_section(task: str) -> None:
    config = make_config(overrides={"task.name": task})
    assert config == make_config("paper", overrides={"task.name": task})
    assert config.strategy == "hero"
    assert (config.data.train_trajectories, config.data.train_steps + 1) == (50, 51)
    assert (config.data.val_trajectories, config.data.val_steps + 1) == (30, 201)
    assert (config.data.test_trajectories, config.data.test_steps + 1) == (30, 201)
    assert len({config.data.train_seed, config.data.val_seed, config.data.test_seed}) == 3
    assert (config.train.steps, config.train.batch, config.train.lr, config.train.warmup) == (10_000, 20, 1e-3, 2000)
    assert config.train.unroll == 5
    assert config.train.clip == 1.0
    assert (config.method.start, config.method.refresh, config.method.warmup) == (4000, 2000, 2000)
    assert (config.method.lambda_max, config.method.margin, config.method.beta) == (0.02, 0.02, 5.0)
    widths = {1: (28, (28,), 1), 2: (20, (8, 8), 1), 3: (4, (8, 8, 8), 5)}
    backbone = config.backbone
    assert (backbone.width, backbone.modes, backbone.depth) == widths[TASKS[task].dims]


@given(steps=st.integers(1, 10**7))
@settings(max_examples=60, deadline=None)
def test_any_number_of_steps_gives_schedules_that_fit_it(steps: int) -> None:
    config = make_config(overrides={"train.steps": steps})
    assert 0 <= config.method.start < steps
    method, train = config.method, config.train
    for value in (method.refresh, method.warmup, train.validate_every, train.checkpoint_every):
        assert 1 <= value <= steps


def test_the_stored_form_holds_every_setting() -> None:
    parts = {"backbone.name": ("transolver", "unet"), "strategy": STRATEGIES, "train.loss": LOSSES}
    parts |= {"train.optimizer": OPTIMIZERS}
    chosen: list[dict[str, Any]] = [{key: name} for key, names in parts.items() for name in names]
    chosen.append({"train.optimizer": "SGD", "optimizer.kwargs.nesterov": False})
    found = {key for one in chosen for key in make_config(overrides=one).flat()}
    files = {f"data.{name}" for name in FileSettings.model_fields}  # stored where the data are files
    assert {key for key, _ in all_settings()} <= found | files


@pytest.mark.parametrize(
    ("task", "strategy"), [*((task, "hero") for task in TASKS), *(("burgers", strategy) for strategy in STRATEGIES)]
)
def test_the_stored_form_is_complete_and_gives_the_same_id(task: str, strategy: str, tmp_path: Path) -> None:
    overrides = {"task.name": task, "strategy": strategy, "seed": 3, "train.lr": 3e-4, "hero.margin": 0.1}
    config = make_config("quick", overrides=overrides)
    assert None not in config.flat().values()  # nothing is left to be derived later
    path = tmp_path / "config.toml"
    path.write_text(config.to_toml(), encoding="utf-8")
    again = make_config(file=path)
    assert again == config
    assert again.run_id() == config.run_id()
    assert again.to_toml() == config.to_toml()


def test_later_sources_win_preset_then_file_then_overrides(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text("seed = 4\n[train]\nsteps = 500\nlr = 0.5\n[task]\nname = 'kdv'\ndt = 0.02\n", encoding="utf-8")
    config = make_config("quick", path, {"train.lr": 0.25})
    assert (config.seed, config.train.steps, config.train.lr) == (4, 500, 0.25)
    assert (config.task.name, config.task.settings["dt"], config.method.start) == ("kdv", 0.02, 200)


def test_overrides_are_read_as_people_write_them() -> None:
    texts = ("a.b=2000", "a.b=3e-3", "a.b=.5", "a.b=mse", " a.b = 'mse' ", "a.b=[1, 2.5, 3]", "a.b=a=b")
    found = [2000, 3e-3, 0.5, "mse", "mse", [1, 2.5, 3], "a=b"]
    assert [parse_override(text) for text in texts] == [("a.b", value) for value in found]


def test_an_explicit_default_is_the_same_run_as_an_implicit_one() -> None:
    config = make_config()
    assert make_config(overrides=config.flat()).run_id() == config.run_id()
    assert make_config("quick").run_id() == make_config(overrides={"train.steps": 1000}).run_id()
    assert STRATEGIES["hero.strategies.absolute:OneStep"] is STRATEGIES["one_step"]
    assert make_config(overrides={"train.clip": 1, "train.steps": 1e4}).run_id() == config.run_id()


CHANGED: dict[str, Any] = {
    "data.train_seed": 2,  # 1 is the seed of the validation
    "train.ema": 0.5,
    "strategy": "fixed_weight",
    "seed": 1,
    "task.name": "dispersion",
    "backbone.modes": 14,
    "backbone.padding": 0.25,
    "train.loss": "mse",
    "train.lora_layers": "lifting",
    "train.lora_full": "head.*",
    "train.lr_scale": "head.*:2",
    "train.optimizer": "soap",
    "optimizer.beta1": 0.8,
    "optimizer.beta2": 0.9,
    "train.compile": "true",
    "train.device": "cpu",
    "train.norm": "channels",
    "train.channel_weights": "u:2",
    "train.curriculum": "steps",
    "train.stages": "1:50,5:50",
    "train.init_hash": "0" * 64,
    "train.init_prefix": "net.",
    "train.freeze": "lifting.*",
    "backbone.precision": "bfloat16",
    "backbone.residual": True,
    "hero.candidates": ["lag", "self"],
    "hero.diagnostics": ["roll"],
}


def test_both_spellings_of_the_optimizer_are_one_setting(tmp_path: Path) -> None:
    ours = make_config(overrides={"train.optimizer": "soap", "optimizer.beta1": 0.9})
    theirs = make_config(overrides=["train.optimiser=soap", "optimiser.beta1=0.9"])
    path = tmp_path / "config.toml"
    path.write_text(ours.to_toml().replace("optimizer", "optimiser"), encoding="utf-8")
    assert ours == theirs == make_config(file=path)
    assert make_config(overrides={"train.normalize": True}).train.normalise
    assert ours.train.lr == 5e-3


def test_sections_of_parts_that_are_not_chosen_are_left_out() -> None:
    config = make_config(overrides={"strategy": "push_forward", "loss.w_max": 20, "optimizer.refresh": 5})
    assert config == make_config(overrides={"strategy": "push_forward"})


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("lr", "'train.lr'"),
        ("learning_rate", "'train.lr'"),
        ("optimiser", "'train.optimizer'"),
        ("backbone.batch_size", "'train.batch'"),
        ("steps", "'train.steps' or 'refiner.steps'"),
        ("train.stepz", "'train.steps'"),
        ("sead", "'seed'"),
        ("backbone.mode", "'backbone.modes'"),
        ("temperature", None),
    ],
)
def test_a_wrong_name_leads_to_the_setting_that_is_meant_and_only_then(
    given: str, meant: str | None, tmp_path: Path
) -> None:
    section, _, name = given.rpartition(".")
    (tmp_path / "x.toml").write_text(f"[{section}]\n{name} = 1" if section else f"{name} = 1", encoding="utf-8")
    hint = f"did you mean {meant}?" if meant else "`hero settings` lists all."
    for message in (refusal(overrides={given: 1}), refusal(file=tmp_path / "x.toml")):
        assert message.endswith(f"; {hint}")


def test_words_of_other_libraries_mean_settings_that_exist() -> None:
    assert set(OTHER_WORDS.values()) <= {key for key, _ in all_settings()}


def test_short_runs_are_validated_once_and_long_ones_as_before() -> None:
    found = {n: make_config(overrides={"train.steps": n}).train.validate_every for n in (1, 20, 400, 1000, 10_000)}
    assert found == {1: 1, 20: 20, 400: 20, 1000: 50, 10_000: 500}


def test_the_size_of_the_backbone_changes_the_id() -> None:
    two_dimensional = {"task.name": "decaying_turbulence"}
    sizes = [make_config(overrides={**two_dimensional, "backbone.size": s}) for s in ("apebench", "paper_count")]
    assert sizes[0].run_id() == make_config(overrides=two_dimensional).run_id() != sizes[1].run_id()


def test_checkpoints_kept_for_analysis_change_no_number_and_so_not_the_id() -> None:
    assert make_config(overrides={"train.keep_every": 100}).run_id() == make_config().run_id()


@pytest.mark.parametrize(
    "key", sorted(make_config().flagged("identity") & make_config().flat().keys() - {"backbone.name", "backbone.size"})
)
def test_every_setting_changes_the_id(key: str) -> None:
    values = make_config().flat()
    value, before = CHANGED.get(key), values[key]
    if value is None:
        value = not before if isinstance(before, bool) else before * 2 or 1
    config = make_config(overrides={key: value})
    assert config.run_id() != make_config().run_id()
    assert config.run_id().startswith(f"{config.task.name}-fno-{config.strategy}-s{config.seed}-")


def test_modes_are_one_number_or_one_per_axis(tmp_path: Path) -> None:
    def modes(value: object) -> object:
        return make_config(overrides={"task.name": "kolmogorov_flow", "backbone.modes": value}).backbone.modes

    assert modes(4) == modes("4") == modes([4, 4]) == (4, 4)
    assert modes("4,6") == modes((4, 6)) == (4, 6)
    for wrong in (0, 2.5, True, [], "4,x", [4, -1], [4, 4, 4]):
        with pytest.raises(HeroError, match=r"backbone\.modes"):
            modes(wrong)


def test_arguments_of_ones_own_backbone_are_part_of_the_run(tmp_path: Path) -> None:
    name = {"backbone.name": "nowhere.installed:Net"}  # listing runs needs no import
    config = make_config(overrides={**name, "backbone.kwargs.width": 8, "backbone.kwargs.n_modes": [4, 4]})
    assert config.backbone.kwargs == {"width": 8, "n_modes": [4, 4]}
    assert config.run_id().startswith("burgers-Net-hero-s0-")
    assert config.run_id() != make_config(overrides=name).run_id()
    path = tmp_path / "config.toml"
    path.write_text(config.to_toml(), encoding="utf-8")
    assert make_config(file=path) == config
    changed = make_config(file=path, overrides={"backbone.kwargs.width": 9})
    assert changed.backbone.kwargs == {"width": 9, "n_modes": [4, 4]}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_hero_section_counts_only_for_strategies_that_read_it(strategy: str) -> None:
    one = make_config(overrides={"strategy": strategy})
    two = make_config(overrides={"strategy": strategy, "hero.lambda_max": 0.5, "hero.start": 10})
    assert (one.run_id() == two.run_id()) == (STRATEGIES[strategy].section != "hero")
    assert ("hero" in one.to_dict()) == (STRATEGIES[strategy].section == "hero")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"task.viscosty": 1}, ("viscosty", "'viscosity'")),
        ({"task.name": "zzz"}, ("unknown task 'zzz'", "choose one of", "kolmogorov_flow")),
        ({"strategy": "heroo"}, ("unknown strategy 'heroo'", "'hero'")),
        ({"train.steps": "many"}, ("train.steps='many'", "integer")),
        ({"train.steps": 0}, ("train.steps=0", "equal to 1")),
        ({"seed": 2**64}, ("seed", "too large")),
        ({"train.lr": 0}, ("train.lr=0", "greater than 0")),
        ({"train.lr": float("inf")}, ("train.lr=inf", "finite")),
        ({"train.compile": "yes"}, ("train.compile='yes'", "'auto', 'true', 'false' or 'graphs'")),
        ({"train.unroll": 51}, ("train.unroll=51", "data.train_steps=50")),
        ({"hero.start": 10_000}, ("hero.start=10000", "train.steps=10000")),
        ({"backbone.modes": 82}, ("backbone.modes=82", "160")),
        ({"task.resolution": 14}, ("task.resolution is 14", "task.cutoff")),
        ({"task.viscosity": "thick"}, ("task.viscosity", "'thick'")),
        ({"train.steps": 1e300}, ("train.steps", "integer")),
        ({"train.ema": 1}, ("train.ema=1", "less than 1")),
        ({"train.warmup": 10_000}, ("train.warmup=10000", "train.steps=10000")),
        ({"data.test_seed": 0}, ("data.train_seed=0", "data.test_seed")),
        ({"backbone.heads": 4}, ("backbone.heads", "fno", "modes")),
        ({"backbone.name": "my.module:Net", "backbone.width": 4}, ("backbone.width", "my.module:Net")),
        ({"backbone.name": "unet", "backbone.levels": 9}, ("backbone.levels=9",)),
        ({"loss.w_max": 0.5}, ("loss.w_max=0.5", "greater")),
        ({"loss.wmax": 3}, ("'loss.wmax'", "'loss.w_max'")),
        ({"train.loss": "l2"}, ("relative, mse, h1, balanced",)),
        ({"strategy": "refiner", "backbone.residual": True}, ("backbone.residual",)),
        ({"strategy": "refiner", "train.bundle": 5}, ("train.bundle",)),
        ({"strategy": "refiner", "refiner.noise": 1.0}, ("refiner.noise",)),
        ({"train.accumulate": 2, "train.loss": "balanced"}, ("train.accumulate=2", "balanced")),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(overrides: dict[str, Any], words: tuple[str, ...]) -> None:
    message = refusal(overrides=overrides)
    for word in words:
        assert word in message


def test_unknown_presets_and_malformed_sources_are_refused(tmp_path: Path) -> None:
    assert "'quick'" in refusal(preset="quik")
    assert list(PRESETS) == ["paper", "recipe", "quick"]
    assert "KEY=VALUE" in refusal(overrides=["train.steps"])
    assert "KEY=VALUE" in refusal(overrides=["=3"])
    assert "no configuration file" in refusal(file=tmp_path / "absent.toml")
    assert "Is a directory" in refusal(file=tmp_path)
    broken = tmp_path / "broken.toml"
    for content in (b"steps = = 3", b"\xff\xfe\x00", b"[train\n"):
        broken.write_bytes(content)
        assert "not a TOML file" in refusal(file=broken).replace("\n", " ")


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
