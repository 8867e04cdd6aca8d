"""Small continuous loops of tic-tac-toe, on a clock that tests move, with the programs of a pipeline that exists."""

import contextlib
import copy
import shutil

from support.pipelines import SMALL, moved

from stoix_like.config.checks.access import replace_leaves
from stoix_like.config.sections.continuous_loop import LoopConfig
from stoix_like.config.sections.master_loop import RetentionConfig, UnifiedLoopConfig
from stoix_like.runtime.console.reporter import SILENT
from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.selfplay.events.breaker import BreakerRule, Breakers
from stoix_like.selfplay.events.cadence import Cadence
from stoix_like.selfplay.events.clock import Clock
from stoix_like.selfplay.events.database import Database
from stoix_like.selfplay.events.history import WatchRule
from stoix_like.selfplay.events.log import EventLog
from stoix_like.selfplay.events.router import EventRouter
from stoix_like.selfplay.events.wiring import wire_pipeline_events
from stoix_like.selfplay.files.folders import Layout
from stoix_like.selfplay.loops.continuous import ContinuousPolicy
from stoix_like.selfplay.loops.engine import LoopEngine, LoopLimits, Task
from stoix_like.selfplay.loops.master import MasterPolicy
from stoix_like.selfplay.loops.runner import GameRunner
from stoix_like.selfplay.loops.services import LoopServices, Outcome, StageLimits
from stoix_like.selfplay.loops.stop import LoopStop

#: The flags of a small game for the commands of loops.
SMALL_WORDS = [
    word
    for name, value in SMALL.items()
    if name not in ("task_id", "selfplay_games")
    for word in (f"--{name.replace('_', '-')}", "null" if value is None else str(value))
]

#: What an iteration tells, in its order.
TOLD = (
    "selfplay/SELFPLAY_COMPLETE/1",
    "sync/DATA_SYNC_COMPLETED/1",
    "export/NPZ_EXPORT_COMPLETE/1",
    "train/TRAINING_STARTED/1",
    "train/TRAINING_COMPLETED/1",
    "evaluate/EVALUATION_COMPLETED/1",
    "promote/*/1",
    "promote/ITERATION_COMPLETE/1",
)


def told(number, layout):
    """The keys of what a finished iteration tells, as `SmallLoop.keys` has them."""
    decided = "MODEL_PROMOTED" if is_promoted(layout, number) else "PROMOTION_REJECTED"
    return [f"{number}/{key.replace('*', decided)}" for key in TOLD]


def is_promoted(layout, number):
    """Whether the candidate of an iteration became champion."""
    return read_manifest(layout.stage(number, "promote")).facts["promoted"]


class FakeClock:
    """A clock that only sleeping moves; `then` is called after each sleep."""

    def __init__(self, then=lambda clock: None):
        self.at, self.slept, self._then = 1_000_000.0, [], then

    def sleep(self, seconds):
        self.at += seconds
        self.slept.append(seconds)
        self._then(self)

    @property
    def clock(self):
        return Clock(lambda: self.at, lambda: self.at, self.sleep)


def make_services(database, clock, say, **given):
    """The services of a loop over a database, with defaults; what is reported is said."""
    reporter, log, wiring = SILENT._replace(info=say, note=say, warning=say), EventLog(database), wire_pipeline_events()
    services = LoopServices(
        log,
        EventRouter(log, reporter, given.get("wiring", wiring).subscriptions),
        Breakers(database, BreakerRule()),
        wiring,
        reporter,
        LoopStop(),
        clock,
        StageLimits(),
        WatchRule(),
        Cadence(database, clock),
        RetentionConfig(),
    )
    return services._replace(**given)


