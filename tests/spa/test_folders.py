"""Names, places, and stages that are taken from elsewhere."""

import pytest

from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.runtime.stages.manifest import Manifest, write_manifest
from stoix_like.spa.folders import find_sources, layout_of, read_sources, write_sources


def make_stage(folder, name):
    folder.mkdir(parents=True)
    write_manifest(folder, Manifest(name, {}, {}, {}, {}, {}))
    return folder


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "a\nb", ".hidden"])
def test_a_name_is_that_of_one_folder(name):
    with pytest.raises(ConfigError, match="is no name of a pipeline"):
        layout_of("runs/spa", name)


def test_a_name_with_brackets_is_one():
    assert layout_of("runs/spa", "[x] 1").stage("ppo").parts == ("runs", "spa", "[x] 1", "ppo")


def test_a_pipeline_gives_all_its_stages_and_a_stage_itself(tmp_path):
    one, other = tmp_path / "a", tmp_path / "b"
    for name in ("pretrain", "ppo"):
        make_stage(one / name, name)
    moved = make_stage(other / "kept", "generate")  # whatever its folder is called
    found = find_sources([str(one), str(moved)])
    assert {name: (source.folder, source.is_named) for name, source in found.items()} == {
        "pretrain": (one / "pretrain", False),
        "ppo": (one / "ppo", False),
        "generate": (moved, True),
    }


def test_what_has_no_stage_and_what_is_given_twice_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="no folder"):
        find_sources([str(tmp_path / "none")])
    with pytest.raises(CheckpointError, match="has no stage that is done"):
        find_sources([str(tmp_path)])
    for name in ("a", "b"):
        make_stage(tmp_path / name / "pretrain", "pretrain")
    with pytest.raises(CheckpointError, match=r"the stage pretrain is in .*a/pretrain and in .*b/pretrain"):
        find_sources([str(tmp_path / "a"), str(tmp_path / "b")])
    assert len(find_sources([str(tmp_path / "a"), str(tmp_path / "a" / "pretrain")])) == 1
    (tmp_path / "a" / "pretrain" / "manifest.json").write_text("{")
    with pytest.raises(CheckpointError, match="cannot be used: it is torn, or not ours"):
        find_sources([str(tmp_path / "a" / "pretrain")])


def test_sources_are_kept_as_paths_from_the_pipeline(tmp_path):
    layout = layout_of(str(tmp_path), "b")
    layout.root.mkdir()
    assert read_sources(layout) == {}
    write_sources(layout, {"pretrain": tmp_path / "a" / "pretrain"})
    assert '"../a/pretrain"' in (layout.root / "sources.json").read_text()
    assert read_sources(layout) == {"pretrain": tmp_path / "a" / "pretrain"}
    (layout.root / "sources.json").write_text("{}")
    with pytest.raises(CheckpointError, match="it is torn, or not ours"):
        read_sources(layout)
