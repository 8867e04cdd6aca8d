"""Environments by task id with board games among them: opponents, openings, spellings, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.asserts import refused

import stoix_like as sl
from stoix_like.algorithms import tasks
from stoix_like.config.checks.alphazero import anchor_names
from stoix_like.errors import ConfigError, UnsupportedEnvironmentError


@pytest.mark.parametrize("task_id", ["tic_tac_toe", "tic_tac_toe:2", "tic_tac_toe_2p"])
def test_a_game_is_an_environment_in_every_spelling(task_id):
    env = sl.make_env(task_id, opponent="random")
    assert (env.task_id, env.time_limit, env.observation_adapter) == ("tic_tac_toe", 9, "lines")
    assert env.game.name == "tic_tac_toe"
    assert sl.ppo_config(task_id=task_id, opponent="random").environment.task_id == "tic_tac_toe"


def test_the_opponent_makes_the_difference():
    """Against one that moves at random, a player that does so too is worth -0.25 to 0.25; who looks ahead beats it."""
    env = sl.make_env("tic_tac_toe", opponent="heuristic")

    def policy(_params, _state, observation, key, _deterministic):
        return jax.random.categorical(key, jnp.where(observation.action_mask, 0.0, -jnp.inf))

    found = jax.jit(lambda key: sl.evaluate(env, policy, None, key, num_episodes=256))(jax.random.key(0))
    assert found.episode_return.mean() < -0.55


def test_openings_are_those_of_the_book():
    book = tasks.book(sl.make_game("tic_tac_toe"), 2)
    assert book.moves.shape == (12, 2)  # of 36 pairs of cells, 12 are different
    env = sl.make_env("tic_tac_toe", opponent="random", opening_plies=2)
    state, _ = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 64))
    cells = np.asarray(jax.vmap(env.game.cells)(state.game))
    assert ((cells >= 0).sum(axis=1) >= 2).all()
    state, timestep = jax.vmap(sl.make_env("tic_tac_toe", opponent="random", opening_plies=0).reset)(
        jax.random.split(jax.random.key(0), 64)
    )
    assert set((np.asarray(jax.vmap(env.game.cells)(state.game)) >= 0).sum(axis=1)) == {0, 1}  # ours, or theirs first
    assert (timestep.discount == 1.0).all()


@pytest.mark.parametrize(("name", "plies"), [("hex8", 4), ("square8:3", 6), ("hex8:4", 8), ("hex8_swap", 4)])
def test_openings_of_several_players_are_a_placement_and_a_move_of_each(name, plies):
    assert tasks._usual_plies(sl.make_game(name)) == plies


def test_there_is_one_opponent_or_one_for_each_other_seat():
    two, four = ({"task_id": task_id, "opponent": "random, heuristic"} for task_id in ("tic_tac_toe", "square8:4"))
    with pytest.raises(ConfigError, match="2 opponents on tic_tac_toe; name one\n"):
        sl.ppo_config(**two)
    with pytest.raises(ConfigError, match="2 opponents on square8_4p; name one for all other seats, or 3\n"):
        sl.ppo_config(**four)
    assert sl.ppo_config(**two | {"task_id": "hex8:3"}).environment.opponent == "random, heuristic"
    with pytest.raises(ValueError, match="has 1 other seats, got 2 opponents"):
        sl.make_env(**two)


def test_other_tasks_have_no_opponent_and_games_have_no_items():
    with refused(ConfigError, hint="leave it out"):
        sl.make_env("probe/action_reward", opponent="random")
    with pytest.raises(ConfigError, match=r"environment\.max_items: tic_tac_toe has none"):
        sl.make_env("tic_tac_toe", max_items=3)
    with pytest.raises(ConfigError, match=r"environment\.max_episode_steps: tic_tac_toe has none"):
        sl.make_env("tic_tac_toe", max_episode_steps=3)
    with pytest.raises(ConfigError, match="tic_tac_toe ends by its own rules"):
        sl.ppo_config(task_id="tic_tac_toe", max_episode_steps=3)
    with pytest.raises(ConfigError, match="task_id: 'connect_four:3': connect_four is a game of 2 players"):
        sl.ppo_config(task_id="connect_four:3")
    with pytest.raises(ConfigError, match="only board games have it, and the task is Maze-v0"):
        sl.ppo_config(task_id="Maze-v0", opponent="random")
    with pytest.raises(ConfigError, match="no engine is called 'minimax'"):
        sl.alphazero_config(opponent="minimax")
    with pytest.raises(UnsupportedEnvironmentError, match="square19 is not available yet"):
        sl.make_env("square19:3")
    with pytest.raises(ConfigError, match="connect_four is a game of 2 players"):
        sl.make_env("connect_four:3")


def test_anchors_have_one_spelling():
    assert anchor_names(" Random, mcts-0128,random, mcts-128, nobody") == ["random", "mcts-128", "nobody"]
    with pytest.raises(ConfigError, match="seeds side by side search every move both in full and quickly"):
        sl.alphazero_config(quick_simulations=4, num_seeds=2)


def test_alphazero_plays_board_games_alone():
    with pytest.raises(ConfigError, match=r"board games, not othelo; did you mean 'othello'\? choose one of"):
        sl.alphazero_config(task_id="othelo")
    env = sl.make_env("probe/action_reward")
    with pytest.raises(ConfigError, match="AlphaZero plays board games against itself, and probe/action_reward is"):
        sl.make_network(env, sl.alphazero_config())
    game_env = sl.make_env("tic_tac_toe", opponent="random")
    network = sl.make_network(game_env, sl.ppo_config(task_id="tic_tac_toe", opponent="random"))
    with pytest.raises(ConfigError, match="the network gives logits"):  # PPO's has one value
        sl.alphazero.make(game_env.game, network, sl.alphazero_config(task_id="tic_tac_toe"))
    with pytest.raises(ConfigError, match="has no section alphazero"):
        sl.alphazero.make(game_env.game, network, sl.ppo_config())
    small = sl.alphazero_config(task_id="tic_tac_toe", replay_buffer_size=1024)
    with pytest.raises(ConfigError, match="is less than the 10,496 positions that can be complete at once"):
        sl.alphazero.make(game_env.game, sl.make_network(game_env, small), small)
    shorter = sl.alphazero_config(task_id="tic_tac_toe", replay_buffer_size=1024, max_game_plies=7)
    with pytest.raises(ConfigError, match="is less than the 9,984 positions that can be complete at once"):
        sl.alphazero.check_replay(game_env.game, shorter)


@pytest.mark.parametrize(
    ("leaves", "message"),
    [
        ({"anchors": "random, mcts-0"}, "alphazero.anchors: mcts-0: mcts is followed by its number of simulations"),
        ({"replay_buffer_size": 512}, "alphazero.replay_buffer_size: 512 is less than batch_size = 1,024"),
        ({"num_envs": 1, "rollout_length": 16}, "alphazero.batch_size: 1,024 is more than max_reuse"),
        ({"max_game_plies": 6}, "alphazero.max_game_plies: 6 plies may all be random, as random_plies = 6 says"),
        ({"quick_simulations": 16}, "alphazero.quick_simulations: 16 is not below num_simulations = 16"),
    ],
)
def test_sizes_that_cannot_work_are_refused(leaves, message):
    with pytest.raises(ConfigError, match=message):
        sl.alphazero_config(**leaves)
