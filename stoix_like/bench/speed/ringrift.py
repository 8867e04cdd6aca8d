"""RingRift: where the time of a step goes, random games beside the plain rules in Python, searches without a network.

The plain rules are those of the tests: they are measured in a clone alone, each time in a new process.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.bench.speed.region_labels import region_labels
from stoix_like.bench.timing.measure import Measurement, Timing, comparison_row, time_interleaved
from stoix_like.envs.boards.registry import make_game
from stoix_like.envs.ringrift import rules as play
from stoix_like.envs.ringrift.actions import make_actions
from stoix_like.envs.ringrift.mobility import mobility
from stoix_like.envs.ringrift.state import RingRiftState, Rules, make_rules, position_of, sets_of, take
from stoix_like.envs.ringrift.territory import Claimant, claimable
from stoix_like.games import BoardGame
from stoix_like.ops import trees
from stoix_like.runtime.console.installation import ROOT
from stoix_like.search import gumbel
from stoix_like.search.mcts import random_actions
from stoix_like.types import Array, Observation, Params

GAMES = ("square8", "hex8", "square8:3", "hex8:4")
NUM_GAMES, NUM_PLIES = 1024, 100
PLAIN_GAMES = 60  # of one call
SIMULATIONS, SEARCHED = 32, 128
LABELS, OTHELLO_EDGES = "labels", 40
_PLAIN = """
import random, sys
from envs.ringrift.plain import game
from envs.ringrift.plain.position import Phase
generator, decisions = random.Random(0), 0
for _ in range({num_games}):
    position = game.start("{board}", {players})
    while position.phase is not Phase.OVER:
        position, decisions = game.play(position, generator.choice(game.legal(position))), decisions + 1
