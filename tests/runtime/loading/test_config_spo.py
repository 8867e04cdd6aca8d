"""Reading an SPO configuration: its section, rust_rl's spellings, sizes that cannot work, and the way back to YAML."""

import dataclasses
import shlex

import pytest
from support.asserts import refused
from support.transcripts import rows

from stoix_like.config.checks.access import leaf_types
from stoix_like.config.dicts import config_from_dict, config_to_dict
from stoix_like.config.sections.runs import PPOConfig, SPOConfig, SPOSectionConfig, ppo_config, spo_config
from stoix_like.errors import ConfigError
from stoix_like.runtime.loading.config import preset_note
from stoix_like.runtime.loading.documents import to_yaml
from stoix_like.runtime.loading.help import help_text
from stoix_like.runtime.loading.presets import preset_paths
from stoix_like.runtime.runs.sources import load_config


def loaded(*argv):
    return load_config(SPOConfig, "spo", argv, default_config="spo/quick")


def problems(*argv):
    with pytest.raises(ConfigError) as caught:
        loaded(*argv)
    return caught.value.problems


@pytest.mark.parametrize(("word", "mode"), [("true", "dual"), ("false", "fixed")])
def test_adaptive_temperature_is_read_as_a_mode(file, word, mode):
    path = file(f"spo:\n  adaptive_temperature: {word}\n  fixed_temperature: 0.25\n")
    config = loaded("--config", path).config
    assert (config.spo.temperature_mode, config.spo.fixed_temperature) == (mode, 0.25)
    assert "adaptive" not in to_yaml(config)
    flagged = loaded("--config", path, "--temperature-mode", "solve")  # flags win over files, by whichever name
    assert flagged.config.spo.temperature_mode == "solve"


def test_adaptive_temperature_is_true_or_false_in_its_section_and_no_flag(file):
    words = {"auto": "'auto' (str)", "1": "1 (int)", "'true'": "'true' (str)", "null": "None (NoneType)"}
    for word, shown in words.items():
        path = file(f"spo:\n  adaptive_temperature: {word}\n")
        assert problems("--config", path) == [f"run.yaml:2: spo.adaptive_temperature: expected bool, got {shown}"]
    path = file("optimization:\n  adaptive_temperature: true\n")
    assert problems("--config", path) == ["run.yaml:2: unknown key 'optimization.adaptive_temperature'"]
    unknown = "unknown flag '--adaptive-temperature'; "
    assert problems("--adaptive-temperature", "true") == [f"{unknown}use --temperature-mode dual or fixed"]
    with refused(ConfigError, [f"{unknown}it belongs to section 'spo', which this command does not use"]):
        load_config(PPOConfig, "ppo", ["--adaptive-temperature", "true"], default_config="ppo/quick")


@pytest.mark.parametrize("first_is_ours", [True, False])
def test_both_names_of_the_mode_are_one_key(file, first_is_ours):
    keys = ["temperature_mode: solve", "adaptive_temperature: true"]
    one, other = keys if first_is_ours else reversed(keys)
    (problem,) = problems("--config", file(f"spo:\n  {one}\n  epsilon: 0.1\n  {other}\n"))
    names = [key.partition(":")[0] for key in (other, one)]
    assert problem == f"run.yaml:4: 'spo.{names[0]}' and 'spo.{names[1]}' (line 2) are the same key; keep one of them"


def test_unknown_keys_name_file_line_and_neighbour_and_words_of_rust_rl_what_to_write_instead(file):
    path = file("spo:\n  init_log_temperature: 3.0\n  init_log_alpha: 3.0\n")
    assert problems("--config", path) == [
        "run.yaml:2: 'spo.init_log_temperature' is not read; use init_temperature: the temperature itself, in reward"
        " units",
        "run.yaml:3: 'spo.init_log_alpha' is not read; use init_alpha: the weight itself",
    ]
    path = file("spo:\n  num_particle: 3\n  search_dept: 4\n  gamma: 0.5\n  root: gumbel_top\n  search_depth: ful\n")
    assert problems("--config", path) == [
        "run.yaml:2: unknown key 'spo.num_particle'; did you mean 'num_particles'?",
        "run.yaml:3: unknown key 'spo.search_dept'; did you mean 'search_depth'?",
        "run.yaml:4: unknown key 'spo.gamma'; it belongs to section 'training_core'",
        "run.yaml:5: spo.root: expected iid, gumbel_topk, got 'gumbel_top' (str); did you mean 'gumbel_topk'?",
        "run.yaml:6: spo.search_depth: expected int or full, got 'ful' (str); did you mean 'full'?",
    ]


