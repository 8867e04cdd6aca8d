"""The values of one leaf: text of its type and range, and conversion of values such as 1e7 to an int.

Knows nothing of sections or files (see `config/checks/combinations.py`). Imports only the standard library.
"""

from __future__ import annotations

import difflib
import math
import types
import typing
from collections.abc import Collection, Mapping
from typing import Any

LARGEST_WHOLE = 2**31 - 1  # sizes and counters are int32 on the device
LARGEST_NUMBER = (2 - 2**-23) * 2.0**127  # the largest float32; larger values are infinite on the device


_NEAR = 0.65  # a likeness, from 0 to 1


def nearest_word(word: str, known: Collection[str]) -> str | None:
    """The nearest known word; None if none is near."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=_NEAR)), None)


def nearest(word: str, known: Collection[str]) -> str:
    """`; did you mean 'x'?` for the nearest known word, or an empty string."""
    match = nearest_word(word, known)
    return f"; did you mean '{match}'?" if match else ""


def nearest_and(word: str, known: Collection[str], further: str) -> str:
    """`nearest` and a further sentence: after the mark of the question if there is one, else after a semicolon."""
    return f"{nearest(word, known) or ';'} {further}"


def type_name(annotation: Any) -> str:
    """The name of a leaf's type in messages and in the documentation: `int or null`, `auto, cpu or gpu`."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_name(a) for a in arguments)
    if origin is typing.Literal:
        return ", ".join(str(a) for a in arguments)
    if annotation is type(None):
        return "null"
    if isinstance(annotation, type) and issubclass(annotation, str):
        return "text"
    if origin is not None and issubclass(origin, Mapping):
        return "mapping"
    return str(annotation.__name__)


def allows(annotation: Any, kind: Any) -> bool:
    """Whether a leaf's type is `kind` (such as `bool`, `str`, `type(None)`) or a union that contains it."""
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return annotation is kind or (is_union and kind in typing.get_args(annotation))


def choices(annotation: Any) -> list[str]:
    """The texts of a Literal type, such as `Literal["auto", "cpu"]`, or of a union with one; else empty."""
    if typing.get_origin(annotation) is typing.Literal:
        return [a for a in typing.get_args(annotation) if isinstance(a, str)]
    return [word for a in typing.get_args(annotation) for word in choices(a)]


def range_text(metadata: Mapping[str, Any]) -> str:
    """The range in a field's metadata as text: `0 to 1`, `>= 1`, `> 0`, `> 0, <= 1`, or an empty string."""
    low, high, above = metadata.get("low"), metadata.get("high"), metadata.get("above")
    if low is not None and high is not None:
        return f"{_plain(low)} to {_plain(high)}"
    bounds = ((">=", low), (">", above), ("<=", high))
    return ", ".join(f"{sign} {_plain(bound)}" for sign, bound in bounds if bound is not None)


def _plain(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else repr(number)


def coerce(value: Any, annotation: Any) -> Any:
    """The value as the annotated type: 1e7 becomes an int, 3 a float; a bool is never a number.

    Raises TypeError if the value does not fit.
    """
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _coerce_union(value, arguments)
    if origin is typing.Literal:
        fits = any(value == a and type(value) is type(a) for a in arguments)
    elif annotation is type(None):
        fits = value is None
    elif annotation is float:
        fits = isinstance(value, (int, float)) and not isinstance(value, bool) and _fits_float(value)
        value = float(value) if fits else value
    elif annotation is int:
        integral = isinstance(value, float) and math.isfinite(value) and value.is_integer()
        value = int(value) if integral else value
        fits = isinstance(value, int) and not isinstance(value, bool)
    elif origin is not None and issubclass(origin, Mapping):
        fits = isinstance(value, Mapping)
        value = _plain_data(value) if fits else value
    else:
        fits = isinstance(value, origin or annotation)
    if not fits:
        raise TypeError(f"expected {type_name(annotation)}")
    return value


def _fits_float(value: float) -> bool:
    try:
        float(value)
    except OverflowError:
        return False
    return True


def _plain_data(value: Any) -> Any:
    """A copy with only the types of YAML and JSON, so that a configuration can be written and read back."""
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("expected a mapping whose keys are text")
        return {key: _plain_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain_data(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError("expected a mapping of plain values (numbers, text, true, false, null, lists, mappings)")


def _coerce_union(value: Any, arguments: tuple[Any, ...]) -> Any:
    for argument in arguments:
        try:
            return coerce(value, argument)
        except TypeError:
            continue
    raise TypeError(f"expected {' or '.join(type_name(a) for a in arguments)}")


def range_problem(value: Any, metadata: Mapping[str, Any]) -> str | None:
    """The reason why a number is outside the range in its field's metadata, or None.

    A leaf without an upper bound is bounded by int32 or float32.
    """
    if isinstance(value, (bool, str)) or not isinstance(value, (int, float)):
        return None
    low, high, above = metadata.get("low"), metadata.get("high"), metadata.get("above")
    if not math.isfinite(value):
        return "must be finite"
    if low is not None and high is not None:
        return None if low <= value <= high else f"must lie in [{_plain(low)}, {_plain(high)}]"
    if low is not None and value < low:
        return f"must be at least {_plain(low)}"
    if above is not None and value <= above:
        return f"must be greater than {_plain(above)}"
    return _device_problem(value) if high is None else _high_problem(value, high)


def _high_problem(value: float, high: float) -> str | None:
    return f"must be at most {_plain(high)}" if value > high else None


def _device_problem(value: float) -> str | None:
    """The reason why the device cannot represent the number, or None."""
    if isinstance(value, int):
        return f"must be at most {LARGEST_WHOLE}" if value > LARGEST_WHOLE else None
    return f"must be at most {LARGEST_NUMBER:.8g}, the largest float32" if value > LARGEST_NUMBER else None
