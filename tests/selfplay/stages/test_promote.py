"""The stage `promote` and the records of champions: who is champion, who was, and the way back."""

import json
import shutil

import jax
import numpy as np
import pytest
from support.asserts import refused
from support.pipelines import champion_hash

from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.runtime.stages.hashes import array_hash
from stoix_like.runtime.stages.manifest import Manifest, read_manifest, write_manifest
from stoix_like.runtime.weights import parameters
from stoix_like.runtime.weights.parameters import stored_arrays
from stoix_like.selfplay.events.derive import pipeline_run
from stoix_like.selfplay.files import records
from stoix_like.selfplay.files.folders import PARAMETERS
from stoix_like.selfplay.iterations.begin import IterationOptions, begin_iteration
from stoix_like.selfplay.iterations.steps import run_iteration
from stoix_like.selfplay.iterations.table import files_of
from stoix_like.selfplay.ratings.lineage import read_ancestry
from stoix_like.selfplay.stages import promote


def roll_back(layout):
    return records.roll_back(layout, lambda path: array_hash(stored_arrays(path)))


def promoted_iteration(layout):
    return max(record.iteration for record in records.lineage(layout))


def decide_again(pipeline):
    """Runs the stage `promote` of the last promoted iteration again, from before the promotion."""
    layout = pipeline.layout
    number = promoted_iteration(layout)
    roll_back(layout)
    (layout.stage(number, "promote") / "manifest.json").unlink()
    return promote.promote_stage(pipeline, files_of(pipeline.layout, number)).facts


def statuses(layout):
    """{iteration: what became of its candidate}."""
    return {one.iteration: one.status for one in read_ancestry(layout).candidates}


def test_rollback_makes_the_champion_before_champion_again(copied):
    layout = copied.layout
    chain = list(records.lineage(layout))
    assert len(chain) > 1, "the configuration of this test promotes someone"
    first, second, *others = (record.iteration for record in chain)
    before = statuses(layout)
    assert before == {number: before[number] for number in (0, 1, 2)}
    assert before[first] == "champion"
    assert all(before[number] == "former champion" for number in (second, *others))
    assert roll_back(layout) == (chain[1], chain[0])
    assert champion_hash(layout) == chain[1].hash
    assert statuses(layout) == before | {first: "rolled back", second: "champion"}
    while records.read_record(layout.champion).previous is not None:
        roll_back(layout)
    with refused(ConfigError, hint="there is nothing to go back to"):
        roll_back(layout)


def test_rollback_is_refused_while_a_promotion_is_unfinished_or_the_predecessor_is_damaged(copied):
    layout = copied.layout
    now, before, *_ = records.lineage(layout)
    for number in range(now.iteration + 1, layout.last_iteration() + 1):
        shutil.rmtree(layout.iteration(number))
    (layout.stage(now.iteration, "promote") / "manifest.json").unlink()  # killed before it was written
    with pytest.raises(ConfigError, match="was interrupted") as caught:
        roll_back(layout)
    assert "--new-iteration" in caught.value.hint
    assert begin_iteration(copied, IterationOptions(new_iteration=True)) == now.iteration + 1
    path = layout.root / before.parameters
    content = path.read_bytes()
    shutil.copyfile(layout.root / now.parameters, path)
    with pytest.raises(CheckpointError, match="has the hash"):
        roll_back(layout)
    assert champion_hash(layout) == now.hash
    path.write_bytes(content)
    assert roll_back(layout) == (before, now)  # once its iteration is left
    assert next(records.lineage(layout)) == before


def test_the_lineage_knows_champions_by_their_hash_and_not_by_their_iteration(copied):
    """Another candidate stands where the champion was made, as when its stage was done again elsewhere."""
    layout = copied.layout
    number, folder = promoted_iteration(layout), layout.stage(promoted_iteration(layout), "train")
    trained = read_manifest(folder)
    write_manifest(folder, trained._replace(facts=trained.facts | {"candidate": "another"}))
    found = {one.hash: one.status for one in read_ancestry(layout).candidates}
    assert found["another"] == "undecided"
    assert champion_hash(layout) not in found
    write_manifest(folder, trained)
    other = layout.stage(number - 1, "train")
    write_manifest(other, read_manifest(other)._replace(facts=trained.facts))  # two iterations made the same
    assert [one.status for one in read_ancestry(layout).candidates[-2:]] == ["champion", "champion"]


