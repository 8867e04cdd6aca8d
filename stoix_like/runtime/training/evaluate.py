"""The callbacks that evaluate the policy during training, and that show what a language agent writes."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Protocol

import jax

from stoix_like.errors import StoixError, StorageError
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.runtime.evaluators.episode_player import PlayProgress, play_to_end
from stoix_like.runtime.evaluators.items import ItemEvaluator
from stoix_like.runtime.evaluators.scores import Evaluator, Scores
from stoix_like.runtime.evaluators.text_episodes import TextPlayer
from stoix_like.runtime.evaluators.timing import time_share_note
from stoix_like.runtime.hardware.devices import reraise_device_errors
from stoix_like.runtime.hardware.process_group import Decision, addressable_copy
from stoix_like.runtime.reports.text_page import lines, text_page
from stoix_like.runtime.storage.atomic import atomic_write_text
from stoix_like.runtime.storage.os_errors import hint_of, words_of
from stoix_like.runtime.telemetry import Report
from stoix_like.runtime.training.callbacks import Callback, RunClock, SaveCheckpoint, StopTraining
from stoix_like.runtime.training.writer import RunWriter

SAMPLES_SEED = 0  # what differs between two files of sample episodes is the agent


class Meet(Protocol):
    """`ProcessGroup.sync`, with the errors of this process's writer and the run's stop request."""

    def __call__(self, length: int = 0, *, stop: bool = False, error: Exception | None = None) -> Decision: ...


class _Stopped(Exception):
    """The run stops before an evaluation is complete."""


class Evaluate(Callback):
    """Evaluates the policy, and updates the best parameters.

    The score of the first evaluator decides which parameters are best; others play the same levels in other modes. All
    processes play the same episodes, and meet before each piece. With interval 0, only the last state is evaluated; it
    is saved before, because its evaluation may take long and be killed. Without evaluators it only passes.
    """

    def __init__(
        self,
        evaluators: Sequence[Evaluator | ItemEvaluator],
        interval: int,
        seeds: Sequence[int],
        writer: RunWriter,
        meet: Meet,
        save: SaveCheckpoint,
        reporter: Reporter,
    ) -> None:
        self._evaluators, self._interval, self._seeds = evaluators, interval, seeds
        self._writer, self._meet, self._save, self._reporter = writer, meet, save, reporter
        self._is_timed = False

    def next_update(self, clock: RunClock) -> int:
        return super().next_update(clock) if clock.is_ending else clock.next_due(self._interval, clock.evaluated_at)

    def run(self, state: Any, clock: RunClock) -> Any:
        """Evaluates, unless the run shall stop: then it stays due, and the resumed run evaluates.

        Raises StopTraining with the error if memory runs out: the state is intact, so it is saved.
        """
        if clock.is_last:
            self._save.save(state, clock, at_once=True)
        if not self._evaluators:
            clock.evaluated_at = clock.update
            return state
        began = time.monotonic()
        try:
            with self._writer.tracing.span("evaluate", update=clock.update):
                scores, reports = self._play(state, clock)
        except _Stopped:
            return state
        except (StoixError, OSError) as error:
            raise StopTraining("failed", error) from error
        self._note_time_share(time.monotonic() - began, clock)
        self._writer.write(reports)
        self._writer.update_best(addressable_copy(state.params), scores.mean_return(), clock.update)
        clock.evaluated_at = clock.update
        return state

    def _play(self, state: Any, clock: RunClock) -> tuple[Scores, list[Report]]:
        """(scores of the first evaluator, reports of all)."""
        every: list[Scores] = []
        reports: list[Report] = []
        params, root = addressable_copy(state.params), addressable_copy(state.key)
        for evaluator in self._evaluators:
            playing = self._raising_together(evaluator.play(params, root, clock.update))
            every.append(play_to_end(playing, self._reporter.progress, self._agree))
            reports.append(every[-1].report(evaluator.mode, clock.now(), self._seeds))
            if warning := every[-1].cut_warning():
                self._reporter.warning(f"update {clock.update:,}: {warning}")
        self._meet()  # raises what has failed in another process after its last piece
        return every[0], reports

    def _note_time_share(self, seconds: float, clock: RunClock) -> None:
        """A note after the first evaluation that follows training, if more follow it."""
        if self._is_timed or clock.is_last or clock.training_seconds <= 0.0:
            return
        if note := time_share_note(seconds, clock.update - clock.started_at, clock.training_seconds):
            self._reporter.note(note)
        self._is_timed = True

    def _agree(self, steps: int) -> int:
        """How many steps are played next: process 0's number, so that all processes end the round together.

        If the run shall stop the evaluation is abandoned, unless the round is complete.
        """
        decision = self._meet(steps)
        if decision.stop and decision.length > 0:
            raise _Stopped
        return decision.length

    def _raising_together(self, playing: Generator[PlayProgress, int, Scores]) -> Generator[PlayProgress, int, Scores]:
        """The same pieces. An error of one of them is raised in all processes, which are at their next meeting."""
        try:
            return (yield from playing)
        except StoixError as error:
            self._meet(error=error)
            raise


class WriteSamples(Callback):
    """Writes `<update>.txt` and `<update>.html` into a folder after each evaluation, of the run's first seed.

    Args:
        play: plays the episodes.
        folder: made when it is needed.
        num_seeds: of the run.
    """

    def __init__(self, play: TextPlayer, folder: Path, num_seeds: int) -> None:
        self._play, self._folder, self._num_seeds = play, folder, num_seeds
        self._written_at = -1

    def next_update(self, clock: RunClock) -> int:
        is_new = clock.evaluated_at == clock.update != self._written_at
        return clock.update if is_new and clock.update > 0 else super().next_update(clock)

    def run(self, state: Any, clock: RunClock) -> Any:
        """Raises StopTraining with the error if a file cannot be written or memory runs out: the state is intact."""
        self._written_at = clock.update
        params = addressable_copy(state.params)
        if self._num_seeds > 1:
            params = jax.tree.map(lambda x: x[0], params)
        name = f"{clock.update:06d}"
        try:
            with reraise_device_errors("sample episodes cannot be played", "play none: --num-shown-episodes 0"):
                episodes = self._play(params, SAMPLES_SEED)
            self._folder.mkdir(exist_ok=True)
            title = f"{self._folder.parent.name} after update {clock.update:,}"
            atomic_write_text(self._folder / f"{name}.html", text_page(title, episodes))
            atomic_write_text(self._folder / f"{name}.txt", "\n".join([*lines(episodes), ""]))
        except StoixError as error:
            raise StopTraining("failed", error) from error
        except OSError as error:
            raise StopTraining("failed", _storage_error(self._folder, error)) from error
        return state


def _storage_error(folder: Path, error: OSError) -> StorageError:
    return StorageError(f"cannot write {folder}: {words_of(error)}", hint_of(error))
