"""A game's pipeline in this process: its folder, its configuration, and its programs, each compiled once."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from stoix_like.algorithms import alphazero, tasks
from stoix_like.algorithms.alphazero import AlphaZeroSettings, Sample, example_sample, learning, whole_games
from stoix_like.algorithms.alphazero.whole_games import GameBatch
from stoix_like.config.checks.access import get_leaf, replace_leaves
from stoix_like.config.checks.board_games import game_key
from stoix_like.config.checks.engines import parse_engine
from stoix_like.config.checks.selfplay import NETWORK_ENGINE
from stoix_like.config.sections.runs import AlphaZeroConfig
from stoix_like.config.sections.selfplay import SelfPlayConfig
from stoix_like.errors import ConfigError
from stoix_like.evaluation.openings import OpeningBook
from stoix_like.games import BoardGame, Player
from stoix_like.runtime.arena.match import MatchPlayer
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.runtime.runs import build
from stoix_like.runtime.runs.saved import state_template
from stoix_like.runtime.stages.run import StageCall
from stoix_like.runtime.stages.table import StageFiles
from stoix_like.runtime.training.stopping import StopRequest
from stoix_like.runtime.weights import parameters
from stoix_like.search import players
from stoix_like.search.gumbel import GameModel
from stoix_like.selfplay.files.folders import Layout
from stoix_like.selfplay.files.stored import KnownShards
from stoix_like.selfplay.files.verify_games import make_replay
from stoix_like.selfplay.pipeline.game_bounds import check_bounds
from stoix_like.types import Array, Key, Metrics, NetworkParams, Params

HALVED_SLOTS = 256  # so many slots or more go on as half as many, once half have no game any more
LEAST_OPENINGS = 8  # of a match: fewer never decide anything


Stamp = tuple[str, int, int]  # file, size, time


class Memory:
    """What this process has read, and done, and need not do again."""

    def __init__(self) -> None:
        #: {stamp: its name in the store, or None if it was left out}, of files from elsewhere.
        self.seen: dict[Stamp, str | None] = {}
        self.known: KnownShards | None = None  # what earlier iterations have taken in
        self.set_aside: set[Path] = set()  # outputs that were damaged, each of which is made again once
        self.confirmed: set[str] = set()  # hashes of pieces of matches that came out again


class Pipeline:
    """What the stages of a game share. Nothing here is state of the pipeline, all of which is on disk.

    Args:
        config: of the pipeline.
        reporter: receives what is shown.
        stop: set by a signal; stages then end where they can go on.
    """

    def __init__(self, config: SelfPlayConfig, reporter: Reporter, stop: StopRequest | None = None) -> None:
        self.config, self.reporter, self.stop = config, reporter, stop or StopRequest()
        env = build.make_env(config.environment)
        self.game: BoardGame = env.game
        check_bounds(self.game, config)
        self.layout = Layout(Path(config.checkpointing.save_dir) / game_key(self.game.name, self.game.num_players))
        run = run_config(config, self.layout, 1)
        self.network = build.make_network(env, run)
        self.learner = alphazero.make(self.game, self.network, run)
        self.memory = Memory()

    def leaves(self, names: Sequence[str]) -> dict[str, Any]:
        """{leaf: value} of the configuration, for a manifest."""
        return {name: get_leaf(self.config, name) for name in names}

    def call(self, name: str, files: StageFiles, **more: str) -> StageCall:
        """What a stage is asked to do with this configuration, and with inputs that only it can name."""
        stage = files.stages[name]
        return stage.call(files, self.leaves(stage.settings), **more)

    @functools.cached_property
    def prepared(self) -> build.Prepared:
        """What the runs of the stage `train` share."""
        return build.Prepared()

    @functools.cached_property
    def settings(self) -> AlphaZeroSettings:
        """The fixed part of self-play and learning, with the searches of this configuration."""
        return alphazero.settings_of(self.config)

    @functools.cached_property
    def root(self) -> Key:
        """The root of all randomness."""
        return jax.random.key(self.config.architecture.seed)

    @functools.cached_property
    def first_params(self) -> NetworkParams:
        """The random parameters of iteration 0."""
        return jax.jit(lambda key: self.learner.init(key).params.average)(self.root)  # and no replay

    @functools.cached_property
    def state_template(self) -> Any:
        """Shapes and types of a learner's state."""
        return state_template(self.learner, 1)

    @property
    def params_template(self) -> Params:
        """Shapes and types of its parameters."""
        params: Params = self.state_template.params
        return params

    def read_params(self, path: Path) -> NetworkParams:
        """A candidate's parameters. Raises CheckpointError if the file is damaged or of another architecture."""
        return parameters.read_arrays(path, self.params_template.average)

    @functools.cached_property
    def planes_shape(self) -> tuple[int, ...]:
        """[C, F] of the planes of a position."""
        sample = example_sample(self.game)
        return tuple(sample.observation.agent_view.shape)

    @functools.cached_property
    def losses(self) -> Callable[[NetworkParams, Sample], Metrics]:
        """The losses of each of a batch of samples, [B]."""
        hyper = alphazero.make_hyper(self.config)

        def loss(params: NetworkParams, sample: Sample) -> Metrics:
            return learning.loss(params, self.network, hyper, jax.tree.map(lambda x: x[None], sample))[1]

        return jax.jit(jax.vmap(loss, in_axes=(None, 0)))

    @functools.cached_property
    def replay(self) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
        """Plays recorded moves again, see `rules.make_replay`."""
        return make_replay(self.game)

    @functools.cached_property
    def advance_games(self) -> Callable[[NetworkParams, Any, GameBatch, Key, Any], GameBatch]:
        """`whole_games.advance` with the parameters, and the boost of exploration, as arguments."""

        def advance(params: NetworkParams, boost: Array, batch: GameBatch, key: Key, steps: Any) -> GameBatch:
            if (name := self.config.selfplay.engine) == NETWORK_ENGINE:
                model = GameModel(self.game, self.network.actor_critic)
                search = alphazero.self_play_search(model, self._boosted(boost), params)
            else:
                search = whole_games.mcts_search(self.game, parse_engine(name).num_simulations)
            num_idle = batch.ply.shape[0] - fewer_slots(batch.ply.shape[0])
            temperature = self.config.alphazero.play_temperature * boost
            return whole_games.advance(self.game, search, self.settings, temperature, batch, key, steps, num_idle)

        return jax.jit(advance, donate_argnums=2)

    def _boosted(self, boost: Array) -> AlphaZeroSettings:
        """`settings` with that much more noise at the root of both searches."""
        scale, quick = self.config.alphazero.gumbel_scale * boost, self.settings.quick_search
        return self.settings._replace(
            search=self.settings.search._replace(gumbel_scale=scale),
            quick_search=None if quick is None else quick._replace(gumbel_scale=scale),
        )

    @functools.cached_property
    def begin_games(self) -> Callable[[int], Callable[[Key], GameBatch]]:
        """By number of games: `whole_games.begin` of so many. Says once why nothing is heard for a while."""
        self.reporter.progress("selfplay: compiling its programs")

        def begin(num_games: int) -> Callable[[Key], GameBatch]:
            slots = min(self.config.environment.num_envs, num_games)
            return jax.jit(functools.partial(whole_games.begin, self.game, self.settings, num_games, slots))

        return functools.cache(begin)

    @functools.cached_property
    def book(self) -> OpeningBook:
        """The openings of matches."""
        promotion = self.config.promotion
        return tasks.book(self.game, promotion.match_opening_plies, promotion.most_pairs)

    def check_book(self) -> None:
        """Raises ConfigError if the game has too few openings of so many plies for a match to decide anything."""
        book, name = self.book, self.game.name
        if len(book.moves) < min(LEAST_OPENINGS, self.config.promotion.most_pairs):
            what = f"promotion.match_opening_plies: {name} has {len(book.moves)} openings of {book.plies} plies"
            raise ConfigError(what, f"a match needs {LEAST_OPENINGS} or more: use other plies")

    @functools.cached_property
    def network_player(self) -> Player:
        """How candidates and champions play in matches: by search, without noise."""
        model = GameModel(self.game, self.network.actor_critic)
        number = self.config.promotion.match_simulations
        return players.gumbel_player(model, alphazero.match_search(self.config, number))

    @functools.cached_property
    def match_player(self) -> MatchPlayer:
        """Matches of two networks."""
        return MatchPlayer(self.game, self.network_player, self.network_player, self.book)

    @functools.cached_property
    def anchor_player(self) -> Callable[[str], MatchPlayer]:
        """By name of an engine: matches of a network against it."""

        def against(name: str) -> MatchPlayer:
            engine = players.engine_player(self.game, parse_engine(name))
            return MatchPlayer(self.game, self.network_player, engine, self.book)

        return functools.cache(against)