@pytest.mark.parametrize(
    ("words", "expected"),
    rows("""
--search-depth 0 => --search-depth: must be at least 1, got 0
--epsilon 0 => --epsilon: must be greater than 0, got 0.0
--root-exploration-dirichlet-fraction 1.1 => --root-exploration-dirichlet-fraction: must lie in [0, 1], got 1.1
--rekey-particles sometimes => --rekey-particles: expected bool or auto, got 'sometimes' (str)
--config spo/maze --replay-buffer-size 8200 =>
    --replay-buffer-size: 8,200 is not a multiple of num_envs = 64; use 8,192 or 8,256
--config spo/maze --total-timesteps 1e6 =>
    --total-timesteps: 1,000,000 is not a multiple of num_envs * rollout_length = 2,048; use 999,424 or 1,001,472
--config spo/maze --num-updates none => training_core: num_updates and total_timesteps are both null; give one
"""),
)
def test_flag_problems_word_for_word(words, expected):
    """(What depends on the number of updates cannot be checked where there is none.)"""
    assert problems(*shlex.split(words)) == [expected]


def test_replay_sizes_are_told_at_once_by_the_names_and_places_of_their_leaves(file):
    path = file(
        "environment:\n  num_envs: 8\ntraining_core:\n  rollout_length: 40\n"
        "spo:\n  replay_buffer_size: 160\n  sample_sequence_length: 20\n  batch_size: 12\n"
    )
    found = problems("--config", path, "--sample-period", "30")
    assert found == [
        "run.yaml:6: spo.replay_buffer_size: 160 steps of num_envs = 8 environments are 20 of each, and"
        " training_core.rollout_length = 40 are added at once; use at least 320, or a rollout_length of at most 20",
        "run.yaml:6: spo.replay_buffer_size: 160 steps of num_envs = 8 environments are 20 of each, and"
        " spo.sample_sequence_length = 20 are sampled with 1 more at once; use at least 168, or a"
        " sample_sequence_length of at most 19",
        "--sample-period: 30 is above spo.sample_sequence_length = 20, so 10 of every 30 steps would never be sampled;"
        " use at most 20",
    ]
    sizes = {"num_envs": 8, "rollout_length": 4, "batch_size": 8, "num_minibatches": 1}
    for length, size in ((20, 168), (19, 160)):
        assert spo_config(**sizes, sample_sequence_length=length, replay_buffer_size=size)
    with pytest.raises(ConfigError):
        spo_config(**sizes, sample_sequence_length=20, replay_buffer_size=160)
    found = problems("--config", "spo/maze", "--replay-buffer-size", "100")
    assert len(found) == 2
    assert not any("multiple" in problem for problem in found)


@pytest.mark.parametrize(
    ("words", "expected"),
    rows("""
--rollout-length 16 => spo.sample_sequence_length: 31 and 1 more are sampled at once, and each environment plays
    num_updates * rollout_length = 16 steps, so nothing would be learned; use at most 15, or more updates
--rollout-length 16 --sample-sequence-length 16 --sample-period 15 => use at most 15, or more updates
--rollout-length 1 => so nothing would be learned; use more updates
"""),
)
def test_a_run_too_short_to_fill_one_sequence_is_refused(words, expected):
    (found,) = problems("--config", "spo/maze", *words.split(), "--num-updates", "1")
    assert found.endswith(expected)
    assert loaded("--config", "spo/maze", "--rollout-length", "16", "--num-updates", "2")


