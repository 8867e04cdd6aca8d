"""A pipeline after two iterations, and copies of its folder that a test may damage."""

import shutil

import pytest
from support.pipelines import moved, small_pipeline

from stoix_like.runtime.console.reporter import SILENT
from stoix_like.selfplay.iterations.steps import run_iteration


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """(a pipeline after two iterations, their reports)."""
    pipeline = small_pipeline(tmp_path_factory.mktemp("loop"))
    return pipeline, [run_iteration(pipeline), run_iteration(pipeline)]


@pytest.fixture
def copied(finished, tmp_path):
    """The pipeline with a copy of its folder, which a test may damage."""
    pipeline, _ = finished
    before = pipeline.layout, pipeline.config
    shutil.copytree(before[0].root, tmp_path / before[0].root.name)
    yield moved(pipeline, tmp_path)
    pipeline.layout, pipeline.config = before
    pipeline.reporter = SILENT
