"""Task ids, their arguments, and what is refused with which words."""

import socket
import subprocess
import sys

import jax
import pytest
from jumanji import registration
from jumanji.environments.routing.maze.generator import RandomGenerator
from support.marks import quick

from stoix_like.envs import construction, registry
from stoix_like.envs.probes import make_truncated_constant
from stoix_like.errors import ConfigError, UnsupportedEnvironmentError


def refusal(error_type, *args, **kwargs):
    with pytest.raises(error_type) as caught:
        registry.make(*args, **kwargs)
    return caught.value


#: (task id, options, what is wrong, how the hint begins). What no option mends is another kind of error.
UNSUPPORTED = [
    ("Maze-v1", {}, "unknown task 'Maze-v1'; did you mean 'Maze-v0'", "known tasks: BinPack-v0, BinPack-v2, CVRP-v1"),
    ("binpack-V2", {}, "did you mean 'BinPack-v2'", "known tasks: "),
    ("probe/delayed", {}, "probe/delayed_reward", "known tasks: "),
    ("Sokoban-v0", {"kwargs": {"generator": "hard"}}, "Sokoban-v0 has no levels 'hard', and nothing is downloaded", ""),
    ("SearchAndRescue-v0", {}, "its actions are float32 arrays of shape (2, 2), and only discrete actions are", ""),
    ("LevelBasedForaging-v0", {}, "its reward is a vector of shape (2,), one entry per agent", ""),
]
CROWDED, TWICE = {"max_num_ems": 20}, {"generator": RandomGenerator(5, 5), "num_rows": 6}
SAME = "environment.max_items and environment.kwargs.max_num_items"
MAZE_TAKES = "Maze-v0 takes: generator, time_limit, num_rows, num_cols"
FIVE = "num_rows='five': unsupported operand type(s) for -: 'str' and 'int'"
CUT, KWARGS = "probe/truncated_constant", "environment.kwargs: "
WRONG = [
    ("Maze-v0", {"max_items": 10}, "environment.max_items: only BinPack has it, and the task is Maze-v0", ""),
    ("BinPack-v2", {"max_items": 10, "kwargs": {"max_num_items": 3}}, f"{SAME} say the same thing", ""),
    ("BinPack-v2", {"kwargs": CROWDED}, "obs_num_ems = 40 is more than max_num_ems = 20", ""),
    ("Maze-v0", {"kwargs": {"num_row": 5}}, f"{KWARGS}Maze-v0 has no 'num_row'; did you mean 'num_rows'?", MAZE_TAKES),
    ("Game2048-v1", {"kwargs": {"x": 5}}, f"{KWARGS}Game2048-v1 has no 'x'", "Game2048-v1 takes: board_size"),
    (
        CUT,
        {"kwargs": {"num_step": 9}},
        f"{KWARGS}{CUT} has no 'num_step'; did you mean 'num_steps'?",
        f"{CUT} takes: num_steps",
    ),
    (
        "Maze-v0",
        {"kwargs": {"num_rows": "five"}},
        f"{KWARGS}Maze-v0 cannot be made with {FIVE}",
        "change the values named",
    ),
    ("Maze-v0", {"kwargs": TWICE}, f"{KWARGS}Maze-v0 is given a generator and also num_rows", ""),
    ("Maze-v0", {"max_episode_steps": 0}, "environment.max_episode_steps: must be at least 1, got 0", ""),
]


@pytest.mark.parametrize(
    ("error_type", "task_id", "options", "what", "hint"),
    [*((UnsupportedEnvironmentError, *row) for row in UNSUPPORTED), *((ConfigError, *row) for row in WRONG)],
)
def test_what_cannot_be_made_is_refused_in_words(error_type, task_id, options, what, hint):
    error = refusal(error_type, task_id, **options)
    assert what in error.what
    assert (error.hint or "").startswith(hint)
    assert error.exit_code == (3 if error_type is UnsupportedEnvironmentError else 2)


def test_sokoban_is_refused_without_touching_the_network_but_for_its_own_levels(monkeypatch):
    def no_network(*args, **kwargs):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", no_network)
    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    error = refusal(UnsupportedEnvironmentError, "Sokoban-v0")
    assert error.what == "Sokoban-v0 downloads its levels from the Hugging Face hub, and nothing is downloaded here"
    assert error.hint == (
        "use Sokoban-text-v0, or --kwargs '{generator: toy}' or '{generator: simple}': small sets of Jumanji"
    )
    for generator in ("toy", "simple"):
        env = registry.make("Sokoban-v0", kwargs={"generator": generator, "time_limit": 30})
        assert env.time_limit == 30
        jax.eval_shape(env.reset, jax.random.key(0))


