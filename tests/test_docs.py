"""The documentation points at things that exist: links, files, make targets, modules in the edit maps."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    missing = [t for t in targets if not t.startswith("http") and not (page.parent / t).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_scripts_targets_and_presets_exist(page):
    text = page.read_text()
    makefile = (ROOT / "Makefile").read_text()
    assert [s for s in re.findall(r"scripts/(\w+\.py)", text) if not (ROOT / "scripts" / s).exists()] == []
    assert [
        t
        for t in re.findall(r"`?make ((?:train|test|check|docs|bench|format)[\w-]*)", text)
        if f"\n{t}:" not in makefile
    ] == []
    assert [p for p in re.findall(r"--config (ppo/\w+)", text) if not (ROOT / "configs" / f"{p}.yaml").exists()] == []


@pytest.mark.parametrize("page", ["training-loop.md", "architecture.md"])
def test_files_of_the_edit_maps_exist(page):
    found = re.findall(
        r"`((?:algorithms|envs|networks|ops|evaluation|runtime)/[\w/]+\.py)`", (ROOT / "docs" / page).read_text()
    )
    assert found
    assert [f for f in found if not (ROOT / "stoix_like" / f).exists()] == []
