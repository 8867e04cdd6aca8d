"""The command `spa.py`: the stages by which a language agent comes to know a world, each by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stoix_like.commands.runs import train
from stoix_like.config.checks.values import nearest
from stoix_like.errors import ConfigError
from stoix_like.runtime.console.spelling import usage

if TYPE_CHECKING:
    from stoix_like.runtime.training.train import TrainResult

STAGES: dict[str, tuple[Callable[[list[str]], TrainResult | int], str]] = {
    "pretrain": (train.pretrain, "a model that knows the format of answers and nothing else"),
}
"""{stage: (its function, what comes of it)}"""


def main(argv: list[str]) -> TrainResult | int:
    """Runs the stage that the first argument names."""
    if not argv or argv[0] in ("-h", "--help"):
        print("\n".join(help_lines()))
        return 0
    name, *rest = argv
    if name not in STAGES:
        what = f"spa: no stage '{name}'{nearest(name, STAGES)}"
        raise ConfigError(what, f"stages: {', '.join(STAGES)}")
    function, _ = STAGES[name]
    return function(rest)


def help_lines() -> list[str]:
    """What `--help` prints."""
    width = max(map(len, STAGES))
    stages = [f"  {name:<{width}}  {summary}" for name, (_, summary) in STAGES.items()]
    return [f"usage: {usage('spa')} STAGE [--flag VALUE ...]", "", "stages, each with --help of its own:", *stages]
