"""The shared types: time steps, environments, networks, learners, metrics, and the roles of random keys.

Data is a NamedTuple of arrays, behaviour a NamedTuple of pure functions.

Axis letters: T time, N environments, B batch, A actions, F factors of an action, P particles, L tokens, E episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

import jax

from stoix_like.errors import ConfigError

Array = jax.Array
Key = jax.Array  # a typed key of jax.random.key, shape ()
Params = Any  # pytree of arrays
EnvState = Any  # pytree of arrays
Metrics = dict[str, jax.Array]  # flat, device scalars, reduced over updates by suffix (see `metric_reduction`)

FIRST, MID, LAST = 0, 1, 2  # values of TimeStep.step_type, as in dm_env and jumanji

#: One number per use of randomness: key = fold_in(fold_in(root, role), step). The root never changes, so evaluating
#: more or logging less cannot change training. 10_000, 999 and 0xA11CE are the offsets of rust_rl.
KEY_ROLES = {
    "params": 1,
    "rollout": 2,
    "pool": 3,
    "search": 4,
    "replay": 5,
    "selfplay": 6,
    "match": 7,
    "agent": 8,
    "evaluation": 999,
    "reset": 10_000,
    "shuffle": 0xA11CE,
}


def role_key(root: Key, role: str, step: int | Array = 0) -> Key:
    """The key for one role at one step: `fold_in(fold_in(root, role), step)`. `step` counts updates."""
    return jax.random.fold_in(jax.random.fold_in(root, KEY_ROLES[role]), step)


class Observation(NamedTuple):
    """The input of every policy."""

    agent_view: Any  # pytree of arrays, in the environment's own form
    action_mask: Array  # [A] bool, or [F, A] for factored actions; True where legal


class TimeStep(NamedTuple):
    """jumanji's five fields. `discount` alone decides the return: 0 ends it, and LAST with 1 is a truncation.

    After an auto-reset a LAST step has the terminal reward, but the observation of the *next* episode. The final
    observation is then in `extras["next_obs"]`, present only if the environment can truncate.
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


#: Names of the metrics of episodes that every run reports. An environment's own need others.
EPISODE_NAMES = frozenset(
    {f"{extreme}_return" for extreme in ("mean", "max", "min")}
    | {f"episode_length_{extreme}" for extreme in ("mean", "max", "min")}
    | {"episodes", "episode_return", "episode_length", "steps_per_second", "levels_reused"}
    | {"unfinished", "level_hash", "duration_ms"}
)


def _no_metrics(_state: EnvState, _timestep: TimeStep) -> dict[str, Array]:
    return {}


