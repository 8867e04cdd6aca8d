"""Hand-made manifests of many iterations, as a loop writes them, and how many of them are read again.

A count of reads that grows with the square of the iterations is a fault, on however fast a disk.
"""

import hashlib
from pathlib import Path

from stoix_like.runtime.stages.manifest import FILE, FORMAT, Manifest
from stoix_like.runtime.storage.signed_json import signed_text
from stoix_like.selfplay.events.database import Database
from stoix_like.selfplay.events.derive import derive_missing
from stoix_like.selfplay.events.history import WatchRule
from stoix_like.selfplay.events.log import EventLog
from stoix_like.selfplay.files.folders import PARAMETERS, WINDOW_FILE, shard_file
from stoix_like.selfplay.files.records import ChampionRecord, record_path, write_record
from stoix_like.selfplay.files.stored import HASH_DIGITS, KnownShards

GAMES, POSITIONS = 10, 60  # of an iteration


def derive_events(layout):
    """Derives all events, as after `events.sqlite` was lost."""
    database = Database(layout.root.parent)
    try:
        derive_missing(EventLog(database), layout, WatchRule())
    finally:
        database.close()


def know_shards(layout):
    """Looks at what earlier iterations have taken in, in each of them, as `sync` with folders of others does."""
    known = KnownShards(1)
    for number in range(1, layout.last_iteration() + 1):
        known.add_up_to(layout, number - 1)


def count_reads(work):
    """How many manifests `work` reads."""
    count, original = 0, Path.read_bytes

    def counted(path):
        nonlocal count
        count += path.name == FILE
        return original(path)

    Path.read_bytes = counted
    try:
        work()
    finally:
        Path.read_bytes = original
    return count


def write_iterations(layout, count):
    """Writes the manifests and records of so many iterations, each of which promotes nobody but the first."""
    champion = ChampionRecord(_hash("train", 0), 0, f"iterations/0000/train/{PARAMETERS}")
    record_path(layout, 0).parent.mkdir(parents=True)
    for path in (layout.champion, record_path(layout, 0)):
        write_record(path, champion)
    for number in range(1, count + 1):
        for one in _manifests(number, champion.hash):
            folder = layout.stage(number, one.stage)
            folder.mkdir(parents=True)
            (folder / FILE).write_text(signed_text({"format": FORMAT, **one._asdict()}), encoding="utf-8")


def _hash(what, number):
    return hashlib.sha256(f"{what} {number}".encode()).hexdigest()


def _manifests(number, champion):
    played, window, candidate = (_hash(what, number) for what in ("play", "export", "train"))
    totals = {"shards": number, "games": number * GAMES, "positions": number * POSITIONS, "foreign": 0}
    row = [played[:HASH_DIGITS], GAMES, POSITIONS, [champion, 0, number, 0]]
    stages = {
        "selfplay": (
            {"player": champion, "batches": "1"},
            {shard_file(0): played},
            {"games": GAMES, "positions": POSITIONS},
        ),
        "sync": ({"round": "0"}, {}, {"added": [row], "store": _hash("store", number), **totals}),
        "export": (
            {"store": _hash("store", number)},
            {WINDOW_FILE: window},
            {"games": GAMES, "positions": POSITIONS, "validation_positions": 0, "store_positions": number * POSITIONS},
        ),
        "train": (
            {"window": window},
            {PARAMETERS: candidate},
            {"candidate": candidate, "update": number, "gradient_steps": 1, "new_positions": POSITIONS},
        ),
        "evaluate": (
            {"candidate": candidate, "champion": champion},
            {},
            {"score": [0.5, 0.4, 0.6], "games": 40, "anchors": {}},
        ),
        "promote": (
            {"evaluate": "evaluated"},
            {},
            {"promoted": False, "verdict": "reject", "reasons": [], "champion": champion, "champion_iteration": 0},
        ),
    }
    recorded = {"began": "2026-01-01T00:00:00Z", "began_at": 60.0 * number, "seconds": 1.0, "new_shards": 1}
    for stage, (inputs, outputs, facts) in stages.items():
        yield Manifest(stage, inputs, {"seed": 0}, outputs, facts, recorded)
