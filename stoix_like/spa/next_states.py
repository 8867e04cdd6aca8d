"""What a model takes the next state to be, once its answer is known.

Where the prediction stands before the answer, it is a guess of what will be answered. Given the answer, the model's
belief is p(s' | s, a), which is proportional to p(s' | s) p(a | s, s'): both are read for every state that can be
reached in a turn, and the most probable one is compared with the state that the answer leads to.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.algorithms.agent.loop import rollout
from stoix_like.algorithms.agent.speaking import Answer, Speaker, UserTurn
from stoix_like.algorithms.text.world_model import sums_by_span
from stoix_like.algorithms.text.world_rows import WrittenTurns, supervised_rows
from stoix_like.language import rendering
from stoix_like.language.replacement import replace_states
from stoix_like.language.spans import IN_OBSERVATION, IN_PREDICTION, spans_of
from stoix_like.ops import trees
from stoix_like.runtime.runs import agents
from stoix_like.runtime.runs.build import make_env
from stoix_like.spa.measures import told_state
from stoix_like.spa.pipeline import StageAgent
from stoix_like.types import Array, Environment, EnvState, Key, NetworkParams, TextWorld

_ROWS_AT_ONCE = 64
_MOST_ANSWERS = 2_000  # of a turn, of worlds whose states that can be reached are listed
_SURE = "intended_p"  # how often a move goes where it should; the states that can be reached do not depend on it


class NextStates:
    """The states that first turns can lead to on levels of evaluation, and what a model says of them.

    Args:
        one: the agent.
        keys: [E] of the levels.
    """

    def __init__(self, one: StageAgent, keys: Key) -> None:
        self._one, self._keys, self._world = one, keys, _sure_world(one)
        agent = one.agent
        is_known = self._world.env.action_spec.num_values**agent.rules.actions_per_turn <= _MOST_ANSWERS
        self._write = jax.jit(self._written)
        depth = agent.rules.actions_per_turn if is_known else 0
        reached = _reachable(self._world.env, keys, depth, self._texts)
        self._candidates: list[list[list[int]]] = [list(map(list, texts)) for texts in reached]
        self._read = jax.jit(functools.partial(sums_by_span, agent.model, jnp.asarray(agent.lexicon.prompt)))

    def measure(self, params: NetworkParams, tokens: np.ndarray, is_valid: np.ndarray) -> dict[str, float]:
        """Shares of first turns [E, S + G] whose answers tell both states.

        `answer_consistency`: the prediction is the state to which the answer leads, if no move slips.
        `next_state_given_answer`: so is the most probable of the states that can be reached; left out where a turn has
        too many answers for that, as in Sudoku. `next_state_by_chance`: so is one of them, drawn evenly.
        """
        slots, token_bytes = self._one.agent.rules.slots, self._one.tokenizer.token_bytes
        intended = self._intended(tokens, is_valid)
        answers = tokens[:, slots.state :], is_valid[:, slots.state :]
        spans = np.asarray(spans_of(self._one.agent.lexicon.spans, *map(jnp.asarray, answers)))
        rows, owner, consistent = [], list[tuple[int, int]](), []
        for level, candidates in enumerate(self._candidates):
            told = [told_state(spans[level], answers[0][level], span) for span in (IN_OBSERVATION, IN_PREDICTION)]
            answer = answers[0][level][answers[1][level]].tolist()
            if not (all(told) and all(replace_states(token_bytes, answer, *told).num_replaced)):
                continue
            consistent.append(told[1] == intended[level])
            for number, candidate in enumerate(candidates):
                written = replace_states(token_bytes, answer, told[0], candidate).tokens
                if len(written) <= slots.answer:
                    rows.append(_with_answer(tokens[level], is_valid[level], slots.state, written))
                    owner.append((level, number))
        if not consistent:
            return {}
        if not rows:
            return {"answer_consistency": float(np.mean(consistent))}
        loss = self._losses(params, rows)
        best = dict[int, tuple[float, int]]()
        for (level, number), value in zip(owner, loss, strict=True):
            best[level] = min(best.get(level, (np.inf, -1)), (float(value), number))
        right = [self._candidates[level][number] == intended[level] for level, (_, number) in best.items()]
        by_chance = [1.0 / len(self._candidates[level]) for level in best]
        return {
            "answer_consistency": float(np.mean(consistent)),
            "next_state_given_answer": float(np.mean(right)),
            "next_state_by_chance": float(np.mean(by_chance)),
        }

    def _losses(self, params: NetworkParams, rows: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """[R] minus the log-probability of each row's answer."""
        agent, found = self._one.agent, []
        turns = WrittenTurns(*(np.stack([row[n] for row in rows])[:, None] for n in (0, 1)))
        every = supervised_rows(agent.rules.slots, agent.lexicon.spans, turns)
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            chosen = np.arange(start, start + _ROWS_AT_ONCE) % len(rows)
            some = jax.tree.map(lambda x, chosen=chosen: np.asarray(x)[chosen], every)
            found.append(np.asarray(self._read(params, some.packed, some.written, some.span)[0]).sum(axis=1))
        return np.concatenate(found)[: len(rows)]

    def _intended(self, tokens: np.ndarray, is_valid: np.ndarray) -> list[list[int]]:
        """[E] the states that first turns lead to, if no move slips: their answers are played once more."""
        agent = self._one.agent
        slots = agent.rules.slots._replace(turns=1)
        rules = agent.rules._replace(slots=slots, group_size=1, num_shards=1)
        dialogue = agent.dialogue._replace(world=self._world)
        lexicon = jax.tree.map(jnp.asarray, agent.lexicon)

        @jax.jit
        def replay(written: Array, is_written: Array) -> tuple[Array, Array]:
            speaker = Speaker(lambda _: (written, is_written), _repeat)
            _, world = rollout(dialogue, lexicon, rules, speaker, self._keys, self._keys, held_out=True)
            return self._written(world.env_state)

        return _as_lists(*replay(*(jnp.asarray(x[:, slots.state :]) for x in (tokens, is_valid))))

    def _written(self, states: EnvState) -> tuple[Array, Array]:
        """(tokens [N, M], which are some) of states [N, ...]."""
        agent = self._one.agent
        pieces = agent.dialogue.write_told(states)
        return rendering.pack(agent.lexicon.table, pieces, agent.rules.slots.state, at_end=False)

    def _texts(self, states: Any) -> list[list[int]]:
        return _as_lists(*self._write(states))


