"""The shared words: time steps, environments, networks, learners, metrics and the table of random-key roles.

Everything here is a NamedTuple of arrays (data) or of pure functions (behaviour). Nothing here computes.

Axis letters used in every shape comment of this project: T time, N environments, B batch, A actions, F factors of an
action, P particles, L tokens, E episodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax

Array = jax.Array
Key = jax.Array  # a typed key of jax.random.key, shape ()
Params = Any  # pytree of arrays
EnvState = Any  # pytree of arrays
Metrics = dict[str, jax.Array]  # flat, device scalars, reduced over updates by suffix (see `metric_reduction`)

FIRST, MID, LAST = 0, 1, 2  # values of TimeStep.step_type, as in dm_env and jumanji

#: One number per use of randomness: key = fold_in(fold_in(root, role), step). The root never changes, so evaluating
#: more or logging less cannot change training. 10_000, 999 and 0xA11CE are rust_rl's own offsets; bit parity with the
#: Rust program is not a goal.
KEY_ROLES = {
    "params": 1,
    "rollout": 2,
    "pool": 3,
    "search": 4,
    "replay": 5,
    "evaluation": 999,
    "reset": 10_000,
    "shuffle": 0xA11CE,
}


def role_key(root: Key, role: str, step: int | Array = 0) -> Key:
    """The key for one role at one step: `fold_in(fold_in(root, role), step)`. `step` counts updates."""
    return jax.random.fold_in(jax.random.fold_in(root, KEY_ROLES[role]), step)


class Observation(NamedTuple):
    """What every policy sees. The view is whatever pytree the environment shows; the mask is True where legal."""

    agent_view: Any  # pytree of arrays
    action_mask: Array  # [A] bool, or [F, A] for factored actions


class TimeStep(NamedTuple):
    """jumanji's five fields. `discount` is the single source of truth: 0 ends the return, LAST with 1 is a truncation.

    After an auto-reset a LAST step carries the terminal reward, but the observation of the *next* episode; the true
    final observation is `extras["next_obs"]`, present only when the environment can truncate.
    """

    step_type: Array  # [] int8: FIRST, MID or LAST
    reward: Array  # [] float32
    discount: Array  # [] float32 in [0, 1]
    observation: Observation
    extras: dict[str, Any]

    def last(self) -> Array:
        """True where the episode ends with this step. Same shape as `step_type`."""
        return self.step_type == LAST


class ActionSpec(NamedTuple):
    """A categorical over `num_values` (mask [A], action []), or `num_factors` of them (mask [F, A], action [F])."""

    num_values: int
    num_factors: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one action: () or (F,)."""
        return () if self.num_factors is None else (self.num_factors,)

    @property
    def mask_shape(self) -> tuple[int, ...]:
        """Shape of one action mask: (A,) or (F, A)."""
        return (*self.shape, self.num_values)


def _no_metrics(_state: EnvState, _timestep: TimeStep) -> dict[str, Array]:
    return {}


class Environment(NamedTuple):
    """An environment is two pure functions and what must be known of them. Two functions and a spec are enough.

    Attributes:
        reset: key -> (state, first TimeStep). Unbatched; callers vmap.
        step: (state, action) -> (state, TimeStep). Never resets.
        action_spec: the form of the action and of the mask.
        task_id: the name in logs and checkpoints.
        can_truncate: True if a LAST step may have discount > 0 (a time limit that is not the task's own).
        deterministic: True if `step` uses no randomness, so that search need not rekey its particles.
        episode_metrics: (state, timestep) of the *final* step -> named scalars, such as a solve rate.
        rekey: (state, key) -> state with its own randomness replaced; None if there is no such function. Without it
            only a deterministic environment can be searched, and levels of any other are never handed out twice.
        observation_adapter: the network that fits: "dense", "binpack" or "grid".
        time_limit: steps after which an episode surely ends, or None.
        animate: (list of states, path) -> None, writes a GIF; None if the environment cannot be drawn.
        joint_shape: where the task's own action is a product of several: the shape that our joint action is a row-major
            index into, such as (spaces, items) of BinPack.
        hidden_state: what the state holds that no observation tells, such as "where the mines are"; None if nothing.
            A search steps the state, and so sees it.
    """

    reset: Callable[[Key], tuple[EnvState, TimeStep]]
    step: Callable[[EnvState, Array], tuple[EnvState, TimeStep]]
    action_spec: ActionSpec
    task_id: str = "custom"
    can_truncate: bool = False
    deterministic: bool = False
    episode_metrics: Callable[[EnvState, TimeStep], dict[str, Array]] = _no_metrics
    rekey: Callable[[EnvState, Key], EnvState] | None = None
    observation_adapter: str = "dense"
    time_limit: int | None = None
    animate: Callable[[list[EnvState], str], None] | None = None
    joint_shape: tuple[int, ...] | None = None
    hidden_state: str | None = None


class NetworkParams(NamedTuple):
    """Parameters of a policy and a value function. `torso` is None unless shared; then heads take its output."""

    torso: Params
    actor: Params
    critic: Params


class Network(NamedTuple):
    """Pure functions over batched observations; they return arrays, never distribution objects.

    Attributes:
        init: (key, observation [B, ...]) -> NetworkParams.
        actor: (params, observation [B, ...]) -> logits [B, A] or [B, F, A]; finite, masked entries hold a finite fill.
        critic: (params, observation [B, ...]) -> value [B].
        actor_critic: (params, observation [B, ...]) -> (logits, value); a shared torso runs once.
    """

    init: Callable[[Key, Observation], NetworkParams]
    actor: Callable[[NetworkParams, Observation], Array]
    critic: Callable[[NetworkParams, Observation], Array]
    actor_critic: Callable[[NetworkParams, Observation], tuple[Array, Array]]


class Policy(Protocol):
    """(params, env_state [N, ...], observation [N, ...], key, deterministic) -> action [N] or [N, F]."""

    def __call__(
        self, params: Params, env_state: EnvState, observation: Observation, key: Key, deterministic: bool, /
    ) -> Array: ...


class MemoryPolicy(NamedTuple):
    """A policy that remembers within an episode, such as a plan that is followed. Evaluation takes it like any other.

    Attributes:
        init: number of environments -> memory at the beginning of their episodes, [N, ...].
        act: (params, memory, env_state, observation, key, deterministic) -> (action [N] or [N, F], memory).
    """

    init: Callable[[int], Any]
    act: Callable[[Params, Any, EnvState, Observation, Key, bool], tuple[Array, Any]]


class Learner(NamedTuple):
    """Anything that learns.

    Attributes:
        init: key -> State. Use it under jit: an eager vmapped reset aliases buffers, and donation then fails. Every
            State is a NamedTuple with `params`, `hyper` (a NamedTuple of float32 scalars), `key` (the root, which never
            changes) and `step` ([] int32, updates done).
        update: State -> (State, Metrics). Pure; scan it, vmap it, jit it with its argument donated.
        policy: what acts, with search if the algorithm searches.
        network_policy: the search-free policy; the same function for PPO.
    """

    init: Callable[[Key], Any]
    update: Callable[[Any], tuple[Any, Metrics]]
    policy: Policy
    network_policy: Policy


def metric_reduction(name: str) -> str:
    """How a metric is reduced over updates: "sum" (also for _count), "max", "min" by suffix, else "mean"."""
    suffix = name.rsplit("_", 1)[-1]
    return {"sum": "sum", "count": "sum", "max": "max", "min": "min"}.get(suffix, "mean")
