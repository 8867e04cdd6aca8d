"""Building a Jumanji environment from flat keyword arguments, which may belong to its constructor or its generator.

Jumanji hides sizes in generator objects (`Maze(generator=RandomGenerator(num_rows=10, num_cols=10))`), which neither
YAML nor a flag can write. Here `num_rows` is enough: signatures decide whose it is, and the default generator's other
arguments stay as they are.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax

from stoix_like.config.checks.values import nearest
from stoix_like.envs.importing import jumanji_registration
from stoix_like.errors import ConfigError

#: What jumanji's constructors and generators raise on values that they cannot use.
BAD_VALUE_ERRORS = (TypeError, ValueError, AssertionError, ArithmeticError, IndexError, AttributeError)


def build_jumanji(task_id: str, registered: str, arguments: Mapping[str, Any]) -> Any:
    """The Jumanji environment of a registered name with keyword arguments changed; its reset was traced once.

    Raises:
        ConfigError: an argument that neither the constructor nor the generator has, or a value they cannot use.
    """
    registration = jumanji_registration()

    if not arguments:
        return registration.make(registered)  # a failure here is nobody's configuration
    own, for_generator = split_arguments(task_id, registered, arguments)
    with usable_values(task_id, arguments):
        env = registration.make(registered, **own)
        if for_generator:
            generator = rebuilt_generator(generator_of(env), for_generator)
            env = registration.make(registered, **own, generator=generator)
        _check_shown_spaces(env)
        with jax.numpy_rank_promotion("allow"):
            jax.eval_shape(env.reset, jax.random.key(0))
    return env


@contextlib.contextmanager
def usable_values(task_id: str, arguments: Mapping[str, Any]) -> Iterator[None]:
    """A block in which a failure to build is reported as an error of the arguments, if there are any.

    Raises:
        ConfigError: in place of what jumanji raises on values that it cannot use.
    """
    try:
        yield
    except BAD_VALUE_ERRORS as error:
        if not arguments:
            raise
        given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        what = f"environment.kwargs: {task_id} cannot be made with {given}: {reason}"
        raise ConfigError(what, "change the values named") from error


def split_arguments(
    task_id: str, registered: str, arguments: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(arguments of the constructor, arguments of the generator).

    Raises:
        ConfigError: unknown names, or generator arguments beside a generator.
    """
    registration = jumanji_registration()

    own_names = signature_names(registration.load(registration._REGISTRY[registered].entry_point))
    own = {name: value for name, value in arguments.items() if name in own_names}
    rest = {name: value for name, value in arguments.items() if name not in own_names}
    if not rest:
        return own, {}
    if "generator" in own:
        what = f"environment.kwargs: {task_id} is given a generator and also {', '.join(rest)}"
        raise ConfigError(what, f"set them in the generator; the constructor takes: {', '.join(own_names)}")
    generator = generator_of(registration.make(registered))
    generator_names = [] if generator is None else signature_names(type(generator))
    valid = [*own_names, *(name for name in generator_names if name not in own_names)]
    unknown = [f"environment.kwargs: {task_id} has no '{n}'{nearest(n, valid)}" for n in rest if n not in valid]
    if unknown:
        raise ConfigError(unknown, f"{task_id} takes: {', '.join(valid)}")
    return own, rest


def signature_names(function: Callable[..., Any]) -> list[str]:
    """The names of the keyword arguments of a function or class, in order; `viewer` is left out."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters: Iterable[inspect.Parameter] = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind in kinds and p.name != "viewer"]


def generator_of(env: Any) -> Any:
    """The generator of a Jumanji environment, or None: some keep it under a private name, some have none."""
    attributes = vars(env)
    return attributes.get("generator", attributes.get("_generator"))


def rebuilt_generator(generator: Any, changes: Mapping[str, Any]) -> Any:
    """A generator of the same class with some arguments changed and the others read back from its attributes.

    An argument whose default is None is left to the class: it is derived from the others (Connector's `max_steps`
    from its grid), so the old value would be wrong for the new size.
    """
    attributes = {name.removeprefix("_"): value for name, value in vars(generator).items()}
    parameters = inspect.signature(type(generator)).parameters
    kept = {
        name: attributes[name]
        for name, parameter in parameters.items()
        if parameter.default is not None and name in attributes
    }
    return type(generator)(**(kept | dict(changes)))


def _check_shown_spaces(env: Any) -> None:
    """BinPack fails late and obscurely when it is asked to show more spaces than it keeps."""
    if type(env).__name__ == "BinPack" and env.obs_num_ems > env.generator.max_num_ems:
        raise ValueError(f"obs_num_ems = {env.obs_num_ems} is more than max_num_ems = {env.generator.max_num_ems}")
