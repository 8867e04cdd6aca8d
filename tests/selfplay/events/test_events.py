"""Events: each once in the log, delivered at least once, to consumers that raise, are late, or are started again."""

import contextlib
import dataclasses
import sqlite3
import typing

import pytest
from support.asserts import refused

from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.runtime.console.reporter import SILENT
from stoix_like.selfplay.events import database as database_module
from stoix_like.selfplay.events import kinds
from stoix_like.selfplay.events.breaker import Breaker, BreakerRule, Breakers
from stoix_like.selfplay.events.database import FILE, MIGRATIONS, Database, reading
from stoix_like.selfplay.events.kinds import EVENT_TYPES, event_from
from stoix_like.selfplay.events.log import EventLog, last_events, read_events
from stoix_like.selfplay.events.router import MAX_ATTEMPTS, EventRouter, Subscription
from stoix_like.selfplay.events.wiring import Triggers, wire_pipeline_events

BASE = {"game": "tic_tac_toe_2p", "run": "abc", "time": 5.0}


def played(iteration, part=1):
    return kinds.SelfplayComplete(**BASE, iteration=iteration, part=part, games=10, positions=50, player="p")


@pytest.fixture
def database(tmp_path):
    with contextlib.closing(Database(tmp_path)) as database:
        yield database


@pytest.fixture
def log(database):
    return EventLog(database)


def test_an_event_is_logged_once_by_game_iteration_stage_kind_and_part(log):
    assert log.append([played(1), played(2), played(1)]) == [played(1), played(2)]
    assert log.append([dataclasses.replace(played(1), time=99.0)]) == []
    assert log.append([played(1, part=2)]) == [played(1, part=2)]
    assert [logged.event for logged in log.read()] == [played(1), played(2), played(1, part=2)]
    assert [logged.position for logged in log.read(after=1)] == sorted(logged.position for logged in log.read())[1:]
    assert log.count("tic_tac_toe_2p", 1, "SELFPLAY_COMPLETE") == 2


def value_of(kind):
    """A value of the type of a field."""
    values = {int: 3, bool: True, float: 0.5, float | None: None, list[str]: ["a", "b"], dict[str, float]: {"x": 0.75}}
    return values.get(kind, "text")


def test_every_kind_is_read_as_it_was_written_and_another_version_is_refused(log):
    made = []
    for iteration, kind in enumerate(EVENT_TYPES.values()):
        types = typing.get_type_hints(kind)
        names = [field.name for field in dataclasses.fields(kind) if field.name not in (*BASE, "iteration", "part")]
        made.append(kind(**BASE, iteration=iteration, **{name: value_of(types[name]) for name in names}))
    log.append(made)
    assert [logged.event for logged in log.read()] == made
    assert len({event.key for event in made}) == len(made) == 14
    with refused(CheckpointError, hint="it was written by another version: use that one, or another --save-dir"):
        event_from("UNHEARD_OF", {})
    with pytest.raises(CheckpointError, match="SELFPLAY_COMPLETE"):
        event_from("SELFPLAY_COMPLETE", {"colour": 1})


def test_consumers_see_everything_once_in_order_and_go_on_after_a_restart(log):
    seen, chosen = [], []
    subscriptions = [
        Subscription("all", seen.append, from_start=True),
        Subscription("some", chosen.append, ("ITERATION_COMPLETE",), from_start=True),
    ]
    log.append([played(1)])
    router = EventRouter(log, SILENT, subscriptions)
    router.dispatch()
    log.append([played(2), done(2)])
    router.dispatch()
    router.dispatch()
    assert seen == [played(1), played(2), done(2)]
    assert chosen == [done(2)]
    log.append([played(3)])  # written by a process that was killed before it delivered it
    EventRouter(log, SILENT, subscriptions).dispatch()
    assert seen[3:] == [played(3)]
    router.replay("all", after=1)
    router.dispatch()
    assert seen[4:] == [played(2), done(2), played(3)]
    late = []
    router.subscribe(Subscription("late", late.append))  # a new one begins with the next event
    router.dispatch()
    again = dataclasses.replace(played(1), games=20)  # its stage was done again: it takes the place of the former
    assert log.append([again]) == [again]
    router.dispatch()
    assert (late, seen[-1]) == ([again], again)
    assert [logged.event for logged in log.read()] == [played(2), done(2), played(3), again]


