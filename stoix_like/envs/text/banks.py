"""Banks: levels that were made once, by searches that no jitted generator does. `bank_making` makes them."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.envs.text.levels import is_held_out
from stoix_like.errors import ConfigError
from stoix_like.ops import trees
from stoix_like.types import Key

_OF_GENERATORS = {"num_pulls"}  # arguments of environments that say how levels are drawn, and that no bank has


class Bank(NamedTuple):
    """Levels of one world.

    Attributes:
        task_id: the world.
        rules: the arguments of its environment on which levels depend, such as {"num_rows": 6}.
        seed: of the generator that made them.
        levels: a level of the world with arrays of NumPy [L, ...]. `levels.is_held_out` says which are of evaluation.
    """

    task_id: str
    rules: Mapping[str, Any]
    seed: int
    levels: Any

    def __repr__(self) -> str:
        return f"<bank of {self.size:,} levels>"

    @property
    def hash(self) -> str:
        """SHA-256 over the world, the rules, the seed and every array, in hexadecimal digits."""
        heading = json.dumps([self.task_id, dict(sorted(self.rules.items())), self.seed])
        digest = hashlib.sha256(heading.encode())
        for name, leaf in sorted(trees.named_leaves(self.levels).items()):
            array = np.ascontiguousarray(leaf)
            digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode() + array.tobytes())
        return digest.hexdigest()

    @property
    def size(self) -> int:
        """The number of its levels."""
        return int(jax.tree.leaves(self.levels)[0].shape[0])


def are_held_out(levels: Any) -> np.ndarray:
    """[L] bool: which of the levels belong to evaluation."""
    return np.asarray(jax.jit(jax.vmap(is_held_out))(levels))


def level_sampler(bank: Bank, *, held_out: bool) -> Callable[[Key], Any]:
    """(key) -> one of the bank's levels of training, or of evaluation, all equally often.

    Raises ConfigError if it has none.
    """
    chosen = np.flatnonzero(are_held_out(bank.levels) == held_out)
    if not chosen.size:
        part = "evaluation" if held_out else "training"
        raise ConfigError(
            f"environment.kwargs.bank: none of its {bank.size} levels belong to {part}",
            "make a larger bank: the layouts of training and evaluation are disjoint, and each is one or the other",
        )
    levels = jax.tree.map(lambda x: x[chosen], bank.levels)

    def sample(key: Key) -> Any:
        index = jax.random.randint(key, (), 0, chosen.size)
        return jax.tree.map(lambda x: jnp.asarray(x)[index], levels)

    return sample


def make_resets(
    reset: Callable[[Callable[[Key], Any], Key], Any], draw: Callable[[bool, Key], Any], bank: Bank | None
) -> tuple[Callable[[Key], Any], Callable[[Key], Any]]:
    """(`reset`, `held_out`) of a world: `reset` on the levels of its bank, or on those that `draw` draws.

    Raises ConfigError if the bank's levels are of other sizes than those that are drawn.
    """
    if bank is None:
        training, evaluation = (functools.partial(draw, held_out) for held_out in (False, True))
        return functools.partial(reset, training), functools.partial(reset, evaluation)
    drawn = jax.eval_shape(functools.partial(draw, False), jax.random.key(0))
    wanted, found = trees.named_leaves(drawn), trees.named_leaves(bank.levels)
    if {n: (x.shape, x.dtype) for n, x in wanted.items()} != {n: (x.shape[1:], x.dtype) for n, x in found.items()}:
        raise ConfigError(
            "environment.kwargs.bank: its levels have other sizes than the environment", "name a bank of these sizes"
        )
    of_training, of_evaluation = (level_sampler(bank, held_out=held_out) for held_out in (False, True))
    return functools.partial(reset, of_training), functools.partial(reset, of_evaluation)


def with_rules(task_id: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an environment with those that its bank was made by.

    Raises ConfigError if the bank is of another world or of other rules, or only a name.
    """
    bank = arguments["bank"]
    if not isinstance(bank, Bank):
        raise ConfigError(
            f"environment.kwargs.bank: levels are expected, got {bank!r}",
            "name a bank or its file; in Python, sl.read_bank reads both",
        )
    if bank.task_id != task_id:
        raise ConfigError(
            f"environment.kwargs.bank: its levels are of {bank.task_id}, not of {task_id}", "name a bank of this task"
        )
    if _OF_GENERATORS & set(arguments):
        unused = ", ".join(sorted(_OF_GENERATORS & set(arguments)))
        raise ConfigError(f"environment.kwargs.{unused}: levels of a bank are not drawn", "leave it out, or the bank")
    differing = [f"{name} {value}" for name, value in bank.rules.items() if arguments.get(name, value) != value]
    if differing:
        raise ConfigError(
            f"environment.kwargs.bank: its levels were made with {', '.join(differing)}",
            "leave this out, the bank has it",
        )
    return {**arguments, **bank.rules}