print(decisions)
"""


def ringrift_suite() -> Iterator[Measurement]:
    """Parts of a step, whole random games, and searches, for each board and number of players."""
    for name in GAMES:
        states = _mid_game(make_game(name))
        yield from part_rows(name, states)
        yield games_row(name)
        yield search_row(name, make_game(name), states)
    yield othello_row()


def part_rows(name: str, states: RingRiftState) -> Iterator[Measurement]:
    """Boards a second of the parts: regions alone, moves of all players, what is legal, one random action, a step."""
    rules = _rules(name)
    actions = make_actions(rules)
    numbers = jnp.arange(NUM_GAMES, dtype=jnp.uint32) * jnp.uint32(0x9E3779B9)
    pick = functools.partial(play.random_action, rules, actions)
    chosen = jax.jit(jax.vmap(pick))(states, numbers)
    parts: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "regions": (functools.partial(_regions, rules), (states,)),
        LABELS: (lambda state: region_labels(rules, position_of(state)), (states,)),
        "mobility": (functools.partial(_mobility, rules), (states,)),
        "legal_actions": (functools.partial(play.legal_actions, rules, actions), (states,)),
        "random_action": (pick, (states, numbers)),
        "step": (functools.partial(play.step, rules, actions), (states, chosen)),
    }
    programs = {part: functools.partial(jax.jit(jax.vmap(run)), *given) for part, (run, given) in parts.items()}
    timings = time_interleaved(programs, repetitions=15)
    labels = timings.pop(LABELS)
    for part, timing in timings.items():
        row = f"ringrift/{part}/{name}/{NUM_GAMES}"
        if part == "regions":
            note = "reference: labels of connected cells of each colour, and no claims"
            yield comparison_row(row, {"ours": timing, "theirs": labels}, NUM_GAMES, "boards/s", note)
        else:
            yield Measurement(row, NUM_GAMES / timing.seconds, "boards/s", timing.spread)


def _rules(name: str) -> Rules:
    board, _, players = name.partition(":")
    return make_rules(board, int(players or 2))


def _regions(rules: Rules, state: RingRiftState) -> Any:
    """What the mover and the player after it could claim."""
    position = position_of(state)
    sets = sets_of(rules, position)
    movers = (state.player, (state.player + 1) % rules.num_players)
    return claimable(rules, position, sets, [Claimant(player, take(sets.control, player)) for player in movers])


def _mobility(rules: Rules, state: RingRiftState) -> Any:
    position = position_of(state)
    return mobility(rules, position, sets_of(rules, position))


def _mid_game(game: BoardGame) -> Any:
    """[1024, ...] positions of random games, ended ones begun again."""
    program, states = random_games(game)
    return jax.jit(program)(states, jnp.uint32(0))[0]


def random_games(game: BoardGame) -> tuple[Callable[[Any, Array], tuple[Any, Array]], Any]:
    """((states, seed) -> (states after 100 plies, how many games ended), the first states)."""
    first = game.init()
    begin = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (NUM_GAMES, *jnp.shape(leaf))), first)

    def ply(states: Any, seed: Array) -> tuple[Any, Array]:
        seeds = (seed + jnp.arange(NUM_GAMES, dtype=jnp.uint32)) * jnp.uint32(0x9E3779B9)
        states = jax.vmap(game.step)(states, random_actions(game, seeds, states))
        is_over = jax.vmap(game.is_over)(states)
        return trees.where(is_over, begin, states), jnp.sum(is_over)

    def run(states: Any, seed: Array) -> tuple[Any, Array]:
        seeds = seed + jnp.arange(NUM_PLIES, dtype=jnp.uint32) * jnp.uint32(NUM_GAMES)
        states, ended = jax.lax.scan(ply, states, seeds)
        return states, jnp.sum(ended)

    return run, begin


def games_row(name: str) -> Measurement:
    """Decisions a second of random games, 1,024 side by side, beside the plain rules on one core."""
    ours = _GoingOn(make_game(name))
    functions: dict[str, Callable[[], Any]] = {"ours": ours}
    row, amount = f"ringrift/games/{name}/{NUM_GAMES}", NUM_GAMES * NUM_PLIES
    plain = _Plain(name)
    if plain.is_there:
        functions["theirs"] = plain
    timings = time_interleaved(functions, repetitions=7)
    rate = amount / timings["ours"].seconds
    games = np.mean(ours.ended[1:]) / timings["ours"].seconds
    note = f"{games:,.0f} games/s"
    if not plain.is_there:
        return Measurement(
            row, rate, "decisions/s", timings["ours"].spread, note=f"{note}; the tests are not installed"
        )
    theirs = Timing(timings["theirs"].seconds * amount / plain.decisions, timings["theirs"].spread)
    note += f"; reference: the plain rules in Python, {PLAIN_GAMES / timings['theirs'].seconds:,.0f} games/s, one core"
    return comparison_row(row, {"ours": timings["ours"], "theirs": theirs}, amount, "decisions/s", note)


class _GoingOn:
    """Random games that go on from where the last call stopped; notes how many ended in each call."""

    def __init__(self, game: BoardGame) -> None:
        program, self._states = random_games(game)
        self._program = jax.jit(program)
        self.ended: list[int] = []

    def __call__(self) -> None:
        self._states, ended = self._program(self._states, jnp.uint32(len(self.ended) * NUM_PLIES * NUM_GAMES))
        self.ended.append(int(ended))


class _Plain:
    """Random games by the plain rules of the tests, in a new process."""

    def __init__(self, name: str) -> None:
        board, _, players = name.partition(":")
        self._code = _PLAIN.format(num_games=PLAIN_GAMES, board=board, players=players or 2)
        self.is_there = (ROOT / "tests" / "envs" / "ringrift").is_dir()
        self.decisions = 0

    def __call__(self) -> None:
        done = subprocess.run(
            [sys.executable, "-c", self._code], check=True, capture_output=True, text=True, cwd=ROOT / "tests"
        )
        self.decisions = int(done.stdout)


def search_row(name: str, game: BoardGame, states: Any) -> Measurement:
    """Simulations a second of a Gumbel search whose network knows nothing: equal logits, values of 0. Beside it the
    same search with an edge for every action, legal or not."""
    roots = jax.tree.map(lambda leaf: leaf[:SEARCHED], states)
    games = {"ours": game, "theirs": game._replace(max_legal=None)}
    timings = time_interleaved({which: _search(one, roots) for which, one in games.items()}, repetitions=7)
    amount = SEARCHED * SIMULATIONS
    note = f"{SEARCHED / timings['ours'].seconds:,.0f} decisions/s; a network of equal logits and values of 0;"
    note += f" {game.max_legal} edges a node, reference: {game.num_actions:,}"
    return comparison_row(f"ringrift/search/{name}/{SEARCHED}x{SIMULATIONS}", timings, amount, "simulations/s", note)


def _search(game: BoardGame, roots: Any) -> Callable[[], Any]:
    def nothing(_: Params, observation: Observation) -> tuple[Array, Array]:
        batch, num_actions = observation.action_mask.shape
        return jnp.zeros((batch, num_actions)), jnp.zeros((batch, game.num_players))

    config = gumbel.GumbelConfig(num_simulations=SIMULATIONS)
    search = jax.jit(functools.partial(gumbel.search, gumbel.GameModel(game, nothing), config=config))
    return lambda: search(None, jax.random.key(0), roots)


def othello_row() -> Measurement:
    """The same of othello, whose positions have 65 actions and 40 legal ones at most here: what a list of edges costs
    where it saves little."""
    game = make_game("othello")._replace(max_legal=OTHELLO_EDGES)
    return search_row("othello", game, _mid_game(make_game("othello")))
