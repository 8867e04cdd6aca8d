"""Players: legal, with the preferences they claim, and named as people write them."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import small_games

from stoix_like.config.checks.engines import MOST_SIMULATIONS, Engine, parse_engine
from stoix_like.envs.boards.tic_tac_toe import make_tic_tac_toe
from stoix_like.errors import ConfigError
from stoix_like.evaluation.contests import openings
from stoix_like.games import BoardGame
from stoix_like.search import players
from stoix_like.search.gumbel import GameModel, GumbelConfig

GAME = make_tic_tac_toe()


def favourite(action):
    """A network with logits of 2 for one action, with the larger ones of illegal actions to be masked."""

    def evaluate(params, observation):
        mask = observation.action_mask
        logits = jnp.where(mask, params * (jnp.arange(mask.shape[1]) == action)[None], 9.0)
        return logits, jnp.zeros((mask.shape[0], 2))

    return GameModel(GAME, evaluate)


PLAYERS = {
    "random": players.random_player(GAME),
    "heuristic": players.heuristic_player(GAME),
    "mcts-8": players.mcts_player(GAME, 8),
    "policy": players.policy_player(favourite(4), deterministic=True),
    "policy, sampled": players.policy_player(favourite(4), deterministic=False),
    "gumbel": players.gumbel_player(favourite(4), GumbelConfig(num_simulations=4)),
}


@functools.cache
def _compiled(name):
    return jax.jit(PLAYERS[name])


def actions(name, boards, seed=0):
    """Of a player on boards, repeated up to 600 rows."""
    repeated = (boards * 600)[:600]
    states = small_games.tic_tac_toe_states(repeated)
    played = np.asarray(_compiled(name)(jnp.float32(2.0), states, jax.random.key(seed)))
    assert played.dtype == np.int32
    return played


@pytest.mark.parametrize("name", PLAYERS)
def test_every_action_is_legal(name):
    boards = small_games.tic_tac_toe_positions()[::8]
    played = actions(name, boards)
    assert all(board[action] == "." for board, action in zip((boards * 600)[:600], played, strict=True))


def test_the_random_player_likes_nothing_more():
    counts = np.bincount(actions("random", ["01......."]), minlength=9)
    assert (counts[:2] == 0).all()
    assert np.abs(counts[2:] - 600 / 7).max() < 45  # five standard deviations of 8.6


@pytest.mark.parametrize(
    ("board", "expected"),
    [
        (".........", {4}),  # the centre is preferred
        ("0...1....", {2, 6, 8}),  # then corners
        ("00.11....", {2}),  # a win before a block
        ("00..1....", {2}),  # a block before the preference
        ("0.0.1.1..", {1}),  # a win before the reply at 2
        ("010...0.1", {4}),  # two threats: nothing blocks both, so the preferred of all
    ],
)
def test_the_heuristic_player_wins_then_blocks_then_prefers(board, expected):
    assert set(actions("heuristic", [board]).tolist()) == expected


def heuristic_on(game, states):
    """[{its actions}] for each state, each asked 16 times."""
    play = jax.jit(players.heuristic_player(game))
    played = play((), jnp.repeat(jnp.asarray(states, jnp.int32), 16), jax.random.key(0))
    return [set(row) for row in played.reshape(len(states), 16).tolist()]


def test_the_heuristic_player_knows_who_is_next():
    """A second move of one's own is no reply; a loss at once is no move; a large game is not looked into so far."""
    tables = small_games.Tables(2, 3)
    won, lost = tables.end(1.0, -1.0), tables.end(-1.0, 1.0)
    again = tables.node(0, won, lost, lost)
    reply = tables.node(1, won, lost, None)
    mild = tables.node(1, won, won, won)
    roots = [tables.node(0, reply, again, reply), tables.node(0, lost, reply, mild), tables.node(0, lost, None, reply)]
    game = small_games.make_table_game(tables.build())
    assert heuristic_on(game, roots) == [{1}, {2}, {2}]  # rather later than at once
    large = game._replace(num_actions=11, preference=lambda state: jnp.array([0.0, 0, 1] + [0] * 8))
    assert wide(large).num_actions == 11
    assert heuristic_on(wide(large), roots[:1]) == [{2}]


def wide(game: BoardGame) -> BoardGame:
    """The game with eight actions more, all illegal."""
    return game._replace(
        step=lambda state, action: game.step(state, jnp.minimum(action, 2)),
        legal_actions=lambda state: jnp.concatenate([game.legal_actions(state), jnp.zeros((8,), bool)]),
    )


def test_the_policy_player_takes_the_mode_or_draws():
    assert set(actions("policy", [".........", "0...1...."])[::2].tolist()) == {4}
    drawn = np.bincount(actions("policy, sampled", ["........."]), minlength=9)
    share = np.exp(2.0) / (np.exp(2.0) + 8)  # 0.48
    assert abs(drawn[4] / 600 - share) < 0.1
    assert (drawn > 0).all()


def test_the_gumbel_player_looks_ahead():
    model = favourite(5)
    play = jax.jit(players.gumbel_player(model, GumbelConfig(num_simulations=16, gumbel_scale=0.0)))
    states = small_games.tic_tac_toe_states(["00.11....", "00..1...."])
    np.testing.assert_array_equal(play(jnp.float32(0.5), states, jax.random.key(0)), [2, 2])


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("random", Engine("random")),
        (" Heuristic", Engine("heuristic")),
        ("mcts-128", Engine("mcts", 128)),
        ("mcts-0032", Engine("mcts", 32)),
    ],
)
def test_engines_are_parsed(text, engine):
    assert parse_engine(text) == engine
    assert parse_engine(str(engine)) == engine


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("heuristc", "no engine is called 'heuristc'; did you mean 'heuristic'"),
        ("mtcs-128", "did you mean 'mcts-128'"),
        ("mcts", f"its number of simulations, from 1 to {MOST_SIMULATIONS}"),
        ("mcts-0", "from 1 to"),
        ("mcts-100001", "from 1 to"),
        ("mcts-²", "from 1 to"),
        ("mcts128", "did you mean 'mcts-128'"),
        ("", "no engine is called ''"),
        ("policy", "plays with a network"),
        ("gumbel-mcts", "plays with a network"),
    ],
)
def test_names_that_are_none_are_explained(text, said):
    with pytest.raises(ConfigError) as caught:
        parse_engine(text)
    assert said in caught.value.what
    assert caught.value.hint


def test_an_engine_is_the_player_of_its_name():
    states = small_games.tic_tac_toe_states(["00.11....", "01......."] * 8)
    for text in ("random", "heuristic", "mcts-8"):
        play = jax.jit(players.engine_player(GAME, parse_engine(text)))
        expected = _compiled(text)((), states, jax.random.key(3))
        np.testing.assert_array_equal(play((), states, jax.random.key(3)), expected)


@pytest.mark.parametrize("max_legal", [2, 4])
def test_what_few_actions_at_a_time_lead_to_is_what_all_at_once_do(max_legal):
    """All positions after the first four plies of tic-tac-toe, most of which have more legal actions than that."""
    game, plies = GAME, np.array(list(itertools.permutations(range(9), 4))[::7], np.int32)
    states = jax.jit(lambda moves: openings.positions(game, moves))(plies)
    few = game._replace(max_legal=max_legal)
    found, wanted = (jax.jit(jax.vmap(functools.partial(players._candidates, each)))(states) for each in (few, game))
    np.testing.assert_array_equal(found, wanted)
    assert 0.0 < float(wanted.mean()) < float(jax.vmap(game.legal_actions)(states).mean())