@pytest.mark.parametrize(
    ("promoted", "verdict", "evaluated", "status"),
    [
        (True, "promote", "abc", "promoted"),
        (False, "promote", "abc", "not promoted (--no-auto-promote)"),
        (False, "reject", "abc", "rejected"),
        (False, "inconclusive", "abc", "inconclusive"),
        (False, "invalid", "abc", "no valid evidence"),
        (False, "invalid", "", "not evaluated"),
    ],
)
def test_the_words_of_decisions(promoted, verdict, evaluated, status):
    facts = {"promoted": promoted, "verdict": verdict}
    assert records.status_of(Manifest("promote", {"evaluate": evaluated}, {}, {}, facts, {})) == status


def test_the_decision_is_the_same_again_and_never_on_another_candidate(copied):
    layout = copied.layout
    assert decide_again(copied)["promoted"]
    shutil.copyfile(
        layout.stage(0, "train") / PARAMETERS, layout.stage(promoted_iteration(layout), "train") / PARAMETERS
    )
    with pytest.raises(CheckpointError, match="has the hash"):
        decide_again(copied)


def test_a_candidate_of_another_game_is_refused(copied):
    path = copied.layout.stage(promoted_iteration(copied.layout), "train") / PARAMETERS
    metadata, params = parameters.read_metadata(path), copied.read_params(path)
    path.write_bytes(parameters.serialize(jax.tree.map(np.asarray, params), metadata._replace(task_id="connect_four")))
    with pytest.raises(CheckpointError, match="is a candidate of connect_four"):
        decide_again(copied)
    shutil.copyfile(path, copied.layout.root / records.read_record(copied.layout.champion).parameters)
    with pytest.raises(CheckpointError, match="is a candidate of connect_four"):
        run_iteration(copied)


def test_a_manifest_or_record_that_was_changed_is_refused(copied):
    manifest, champion = copied.layout.stage(2, "train") / "manifest.json", copied.layout.champion
    manifest.write_text(manifest.read_text().replace('"updates"', '"updatez"'))
    with pytest.raises(CheckpointError, match="was changed after it had been written"):
        read_manifest(manifest.parent)
    text = json.loads(champion.read_text())
    text["body"]["hash"] = "0" * 64
    champion.write_text(json.dumps(text))
    with pytest.raises(CheckpointError, match="was changed after it had been written"):
        records.read_record(champion)


def test_a_missing_pointer_is_refused_and_replaces_nobody(copied):
    layout = copied.layout
    known = promoted_iteration(layout)
    layout.champion.unlink()
    with pytest.raises(CheckpointError, match=r"champion\.json is missing") as caught:
        run_iteration(copied)
    assert f"iterations/{known:04d}/promote/champion.json" in caught.value.hint
    assert not layout.champion.exists()


@pytest.mark.parametrize("is_rolled_back", [False, True])
def test_a_pipeline_without_the_record_of_its_first_parameters_knows_them(copied, is_rolled_back):
    """Starts of earlier versions that died left it so."""
    layout = copied.layout
    while is_rolled_back and records.read_record(layout.champion).previous is not None:
        roll_back(layout)
    chain, run, table = list(records.lineage(layout)), pipeline_run(layout), read_ancestry(layout)
    shutil.rmtree(records.record_path(layout, 0).parent)
    assert list(records.lineage(layout)) == chain
    assert pipeline_run(layout) == run
    assert read_ancestry(layout) == table
    assert begin_iteration(copied) == 3
    assert records.read_record(records.record_path(layout, 0)) == chain[-1]
