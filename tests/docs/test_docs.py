"""The documentation points at things that exist: links, files, make targets, modules in the edit maps."""

import ast
import re

import pytest
from support.paths import ROOT

from stoix_like.config.sections.alphazero import AlphaZeroSectionConfig
from stoix_like.runtime.training.callbacks import RunClock
from stoix_like.types import Learner

#: What a callback is told, and the leaves of a section, which pages call by these names.
CLOCK = {*vars(RunClock(0, 0, 1)), *vars(RunClock)}
SECTION = {*AlphaZeroSectionConfig.__annotations__}
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_scripts_targets_presets_and_functions_exist(page):
    text = page.read_text()
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
    missing = [t for t in targets if not t.startswith("http") and not (page.parent / t).exists()]
    assert missing == []
    makefile = (ROOT / "Makefile").read_text()
    assert [s for s in re.findall(r"(?:scripts|tests)/[\w/]+\.py", text) if not (ROOT / s).exists()] == []
    assert [
        t
        for t in re.findall(r"`?make ((?:train|test|check|docs|site|tutorials|bench|format)[\w-]*)", text)
        if f"\n{t}:" not in makefile
    ] == []
    named = re.findall(r"--config ((?:ppo|spo|alphazero)/\w+)", text)
    assert [p for p in named if not (ROOT / "configs" / f"{p}.yaml").exists()] == []
    assert missing_names(text) == []


LOOPS = ["training-loop.md", "spo-training-loop.md", "alphazero-training-loop.md"]


@pytest.mark.parametrize("page", [*LOOPS, "architecture.md"])
def test_files_of_the_edit_maps_exist(page):
    found = re.findall(
        r"`((?:algorithms|envs|networks|ops|search|replay|evaluation|runtime|config)/[\w/]+\.py)`",
        (ROOT / "docs" / page).read_text(),
    )
    assert found
    assert [f for f in found if not (ROOT / "stoix_like" / f).exists()] == []


def names_in(module):
    """What a module defines at its top level, and what its classes do."""
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
            yield from (part.name for part in node.body if isinstance(part, ast.FunctionDef))
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


FILE_ENDINGS = {"html", "lock", "sqlite", "py", "yaml", "json", "jsonl", "png", "gif", "md", "toml", "stablehlo"}


def missing_names(text):
    """`module.name` in backticks where no module of that name defines it; other words with a dot are left alone."""
    modules = {}
    for path in (ROOT / "stoix_like").rglob("*.py"):
        modules.setdefault(path.stem, set()).update(names_in(path))
    found = re.findall(r"`([a-z_]+)\.([A-Za-z]\w*)(?:\(\))?`", text)
    # `state.hyper` and `learner.policy` are fields of values, which modules have the names of
    found = [(m, name) for m, name in found if not (m == "state" and name.islower())]
    found = [(m, name) for m, name in found if not (m == "learner" and name in Learner._fields)]
    # a callback is given `clock`, and leaves are named by their section
    found = [(m, name) for m, name in found if not (m == "clock" and name in CLOCK)]
    found = [(m, name) for m, name in found if not (m == "alphazero" and name in SECTION)]
    return [f"{m}.{name}" for m, name in found if m in modules and name not in modules[m] | FILE_ENDINGS]


def test_a_missing_function_is_seen():
    assert missing_names("`ppo.loss` `ppo.lost` `state.hyper` `config/sections/runs.py`") == ["ppo.lost"]
    assert missing_names("`state.Sample` `state.Simple` `learner.policy` `learner.lost`") == [
        "state.Simple",
        "learner.lost",
    ]


@pytest.mark.parametrize("page", LOOPS)
def test_the_edit_map_names_functions(page):
    edit_map = (ROOT / "docs" / page).read_text().partition("## Edit map")[2]
    assert len(re.findall(r"`[a-z_]+\.[A-Za-z]\w*`", edit_map)) > 15


def test_every_exit_code_is_documented_and_messages_of_the_troubleshooting_tables_are_the_codes():
    """And every class of errors has the code that the page says."""
    from stoix_like import errors

    rows = dict(re.findall(r"^\| (\d+) \| (.*) \|$", (ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE))
    codes = {kind.exit_code for kind in [errors.StoixError, *errors.StoixError.__subclasses__()]}
    assert {str(code) for code in codes | {0, 130}} == set(rows)
    # Each quoted part of a message stands in the source, so that a reworded error is noticed here.
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    source = "\n".join(p.read_text() for p in (ROOT / "stoix_like").rglob("*.py"))
    flat = re.sub(r"\"\s*\n\s*f?\"", "", source)  # texts that go over several lines
    cells = re.findall(r"^\| (`.*?) \| ", page, re.MULTILINE)
    parts = [part.strip() for cell in cells for text in re.findall(r"`([^`]+)`", cell) for part in text.split("…")]
    foreign = {"No space left", "Permission denied", "File name too long", "for environment 'JAX_"}  # words of others
    assert len(parts) > 40
    assert [part for part in parts if part and part not in foreign and part not in flat] == []


def replay_bytes(preset):
    """(preset, bytes per step, of observation, of search, steps kept, in all) as the page of SPO shows them."""
    import jax

    from stoix_like import replay
    from stoix_like.algorithms import spo
    from stoix_like.config.sections.runs import SPOConfig
    from stoix_like.runtime.runs import build
    from stoix_like.runtime.runs.sources import load_config

    config = load_config(SPOConfig, "spo", ["--config", preset], default_config="spo/quick").config
    env = build.make_env(config.environment)
    _, timestep = jax.eval_shape(jax.vmap(env.reset), jax.random.split(jax.random.key(0), 2))
    step = spo.example_step(env, spo.settings_of(env, config), timestep.observation)
    capacity = config.spo.replay_buffer_size
    numbers = [replay.num_bytes(part) for part in (step, step.observation, step.targets)] + [capacity]
    return [f"`{preset}`", *(f"{n:,}" for n in numbers), f"{replay.num_bytes(step, capacity) / 1e6:.1f} MB"]


@pytest.mark.parametrize("preset", sorted(f"spo/{path.stem}" for path in (ROOT / "configs" / "spo").glob("*.yaml")))
def test_bytes_of_the_replay_are_those_of_the_presets(preset):
    page = (ROOT / "docs" / "spo-training-loop.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    assert replay_bytes(preset) in rows
