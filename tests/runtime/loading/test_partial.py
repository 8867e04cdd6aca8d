"""The seed's YAML, and command lines whose flags belong to two configurations."""

import pytest

from stoix_like.config.sections.master_loop import UnifiedLoopConfig, check_game_leaves, games_of, leaves_of
from stoix_like.errors import ConfigError, UnsupportedEnvironmentError
from stoix_like.runtime.loading.documents import to_yaml
from stoix_like.runtime.loading.partial import read_partial, split_words
from stoix_like.runtime.loading.presets import preset_of_game

SEED = """
data_ingestion:
  poll_interval_seconds: 60

evaluation:
  shadow_interval_seconds: 900
  full_tournament_interval_seconds: 86400

training:
  min_samples_to_trigger: 10000
  auto_trigger: true
"""


def load(*argv):
    return read_partial(UnifiedLoopConfig, "selfplay", argv, "selfplay/unified_loop")


def test_the_yaml_of_the_original_is_a_valid_file_and_says_what_the_defaults_say(tmp_path):
    path = tmp_path / "unified_loop.yaml"
    path.write_text(SEED)
    config = load("--config", str(path)).config
    assert config == UnifiedLoopConfig() == load().config
    assert config.data_ingestion.poll_interval_seconds == 60.0
    assert config.evaluation.shadow_interval_seconds == 900.0
    assert config.evaluation.full_tournament_interval_seconds == 86400.0
    assert (config.training.min_samples_to_trigger, config.training.auto_trigger) == (10_000, True)
    assert games_of(config.loop.games) == [("hex8", 2), ("square8", 2)]


def test_what_is_printed_can_be_fed_back(tmp_path):
    config = load("--games", "tic_tac_toe", "--no-auto-trigger", "--game-leaves", "{seed: 3}").config
    path = tmp_path / "printed.yaml"
    path.write_text(to_yaml(config))
    assert load("--config", str(path)).config == config


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("training:\n  min_sample_to_trigger: 1\n", "unknown key 'training.min_sample_to_trigger'; did you mean"),
        ("trainning:\n  auto_trigger: true\n", "unknown section 'trainning'; did you mean 'training'"),
        ("training:\n  auto_trigger: 3\n", "expected bool"),
        ("evaluation:\n  shadow_interval_seconds: 0\n", "must be at least 1"),
    ],
)
def test_wrong_keys_and_values_are_named_with_their_line(tmp_path, text, problem):
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load("--config", str(path))
    assert problem in caught.value.problems[0]
    assert "wrong.yaml:" in caught.value.problems[0]


def test_flags_of_games_are_left_for_them():
    words = "--games tic_tac_toe --num-simulations 8 --actor-lr=-1 --no-auto-trigger --seed -3 -x"
    own, rest = split_words(words.split(), UnifiedLoopConfig)
    assert own == ["--games", "tic_tac_toe", "--no-auto-trigger"]
    assert rest == ["--num-simulations", "8", "--actor-lr=-1", "--seed", "-3", "-x"]


def test_leaves_of_all_games_and_of_one():
    leaves = "{num_simulations: 8, tic_tac_toe: {num_simulations: 4, seed: 1}, connect_four:2: {seed: 2}}"
    config = load("--game-leaves", leaves.replace("connect_four:2", "'connect_four:2'")).config
    assert leaves_of(config, "tic_tac_toe", 2) == {"num_simulations": 4, "seed": 1}
    assert leaves_of(config, "connect_four", 2) == {"num_simulations": 8, "seed": 2}
    assert leaves_of(config, "othello", 2) == {"num_simulations": 8}


def test_leaves_of_a_game_for_one_number_of_players():
    leaves = "{seed: 1, hex8_4p: {seed: 4}, hex8: {seed: 2, num_simulations: 8}}"
    config = load("--games", "hex8:2,hex8:3,hex8:4", "--game-leaves", leaves).config
    assert leaves_of(config, "hex8", 2) == leaves_of(config, "hex8", 3) == {"seed": 2, "num_simulations": 8}
    assert leaves_of(config, "hex8", 4) == {"seed": 4, "num_simulations": 8}
    with pytest.raises(ConfigError, match="'hex8:3' is no game of this loop"):
        check_game_leaves(load("--games", "hex8:2", "--game-leaves", "{'hex8:3': {seed: 1}}").config)


@pytest.mark.parametrize(
    ("algorithm", "game", "preset"),
    [
        ("selfplay", ("hex8", 2), "hex8_2p"),
        ("selfplay", ("hex8", 3), "hex8_2p"),
        ("selfplay", ("square8", 4), "square8_4p"),
        ("selfplay", ("square8", 3), "square8_2p"),
        ("selfplay", ("square8_swap", 2), "square8_2p"),
        ("selfplay", ("othello", 2), "othello"),
        ("selfplay", ("go_9x9", 2), "connect_four"),
        ("alphazero", ("hex8", 4), "hex8"),
        ("alphazero", ("hex8_swap", 2), "hex8"),
    ],
)
def test_the_preset_of_a_game_is_that_of_its_players_or_of_others(algorithm, game, preset):
    assert preset_of_game(algorithm, *game) == f"{algorithm}/{preset}"


def test_games_that_are_none_or_twice_or_not_available():
    with pytest.raises(ConfigError, match="names no game, or one twice"):
        games_of("tic_tac_toe,tic_tac_toe:2")
    with pytest.raises(ConfigError, match="names no game"):
        games_of(" , ")
    with pytest.raises(UnsupportedEnvironmentError, match="hexagonal is not available yet"):
        games_of("hexagonal:2,square19:2")