@pytest.mark.parametrize("name", ["ppo/maze", "ppo/maze.yaml"])
def test_a_preset_of_ppo_is_told(name):
    start = f"the values of {name} were chosen for PPO on Maze-v0; --config spo/maze is for Maze-v0 and SPO, "
    assert preset_note(loaded("--config", name)) == f"{start}and scripts/train_ppo.py trains PPO"
    path = str(preset_paths()[name.removesuffix(".yaml")])
    assert preset_note(loaded("--config", path)) == f"{start}and scripts/train_ppo.py trains PPO".replace(name, path)


def test_gradient_steps_need_not_divide_a_rollout():
    """SPO learns from replayed sequences, PPO from shares of the rollout."""
    odd = {"num_envs": 8, "rollout_length": 5, "num_minibatches": 7}
    assert spo_config(**odd, replay_buffer_size=8 * 64).training_core.num_minibatches == 7
    with pytest.raises(ConfigError, match="not divisible by 7"):
        ppo_config(**odd)


def test_one_file_serves_both_algorithms_and_spellings_of_the_section(file):
    path = file("ppo_core: {rollout_length: 20}\nspo:\n  num_particles: 5\n  search_depth: full\n")
    ours = loaded("--config", path).config
    assert (ours.spo.num_particles, ours.spo.search_depth, ours.training_core.rollout_length) == (5, "full", 20)
    theirs = load_config(PPOConfig, "ppo", ["--config", path], default_config="ppo/quick").config
    assert theirs.training_core.rollout_length == 20
    assert loaded("--config", "ppo/maze").config.environment.task_id == "Maze-v0"
    words = ("--search-depth", "full", "--rekey-particles", "--search-gamma", "null", "--num-particles", "1e1")
    config = loaded(*words).config
    assert (config.spo.search_depth, config.spo.rekey_particles, config.spo.search_gamma) == ("full", True, None)
    assert config.spo.num_particles == 10
    assert loaded("--search-depth", "8", "--no-rekey-particles").config.spo.search_depth == 8
    assert loaded("--no-rekey-particles").config.spo.rekey_particles is False
    assert loaded("--rekey-particles", "auto").config.spo.rekey_particles == "auto"
    assert loaded("--no-save-replay").config.checkpointing.save_replay is False


def test_help_lists_the_section_and_says_what_is_ppos():
    text = " ".join(help_text(SPOConfig, "spo", "spo/quick").split())
    assert "usage: python scripts/train_spo.py" in text
    for leaf in leaf_types(SPOSectionConfig):
        assert f"--{leaf.replace('_', '-')} " in text
    for leaf in ("clip-eps", "value-clip-eps", "standardize-advantages"):
        assert "PPO: " in text.partition(f"--{leaf} ")[2].partition("[default")[0]


def test_every_leaf_of_the_section_survives_being_written_and_read(file):
    other = {"search_depth": "full", "root": "gumbel_topk", "continuation": "greedy", "kl_constraint": "root"}
    other |= {"search_gamma": 0.5, "search_gae_lambda": None, "root_noise_correction": True, "resampling": "ess"}
    other |= {"resampler": "multinomial", "temperature_mode": "std", "rekey_particles": False}
    other |= {"replay_buffer_size": 64 * 500, "sample_period": 3}
    default = SPOSectionConfig()
    numbers = {f.name: getattr(default, f.name) for f in dataclasses.fields(default) if f.name not in other}
    other |= {name: value + 1 if isinstance(value, int) else 0.75 for name, value in numbers.items()}
    config = spo_config(**other | {"batch_size": 16})
    assert all(getattr(config.spo, name) != getattr(default, name) for name in other)
    assert loaded("--config", file(to_yaml(config))).config == config
    assert config_from_dict(SPOConfig, config_to_dict(config)) == config


def test_keywords_are_checked_alike():
    mode = "spo.temperature_mode: expected dual, solve, fixed, std, got 'duall' (str); did you mean 'dual'?"
    with refused(ConfigError, ["spo.epsilon: must be greater than 0, got -1.0", mode]):
        spo_config(temperature_mode="duall", epsilon=-1)
    with pytest.raises(ConfigError, match="unknown leaf 'num_particles'"):
        ppo_config(num_particles=3)