def done(iteration):
    return kinds.IterationComplete(**BASE, iteration=iteration, promoted=False, seconds=1.0)


def test_a_handler_that_raises_is_called_again_then_passed_over_and_disturbs_nobody(log, database):
    calls, seen, said = [], [], []

    def handler(event):
        calls.append(event.iteration)
        if event.iteration == 1:
            raise OSError("no network")

    reporter = SILENT._replace(warning=said.append)
    subscriptions = [Subscription("bad", handler, from_start=True), Subscription("good", seen.append, from_start=True)]
    router = EventRouter(log, reporter, subscriptions)
    log.append([played(1), played(2)])
    for _ in range(MAX_ATTEMPTS):
        router.dispatch()
    assert calls == [1] * MAX_ATTEMPTS + [2]
    assert seen == [played(1), played(2)]
    assert len(said) == MAX_ATTEMPTS
    assert "no network" in said[0]
    ((consumer, error),) = database.rows("SELECT consumer, error FROM dead_letters")
    assert consumer == "bad"
    assert "no network" in error


def test_a_consumer_has_one_name_and_known_kinds(log):
    router = EventRouter(log, SILENT, [Subscription("one", print)])
    with pytest.raises(ValueError, match="there is a consumer 'one'"):
        router.subscribe(Subscription("one", print))
    with pytest.raises(ValueError, match="no events of kind 'MODEL_DEMOTED'"):
        router.subscribe(Subscription("two", print, ("MODEL_DEMOTED",)))
    with pytest.raises(ConfigError, match="did you mean 'MODEL_PROMOTED'"):
        wire_pipeline_events().subscribe("x", print, kinds=("MODEL_PROMOTE",))


def test_the_wiring_has_a_switch_for_every_stage():
    stages = ("selfplay", "sync", "export", "train", "evaluate", "promote")
    assert wire_pipeline_events().triggers == Triggers()
    off = wire_pipeline_events(auto_trigger=False).triggers
    assert [stage for stage in stages if off.allows(stage)] == ["selfplay"]
    some = wire_pipeline_events(training=False, promotion=False).triggers
    assert [stage for stage in stages if not some.allows(stage)] == ["train", "promote"]


def test_old_events_are_removed_but_for_the_last_finished_iteration_and_none_gets_its_place_again(log, database):
    log.append([one for n in (1, 2) for one in (played(n), done(n))])
    log.append([played(3)])  # which is not finished, so that the second tells up to where all was told
    of_no_game = [kinds.CurriculumRebalanced(**BASE | {"game": ""}, iteration=0, part=n, weights={}) for n in (1, 2)]
    log.append(of_no_game)  # of these the last one is kept
    for at in (1, 200):
        log.bury("mine", at, "Traceback", float(at))  # what a consumer has failed on
    end = log.end()
    assert log.remove_before(99.0) == 3
    assert [logged.event for logged in log.read()] == [played(2), done(2), played(3), of_no_game[1]]
    assert database.rows("SELECT time FROM dead_letters") == [(200.0,)]
    assert log.remove_before(99.0) == 0
    log.append([played(4)])
    assert log.read()[-1].position == end + 1


def test_a_file_that_is_being_made_by_another_process_is_waited_for(database, monkeypatch):
    tried = []

    class Busy:
        def execute(self, statement):
            tried.append(statement)
            if len(tried) < 3:
                raise sqlite3.OperationalError("database is locked")

    with monkeypatch.context() as patch:
        patch.setattr(database, "_connection", Busy())
        database._use_write_ahead_log()
        assert tried == ["PRAGMA journal_mode = WAL"] * 3
        patch.setattr(database_module, "_BUSY_SECONDS", 0.0)
        tried.clear()
        with pytest.raises(sqlite3.OperationalError):
            database._use_write_ahead_log()