def fewer_slots(num_slots: int) -> int:
    """The slots in which the rest is played once no more of them have a game; few slots stay as many."""
    return num_slots - num_slots // 2 if num_slots >= HALVED_SLOTS else num_slots


#: Leaves that shape a State of AlphaZero, and of self-play alone: they may change while the run in train/ goes on.
ONLY_SELF_PLAY = ("num_simulations", "quick_simulations", "max_considered_actions")


def run_config(config: SelfPlayConfig, layout: Layout, num_updates: int) -> AlphaZeroConfig:
    """The configuration of the run that trains, in which the leaves of self-play alone have their defaults."""
    leaves = {leaf: get_leaf(AlphaZeroConfig(), leaf) for leaf in ONLY_SELF_PLAY}
    return replace_leaves(published_config(config, layout, num_updates), leaves)


def published_config(config: SelfPlayConfig, layout: Layout, num_updates: int) -> AlphaZeroConfig:
    """The configuration that candidates are published with, by whose search they play in contests."""
    sections = {field.name: getattr(config, field.name) for field in dataclasses.fields(AlphaZeroConfig)}
    leaves = {
        "self_play": False,
        "num_updates": num_updates,
        "total_timesteps": None,
        "num_eval_episodes": 0,
        "save_replay": False,
        "keep_last_n": None,
        "use_ocdbt": False,
        "save_dir": str(layout.root),
        "run_name": layout.train_run.name,
    }
    return replace_leaves(AlphaZeroConfig(**sections), leaves)