def _sure_world(one: StageAgent) -> TextWorld:
    """The agent's world, in which no move slips."""
    environment = one.config.environment
    if _SURE in one.world.env.rules:
        environment = dataclasses.replace(environment, kwargs={**environment.kwargs, _SURE: 1.0})
    return agents.make_text_world(make_env(environment), one.config.agent)


def _repeat(memory: tuple[Array, Array], user_turn: UserTurn, _keys: Key) -> tuple[Answer, tuple[Array, Array]]:
    """A speaker's answer: what was said."""
    tokens, is_written = memory
    nothing = jnp.zeros(tokens.shape)
    is_written &= user_turn.is_active[:, None]
    return Answer(tokens, is_written, nothing, nothing, jnp.zeros(len(tokens), bool)), memory


def _reachable(env: Environment, keys: Key, num_actions: int, texts: Any) -> list[list[tuple[int, ...]]]:
    """[E] the texts of the states that 1 to `num_actions` actions lead to from levels of evaluation, in that order."""
    states, _ = jax.jit(jax.vmap(env.evaluation_reset))(keys)
    step = jax.jit(jax.vmap(jax.vmap(env.step, in_axes=(None, 0)), in_axes=(0, None)))
    actions = jnp.arange(env.action_spec.num_values)
    level, found = np.arange(len(keys)), [dict[tuple[int, ...], None]() for _ in range(len(keys))]
    for _ in range(num_actions):
        if len(level) == 0:
            break
        after, timestep = step(_padded(states, len(level)), actions)
        level = np.repeat(level, len(actions))
        after = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), after)  # of filled up rows, others at the end
        is_over, written = np.asarray(timestep.last()).ravel(), texts(after)
        kept = []
        for row, owner in enumerate(level):
            text = tuple(written[row])
            if text not in found[owner]:
                found[owner][text] = None
                if not is_over[row]:
                    kept.append(row)
        chosen = np.array(kept, int)
        level, states = level[chosen], trees.take(after, jnp.asarray(chosen))
    return [list(texts) for texts in found]


def _padded(states: EnvState, count: int) -> EnvState:
    """`count` states, filled up to a power of two, so that few shapes are compiled."""
    size = 1 << max(0, count - 1).bit_length()
    return trees.take(states, jnp.arange(size) % count)


def _with_answer(
    tokens: np.ndarray, is_valid: np.ndarray, num_state: int, answer: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """A turn [S + G] with another answer."""
    tokens, is_valid = tokens.copy(), is_valid.copy()
    tokens[num_state:], is_valid[num_state:] = 0, False
    tokens[num_state : num_state + len(answer)] = answer
    is_valid[num_state : num_state + len(answer)] = True
    return tokens, is_valid


def _as_lists(tokens: Array, is_valid: Array) -> list[list[int]]:
    rows = zip(np.asarray(tokens), np.asarray(is_valid), strict=True)
    return [row[valid].tolist() for row, valid in rows]