def stale(_path):
    raise OSError(116, "Stale file handle")


def test_a_database_that_was_moved_away_is_noticed_and_made_anew(database, tmp_path, monkeypatch):
    assert not database.is_moved
    database.reopen_if_moved()
    with monkeypatch.context() as patch:
        patch.setattr(database_module, "_identity", stale)
        assert not database.is_moved  # the folder cannot be read just now
    database.path.rename(tmp_path / "moved")
    assert database.is_moved
    database.reopen_if_moved()
    assert not database.is_moved
    EventLog(database).append([played(1)])
    assert len(read_events(tmp_path)) == 1


def test_events_are_read_from_any_place_and_nothing_is_made_by_reading(log, database, tmp_path):
    log.append([played(n) for n in (1, 2, 3)])
    first, *rest = read_events(tmp_path)
    assert [logged.event for logged in rest] == [played(2), played(3)]
    assert read_events(tmp_path, after=first.position) == rest
    assert read_events(tmp_path, after=first.position, limit=1) == rest[:1]
    with reading(tmp_path) as connection:
        assert last_events(connection, 2) == rest
        with pytest.raises(sqlite3.OperationalError):
            connection.execute("DELETE FROM events")
    with database.transaction() as connection:
        connection.execute("UPDATE events SET fields = '[' WHERE id = 2")
        connection.execute("UPDATE events SET fields = '5' WHERE id = 3")
        assert last_events(connection, 10) == [first]  # the newest ones that can be read
    nothing = tmp_path / "nothing"
    assert read_events(nothing) == []
    with reading(nothing) as connection:
        assert connection is None
    assert not nothing.exists()


def test_a_transaction_is_whole_or_nothing(log, database):
    def interrupted():
        yield played(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        log.append(interrupted())
    assert log.read() == []
    assert log.append([played(1)]) == [played(1)]


def test_the_database_is_made_step_by_step_and_a_later_one_is_refused(tmp_path, monkeypatch):
    more = (*MIGRATIONS, ("CREATE TABLE later (x INTEGER)",))
    Database(tmp_path).close()
    monkeypatch.setattr(database_module, "MIGRATIONS", more)
    Database(tmp_path).close()
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(more),)
        assert connection.execute("SELECT COUNT(*) FROM later").fetchone() == (0,)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match=f"has version {len(more)}, and this one reads up to {len(MIGRATIONS)}"):
        Database(tmp_path)
    with pytest.raises(CheckpointError, match=f"has version {len(more)}"), reading(tmp_path):
        pass


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (sqlite3.OperationalError("database is locked"), "another process holds it"),
        (sqlite3.OperationalError("database or disk is full"), "free some space"),
        (sqlite3.OperationalError("attempt to write a readonly database"), "change its permissions"),
        (sqlite3.OperationalError("disk I/O error"), "see that its disk works"),
        (OSError(28, "No space left on device"), "free some space"),
        (sqlite3.DatabaseError("file is not a database"), "move it away"),
    ],
)
def test_what_helps_where_the_database_cannot_be_used(tmp_path, error, hint):
    assert database_module.database_error(tmp_path / FILE, error).hint.startswith(hint)


def test_breakers_of_the_first_version_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(database_module, "MIGRATIONS", MIGRATIONS[:1])
    with contextlib.closing(Database(tmp_path)) as first, first.transaction() as connection:
        connection.execute("INSERT INTO breakers VALUES ('game', 'train', 4, 2, 1000.0, 600.0, 1, 'no')")
    monkeypatch.undo()
    with contextlib.closing(Database(tmp_path)) as database:
        breakers = Breakers(database, BreakerRule())
        assert breakers.read("game", "train") == Breaker(4, 2, 1000.0, 600.0, "no")
        assert breakers.acquire("game", "train", 1600.0)  # the permit of the former process is none


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / FILE).write_bytes(b"not a database at all" * 100)
    with refused(CheckpointError, hint="move it away: events are derived from the manifests again"):
        Database(tmp_path)