class Environment(NamedTuple):
    """An environment: two pure functions and a description of them. Two functions and an action spec are enough.

    Attributes:
        reset: key -> (state, first TimeStep). Unbatched; callers vmap.
        step: (state, action) -> (state, TimeStep). Never resets.
        action_spec: the form of the action and of the mask.
        task_id: the name in logs and checkpoints.
        can_truncate: True if a LAST step may have discount > 0 (a time limit that is not the task's own).
        deterministic: True if `step` uses no randomness, so that a search need not rekey its particles.
        episode_metrics: (state, timestep) of the *final* step -> named scalars, such as a solve rate; none of the
            EPISODE_NAMES.
        rekey: (state, key) -> state with its randomness replaced. Without it, a stochastic environment cannot be
            searched, and its levels are never used twice.
        observation_adapter: the network family for it, one of `networks.build.make`, such as "dense" or "board".
        time_limit: an upper bound of the steps of an episode, or None.
        animate: (list of states, path) -> None, writes a GIF; None if the environment cannot be drawn.
        joint_shape: if the task's action is a product of several, the shape of which our action is a row-major index,
            such as (spaces, items) of BinPack.
        hidden_state: the part of the state that a search sees and no observation shows: "where the mines are".
        game: the `games.BoardGame` that is played, whose state is the field `game` of the environment's.
        held_out: as `reset`, but on levels that `reset` never makes; None if evaluations differ by their keys alone.
        render: state, with arrays of NumPy -> text; None if the environment has none.
        ceiling: (state after a reset, with arrays of NumPy, budget) -> the `solve_rate` of the best player; None if
            nothing computes it. A budget is (turns, actions chosen at once in each); by default each is a turn.
        bank_hash: of the bank that levels are taken from; None if they are drawn from keys.
        rules: numbers of the task that no state shows, such as how often a move slips.
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
    game: Any = None
    held_out: Callable[[Key], tuple[EnvState, TimeStep]] | None = None
    render: Callable[[EnvState], str] | None = None
    ceiling: Callable[..., float] | None = None
    bank_hash: str | None = None
    rules: Mapping[str, float] = MappingProxyType({})

    @property
    def evaluation_reset(self) -> Callable[[Key], tuple[EnvState, TimeStep]]:
        """The `reset` of evaluations: `held_out` if there is one."""
        return self.held_out or self.reset

    @property
    def is_drawable(self) -> bool:
        """Whether an episode can be drawn as a GIF."""
        return any(way is not None for way in (self.animate, self.game, self.render))


class Pieces(NamedTuple):
    """How the states of a world are written: a look-up of short texts, so that a compiled program can do it.

    Attributes:
        texts: what may be written. Each is turned into tokens by itself; joined they are the text of a state.
        write: state -> indices into `texts` [M] int32, in the order of the text; -1 where nothing is written.
        longest: the most pieces of a state, at most M.
        most_tokens: tokens of each text -> the most of a state; None = `longest` times those of the longest text.
        told: the last of these pieces, which answers tell of a state, as pieces by themselves; None = all of them.
    """

    texts: tuple[str, ...]
    write: Callable[[EnvState], Array]
    longest: int
    most_tokens: Callable[[Sequence[int]], int] | None = None
    told: Pieces | None = None


class Prompt(NamedTuple):
    """What an agent is told before its first turn: marks if its tokenizer is one of words, else prose.

    Attributes:
        marks: one word each, such as "<frozen_lake>" and "<base>".
        system, instructions: the system message; rules, symbols, actions, budget and a worked example.
    """

    marks: tuple[str, ...]
    system: str = ""
    instructions: str = ""


class TextWorld(NamedTuple):
    """A world that is read and acted in as text: the one meeting place of environments and language.

    Attributes:
        env: the world itself.
        pieces: {rendering: how states are written}, such as "grid", "coordinates" and "both".
        grammar: the spelling of each action, [A] texts, whose case does not count.
        prompts: {mode: what the agent is told}, of the modes "base" and "worldmodel".
    """

    env: Environment
    pieces: Mapping[str, Pieces]
    grammar: tuple[str, ...]
    prompts: Mapping[str, Prompt]


class NetworkParams(NamedTuple):
    """Parameters of a policy and a value function. `torso` is None unless it is shared by both."""

    torso: Params
    actor: Params
    critic: Params


class Network(NamedTuple):
    """Pure functions of batched observations. They return arrays, not distribution objects.

    Attributes:
        init: (key, observation [B, ...]) -> NetworkParams.
        actor: (params, observation [B, ...]) -> logits [B, A] or [B, F, A]; finite, masked entries hold a finite fill.
        critic: (params, observation [B, ...]) -> value [B], of AlphaZero the expected outcomes [B, P].
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
    """A policy with memory within an episode, such as a plan that it follows. Evaluations accept it like a Policy.

    Attributes:
        init: number of environments -> memory at the start of their episodes, [N, ...].
        act: (params, memory, env_state, observation, key, deterministic) -> (action [N] or [N, F], memory).
    """

    init: Callable[[int], Any]
    act: Callable[[Params, Any, EnvState, Observation, Key, bool], tuple[Array, Any]]


class Learner(NamedTuple):
    """A learning algorithm, bound to an environment, a network and a configuration.

    Attributes:
        init: key -> State. Use it under jit: an eager vmapped reset aliases buffers, and donation then fails. Every
            State is a NamedTuple with `params`, `hyper` (a NamedTuple of float32 scalars), `key` (the root, which never
            changes) and `step` ([] int32, number of updates).
        update: State -> (State, Metrics). Pure: scan it, vmap it, or jit it with its argument donated.
        policy: the acting policy, with search if the algorithm searches. None if the learner does not act in an
            environment, or not by one action a step, as a language model; then it has `score` and `items`.
        network_policy: the policy without search; the same function for PPO.
        volatile: paths of the State that checkpoints may leave out, such as a replay: `init` makes them again.
        shared: fields of the State that all seeds share, such as data: they are not stacked per seed, and `init` and
            `update` must not make them depend on the key.
        sharded: paths of the State, such as "rollout.env_state", whose arrays are divided over the devices along their
            first axis (after the seeds), if the devices divide it; all others are replicated.
        score: (params, items [N, ...], keys [N], one for each item) -> {name: [N]}, the evaluation of a learner without
            a policy. The best parameters have the highest `score`. `length`, if there, is reported as an episode's.
        items: what is scored, a pytree of host arrays [E, ...].
        seeds: how several seeds are computed, in training and in evaluations: side by side by "vmap", or by "map" one
            after the other, for an `update` whose loops end at different steps.
    """

    init: Callable[[Key], Any]
    update: Callable[[Any], tuple[Any, Metrics]]
    policy: Policy | None = None
    network_policy: Policy | None = None
    volatile: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    sharded: tuple[str, ...] = ()
    score: Callable[[Params, Any, Key], dict[str, Array]] | None = None
    items: Any = None
    seeds: Literal["vmap", "map"] = "vmap"

    @property
    def policies(self) -> tuple[Policy, Policy]:
        """(the acting policy, the policy without search). Raises ConfigError if the learner has none."""
        if self.policy is None or self.network_policy is None:
            what = "this learner has no policy that takes one action a step"
            raise ConfigError(what, "the evaluations of its training are in metrics.jsonl; plot draws them")
        return self.policy, self.network_policy


def metric_reduction(name: str) -> str:
    """The reduction of a metric over updates, by its suffix: "sum" (also for _count), "max", "min", else "mean"."""
    suffix = name.rsplit("_", 1)[-1]
    return {"sum": "sum", "count": "sum", "max": "max", "min": "min"}.get(suffix, "mean")
