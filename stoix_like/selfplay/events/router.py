"""Delivery of events to handlers: at least once, in order, from where a consumer stopped. Imports no JAX.

A handler that raises is called again with the same event, three times in all; then the event is noted as undelivered,
and the consumer goes on. Handlers are called between stages and should do little: a pipeline never waits for what one
returns, and nothing that they do changes which stage is due.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from stoix_like.runtime.console.reporter import Reporter
from stoix_like.selfplay.events.kinds import EVENT_TYPES, PipelineEvent
from stoix_like.selfplay.events.log import EventLog, LoggedEvent, UnreadableEvent

MAX_ATTEMPTS = 3  # of a handler on one event

Handler = Callable[[PipelineEvent], object]


class Subscription(NamedTuple):
    """Who is called with which events.

    Attributes:
        name: of the consumer; its place in the log is kept under this name.
        handler: called with an event. It may be called twice with the same one.
        kinds: that it is called with; empty for all.
        from_start: whether a new consumer begins with the first event of the log; else with the next one.
    """

    name: str
    handler: Handler
    kinds: Collection[str] = ()
    from_start: bool = False


class EventRouter:
    """The consumers of a log."""

    def __init__(self, log: EventLog, reporter: Reporter, subscriptions: Sequence[Subscription] = ()) -> None:
        self._log, self._reporter = log, reporter
        self._attempts: dict[str, int] = {}  # of a consumer, on the event that it stands at
        self.subscriptions: list[Subscription] = []
        for subscription in subscriptions:
            self.subscribe(subscription)

    def subscribe(self, subscription: Subscription) -> None:
        """Adds a consumer. Raises ValueError if its name is taken, or a kind is unknown."""
        if subscription.name in [one.name for one in self.subscriptions]:
            raise ValueError(f"there is a consumer {subscription.name!r}")
        if unknown := [kind for kind in subscription.kinds if kind not in EVENT_TYPES]:
            raise ValueError(f"no events of kind {unknown[0]!r}; there are {', '.join(EVENT_TYPES)}")
        self.subscriptions.append(subscription)
        if self._log.position(subscription.name) is None:
            self._log.advance(subscription.name, 0 if subscription.from_start else self._log.end())

    def replay(self, name: str, after: int = 0) -> None:
        """Lets a consumer see the events behind a place of the log again."""
        self._log.advance(name, after)

    def dispatch(self, is_ending: Callable[[], bool] = lambda: False) -> None:
        """Calls every consumer with what it has not seen yet; with one event at most once `is_ending`."""
        for subscription in self.subscriptions:
            while events := self._read(subscription.name):
                if not all(self._deliver(subscription, logged) and not is_ending() for logged in events):
                    break  # the same event again at the next call, or the next one in another process

    def _read(self, name: str) -> list[LoggedEvent]:
        """What a consumer has not seen yet. An event that another version has written is said and passed over."""
        while True:
            try:
                return self._log.read(self._log.position(name) or 0)
            except UnreadableEvent as error:
                self._reporter.warning(f"{name}: {error.line}; it is passed over")
                self._log.bury(name, error.position, error.line, time.time())

    def _deliver(self, subscription: Subscription, logged: LoggedEvent) -> bool:
        """Whether the consumer is done with the event."""
        name = subscription.name
        try:
            if not subscription.kinds or logged.event.kind in subscription.kinds:
                subscription.handler(logged.event)
        except Exception as error:
            attempts = self._attempts[name] = self._attempts.get(name, 0) + 1
            self._reporter.warning(
                f"{name} failed on {logged.event.key}, {attempts} of {MAX_ATTEMPTS} times: {error!r}"
            )
            if attempts < MAX_ATTEMPTS:
                return False
            self._log.bury(name, logged.position, traceback.format_exc(limit=-3), time.time())
        else:
            self._log.advance(name, logged.position)
        self._attempts.pop(name, None)
        return True
