"""Who plays in a contest: an engine, or a saved run by its search or its network alone."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stoix_like.config.checks.board_games import is_game, nearest_game, parse_game
from stoix_like.config.checks.engines import MOST_SIMULATIONS, parse_engine
from stoix_like.config.checks.values import nearest
from stoix_like.errors import CheckpointError, ConfigError, NoRunError
from stoix_like.runtime.console.messages import print_to_stderr
from stoix_like.runtime.console.spelling import command_line

if TYPE_CHECKING:
    from stoix_like.games import BoardGame, Player
    from stoix_like.runtime.runs.saved import SavedRun

_OF_RUN = re.compile(r"(?P<how>policy|gumbel-mcts(?:-(?P<simulations>\d+))?):(?P<run>.+)")
_ENGINE = re.compile(r"random|heuristic|mcts(-.*)?|policy|gumbel-mcts(-.*)?")
DEFAULT_SAVE_DIR = "runs"  # where `find_run` looks for names
FORMS = "random, heuristic, mcts-N, RUN, policy:RUN (its network alone) or gumbel-mcts-N:RUN (N simulations)"


class Contestant(NamedTuple):
    """A player with its parameters.

    Attributes:
        name: in tables.
        player: chooses the actions.
        params: of the player; None of an engine.
        run: folder or file of a run's parameters; None of an engine.
        update: of a run, when they were saved.
        seed: of a run, which of its seeds plays.
    """

    name: str
    player: Player
    params: Any
    run: str | None = None
    update: int | None = None
    seed: int | None = None

    @property
    def origin(self) -> dict[str, Any]:
        """{run, update, seed}, of what a match can be repeated with; empty of an engine."""
        return {} if self.run is None else {"run": self.run, "update": self.update, "seed": self.seed}


class ContestantSpec(NamedTuple):
    """A contestant as it is written.

    Attributes:
        text: as given.
        run: run folder, its name or exported parameters; None of an engine.
        num_simulations: of the search; 0 for the network alone, None for the run's own.
    """

    text: str
    run: str | None
    num_simulations: int | None = None


def parse_contestant(text: str) -> ContestantSpec:
    """What a contestant's text means. Nothing is loaded.

    Raises:
        ConfigError: an engine's name with a mistake, or one that needs a run.
    """
    if match := _OF_RUN.fullmatch(text):
        if match["how"] == "policy":
            return ContestantSpec(text, match["run"], 0)
        number = match["simulations"]
        if number is not None and not 1 <= int(number[:9]) <= MOST_SIMULATIONS:
            what = f"'{text}': a search has 1 to {MOST_SIMULATIONS:,} simulations"
            raise ConfigError(what, "policy:RUN plays without search")
        return ContestantSpec(text, match["run"], None if number is None else int(number))
    is_path = Path(text).exists() or Path(DEFAULT_SAVE_DIR, text).exists()
    if not is_path and (_ENGINE.fullmatch(text) or nearest(text, ["random", "heuristic", "mcts"])):
        parse_engine(text)
        return ContestantSpec(text, None)
    return ContestantSpec(text, text)


@contextlib.contextmanager
def naming_games() -> Iterator[None]:
    """Says of a run that is not there that no game has the name either, and what to write instead."""
    try:
        yield
    except NoRunError as error:
        raise _no_contestant(error) from error


def _no_contestant(error: NoRunError) -> CheckpointError:
    text, near = error.text, nearest_game(error.text)
    if is_game(text):
        parse_game(text)  # raises for one that cannot be played
        run = command_line("train-alphazero", "--task-id", text)
        engines = command_line("arena", "heuristic", "random", "--game", text)
        hint = f"train a run of it: {run}; engines play it without one: {engines}"
        return CheckpointError(f"{text} is a game, and no run has this name", hint)
    train = f"train a run: {command_line('train-alphazero', '--task-id', near or 'connect_four')}"
    if Path(text).name != text or text == "latest":
        return CheckpointError(f"no run at {text}{error.near}", error.runs or train)
    guess = error.near if near is None else f"; did you mean '{near}'?"
    play = f"a game alone is played against its heuristic: {command_line('play-board', near or 'connect_four')}"
    return CheckpointError(f"no run at {text}, and no game has this name{guess}", f"{play}; {error.runs or train}")


def common_game(runs: Sequence[str], checkpoint: str, given: str | None) -> BoardGame:
    """The game of a contest: that of its runs, or `given` by name. No run is built.

    Raises:
        ConfigError: runs of different games or of no board game, or engines alone and no game given.
        CheckpointError: no such run or checkpoint.
    """
    from stoix_like.envs.boards.registry import make_game
    from stoix_like.runtime.runs.saved import task_of

    games = {}
    for run in runs:
        with naming_games():
            task_id = task_of(run, checkpoint)
        if not is_game(task_id):
            raise ConfigError(f"{run} is a run of {task_id}, which is no board game", "name runs of board games")
        game = make_game(task_id)
        games[game.name] = game
    of_runs = set(games)
    if given is not None:
        game = make_game(given)
        games[game.name] = game
    if len(games) > 1:
        hint = f"leave out --game: a run plays {next(iter(of_runs))}" if len(of_runs) == 1 else "name runs of one game"
        raise ConfigError(f"the contestants play different games: {', '.join(sorted(games))}", hint)
    if not games:
        raise ConfigError("engines play any game, and none is given", "--game connect_four, or name a run")
    return next(iter(games.values()))


def load_contestant(spec: ContestantSpec, game: BoardGame, run: SavedRun | None) -> Contestant:
    """The contestant of a spec, whose run is loaded already. Of several seeds the first plays.

    Raises:
        ConfigError: simulations for a run whose network predicts no outcomes.
    """
    from stoix_like.search import players

    if run is None:
        return Contestant(spec.text, players.engine_player(game, parse_engine(spec.text)), None)
    params, player = run.network_params(run.seed_params(0)), run_player(run, spec.num_simulations)
    return Contestant(_name(spec, run), player, params, str(run.path), run.meta.update, run.seeds[0])


def seed_notes(runs: Sequence[SavedRun | None]) -> list[str]:
    """A note for each run that trained several seeds, of which the first one plays."""
    several = {run.path: run for run in runs if run is not None and run.num_seeds > 1}
    return [
        f"{path} trained {run.num_seeds} seeds; its first, seed {run.seeds[0]}, plays" for path, run in several.items()
    ]


def run_player(run: SavedRun, num_simulations: int | None) -> Player:
    """How a run plays: with its own search (None), with so many simulations, or by its network alone (0). It plays
    without noise. Its parameters are those of the network.

    Raises:
        ConfigError: simulations for a run whose network predicts no outcomes.
    """
    from stoix_like.search import players
    from stoix_like.search.gumbel import GameModel

    model = GameModel(run.env.game, run.network.actor_critic)
    searches = run.meta.algorithm == "alphazero"
    if num_simulations == 0 or (num_simulations is None and not searches):
        return players.policy_player(model, deterministic=True)
    if not searches:
        raise ConfigError(
            f"{run.path}: a run of {run.meta.algorithm} has no values of outcomes to search with",
            "play its network alone: policy:RUN",
        )
    from stoix_like.algorithms import alphazero

    return players.gumbel_player(model, alphazero.match_search(run.config, num_simulations))


def _name(spec: ContestantSpec, run: SavedRun) -> str:
    name = run.folder.name
    if run.folder.parent.parent.name == "iterations":  # a candidate of a self-play pipeline
        name = f"iteration {int(run.folder.parent.name)}"
    if spec.num_simulations == 0:
        return f"{name} network"
    simulations = spec.num_simulations
    if simulations is None and run.meta.algorithm == "alphazero":
        simulations = run.config.alphazero.num_simulations
    return name if simulations is None else f"{name} {simulations} sims"


def load_contestants(
    texts: list[str], game_name: str | None, checkpoint: str = "best"
) -> tuple[BoardGame, list[Contestant]]:
    """(the game, the contestants) of a contest. Imports JAX.

    Raises:
        ConfigError: as `parse_contestant`, `common_game` and `load_contestant`.
        CheckpointError: no such run or checkpoint.
    """
    specs = [parse_contestant(text) for text in texts]
    if game_name is not None:
        parse_game(game_name)  # raises with the nearest name, before anything is loaded
    game = common_game([spec.run for spec in specs if spec.run is not None], checkpoint, game_name)
    from stoix_like.runtime.runs.saved import load_run

    runs = [None if spec.run is None else load_run(spec.run, checkpoint) for spec in specs]
    contestants = [load_contestant(spec, game, run) for spec, run in zip(specs, runs, strict=True)]
    for note in seed_notes(runs):
        print_to_stderr(f"note: {note}")
    return game, contestants
