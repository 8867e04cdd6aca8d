"""Plays an agent on held-out levels, and measures what it does and what it knows of its world."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.algorithms.agent.episodes import Episodes
from stoix_like.algorithms.agent.loop import rollout
from stoix_like.algorithms.agent.metrics import success
from stoix_like.algorithms.agent.scoring import SUCCESS
from stoix_like.algorithms.agent.setup import Agent
from stoix_like.algorithms.agent.speaking import model_speaker
from stoix_like.algorithms.text.generation import PlayedTurns, states_of_turns
from stoix_like.algorithms.text.reading import pack_rows, read_rows
from stoix_like.algorithms.text.world_model import sums_by_span
from stoix_like.algorithms.text.world_rows import supervised_rows
from stoix_like.envs.text import worlds
from stoix_like.evaluation import levels
from stoix_like.language import rendering
from stoix_like.language.dialogue import Lexicon
from stoix_like.language.spans import IN_OBSERVATION, IN_PREDICTION, spans_of
from stoix_like.runtime.datasets import row_files
from stoix_like.runtime.evaluators.scores import make_levels
from stoix_like.runtime.runs.agents import row_form
from stoix_like.spa.measures import OF_STATES, TurnMeasures, cells_of, measure_turns
from stoix_like.spa.next_states import NextStates
from stoix_like.spa.pipeline import StageAgent
from stoix_like.types import Array, EnvState, Key, NetworkParams

_LEVELS_AT_ONCE = 64
_ROWS_AT_ONCE = 64


class PointScores(NamedTuple):
    """Of a point of time."""

    arrays: dict[str, np.ndarray]  # success [E, samples], and what else is of each episode
    means: dict[str, float]  # of turns, or of tokens
    first: tuple[np.ndarray, np.ndarray]  # first turns of the first sample: tokens and is_valid [E, S + G]


class _Played(NamedTuple):
    episodes: Episodes
    last: tuple[Array, Array]  # tokens of the last states, and which are some
    success: Array  # [N]


def level_set_name(task_id: str, num_levels: int) -> str:
    """The frozen set of so many levels of a task."""
    return f"{levels.family_of(task_id)}-{num_levels}"


class Scorer:
    """Plays and reads for all points of time, with programs that are compiled once.

    Args:
        one: the agent.
        num_levels: E.
        num_samples: episodes on each.
        rows: the folder of the rows of the stage generate; None if it has none.
    """

    def __init__(self, one: StageAgent, num_levels: int, num_samples: int, rows: Path | None) -> None:
        self._one, self._num_samples, self._rows = one, num_samples, rows
        task_id = one.world.env.task_id
        self.levels = levels.level_set(level_set_name(task_id, num_levels), task_id)
        self._play = jax.jit(functools.partial(self._played, force=None))
        self._gap = jax.jit(self._sampling_gap)
        self._next_states: NextStates | None = None

    @property
    def keys(self) -> Key:
        """[E] of the levels."""
        return self.levels.keys

    def level_hash(self) -> str:
        """The fingerprint of the levels."""
        return str(make_levels(self._one.world.env, self.levels.name, 0).level_hash)

    def ceiling(self) -> float | None:
        """The mean success of the best player, who commits to all actions of a turn at once; None if unknown."""
        env = self._one.world.env
        return None if env.ceiling is None else float(levels.ceilings(env, self.keys).mean())

    def play(self, params: NetworkParams, is_stopped: Callable[[], bool]) -> PointScores | None:
        """Episodes on all levels, measured; None if it was stopped."""
        parts: list[tuple[np.ndarray, TurnMeasures, np.ndarray]] = []
        first = []
        for start in range(0, len(self.keys), _LEVELS_AT_ONCE):
            if is_stopped():
                return None
            played: _Played = jax.device_get(self._play(params, *self._slice(start)))
            gap = np.asarray(self._gap(params, played.episodes)).reshape(len(played.success), -1)
            parts.append((np.asarray(played.success), self._measured(played), gap))
            rows = slice(None, None, self._num_samples)
            first.append((played.episodes.tokens[rows, 0], played.episodes.is_valid[rows, 0]))
        count = len(self.keys)
        solved = np.concatenate([part[0] for part in parts]).reshape(-1, self._num_samples)[:count]
        episodes = count * self._num_samples  # the last slice was filled up
        columns = zip(*(part[1] for part in parts), strict=True)
        measures = TurnMeasures(*(np.concatenate(column)[:episodes] for column in columns))
        gaps = np.concatenate([part[2] for part in parts])[:episodes]
        left_out = () if self._one.config.agent.mode == "worldmodel" else OF_STATES  # a stray tag tells no state
        means = {name: _mean(x) for name, x in measures._asdict().items() if name not in left_out}
        means["valid_actions"] = _share(measures.num_named, measures.num_segments)
        means["effective_actions"] = _share(measures.num_effective, measures.num_actions)
        means["actions"] = float(np.nansum(measures.num_actions, axis=1).mean())
        means["turns"] = float(np.isfinite(measures.well_formed).sum(axis=1).mean())
        gaps = np.abs(gaps[np.isfinite(gaps)])
        means |= {"log_prob_gap": float(gaps.mean()), "log_prob_gap_max": float(gaps.max())}
        tokens, is_valid = (np.concatenate([part[n] for part in first])[:count] for n in (0, 1))
        return PointScores({"success": solved}, means, (tokens, is_valid))

    def forced(self, params: NetworkParams) -> np.ndarray | None:
        """[E, samples] success with every prediction forced to a state that has succeeded.

        None in the mode base, in an order in which the answer stands first, or in a world that offers no such state.
        """
        one, succeeded = self._one, worlds.succeeded_of(self._one.world.env)
        if succeeded is None or one.config.agent.mode == "base" or one.config.agent.order != "obs_pred_answer":
            return None
        play = jax.jit(functools.partial(self._played, force=succeeded))
        parts = [
            np.asarray(play(params, *self._slice(start)).success) for start in range(0, len(self.keys), _LEVELS_AT_ONCE)
        ]
        return np.concatenate(parts).reshape(-1, self._num_samples)[: len(self.keys)]

    def state_perplexities(self, params: NetworkParams) -> dict[str, float]:
        """{name: exp of the mean loss} of states in rows of validation, by token and by cell; empty without rows."""
        if self._rows is None:
            return {}
        one, form = self._one, row_form(self._one.world, self._one.tokenizer, self._one.config)
        if one.config.agent.mode != "worldmodel":
            return {}
        _, validation = row_files.read_folder(self._rows, form)
        rows = supervised_rows(one.agent.rules.slots, one.agent.lexicon.spans, validation.turns)
        is_cell = cells_of(one.tokenizer.token_bytes)
        prompt = jnp.asarray(one.agent.lexicon.prompt)
        read = jax.jit(functools.partial(sums_by_span, one.agent.model, prompt))
        losses = []
        for start in range(0, len(rows.written), _ROWS_AT_ONCE):
            chosen = np.arange(start, start + _ROWS_AT_ONCE) % len(rows.written)
            some = jax.tree.map(lambda x, chosen=chosen: np.asarray(x)[chosen], rows)
            losses.append(np.asarray(read(params, some.packed, some.written, some.span)[0]))
        summed = np.concatenate(losses)[: len(rows.written)].sum(axis=0)
        found: dict[str, float] = {}
        for name, span in (("observation", IN_OBSERVATION), ("prediction", IN_PREDICTION)):
            in_span = np.asarray(rows.span) == span
            counts = {"token": in_span.sum(), "cell": (in_span & is_cell[np.asarray(rows.written)]).sum()}
            of_span = {f"{name}_perplexity_per_{unit}": n for unit, n in counts.items() if n}
            found |= {key: float(np.exp(summed[span] / n)) for key, n in of_span.items()}
        return found

    def given_answer(self, params: NetworkParams, scores: PointScores) -> dict[str, float]:
        """What the model says of the state after its own answer, see `NextStates`; empty in the mode base."""
        if self._one.config.agent.mode != "worldmodel":
            return {}
        if self._next_states is None:
            self._next_states = NextStates(self._one, self.keys)
        return self._next_states.measure(params, *scores.first)

    def _slice(self, start: int) -> tuple[Key, Key]:
        """(keys of levels, keys of all else) of a slice; the last one is filled up with the first levels."""
        numbers = jnp.arange(start, start + min(_LEVELS_AT_ONCE, len(self.keys))) % len(self.keys)
        root = jax.random.key(self._one.config.architecture.seed)
        return self.keys[numbers], jax.vmap(lambda number: jax.random.fold_in(root, number))(numbers)

    def _played(
        self, params: NetworkParams, level_keys: Key, keys: Key, *, force: Callable[[Any], Any] | None
    ) -> _Played:
        agent = self._one.agent
        rules = agent.rules._replace(group_size=self._num_samples, shares_noise=False)
        lexicon = jax.tree.map(jnp.asarray, agent.lexicon)
        inputs = (agent.model, params, lexicon.prompt, lexicon.ends, rules.slots, agent.temperature)
        begins = None if force is None else functools.partial(_told, agent, lexicon, force)
        speaker = model_speaker(*inputs, begins)
        episodes, world = rollout(agent.dialogue, lexicon, rules, speaker, level_keys, keys, held_out=True)
        pieces = agent.dialogue.write_told(world.env_state)
        last = rendering.pack(lexicon.table, pieces, rules.slots.state, at_end=False)
        return _Played(episodes, last, success(agent.dialogue, world)[SUCCESS])

    def _measured(self, played: _Played) -> TurnMeasures:
        agent = self._one.agent
        last = [tokens[valid].tolist() for tokens, valid in zip(*played.last, strict=True)]
        turns: PlayedTurns = states_of_turns(agent.dialogue, agent.lexicon, played.episodes, last)
        chosen = played.episodes.chosen
        by_answer = (-1, chosen.shape[-1])
        spans = spans_of(agent.lexicon.spans, chosen.reshape(by_answer), played.episodes.is_chosen.reshape(by_answer))
        return measure_turns(turns, np.asarray(spans).reshape(chosen.shape), cells_of(self._one.tokenizer.token_bytes))

    def _sampling_gap(self, params: NetworkParams, episodes: Episodes) -> Array:
        """[...] log-probability of each chosen token as it is trained on, minus that when it was sampled; else NaN."""
        agent = self._one.agent
        packed = pack_rows(agent.rules.slots, episodes.tokens, episodes.is_valid)
        logits, _ = read_rows(agent.model, params, jnp.asarray(agent.lexicon.prompt), packed)
        chosen = episodes.chosen.reshape(*logits.shape[:-1], 1)
        again = jnp.take_along_axis(jax.nn.log_softmax(logits / agent.temperature, axis=-1), chosen, axis=-1)[..., 0]
        by_row = (x.reshape(again.shape) for x in (episodes.is_chosen, episodes.log_prob))
        is_chosen, sampled = by_row
        return jnp.where(is_chosen, again - sampled, jnp.nan)


def _told(
    agent: Agent, lexicon: Lexicon, succeeded: Callable[[EnvState], EnvState], env_state: EnvState
) -> tuple[Array, Array]:
    """(tokens [N, G], which are some) that answers begin with: the state, and that in which the task is done."""
    states = (agent.dialogue.write_told(state) for state in (env_state, jax.vmap(succeeded)(env_state)))
    pieces = agent.dialogue.write_beginning(*states)
    return rendering.pack(lexicon.table, pieces, agent.rules.slots.answer, at_end=False)


def _share(part: np.ndarray, whole: np.ndarray) -> float:
    """Of counts; NaN of nothing."""
    return float(np.nansum(part) / np.nansum(whole)) if np.nansum(whole) else float("nan")


def _mean(values: np.ndarray) -> float:
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")
