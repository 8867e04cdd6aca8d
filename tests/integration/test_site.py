"""The site is built as `make site` does it, strictly and without JAX; planted faults end the build."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from support.paths import ROOT

#: What `python -m mkdocs` does, and then what it has imported.
BUILD = """
import sys
from mkdocs.__main__ import cli

cli(["build", "--strict", "--site-dir", sys.argv[1]], standalone_mode=False)
print("imported:", [name for name in ("jax", "stoix_like") if name in sys.modules])
"""


def build(project, out):
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": "default"}
    options = {"cwd": project, "env": environment, "capture_output": True, "text": True, "timeout": 300}
    return subprocess.run([sys.executable, "-c", BUILD, str(out)], check=False, **options)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    done = build(ROOT, out)
    assert done.returncode == 0, done.stderr[-4000:]
    return out, done


@pytest.fixture
def copy(tmp_path):
    """What the site is built from, to plant faults in."""
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    for folder in ("docs", "stoix_like"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_the_site_is_built_without_a_warning_and_without_importing_what_it_describes(site):
    _, done = site
    assert "WARNING" not in done.stderr
    assert done.stdout.splitlines()[-1] == "imported: []"


def test_pages_load_nothing_from_elsewhere_and_show_signatures_parameters_and_shapes(site):
    out, _ = site
    pages = list(out.rglob("*.html"))
    link = r"<link[^>]*rel=\"?(?:stylesheet|preconnect)[^>]*//"
    loaded = re.compile(rf"<(?:script|img|iframe)[^>]*src=\"?(https?:|//)|{link}")
    assert len(pages) > 30
    assert [page.name for page in pages if loaded.search(page.read_text())] == []
    page = (out / "reference" / "api-search.html").read_text()
    section = page.partition('id="stoix_like.search.smc.search"')[2].partition("best_action")[0]
    text = re.sub(r"<[^>]+>", "", section)
    assert "temperature: Temperature" in text
    assert "reward units; a scalar, [N], or a function of the accumulated advantages" in text


def plant(project, path, text):
    with (project / path).open("a", encoding="utf-8") as file:
        file.write(text)


@pytest.mark.full
def test_dead_links_missing_pages_and_wrong_docstrings_end_the_build(copy, tmp_path):
    plant(copy, "docs/onboarding.md", "\n[a](nowhere.md) [b](log.md#no-such-heading) [c](../README.md)\n")
    plant(copy, "docs/orphan.md", "# Not in nav\n")
    program = '\n\ndef planted(x: int) -> None:\n    """Text.\n\n    Args:\n        y: what.\n    """\n'
    plant(copy, "stoix_like/replay/sequences.py", program)
    done = build(copy, tmp_path / "site")
    assert done.returncode != 0
    warnings = [line for line in done.stderr.splitlines() if not line.startswith("INFO")]
    for seen in ("nowhere.md", "no-such-heading", "../README.md", "orphan.md", "Parameter 'y'"):
        assert any(seen in line for line in warnings), (seen, done.stderr[-4000:])


@pytest.mark.full
def test_a_wrong_name_in_the_reference_ends_the_build(copy, tmp_path):
    plant(copy, "docs/reference/api-replay.md", "\n::: stoix_like.replay_of_nothing\n")
    done = build(copy, tmp_path / "site")
    assert done.returncode != 0
    assert "stoix_like.replay_of_nothing could not be found" in done.stderr
