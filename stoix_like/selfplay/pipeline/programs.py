"""A game's pipeline in this process: its folder, its configuration, and its programs, each compiled once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from stoix_like.algorithms import alphazero
from stoix_like.algorithms.alphazero import AlphaZeroSettings, Sample, learning
from stoix_like.config.checks.access import get_leaf
from stoix_like.config.checks.board_games import game_key, parse_game
from stoix_like.config.sections.selfplay import SelfPlayConfig
from stoix_like.games import BoardGame
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.runtime.runs import build
from stoix_like.runtime.runs.saved import state_template
from stoix_like.runtime.stages.run import StageCall
from stoix_like.runtime.stages.table import StageFiles
from stoix_like.runtime.training.stopping import StopRequest
from stoix_like.runtime.weights import parameters
from stoix_like.selfplay.files.folders import Layout
from stoix_like.selfplay.files.stored import KnownShards
from stoix_like.selfplay.files.verify_games import Replay, make_play_moves
from stoix_like.selfplay.pipeline.game_bounds import check_bounds
from stoix_like.selfplay.pipeline.game_programs import GamePrograms
from stoix_like.selfplay.pipeline.match_programs import MatchPrograms
from stoix_like.selfplay.pipeline.run_configs import run_config
from stoix_like.types import Key, Metrics, NetworkParams, Params

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
        self.layout = Layout(Path(config.checkpointing.save_dir) / game_key(*parse_game(self.game.name)))
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
        return tuple(jax.eval_shape(lambda: self.game.observe(self.game.init())).agent_view.shape)

    @functools.cached_property
    def losses(self) -> Callable[[NetworkParams, Sample], Metrics]:
        """The losses of each of a batch of samples, [B]."""
        hyper = alphazero.make_hyper(self.config)

        def loss(params: NetworkParams, sample: Sample) -> Metrics:
            batch = learning.unpacked(self.game, jax.tree.map(lambda x: x[None], sample))
            return learning.loss(params, self.network, hyper, batch)[1]

        return jax.jit(jax.vmap(loss, in_axes=(None, 0)))

    @functools.cached_property
    def play_moves(self) -> Replay:
        """What the rules say of recorded moves and the positions between, see `verify_games.make_play_moves`."""
        return make_play_moves(self.game)

    @functools.cached_property
    def play_to_end(self) -> Replay:
        """What the rules say of recorded moves alone."""
        return make_play_moves(self.game, with_positions=False)

    @functools.cached_property
    def games(self) -> GamePrograms:
        """How shards of games are played."""
        return GamePrograms(self.game, self.network, self.config, self.settings, self.reporter)

    @functools.cached_property
    def matches(self) -> MatchPrograms:
        """How candidates play against each other and against engines."""
        return MatchPrograms(self.game, self.network, self.config)
