"""The feed of changes: nothing is missed, nothing told twice, and who was away for long is told so."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import text

from edt_contract.reports import ExitKind
from edt_scheduler.decide.reconcile import look
from edt_scheduler.errors import CursorInvalid, CursorTooOld
from edt_scheduler.model.states import Role
from edt_scheduler.operations import accounts, agents, execs, fleet, history
from edt_scheduler.periodic.sweeping import sweep_changes
from edt_scheduler.platform import Platform
from edt_scheduler.store import changes, nodes
from edt_scheduler.store.database import Database
from edt_scheduler.views import Changes, SlotUse
from support.puppets import Stage


def names(found: Changes) -> dict[str, list[str]]:
    """What changed, by name; what did not is left out."""
    changed = {
        "jobs": [each.exec_id for each in found.jobs],
        "removed": [each.exec_id for each in found.removed],
        "nodes": [each.name for each in found.nodes],
        "allocations": [each.slot for each in found.allocations],
        "resizes": [each.cause for each in found.resizes],
        "failures": [each.kind.value for each in found.failures],
    }
    return {what: which for what, which in changed.items() if which}


def age(platform: Platform, seconds: float) -> None:
    """Let what is in the feed have happened so long ago."""
    with platform.database.transaction() as tx:
        tx.execute(text("UPDATE changes SET time = time - :seconds WHERE id <> 0"), {"seconds": seconds})


class TestWhatIsTold:
    def test_nothing_has_changed_and_the_cursor_is_the_same(self, stage: Stage) -> None:
        stage.submit()
        cursor = history.newest_change(stage.platform)
        assert history.changes_since(stage.platform, cursor) == Changes(cursor)

    def test_a_job_from_its_submit_to_its_removal(self, stage: Stage) -> None:
        node = stage.node(slots=2)
        cursor = history.newest_change(stage.platform)
        job = stage.submit(1)
        found = history.changes_since(stage.platform, cursor)
        assert names(found) == {"jobs": [job]}

        look(stage.platform)
        found = history.changes_since(stage.platform, found.cursor)
        assert names(found) == {"jobs": [job], "nodes": ["n1"], "allocations": ["0"], "resizes": ["submit"]}
        assert found.jobs[0].slots == 1 and found.nodes[0].slots[0].exec_id == job

        stage.settle()
        node.end((job, 1), ExitKind.SCRIPT_ERROR, message="ValueError: no")
        found = history.changes_since(stage.platform, found.cursor)
        assert found.jobs[0].state == "ERROR"
        assert found.allocations[0].released_at is not None
        assert [(each.slot, each.message) for each in found.failures][-1] == (None, "ValueError: no")
        assert found.nodes[0].slots[0].exec_id is None

        execs.delete(stage.platform, job, viewer=stage.admin)
        found = history.changes_since(stage.platform, found.cursor)
        assert names(found) == {"removed": [job]}
        assert found.removed[0].owner_id == stage.admin.id

    def test_an_engine_that_is_lost_is_a_failure_with_its_slot(self, stage: Stage) -> None:
        node, job = stage.node(slots=2, engines=2), stage.submit(2)
        stage.settle()
        cursor = history.newest_change(stage.platform)
        (first, _) = node.running[job, 1]
        node.gone((job, 1), first, ExitKind.LOST, signal=9)
        found = history.changes_since(stage.platform, cursor)
        (failure,) = found.failures
        assert (failure.exec_id, failure.owner_id, failure.node) == (job, stage.admin.id, "n1")
        assert failure.slot == "0"
        assert failure.message is not None and "signal 9" in failure.message

    def test_a_nodes_pulse_is_no_change_but_its_use_its_loss_and_its_cordon_are(self, stage: Stage) -> None:
        node = stage.node()
        cursor = history.newest_change(stage.platform)
        node.fetch()
        assert not history.changes_since(stage.platform, cursor).nodes
        agents.record_usage(stage.platform, "n1", [SlotUse("0", 0.5)])
        found = history.changes_since(stage.platform, cursor)
        assert found.nodes[0].slots[0].use == SlotUse("0", 0.5)
        for change in (
            lambda: fleet.cordon(stage.platform, "n1"),
            lambda: look(stage.platform, stage.silence("n1")),
            node.fetch,
            node.join,
        ):
            stage.clock.pass_(1)
            change()
            found = history.changes_since(stage.platform, found.cursor)
            assert names(found) == {"nodes": ["n1"]}

    def test_of_many_changes_each_thing_is_told_once_as_it_stands(self, stage: Stage) -> None:
        stage.node()
        cursor = history.newest_change(stage.platform)
        job = stage.submit(2)
        stage.settle()
        execs.stop(stage.platform, job, viewer=stage.admin)
        found = history.changes_since(stage.platform, cursor)
        assert [each.exec_id for each in found.jobs] == [job]
        assert found.jobs[0].stop_requested_at is not None


class TestCursors:
    def test_who_catches_up_with_others_is_told_what_they_have_seen_and_no_more(self, stage: Stage) -> None:
        start = history.newest_change(stage.platform)
        first = stage.submit()
        middle = history.newest_change(stage.platform)
        second = stage.submit()
        caught_up = history.changes_since(stage.platform, start, until=middle)
        assert (names(caught_up), caught_up.cursor) == ({"jobs": [first]}, middle)
        assert names(history.changes_since(stage.platform, middle)) == {"jobs": [second]}
        assert history.changes_since(stage.platform, history.newest_change(stage.platform), until=middle).jobs == ()

    @pytest.mark.parametrize(
        "cursor", ["", "x", "-1", "1:2", "5:3:", "1:9:12", "1:9:5,4", "9" * 30, "1:2:3:4", "'; DROP TABLE jobs"]
    )
    def test_what_can_be_no_cursor_is_refused_by_name(self, stage: Stage, cursor: str) -> None:
        with pytest.raises(CursorInvalid, match=r"^cursor: "):
            history.changes_since(stage.platform, cursor)

    def test_a_cursor_of_another_database_is_too_old(self, stage: Stage) -> None:
        later = "99999999" if stage.platform.database.reading.dialect.name == "sqlite" else "99999999:99999999:"
        with pytest.raises(CursorTooOld):
            history.changes_since(stage.platform, later)

    def test_pruning_forgets_what_is_old_and_who_has_not_seen_it_is_told_so(self, stage: Stage) -> None:
        before = history.newest_change(stage.platform)
        stage.submit()
        seen = history.newest_change(stage.platform)
        age(stage.platform, changes.KEPT_SECONDS + 1)
        second = stage.submit()
        sweep_changes(stage.platform)
        with pytest.raises(CursorTooOld):
            history.changes_since(stage.platform, before)
        assert names(history.changes_since(stage.platform, seen)) == {"jobs": [second]}
        with stage.platform.database.snapshot() as tx:
            assert tx.execute(text("SELECT count(*) FROM changes WHERE id <> 0")).scalar_one() == 1

    def test_a_cursor_lives_through_hours_in_which_nothing_changes(self, stage: Stage) -> None:
        stage.submit()
        cursor = history.newest_change(stage.platform)
        for _ in range(3):
            age(stage.platform, changes.KEPT_SECONDS + 1)
            sweep_changes(stage.platform)
        assert history.changes_since(stage.platform, cursor).cursor == cursor
        job = stage.submit()
        assert names(history.changes_since(stage.platform, cursor)) == {"jobs": [job]}

    def test_nothing_is_pruned_before_its_time(self, stage: Stage) -> None:
        start = history.newest_change(stage.platform)
        job = stage.submit()
        age(stage.platform, changes.KEPT_SECONDS - 60)
        sweep_changes(stage.platform)
        assert names(history.changes_since(stage.platform, start)) == {"jobs": [job]}

    def test_too_much_to_catch_up_with_is_too_old(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(changes, "MOST_CHANGES", 2)
        start = history.newest_change(stage.platform)
        for _ in range(3):
            stage.submit()
        with pytest.raises(CursorTooOld):
            history.changes_since(stage.platform, start)


class TestOrderOfCommits:
    """PostgreSQL alone has writers that overlap: ours wait for each other, a hand at psql does not."""

    @pytest.fixture
    def database(self, postgres_url: str) -> Iterator[Database]:
        database = Database(postgres_url)
        with database.transaction() as tx:
            for name in ("early", "late", "third"):
                nodes.register(tx, name, name, 1.0, host="h", cores=1, boot_id="b", incarnation="i")
        yield database
        database.close()

    @staticmethod
    def since(database: Database, cursor: str) -> tuple[list[int], str]:
        with database.snapshot() as tx:
            found, cursor = changes.since(tx, cursor)
            return changes.of(found, "node"), cursor

    @staticmethod
    def cordon(tx, number: int) -> None:  # type: ignore[no-untyped-def]
        tx.execute(text("UPDATE nodes SET intent = 'cordoned' WHERE id = :id"), {"id": number})

    def test_what_began_first_and_is_committed_last_is_not_missed(self, database: Database) -> None:
        with database.snapshot() as tx:
            cursor = changes.newest(tx)
        with database.reading.connect() as slow, database.reading.connect() as quick:
            self.cordon(slow, 1)  # its row in the feed has the lower number
            self.cordon(quick, 2)
            assert self.since(database, cursor) == ([], cursor)
            quick.commit()
            found, cursor = self.since(database, cursor)
            assert found == [2], "nobody waits for the one that is still open"
            slow.commit()
            found, cursor = self.since(database, cursor)
            assert found == [1], "it became visible after the last look, though its number is lower"
        assert self.since(database, cursor) == ([], cursor)

    def test_what_is_rolled_back_is_never_told(self, database: Database) -> None:
        with database.snapshot() as tx:
            cursor = changes.newest(tx)
        with database.reading.connect() as one:
            self.cordon(one, 1)
            one.rollback()
        assert self.since(database, cursor) == ([], cursor)

    def test_pruning_while_a_transaction_is_open_shuts_nobody_out(self, database: Database) -> None:
        with database.reading.connect() as slow:
            self.cordon(slow, 1)
            with database.transaction() as tx:
                self.cordon(tx, 2)
                tx.execute(text("UPDATE changes SET time = time - 700"))
            with database.snapshot() as tx:
                cursor = changes.newest(tx)
            with database.transaction() as tx:
                changes.prune(tx, 100)
            with database.transaction() as tx:
                self.cordon(tx, 3)
            found, cursor = self.since(database, cursor)
            assert found == [3]
            slow.commit()
        assert self.since(database, cursor)[0] == [1]

    def test_in_a_server_that_a_dump_was_restored_into_the_other_ones_numbers_mean_nothing(
        self, database: Database
    ) -> None:
        with database.transaction() as tx:  # as the dump of a busier server leaves it
            statement = "INSERT INTO changes (id, xid, topic, key, time) VALUES "
            tx.execute(text(f"{statement} (0, 0, 'pruned', 9000000, 0), (-1, 9000001, 'node', 1, 0)"))
        with database.snapshot() as tx:
            cursor = start = changes.newest(tx)
        for number in (1, 2):
            with database.transaction() as tx:
                self.cordon(tx, number)
            found, cursor = self.since(database, cursor)
            assert found == [number]
            with database.transaction() as tx:
                tx.execute(text("UPDATE changes SET time = time - 700"))
                changes.prune(tx, 100)
            assert self.since(database, cursor) == ([], cursor)
        with pytest.raises(CursorTooOld):
            self.since(database, start)

    def test_of_many_overlapping_writers_each_change_is_told_exactly_once(self, database: Database) -> None:
        with database.snapshot() as tx:
            cursor = changes.newest(tx)
        with database.transaction() as tx:
            user = tx.execute(
                text(
                    "INSERT INTO users (name, role, password_hash, created_at) VALUES ('u', 'user', '', 0) RETURNING id"
                )
            ).scalar_one()
        numbers = itertools.count(100)
        insert = text(
            "INSERT INTO jobs (id, user_id, state, framework, backend, app_name, args_verbatim, model_main, work_dir, "
            "arguments, num_worker, worker_device_num, seed, threads, progress, created_at) VALUES "
            "(:id, :user, 'SUBMITTED', 'f', 'b', 'a', '', 'm', 'w', '[]', 1, 1, 0, 1, '{}', 0)"
        )

        def write() -> None:
            with database.reading.connect() as one:
                for _ in range(20):
                    one.execute(insert, {"id": next(numbers), "user": user})
                    one.commit()

        writers = [threading.Thread(target=write) for _ in range(4)]
        for writer in writers:
            writer.start()
        jobs: list[int] = []
        while any(writer.is_alive() for writer in writers) or len(jobs) < 80:
            with database.snapshot() as tx:
                found, cursor = changes.since(tx, cursor)
            jobs += changes.of(found, "job")
            assert len(jobs) == len(set(jobs))
        for writer in writers:
            writer.join()
        assert sorted(jobs) == list(range(100, 180))


def test_users_do_not_change_the_feed(stage: Stage) -> None:
    cursor = history.newest_change(stage.platform)
    accounts.add_user(stage.platform, "ana", "hash", Role.USER)
    assert history.changes_since(stage.platform, cursor).cursor == cursor
