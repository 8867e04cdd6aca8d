"""The commit that versions.json names: of this project's own clone, never of what it is installed in."""

import os
import shutil
import subprocess

import pytest

from stoix_like.runtime.console import installation
from stoix_like.runtime.console.installation import versions

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(folder, *words):
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    call = ["git", "-C", folder, *who, *words]
    return subprocess.run(call, check=True, capture_output=True, text=True, env=kept).stdout


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A clone of one commit, in place of the project's."""
    (tmp_path / "file").write_text("a")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "--quiet", "--message", "A")
    monkeypatch.setattr(installation, "ROOT", tmp_path.resolve())
    installation.git_commit.cache_clear()
    yield tmp_path
    installation.git_commit.cache_clear()


def test_a_run_names_it_and_whether_files_were_changed(root):
    known = git(root, "rev-parse", "--short", "HEAD").strip()
    assert versions()["commit"] == known
    installation.git_commit.cache_clear()
    (root / "file").write_text("b")
    assert versions()["commit"] == f"{known}+"


def test_a_hook_of_another_repository_changes_nothing(root, monkeypatch, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    git(other, "init", "--quiet")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert installation.git_commit() == git(root, "rev-parse", "--short", "HEAD").strip()


def test_there_is_none_without_git_or_where_it_is_only_installed(root, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(root))
        assert installation.git_commit() is None
    installation.git_commit.cache_clear()
    (root / "site-packages").mkdir()
    monkeypatch.setattr(installation, "ROOT", (root / "site-packages").resolve())
    assert "commit" not in versions()
