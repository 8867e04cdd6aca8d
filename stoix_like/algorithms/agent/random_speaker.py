"""A speaker that knows the format and nothing else: random actions, in answers that are well-formed.

In the mode "worldmodel" it writes states that have nothing to do with the one it sees. A model that has learned to
write like it, and no more, is where every comparison begins.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from stoix_like.algorithms.agent.slots import Slots
from stoix_like.algorithms.agent.speaking import Answer, Speaker, UserTurn
from stoix_like.language import rendering
from stoix_like.language.dialogue import Dialogue, Lexicon
from stoix_like.ops import trees
from stoix_like.types import Array, EnvState, Key

MOST_STEPS = 8  # of the random play after which a state is written


def random_speaker(dialogue: Dialogue, lexicon: Lexicon, slots: Slots, actions_per_turn: int) -> Speaker:
    """A speaker that writes 1 to K actions, each number as often, all actions equally often. It has no memory."""
    env = dialogue.world.env

    def draw(key: Key) -> tuple[Array, EnvState, EnvState]:
        count_key, action_key, one_key, other_key = jax.random.split(key, 4)
        count = jax.random.randint(count_key, (), 1, actions_per_turn + 1)
        actions = jax.random.randint(action_key, (actions_per_turn,), 0, env.action_spec.num_values)
        actions = jnp.where(jnp.arange(actions_per_turn) < count, actions, -1)
        return actions, *(random_state(dialogue, key) for key in (one_key, other_key))

    def answer(_memory: None, user_turn: UserTurn, keys: Key) -> tuple[Answer, None]:
        actions, one, other = jax.vmap(draw)(keys)
        spans = None
        if dialogue.mode == "worldmodel":
            spans = (dialogue.write_told(one), dialogue.write_told(other))
        pieces = dialogue.write_answer(actions, spans)
        tokens, is_valid = rendering.pack(lexicon.table, pieces, slots.answer, at_end=False)
        was_cut = rendering.num_written(lexicon.table, pieces) > slots.answer
        is_valid &= user_turn.is_active[:, None]
        nothing = jnp.zeros(tokens.shape)
        return Answer(tokens, is_valid, nothing, nothing, was_cut), None

    return Speaker(lambda _: None, answer)


def random_state(dialogue: Dialogue, key: Key) -> EnvState:
    """A state of random play on a level of training."""
    env = dialogue.world.env
    reset_key, length_key, play_key = jax.random.split(key, 3)
    state, timestep = env.reset(reset_key)
    length = jax.random.randint(length_key, (), 0, MOST_STEPS + 1)

    def step(index: Array, carry: tuple[EnvState, Array]) -> tuple[EnvState, Array]:
        state, is_over = carry
        action = jax.random.randint(jax.random.fold_in(play_key, index), (), 0, env.action_spec.num_values)
        after, timestep = env.step(state, action)
        goes_on = ~is_over & (index < length)
        return trees.where(goes_on, after, state), is_over | (goes_on & timestep.last())

    return jax.lax.fori_loop(0, MOST_STEPS, step, (state, timestep.last()))[0]
