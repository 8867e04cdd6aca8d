"""One recorded episode, state by state, to be drawn."""

from __future__ import annotations

from typing import Any, NamedTuple

from stoix_like.types import Environment, EnvState, Key, MemoryPolicy, Params, Policy

MOST_STEPS = 500


class Episode(NamedTuple):
    """A recorded episode."""

    states: list[EnvState]  # including the final one
    actions: list[Any]  # between them
    episode_return: float
    is_whole: bool  # False if it was cut at the step limit


def record_episode(
    env: Environment,
    policy: Policy | MemoryPolicy,
    params: Params,
    key: Key,
    *,
    deterministic: bool,
    most_steps: int = MOST_STEPS,
) -> Episode:
    """One episode, or its first `most_steps` steps. The key is consumed."""
    import jax

    from stoix_like.evaluation.episodes import remembering

    player = remembering(policy)

    def act_and_step(state: EnvState, timestep: Any, memory: Any, step_key: Key) -> tuple[EnvState, Any, Any, Any]:
        batched_state, batched = jax.tree.map(lambda x: x[None], (state, timestep))
        action, memory = player.act(params, memory, batched_state, batched.observation, step_key, deterministic)
        return *env.step(state, action[0]), memory, action[0]

    step = jax.jit(act_and_step)
    level_key, play_key = jax.random.split(key)
    state, timestep = jax.jit(env.evaluation_reset)(level_key)
    memory = player.init(1)
    states, actions, total = [state], [], 0.0
    for index in range(most_steps):
        state, timestep, memory, action = step(state, timestep, memory, jax.random.fold_in(play_key, index))
        states.append(state)
        actions.append(action)
        total += float(timestep.reward)
        if bool(timestep.last()):
            return Episode(states, actions, total, True)
    return Episode(states, actions, total, False)


def board_states(env: Environment, episode: Episode) -> list[Any]:
    """The positions of an episode of a board game: after each of the player's moves, and after the answers to it.

    A move is not answered if it ends the game, or if the same player moves again.
    """
    import jax

    step, positions = jax.jit(env.game.step), [episode.states[0].game]
    for state, action, after in zip(episode.states, episode.actions, episode.states[1:], strict=False):
        moved = step(state.game, action)
        is_answered = not bool(env.game.is_over(moved)) and int(env.game.player(moved)) != int(state.seat)
        positions += [moved, after.game] if is_answered else [moved]
    return positions