class SmallLoop:
    """A loop over one small game, its parts, and what it said."""

    def __init__(self, pipeline, save_dir, *, clock=None, wiring=None, limits=None, watch=None, **fields):
        self.said, self.fake = [], clock or FakeClock()
        self.database = Database(save_dir)
        self.log, self.stop = EventLog(self.database), LoopStop()
        self.wiring = wiring or wire_pipeline_events()
        say = self.said.append
        reporter = SILENT._replace(info=say, note=say, warning=say)
        self.config = LoopConfig(configs=[("tic_tac_toe", 2)], **{"iteration_cooldown_seconds": 5.0} | fields)
        rule = BreakerRule(self.config.max_consecutive_failures, self.config.failure_backoff_seconds)
        self.breakers = Breakers(self.database, rule)
        services = make_services(
            self.database,
            self.fake.clock,
            say,
            breakers=self.breakers,
            wiring=self.wiring,
            stop=self.stop,
            limits=limits or StageLimits(),
            watch=watch or WatchRule(),
        )
        pipeline = moved(pipeline, save_dir)
        pipeline.stop, pipeline.reporter = self.stop, reporter
        self.layout = pipeline.layout
        self.runner = GameRunner(pipeline.config, pipeline.layout, services)
        self.runner.pipeline = pipeline  # its programs are compiled
        self.services = services
        self.loop = self.continuous([self.runner])

    def continuous(self, runners):
        """A continuous loop of some games."""
        limits = LoopLimits(self.config.max_iterations, self.config.max_consecutive_failures)
        policy = ContinuousPolicy(self.config, self.layout.root.parent, runners, self.services)
        return LoopEngine(policy, runners, self.services, limits)

    def master(self, runners=None, **leaves):
        """A master loop of some games, or of the same one."""
        config = replace_leaves(UnifiedLoopConfig(), {"games": "tic_tac_toe:2", "max_iterations": 2} | leaves)
        runners = runners or [self.runner]
        limits = LoopLimits(config.loop.max_iterations, config.health.max_consecutive_failures)
        services = self.services._replace(retention=config.retention)
        return LoopEngine(MasterPolicy(config, runners, services), runners, services, limits)

    def engine(self, kind, runners=None, **leaves):
        """A continuous or a master loop of the same parts."""
        return self.master(runners, **leaves) if kind == "master" else self.continuous(runners or [self.runner])

    def run(self):
        self.loop.run()
        return self.loop.stats

    def begin(self):
        """What comes of taking up the iteration that is due."""
        return self.runner.take_up(self.runner.due())

    def step(self):
        """What comes of the stage that is due, in an iteration that is taken up."""
        return self.runner.run(self.runner.due())

    def stop_after(self, seconds):
        """Stops the loop when it has waited so long."""
        self.fake._then = lambda clock: setattr(self.stop, "is_set", clock.at > 1_000_000.0 + seconds)

    def second_game(self):
        """The runner of another game: a copy of the first, with the same programs."""
        pipeline = copy.copy(self.runner.pipeline)
        pipeline.layout = Layout(self.layout.root.parent / "another_2p")
        shutil.copytree(self.layout.root, pipeline.layout.root)
        runner = GameRunner(self.runner.configured, pipeline.layout, self.services)
        runner.pipeline = pipeline
        return runner

    @property
    def keys(self):
        """The keys of all events, in their order."""
        return [logged.event.key.removeprefix("tic_tac_toe_2p/") for logged in self.log.read()]

    def close(self):
        self.database.close()


def tasks_of(engine, state):
    """Runs those tasks of a policy's next round that are called so, while all others wait; what came of each."""
    plan, outcomes = engine.policy.plan(lambda runner: runner.due(), engine.stats), []
    what = next(plan, None)
    while isinstance(what, Task):
        outcome = what.work() if what.state == state else Outcome("waits", what.state)
        outcomes += [outcome] * (what.state == state)
        try:
            what = plan.send(outcome)
        except StopIteration:
            break
    return outcomes


@contextlib.contextmanager
def small_loop(pipeline, save_dir, config=None, **arguments):
    """A `SmallLoop` for a block, of another configuration if it is given; the pipeline is as before afterwards."""
    before = pipeline.layout, pipeline.config, pipeline.stop, pipeline.reporter
    pipeline.config = config or pipeline.config
    loop = SmallLoop(pipeline, save_dir, **arguments)
    try:
        yield loop
    finally:
        loop.close()
        pipeline.layout, pipeline.config, pipeline.stop, pipeline.reporter = before
