"""Who is champion, and since when: small files that name each other. Imports no JAX.

`champion.json` at the top of a game's folder is replaced atomically. Each promotion keeps its own record, in the folder
of its stage, so that the champions before can be found, and made champion again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.runtime.stages.manifest import Manifest, read_manifest
from stoix_like.runtime.storage.atomic import atomic_write_text
from stoix_like.runtime.storage.signed_json import SignedJsonError, read_signed, signed_text
from stoix_like.selfplay.files.folders import CHAMPION, PARAMETERS, Layout

#: As `runs.find` says.
PUT_BACK = f"put it back, or copy iterations/N/promote/{CHAMPION} of the iteration N that was champion last"
#: By verdict, of candidates that did not become champion.
_STATUSES = {
    "promote": "not promoted (--no-auto-promote)",
    "reject": "rejected",
    "inconclusive": "inconclusive",
    "invalid": "no valid evidence",
}


class ChampionRecord(NamedTuple):
    """Who is champion, and by which evidence.

    Attributes:
        hash: of the parameters.
        iteration: that made the candidate; 0 for the random parameters of the beginning.
        parameters: the file, below the folder of the game.
        evidence: digest of the manifest of the evaluation; None of iteration 0.
        previous: the iteration of the champion before; None of iteration 0.
    """

    hash: str
    iteration: int
    parameters: str
    evidence: str | None = None
    previous: int | None = None


def write_record(path: Path, record: ChampionRecord) -> None:
    """Writes a champion's record, whole or not at all."""
    atomic_write_text(path, signed_text(record._asdict()))


def read_record(path: Path) -> ChampionRecord:
    """A champion's record. Raises CheckpointError if it is missing, damaged, or was changed."""
    hint = "put it back as it was" if path.parent.name == "promote" else PUT_BACK
    try:
        return ChampionRecord(**read_signed(path, ChampionRecord._fields[:3]))
    except SignedJsonError as error:
        raise CheckpointError(f"{path} cannot be read: {error.reason}", hint) from error
    except TypeError as error:  # it has further fields
        raise CheckpointError(f"{path} cannot be read: another version has written it", hint) from error


def status_of(decided: Manifest) -> str:
    """What became of a candidate: promoted, rejected, inconclusive …"""
    if decided.facts["promoted"]:
        return "promoted"
    if not decided.inputs["evaluate"]:
        return "not evaluated"
    return _STATUSES[str(decided.facts["verdict"])]


def record_path(layout: Layout, iteration: int) -> Path:
    """The record of the champion that an iteration promoted."""
    return layout.stage(iteration, "promote") / CHAMPION


def promoted_record(layout: Layout, iteration: int) -> ChampionRecord:
    """The record of the champion that an iteration promoted. Raises CheckpointError as `read_record`.

    That of the random parameters is known also where its file is missing: a first start may have died after it had
    written `champion.json`.
    """
    path = record_path(layout, iteration)
    if iteration == 0 and not path.is_file() and (known := _first_record(layout)) is not None:
        return known
    return read_record(path)


def opponent_record(layout: Layout, iteration: int) -> ChampionRecord:
    """Whom the candidate of an iteration plays: the champion, before it became champion itself."""
    record = read_record(layout.champion)
    if record.iteration == iteration:  # promoted by a process that was killed before it said so
        return promoted_record(layout, record.previous or 0)
    return record


def _first_record(layout: Layout) -> ChampionRecord | None:
    """The record of the random parameters, from what came after them; None if that does not say."""
    record = read_record(layout.champion)
    while record.previous:
        record = read_record(record_path(layout, record.previous))
    if record.previous is None:
        return record
    evaluated = read_manifest(layout.stage(record.iteration, "evaluate"))
    if evaluated is None or evaluated.digest != record.evidence:
        return None
    return first_record(layout, evaluated.inputs["champion"])


def first_record(layout: Layout, parameters_hash: str) -> ChampionRecord:
    """The record of the random parameters with this hash."""
    path = layout.stage(0, "train") / PARAMETERS
    return ChampionRecord(parameters_hash, 0, path.relative_to(layout.root).as_posix())


def lineage(layout: Layout) -> Iterator[ChampionRecord]:
    """The champions, from the present one back to the random parameters. Raises CheckpointError if one is damaged."""
    record = read_record(layout.champion)
    yield record
    while record.previous is not None:
        record = promoted_record(layout, record.previous)
        yield record


def roll_back(layout: Layout, hash_of: Callable[[Path], str]) -> tuple[ChampionRecord, ChampionRecord]:
    """(the champion before, the one that it replaces again). The pointer is replaced; nothing is deleted.

    Args:
        layout: of the game.
        hash_of: the hash of a parameter file.

    Raises:
        ConfigError: the champion has no predecessor, or the last iteration has yet to finish its promotion, and would
            promote it again.
        CheckpointError: a record or the predecessor's parameters are damaged or missing.
    """
    now = read_record(layout.champion)
    if now.previous is None:
        what = f"the champion of iteration {now.iteration} has no predecessor"
        raise ConfigError(f"--rollback: {what}", "there is nothing to go back to")
    is_last = now.iteration == layout.last_iteration()  # one that was left is never finished
    if is_last and read_manifest(layout.stage(now.iteration, "promote")) is None:
        what = f"the promotion of iteration {now.iteration} was interrupted"
        hint = "finish the iteration first, or leave it: the same command without --rollback, or with --new-iteration"
        raise ConfigError(f"--rollback: {what}", hint)
    before = promoted_record(layout, now.previous)
    path = layout.root / before.parameters
    if (found := hash_of(path)) != before.hash:
        raise CheckpointError(
            f"{path} has the hash {found[:12]}, and {before.hash[:12]} is named", "put it back as it was"
        )
    write_record(layout.champion, before)
    return before, now
