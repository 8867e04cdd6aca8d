"""Numbers of benchmarks by name, for a text in which every measured number is to come from the rows.

    {{cpu maze_autoreset/1024}}                      the value of the row, of docs/benchmarks/cpu.json
    {{cpu maze_autoreset/1024 ratio}}                another field: reference, ratio, ceiling, share, spread
    {{overhead evaluations/* max}}                   the largest value of the rows of a pattern; min, mean
    {{alphazero alphazero_search/* share min}}       the same of another field
    {{gpu_ppo ppo_maze / ppo ppo_maze}}              one number divided by another
    {{gpu_ppo ppo_maze / ppo ppo_maze :.0f}}         in a format of one's own

Shares and spreads are percentages. A name that no row has is an error.
"""

from __future__ import annotations

import fnmatch
import re
import statistics
from collections.abc import Callable, Mapping, Sequence

from stoix_like.bench.timing.measure import Measurement
from stoix_like.errors import ConfigError
from stoix_like.runtime.console.text import number_text

Rows = Mapping[str, Sequence[Measurement]]  # by file
_NAMED = re.compile(r"\{\{(.+?)\}\}")
_OVER_ROWS: dict[str, Callable[[list[float]], float]] = {"max": max, "min": min, "mean": statistics.mean}
_SPECS = {"share": ".0%", "spread": ".1%", "ratio": ".1f"}  # by field


def filled(text: str, rows: Rows) -> str:
    """The text with every `{{...}}` replaced by its number. Raises ConfigError if there is no such row or field."""
    return _NAMED.sub(lambda match: _text(match[1].strip(), rows), text)


def _text(named: str, rows: Rows) -> str:
    expression, _, spec = named.partition(" :")
    dividend, _, divisor = expression.partition(" / ")
    number = _number(dividend, rows)
    if divisor:
        number /= _number(divisor, rows)
    spec = spec or (".1f" if divisor else _SPECS.get(expression.split()[-1], ""))
    return format(number, spec).replace("%", " %") if spec else number_text(number, 4)


def _number(named: str, rows: Rows) -> float:
    file, pattern, *words = named.split()
    chosen = [row for row in rows.get(file, ()) if fnmatch.fnmatchcase(row.name, pattern)]
    over = _OVER_ROWS.get(words[-1]) if words else None
    field, *others = words[: len(words) - (over is not None)] or ["value"]
    found = [getattr(row, field, None) for row in chosen]
    numbers = [float(value) for value in found if isinstance(value, float | int)]
    if others or not numbers or len(numbers) < len(found) or (over is None and len(numbers) > 1):
        what = f"{named}: {len(found)} rows of docs/benchmarks/{file}.json have the name, {len(numbers)} the number"
        raise ConfigError(what, "name one row, or end with min, max or mean; a field is one of a Measurement")
    return numbers[0] if over is None else over(numbers)