def test_binpack_v0_is_rust_rls_generator():
    env = registry.make("BinPack-v0")
    assert env.action_spec.num_values == 40 * 20
    assert env.task_id == "BinPack-v0"
    assert registry.task_note("BinPack-v2") is None
    assert registry.task_note("BinPack-v0") == (
        "BinPack-v0 is Jumanji's BinPack with rust_rl's generator: 20 items, 40 EMS, split_eps 0.001,"
        " prob_split_one_item 0.3, split_num_same_items 1"
    )
    built = construction.build_jumanji("BinPack-v0", "BinPack-v2", registry.RUST_RL_BINPACK).generator
    names = ("_split_eps", "_prob_split_one_item", "_split_num_same_items", "max_num_items", "max_num_ems")
    assert [getattr(built, name) for name in names] == [0.001, 0.3, 1, 20, 40]
    assert built.container_dims == (5870, 2330, 2200)
    state = jax.jit(jax.vmap(built))(jax.random.split(jax.random.key(0), 16))
    # One piece per split: the generator goes on until all 20 items are there, unless the last split made an empty one.
    assert int(state.items_mask.sum(-1).min()) >= 19


def test_what_reaches_the_environment_made_also_one_of_ones_own(monkeypatch):
    env = registry.make("BinPack-v2", max_items=10, max_ems=20)
    assert (env.action_spec.num_values, env.time_limit) == (200, 10)
    state, timestep = jax.eval_shape(env.reset, jax.random.key(0))
    assert state.ems_mask.shape == (20,)
    assert timestep.observation.agent_view["ems_mask"].shape == (20,)
    assert registry.make("Maze-v0", kwargs={"generator": RandomGenerator(5, 4)}).time_limit == 20
    env = registry.make("Maze-v0", max_episode_steps=4)
    assert (env.can_truncate, env.time_limit) == (True, 4)
    monkeypatch.setitem(registry.ENVIRONMENTS, "Own-v0", lambda num_steps=3: make_truncated_constant(num_steps))
    env = registry.make("Own-v0", kwargs={"num_steps": 4})
    assert (env.task_id, env.time_limit) == ("Own-v0", 4)
    assert "Own-v0" in registry.task_ids()
    error = refusal(ConfigError, "Own-v0", kwargs={"steps": 4})
    assert error.what == "environment.kwargs: Own-v0 has no 'steps'; did you mean 'num_steps'?"


@pytest.mark.parametrize(
    ("task_id", "kwargs", "mask_shape", "time_limit"),
    [
        ("Maze-v0", {"num_rows": 5, "num_cols": 6}, (4,), 30),  # the limit follows the size
        ("Maze-v0", {"num_rows": 5, "time_limit": 7}, (4,), 7),
        ("Knapsack-v1", {"num_items": 10}, (10,), 10),
        ("Connector-v3", {"grid_size": 14, "num_agents": 4}, (4, 5), 50),
        ("MMST-v0", {"time_limit": 30, "num_agents": 2}, (2, 36), 30),
        ("Game2048-v1", {"board_size": 5}, (4,), None),
        ("probe/truncated_constant", {"num_steps": 9}, (1,), 9),
    ],
)
def test_kwargs_reach_constructor_or_generator(task_id, kwargs, mask_shape, time_limit):
    env = registry.make(task_id, kwargs=kwargs)
    assert env.action_spec.mask_shape == mask_shape
    assert env.time_limit == time_limit


@pytest.mark.parametrize("task_id", ["BinPack-v2", "SlidingTilePuzzle-v0", "JobShop-v0", "MMST-v0"])
def test_rebuilding_a_generator_keeps_what_is_not_changed(task_id):
    generator = construction.generator_of(registration.make(task_id))
    assert vars(construction.rebuilt_generator(generator, {})).keys() == vars(generator).keys()
    plain = {name: value for name, value in vars(generator).items() if isinstance(value, (int, float, tuple))}
    assert plain
    rebuilt = vars(construction.rebuilt_generator(generator, {}))
    assert {name: rebuilt[name] for name in plain} == plain


INSIDE_IPYTHON = """
import builtins, sys, types
builtins.__IPYTHON__ = True
asked = []
shell = types.SimpleNamespace(run_line_magic=lambda *magic: asked.append(magic))
sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: shell)
sys.modules["ipykernel"] = types.ModuleType("ipykernel")
{statement}
print(asked, builtins.__IPYTHON__)
"""
CASES = {
    "by making an environment": ('import stoix_like; stoix_like.make_env("Maze-v0")', "[] True"),
    "directly": ("import jumanji", "[('matplotlib', 'ipympl')] True"),  # so the first case can fail
}


@pytest.mark.full
@pytest.mark.parametrize("name", quick(CASES, ["by making an environment"]))
def test_importing_jumanji_inside_ipython_asks_for_no_plotting_backend(name):
    statement, printed = CASES[name]
    program = [sys.executable, "-c", INSIDE_IPYTHON.format(statement=statement)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == printed
