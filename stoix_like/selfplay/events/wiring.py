"""Which stages follow by themselves, and who receives events: what loops are given. Imports no JAX."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from stoix_like.config.checks.values import nearest
from stoix_like.errors import ConfigError
from stoix_like.selfplay.events.kinds import EVENT_TYPES
from stoix_like.selfplay.events.router import Handler, Subscription

#: {stage: its switch}. Self-play is begun by a loop, and by no event.
SWITCHES = {
    "sync": "sync",
    "export": "export",
    "train": "training",
    "evaluate": "evaluation",
    "promote": "promotion",
}


class Triggers(NamedTuple):
    """Which stages are run when the one before is done."""

    sync: bool = True
    export: bool = True
    training: bool = True
    evaluation: bool = True
    promotion: bool = True

    def allows(self, stage: str) -> bool:
        """Whether a stage follows by itself."""
        return stage not in SWITCHES or bool(getattr(self, SWITCHES[stage]))


class PipelineWiring:
    """What `wire_pipeline_events` returns: switches of stages, and subscriptions of handlers."""

    def __init__(self, triggers: Triggers) -> None:
        self.triggers, self.subscriptions = triggers, list[Subscription]()

    def subscribe(self, name: str, handler: Handler, kinds: Collection[str] = (), *, from_start: bool = False) -> None:
        """Calls `handler(event)` with every event of these kinds, or of all: at least once, and after a restart too.

        Args:
            name: under which the place of the consumer in the log is kept.
            handler: should return soon; what it raises is reported, and never ends a loop.
            kinds: such as MODEL_PROMOTED; empty for all.
            from_start: whether a consumer that is new begins with the first event of the log.

        Raises:
            ConfigError: a kind that does not exist.
        """
        if unknown := [kind for kind in kinds if kind not in EVENT_TYPES]:
            what = f"subscribe: no event '{unknown[0]}'{nearest(unknown[0], EVENT_TYPES)}"
            raise ConfigError(what, f"events are {', '.join(EVENT_TYPES)}")
        self.subscriptions.append(Subscription(name, handler, kinds, from_start))


def wire_pipeline_events(
    auto_trigger: bool = True,
    *,
    sync: bool = True,
    export: bool = True,
    training: bool = True,
    evaluation: bool = True,
    promotion: bool = True,
) -> PipelineWiring:
    """The wiring of a loop: when self-play is complete, sync, export, training, evaluation and promotion follow.

    Args:
        auto_trigger: False switches all of them off.
        sync: whether this stage follows by itself; `run_training_loop.py` runs one that does not.
        export: likewise.
        training: likewise.
        evaluation: likewise.
        promotion: likewise.
    """
    switches = (auto_trigger and switch for switch in (sync, export, training, evaluation, promotion))
    return PipelineWiring(Triggers(*switches))
