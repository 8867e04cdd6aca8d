"""The names of players that need no training, as people write them: `random`, `heuristic`, `mcts-128`.

Imports only the standard library, so that a name can be checked before JAX starts.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from stoix_like.config.checks.values import nearest
from stoix_like.errors import ConfigError

MOST_SIMULATIONS = 100_000  # a tree holds a node for each
_PLAIN = ("random", "heuristic")
_OF_A_NETWORK = ("policy", "gumbel-mcts")
_CHOICES = "choices: random, heuristic, mcts-N with N simulations, such as mcts-128"


class Engine(NamedTuple):
    """A player that is made of a game alone. `str` gives its name."""

    kind: Literal["random", "heuristic", "mcts"]
    num_simulations: int = 0  # of mcts; 0 for the others

    def __str__(self) -> str:
        return self.kind if self.kind != "mcts" else f"mcts-{self.num_simulations}"


def parse_engine(text: str) -> Engine:
    """The engine of that name.

    Raises:
        ConfigError: no such name, a number of simulations that is none, or the name of a player that needs a network.
    """
    name = text.strip().lower()
    if name == "random":
        return Engine("random")
    if name == "heuristic":
        return Engine("heuristic")
    if re.fullmatch(r"(policy|gumbel-mcts)(-.*)?", name):
        raise ConfigError(f"{text}: it plays with a network, and an engine has none", "name a run to play with its own")
    if re.fullmatch(r"mcts(-.*)?", name):
        return Engine("mcts", _simulations(text, name.removeprefix("mcts").removeprefix("-")))
    known = [*_PLAIN, *_OF_A_NETWORK, "mcts-128"]
    raise ConfigError(f"no engine is called {text!r}{nearest(name, known)}", _CHOICES)


def _simulations(text: str, number: str) -> int:
    if re.fullmatch(r"[0-9]{1,9}", number) and 1 <= int(number) <= MOST_SIMULATIONS:
        return int(number)
    raise ConfigError(
        f"{text}: mcts is followed by its number of simulations, from 1 to {MOST_SIMULATIONS}", "such as mcts-128"
    )
