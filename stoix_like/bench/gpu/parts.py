"""The parts of the suite, by worth: whole updates of PPO first, since all else explains or refines them.

The seconds are what a part takes at most on a GPU, most of them for compiling. All of them are more than the suite has:
what comes last is measured where compiling was quick. On a CPU the parts are tiny: they show that each runs.
"""

from __future__ import annotations

from typing import NamedTuple

from stoix_like.bench.gpu.cases import (
    Case,
    Leaves,
    Size,
    bfloat16_case,
    kernels_case,
    search_case,
    under_flags,
    updates_case,
)
from stoix_like.bench.gpu.scores import Goal, score_case

_BUFFERS = "--xla_gpu_enable_command_buffer="
_LISTED = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL"
#: {variant of the command buffers beside XLA's default: its flag}; names as in docs/benchmarks/gpu.md.
VARIANTS = {
    "+while": f"{_BUFFERS}+WHILE",
    "list_with_while": f"{_BUFFERS}{_LISTED},WHILE,CONDITIONAL",
    "list_without_while": f"{_BUFFERS}{_LISTED},CONDITIONAL",
}
#: Programs whose speed does not matter compile in half the time.
_QUICK_COMPILING = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    " --xla_cpu_opt_preset=CPU_OPT_PRESET_FAST_COMPILE --xla_cpu_use_fusion_emitters=false"
)


class Part(NamedTuple):
    """What one process measures.

    Attributes:
        seconds: the most it takes.
        xla_flags: flags that its process has beside those of this one.
        starts_runs: it starts trainings and uses no device itself.
    """

    name: str
    cases: tuple[Case, ...]
    seconds: float
    xla_flags: str = ""
    starts_runs: bool = False


class Sizes(NamedTuple):
    """Numbers of environments and positions, and leaves and flags that make presets small.

    Attributes:
        envs: {preset: numbers of environments} of whole updates.
        kernels: those whose kernels are counted.
        batches: positions that are searched at once.
        buffered: updates that are run with other command buffers.
        halved: environments of the updates with bfloat16.
        leaves: of every preset by algorithm.
        goals: scores of trainings.
    """

    envs: dict[str, tuple[int, ...]]
    kernels: tuple[int, ...]
    batches: tuple[int, ...]
    buffered: tuple[tuple[str, int], ...]
    halved: int
    leaves: dict[str, Leaves]
    goals: tuple[Goal, ...]


BINPACK = Goal("ppo/binpack_gpu", "evaluator/utilisation", (0.93, 0.95, 0.98))
MAZE = Goal("ppo/maze_gpu", "evaluator/solve_rate", (0.99,))
FULL = Sizes(
    envs={
        **dict.fromkeys(("ppo/binpack", "ppo/maze", "ppo/maze_mlp"), (64, 1024, 4096, 16384)),
        **dict.fromkeys(("spo/maze_mlp", "spo/binpack", "spo/maze"), (64, 1024, 4096)),
    },
    kernels=(64, 4096),
    batches=(1024, 4096, 16384),
    buffered=(("ppo/maze_mlp", 64), ("ppo/maze", 64), ("ppo/binpack", 64), ("spo/maze_mlp", 64), ("ppo/binpack", 1024)),
    halved=4096,
    leaves={"ppo": (), "spo": ()},
    goals=(MAZE, BINPACK),
)
_SMALL: Leaves = (("rollout_length", 2), ("num_minibatches", 1), ("epochs", 1), ("hidden_dim", 8))
_SMALL_SPO: Leaves = (("sample_sequence_length", 2), ("batch_size", 2), ("num_particles", 2), ("search_depth", 2))
_SMALL_FLAGS = (
    *("--num-envs", "4", "--rollout-length", "4", "--num-minibatches", "1", "--hidden-dim", "8", "--num-updates", "2"),
    *("--epochs", "1", "--eval-interval", "1", "--num-eval-envs", "4", "--num-eval-episodes", "4"),
)
TINY = Sizes(
    envs=dict.fromkeys(FULL.envs, (2,)) | {"ppo/maze_mlp": (2, 4)},
    kernels=(2,),
    batches=(2, 4),
    buffered=(("ppo/maze_mlp", 2),),
    halved=2,
    leaves={"ppo": _SMALL, "spo": _SMALL + _SMALL_SPO},
    goals=tuple(goal._replace(scores=(0.0,), flags=_SMALL_FLAGS) for goal in (MAZE, BINPACK)),
)


def parts(is_tiny: bool) -> tuple[Part, ...]:
    """All parts, the most valuable first."""
    sizes = TINY if is_tiny else FULL
    flags = _QUICK_COMPILING if is_tiny else ""
    with_loops, *lists = (_buffers_part(variant, sizes) for variant in VARIANTS)
    halved = tuple(bfloat16_case(_size(preset, sizes.halved, sizes)) for preset in ("ppo/maze", "ppo/binpack"))
    found = (
        _updates_part("ppo/binpack", sizes, 200.0),
        _updates_part("ppo/maze", sizes, 120.0),
        _updates_part("ppo/maze_mlp", sizes, 90.0),
        _score_part("first_start", sizes, 230.0),
        Part("alphazero_search", tuple(search_case(batch) for batch in sizes.batches), 80.0),
        with_loops,
        _updates_part("spo/maze_mlp", sizes, 100.0),
        _updates_part("spo/binpack", sizes, 150.0),
        _updates_part("spo/maze", sizes, 120.0),
        Part("compute_dtype", halved, 120.0),
        _score_part("second_start", sizes, 120.0),
        *lists,
    )
    return tuple(part._replace(xla_flags=f"{flags} {part.xla_flags}".strip()) for part in found)


def _size(preset: str, num_envs: int, sizes: Sizes) -> Size:
    return Size(preset, num_envs, sizes.leaves[preset.partition("/")[0]])


def _updates_part(preset: str, sizes: Sizes, seconds: float) -> Part:
    """Updates by environments, then their kernels, which are traced last since a trace may be large."""
    numbers = sizes.envs[preset]
    timed = tuple(updates_case(_size(preset, num_envs, sizes)) for num_envs in numbers)
    counted = tuple(kernels_case(_size(preset, num_envs, sizes)) for num_envs in numbers if num_envs in sizes.kernels)
    return Part(preset.replace("/", "_"), (*timed, *counted), seconds)


def _score_part(start: str, sizes: Sizes, seconds: float) -> Part:
    cases = tuple(score_case(goal, start) for goal in sizes.goals)
    return Part(f"score_{start}", cases, seconds, starts_runs=True)


def _buffers_part(variant: str, sizes: Sizes) -> Part:
    measured = [updates_case(_size(preset, num_envs, sizes)) for preset, num_envs in sizes.buffered]
    measured.append(search_case(sizes.batches[0]))
    cases = tuple(under_flags(variant, case) for case in measured)
    return Part(f"command_buffers_{variant}", cases, 110.0, VARIANTS[variant])
