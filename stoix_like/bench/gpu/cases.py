"""What is measured: each case compiles its programs, then makes rows. Compiling may run beside that of other cases."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax

from stoix_like.bench.alphazero import speed as board_games
from stoix_like.bench.speed import launches, scaling
from stoix_like.bench.timing.measure import Measurement, comparison_row, time_interleaved
from stoix_like.bench.timing.updates import Updates, preset_config
from stoix_like.config.checks.combinations import steps_per_update
from stoix_like.config.layers import resolve

#: Makes the rows of a case, with nothing beside it.
Rows = Callable[[], Iterator[Measurement]]
SIMULATIONS = (32,)  # of the search of AlphaZero
MOST_SECONDS = 3.0  # of an update that is timed REPETITIONS times
REPETITIONS, FEWEST_REPETITIONS = 5, 2
GAME = "connect_four"
DENSE = frozenset(preset for _, preset, is_dense in scaling.BY_ENVS if is_dense)
#: (leaf, value) of a preset's configuration; hashable, since programs are found by them.
Leaves = tuple[tuple[str, Any], ...]


class Case(NamedTuple):
    """A case: its name, by which it is named if it is left out, and a function that compiles what it measures."""

    name: str
    prepare: Callable[[], Rows]


class Size(NamedTuple):
    """Updates of a preset with a number of environments and leaves that differ from the preset's."""

    preset: str
    num_envs: int
    leaves: Leaves = ()

    @property
    def name(self) -> str:
        """`ppo_maze/envs/64`, as rows are named."""
        return f"{self.preset.replace('/', '_')}/envs/{self.num_envs}"


def updates_case(size: Size) -> Case:
    """Steps per second of whole updates, of dense networks beside the matrix-product peak."""

    def prepare() -> Rows:
        _updates(size)
        return functools.partial(_update_rows, size)

    return Case(f"scale/{size.name}", prepare)


def kernels_case(size: Size) -> Case:
    """Kernels of the same updates, whose program is the one that `updates_case` has compiled."""
    return Case(f"launches/{size.name}", lambda: functools.partial(_kernel_rows, size))


def bfloat16_case(size: Size) -> Case:
    """Updates with bfloat16 beside the same with float32, by turns."""
    name = f"compute_dtype/{size.name}"

    def prepare() -> Rows:
        halved = size._replace(leaves=(*size.leaves, ("compute_dtype", "bfloat16")))
        functions = {"ours": _updates(halved), "theirs": _updates(size)}
        return functools.partial(_comparison_rows, name, functions, steps_per_update(configuration(size)))

    return Case(name, prepare)


def search_case(batch: int) -> Case:
    """Simulations per second of AlphaZero's search, beside what its network alone evaluates."""

    def prepare() -> Rows:
        functions = board_games.search_functions(board_games.preset(GAME), batch, SIMULATIONS)
        for run in functions.values():
            jax.block_until_ready(run())
        return functools.partial(_search_rows, batch, functions)

    return Case(f"alphazero_search/{GAME}/{batch}", prepare)


def under_flags(variant: str, case: Case) -> Case:
    """The case with names of a variant of the command buffers, whose flags its process has."""

    def named(rows: Rows) -> Iterator[Measurement]:
        for row in rows():
            yield row._replace(name=_variant_name(variant, row.name))

    return Case(_variant_name(variant, case.name), lambda: functools.partial(named, case.prepare()))


def _variant_name(variant: str, name: str) -> str:
    return f"command_buffers/{variant}/{name.removeprefix('scale/')}"


def configuration(size: Size) -> Any:
    """The configuration of an update: leaves first, since a replay is scaled with the environments."""
    return scaling.with_envs(resolve(preset_config(size.preset), dict(size.leaves)), size.num_envs)


@functools.cache
def _updates(size: Size) -> Updates:
    return Updates(configuration(size))


def _update_rows(size: Size) -> Iterator[Measurement]:
    updates = _updates(size)
    is_dense, repetitions = size.preset in DENSE, _repetitions(updates)
    yield scaling.timed_row(f"scale/{size.name}", configuration(size), updates, is_dense, repetitions)


def _repetitions(run: Callable[[], Any]) -> int:
    """How often a function is timed: seldom if its second call takes long."""
    jax.block_until_ready(run())
    began = time.perf_counter()
    jax.block_until_ready(run())
    return REPETITIONS if time.perf_counter() - began < MOST_SECONDS else FEWEST_REPETITIONS


def _kernel_rows(size: Size) -> Iterator[Measurement]:
    lines, scopes = _updates(size).traced()
    kernels = launches.count_kernels(lines, scopes)
    yield from launches.kernel_rows(f"launches/{size.name}", configuration(size), kernels)


def _comparison_rows(name: str, functions: dict[str, Updates], steps: int) -> Iterator[Measurement]:
    timings = time_interleaved(functions, REPETITIONS)
    note = f"bfloat16; {functions['ours'].memory_note}; reference: float32, {functions['theirs'].memory_note}"
    yield comparison_row(name, timings, steps, "steps/s", note)


def _search_rows(batch: int, functions: dict[str, Callable[[], Any]]) -> Iterator[Measurement]:
    yield from board_games.rows_of_batch(GAME, batch, time_interleaved(functions, REPETITIONS), SIMULATIONS)
