"""RingRift as a board game: what it shows, its symmetries, its bound, and the words for people."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from envs.ringrift.against_plain import batched, compiled, on_cells, owners
from envs.ringrift.plain import game as plain_game
from envs.ringrift.plain.actions import Swap
from envs.ringrift.plain.position import Phase
from envs.ringrift.rare_positions import random_action
from envs.ringrift.states_from_plain import from_plain
from support.marks import full

from stoix_like.envs.boards.registry import make_game
from stoix_like.envs.boards.ringrift import make_ringrift
from stoix_like.envs.ringrift.boards import make_board
from stoix_like.envs.ringrift.state import make_rules
from stoix_like.errors import ConfigError
from stoix_like.ops import trees
from stoix_like.ops.game_contract import check_game

NAMES = ("hex8", "square8:3")


@functools.cache
def game_of(name):
    return make_game(name)


@functools.cache
def functions(name):
    """(step, look) over states [N, ...], compiled; look is everything that the game says of a state."""
    game = game_of(name)

    def look(state):
        return {
            "observation": game.observe(state),
            "outcome": game.outcome(state),
            "is_over": game.is_over(state),
            "player": game.player(state),
            "cells": game.cells(state),
            "picture": game.picture(state),
        }

    return jax.jit(jax.vmap(game.step)), jax.jit(jax.vmap(look)), jax.jit(jax.vmap(game.random_action))


@functools.cache
def played(name, num_games=12, plies=70):
    """[(states, what is seen of them, the random actions taken)] of games from the start; games that are over stay."""
    game = game_of(name)
    step, look, pick = functions(name)
    states, found = batched([game.init()] * num_games), []
    numbers = np.random.default_rng(7).integers(0, 2**32, (plies, num_games), dtype=np.uint32)
    for number in numbers:
        seen, actions = jax.tree.map(np.asarray, look(states)), np.asarray(pick(states, number))
        found.append((jax.tree.map(np.asarray, states), seen, actions))
        after = step(states, actions)
        states = trees.where(seen["is_over"], states, after)
    return found


@pytest.mark.parametrize("name", ["hex8:4", *map(full, ("hex8:3", "square8:3", "square8:4"))])
def test_games_of_more_players_keep_the_contract(name):
    """tests/ops/test_game_contract.py has those of two."""
    check_game(make_game(name))


@pytest.mark.parametrize("name", ["hex8", "hex8:4", "square8", "square8:3", "square8_swap"])
def test_every_action_has_a_name_and_every_board_its_symmetries(name):
    game = make_game(name)
    assert len(set(game.layout.action_names)) == game.num_actions
    assert all(text == text.lower() for text in game.layout.action_names)
    board = make_rules(name.partition(":")[0].removesuffix("_swap"), game.num_players).board
    assert len(game.symmetries.cells) == {"square": 8, "hex": 12}[board.kind]


def test_a_board_of_another_name_is_refused():
    with pytest.raises(ConfigError, match="no board of RingRift is called 'hex9'"):
        make_board("hex9")


@pytest.mark.parametrize(("name", "bound"), [("hex8", 688), ("square8", 713), ("square8:3", 1134), ("square8:4", 1592)])
def test_the_bound_of_a_game_is_that_of_its_derivation(name, bound):
    assert make_game(name).max_plies == bound


@pytest.mark.parametrize("name", NAMES)
def test_random_actions_are_legal_and_reach_all_of_them(name):
    game, (states, seen, _) = game_of(name), played(name)[9]
    one = jax.tree.map(lambda leaf: leaf[0], states)
    numbers = jnp.arange(8_000, dtype=jnp.uint32) * jnp.uint32(2_654_435_769)
    drawn = np.asarray(jax.jit(jax.vmap(game.random_action, in_axes=(None, 0)))(one, numbers))
    counts = np.bincount(drawn, minlength=game.num_actions)
    legal = seen["observation"].action_mask[0]
    assert (counts[~legal] == 0).all()
    share = counts[legal] / counts.sum() * legal.sum()
    assert share.min() > 0.6
    assert share.max() < 1.4
    for _, seen, actions in played(name):
        running = ~seen["is_over"]
        assert seen["observation"].action_mask[np.arange(len(actions)), actions][running].all()


def board_and_players(name):
    board, _, players = name.partition(":")
    return board, int(players or 2)


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_tells_all_that_lies_on_the_board(name):
    found = compiled(*board_and_players(name))
    for states, seen, _ in played(name)[::8]:
        rings, markers, territory = seen["picture"]
        has = on_cells(found, states.rings)  # [N, H, P, C], from the top
        heights = has.any(axis=2).sum(axis=1)
        assert np.array_equal((rings >= 0).sum(axis=-1), heights)
        assert np.array_equal(seen["cells"], owners(has[:, 0]))
        for index, cell in np.argwhere(heights):
            stack = has[index, : heights[index, cell], :, cell].argmax(axis=-1)
            assert rings[index, cell][: len(stack)][::-1].tolist() == stack.tolist()
        for shown, words in ((markers, states.markers), (territory, states.collapsed)):
            has = on_cells(found, words)
            assert np.array_equal(shown, np.where(has.any(axis=1), has.argmax(axis=1), -1))


def assert_symmetry_holds(name, symmetry):
    """Games whose actions are mapped go as those that they were mapped from, up to a decision that no symmetry maps."""
    game = game_of(name)
    step, look, _ = functions(name)
    cells, actions = game.symmetries.cells[symmetry], game.symmetries.actions[symmetry]
    becomes, unmapped = np.argsort(actions), game.symmetries.unmapped
    plies = played(name)
    moved = batched([game.init()] * len(plies[0][2]))
    holds, compared = np.ones(len(plies[0][2]), bool), 0
    for _, seen, taken in plies:
        there = jax.tree.map(np.asarray, look(moved))
        holds &= ~seen["is_over"] & ~unmapped[taken]
        mask, shown = seen["observation"].action_mask, there["observation"]
        kept = holds & ~(mask & unmapped).any(axis=1)
        assert np.array_equal(shown.agent_view[kept], seen["observation"].agent_view[:, cells][kept])
        assert np.array_equal(shown.action_mask[kept], mask[:, actions][kept])
        assert np.array_equal(there["player"][holds], seen["player"][holds])
        assert np.array_equal(there["cells"][holds], seen["cells"][:, cells][holds])
        assert np.array_equal(there["outcome"][holds], seen["outcome"][holds])
        compared += kept.sum()
        moved = step(moved, becomes[taken])
    return compared


@pytest.mark.parametrize("name", NAMES)
def test_a_symmetry_keeps_legality_planes_and_outcome(name):
    assert assert_symmetry_holds(name, 1) > 300


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_every_symmetry_keeps_legality_planes_and_outcome(name):
    for symmetry in range(len(game_of(name).symmetries.cells)):
        assert assert_symmetry_holds(name, symmetry) > 300


@pytest.mark.parametrize("name", NAMES)
def test_symmetries_are_different_permutations_with_the_identity_first(name):
    cells, actions, unmapped = game_of(name).symmetries
    for table in (cells, actions):
        assert np.array_equal(np.sort(table, axis=1), np.broadcast_to(np.arange(table.shape[1]), table.shape))
        assert np.array_equal(table[0], np.arange(table.shape[1]))
        assert len(np.unique(table, axis=0)) == len(table)
    assert (actions[:, unmapped] == np.flatnonzero(unmapped)).all()


@pytest.mark.parametrize(("num_players", "has_swap"), [(1, False), (5, False), (3, True)])
def test_other_numbers_of_players_are_refused(num_players, has_swap):
    with pytest.raises(ConfigError, match=f"hex8: {num_players} players"):
        make_ringrift("hex8", num_players, has_swap)


def test_the_swap_exchanges_the_players_and_leaves_the_board():
    game = make_game("square8_swap")
    names = list(game.layout.action_names)
    swap, place = names.index("swap"), names.index("place 2 c3")
    step = jax.jit(game.step)
    state = step(game.init(), place)
    move = int(np.flatnonzero(np.asarray(game.legal_actions(state)))[0])
    state = step(state, move)
    assert (int(game.player(state)), bool(game.legal_actions(state)[swap])) == (1, True)
    swapped = step(state, swap)
    assert int(game.player(swapped)) == 0  # the colour that is to move is now the first player's
    assert not bool(game.legal_actions(swapped)[swap])
    before, after = np.asarray(game.cells(state)), np.asarray(game.cells(swapped))
    assert sorted(before[before >= 0].tolist()) == [0]
    assert np.array_equal(after, np.where(before == 0, 1, before))  # the first stack is now the second player's
    other = step(state, names.index("place 1 a1"))
    assert not bool(game.legal_actions(other)[swap])


def swapped_games(generator, num_games=8):
    """Plain positions before the end and at the end of random games; in every other one the players have swapped."""
    for index in range(num_games):
        position = plain_game.start("hex8", 2, swap=True)
        while position.phase is not Phase.OVER:
            offers = Swap() in plain_game.legal(position)
            action = random_action(position, generator)
            while offers and (action == Swap()) != (index % 2 == 0):
                action = random_action(position, generator)
            before, position = position, plain_game.play(position, action)
        yield from (before, position)


def test_after_a_swap_all_that_is_said_of_a_colour_is_of_the_other_player():
    game, positions = make_game("hex8_swap"), list(swapped_games(np.random.default_rng(0)))
    look = jax.jit(jax.vmap(lambda state: (game.player(state), game.outcome(state), game.cells(state))))
    states = batched([from_plain(compiled("hex8", 2, has_swap=True), position) for position in positions])
    for position, player, outcome, cells in zip(positions, *look(states), strict=True):
        players = np.array([1, 0] if position.has_swapped else [0, 1])  # by colour
        assert player == players[position.player - 1]
        assert outcome.tolist() == np.array(plain_game.outcomes(position))[players].tolist()
        tops = [position.stacks.get(cell, (0,))[-1] for cell in position.board.cells]
        assert cells.tolist() == [players[top - 1] if top else -1 for top in tops]
    assert [position.has_swapped for position in positions[::4]] == [True] * 4
    assert not any(position.has_swapped for position in positions[2::4])
