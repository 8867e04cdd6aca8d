"""The documentation points at things that exist: links, files, make targets, modules in the edit maps."""

import ast
import functools
import re

import jax
import pytest
from support.paths import ROOT

from stoix_like import errors, replay
from stoix_like.algorithms import spo
from stoix_like.config.sections.alphazero import AlphaZeroSectionConfig
from stoix_like.config.sections.runs import SPOConfig
from stoix_like.runtime.runs import build
from stoix_like.runtime.runs.sources import load_config
from stoix_like.runtime.training.callbacks import RunClock
from stoix_like.types import Learner

#: What a callback is told, and the leaves of a section, which pages call by these names.
CLOCK = {*vars(RunClock(0, 0, 1)), *vars(RunClock)}
SECTION = {*AlphaZeroSectionConfig.__annotations__}
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
LOOPS = ["training-loop.md", "spo-training-loop.md", "alphazero-training-loop.md"]
FILE_ENDINGS = {"html", "lock", "sqlite", "py", "yaml", "json", "jsonl", "png", "gif", "md", "toml", "stablehlo"}
TARGETS = r"`?make ((?:train|test|check|docs|site|tutorials|bench|format)[\w-]*)"


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_scripts_targets_presets_and_functions_exist_and_blocks_in_lists_are_indented_by_four(page):
    text, makefile = page.read_text(), (ROOT / "Makefile").read_text()
    targets = [t for t in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text) if not re.match(r"https?:", t)]
    assert [t for t in targets if not (page.parent / t).exists()] == []
    if page.is_relative_to(DOCS):  # a link that leaves the folder works on a git host and is dead on the site
        assert [t for t in targets if not (page.parent / t).resolve().is_relative_to(DOCS)] == []
        assert short_indents(text) == []
    assert [s for s in re.findall(r"\b(?:scripts|tests)/[\w/]+\.py", text) if not (ROOT / s).exists()] == []
    assert [t for t in re.findall(TARGETS, text) if f"\n{t}:" not in makefile] == []
    named = re.findall(r"--config ((?:ppo|spo|alphazero)/\w+)", text)
    assert [p for p in named if not (ROOT / "configs" / f"{p}.yaml").exists()] == []
    assert missing_names(text) == []


@pytest.mark.parametrize("page", [*LOOPS, "architecture.md"])
def test_files_of_the_edit_maps_exist_and_those_of_loops_name_functions(page):
    text = (DOCS / page).read_text()
    rooms = "algorithms|envs|networks|ops|search|replay|evaluation|runtime|config"
    found = re.findall(rf"`((?:{rooms})/[\w/]+\.py)`", text)
    assert found
    assert [f for f in found if not (ROOT / "stoix_like" / f).exists()] == []
    named = re.findall(r"`[a-z_]+\.[A-Za-z]\w*`", text.partition("## Edit map")[2])
    assert len(named) > 15 or page not in LOOPS


def short_indents(text):
    """Lines of a block that follow an empty line and are indented by one to three spaces."""
    lines, found, in_code = text.splitlines(), [], False
    for before, line in zip(["", *lines], lines, strict=False):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif in_code:
            continue
        if not before.strip() and re.match(r" {1,3}\S", line):
            found.append(line)
    return found


def names_in(module):
    """What a module defines at its top level, and what its classes have and do."""
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
            yield from (part.name for part in node.body if isinstance(part, ast.FunctionDef))
            yield from (part.target.id for part in node.body if isinstance(part, ast.AnnAssign))
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


@functools.cache
def modules():
    """{module: the names that files of that name define}."""
    found = {}
    for path in (ROOT / "stoix_like").rglob("*.py"):
        found.setdefault(path.stem, set()).update(names_in(path))
    return found


def missing_names(text):
    """`module.name` in backticks where no module of that name defines it; other words with a dot are left alone."""
    found = re.findall(r"`([a-z_]+)\.([A-Za-z]\w*)(?:\(\))?`", text)
    # `state.hyper` and `learner.policy` are fields of values, which modules have the names of
    found = [(m, name) for m, name in found if not (m == "state" and name.islower())]
    found = [(m, name) for m, name in found if not (m == "learner" and name in Learner._fields)]
    # a callback is given `clock`, and leaves are named by their section
    found = [(m, name) for m, name in found if not (m == "clock" and name in CLOCK)]
    found = [(m, name) for m, name in found if not (m == "alphazero" and name in SECTION)]
    return [f"{m}.{name}" for m, name in found if m in modules() and name not in modules()[m] | FILE_ENDINGS]


def test_a_missing_function_and_a_short_indent_are_seen():
    text = "`ppo.loss` `ppo.lost` `state.hyper` `config/sections/runs.py`"
    assert missing_names(text) == ["ppo.lost"]
    text = "`state.Sample` `state.Simple` `learner.policy` `learner.lost`"
    assert missing_names(text) == ["state.Simple", "learner.lost"]
    assert short_indents("- a\n\n  ```text\n\n   b\n  ```\n\n    c\n") == ["  ```text"]


def test_every_exit_code_is_documented_and_messages_of_the_troubleshooting_tables_are_the_codes():
    """Each quoted part of a message stands in the source, so that a reworded error is noticed here."""
    page = (DOCS / "troubleshooting.md").read_text()
    codes = {kind.exit_code for kind in [errors.StoixError, *errors.StoixError.__subclasses__()]}
    assert {str(code) for code in codes | {0, 130}} == set(re.findall(r"^\| (\d+) \| .* \|$", page, re.MULTILINE))
    source = "\n".join(p.read_text() for p in (ROOT / "stoix_like").rglob("*.py"))
    flat = re.sub(r"\"\s*\n\s*f?\"", "", source)  # texts that go over several lines
    cells = re.findall(r"^\| (`.*?) \| ", page, re.MULTILINE)
    parts = [part.strip() for cell in cells for text in re.findall(r"`([^`]+)`", cell) for part in text.split("…")]
    foreign = {"No space left", "Permission denied", "File name too long", "for environment 'JAX_"}  # words of others
    assert len(parts) > 40
    assert [part for part in parts if part and part not in foreign and part not in flat] == []


@pytest.mark.parametrize("preset", sorted(f"spo/{path.stem}" for path in (ROOT / "configs" / "spo").glob("*.yaml")))
def test_bytes_of_the_replay_are_those_of_the_presets(preset):
    """Per step, of its observation and of the search; steps kept; in all: as the page of SPO shows them."""
    config = load_config(SPOConfig, "spo", ["--config", preset], default_config="spo/quick").config
    env = build.make_env(config.environment)
    _, timestep = jax.eval_shape(jax.vmap(env.reset), jax.random.split(jax.random.key(0), 2))
    step = spo.example_step(env, spo.settings_of(env, config), timestep.observation)
    capacity = config.spo.replay_buffer_size
    numbers = [replay.num_bytes(part) for part in (step, step.observation, step.targets)] + [capacity]
    row = [f"`{preset}`", *(f"{n:,}" for n in numbers), f"{replay.num_bytes(step, capacity) / 1e6:.1f} MB"]
    page = (DOCS / "spo-training-loop.md").read_text()
    assert row in [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines()]
