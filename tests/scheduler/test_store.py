"""What the schema itself refuses, on both databases, whatever the code above it may think."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import pytest
from sqlalchemy import Connection, Table, delete, insert, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError

from edt_contract.reports import ExitKind
from edt_scheduler.errors import IllegalTransition
from edt_scheduler.model.jobs import JobSpec
from edt_scheduler.model.nodes import SlotSpec
from edt_scheduler.model.states import TRANSITIONS, JobState, ResizeCause
from edt_scheduler.store import allocations, attempts, jobs, nodes, reservations, resizes, retention, users
from edt_scheduler.store.database import Database
from edt_scheduler.store.tables import allocations as allocation_table
from edt_scheduler.store.tables import attempts as attempt_table
from edt_scheduler.store.tables import job_events, job_transitions
from edt_scheduler.store.tables import jobs as job_table
from edt_scheduler.store.tables import purges as purge_table
from edt_scheduler.store.tables import resizes as resize_table
from edt_scheduler.store.tables import supervisors as supervisor_table

SPEC = JobSpec(framework="edtPyTorch", model_main="main.py", args_verbatim="", app_name="app")


def add_job(tx: Connection) -> int:
    if users.named(tx, "ada") is None:
        users.add(tx, "ada", "user", "hash", 1.0)
    ada = users.named(tx, "ada")
    assert ada is not None
    (number,) = reservations.add(tx, 1.0, 1)
    reservations.drop(tx, [number])
    jobs.add(tx, [jobs.NewJob(number, ada.id, SPEC, "_submitted_code", seed=1, threads=1)], now=1.0)
    return number


def add_node(tx: Connection) -> int:
    facts = {"host": "h", "cores": 2, "boot_id": "b", "incarnation": "i"}
    node, _ = nodes.register(tx, "n1", "secret", 1.0, **facts)
    nodes.set_slots(tx, node, [SlotSpec("0"), SlotSpec("1")])
    return node


def add_allocation(tx: Connection, job: int, node: int, slot: str = "0") -> int:
    attempt = attempts.live(tx, job)
    fence = attempt.fence if attempt else attempts.add(tx, job, node, "token", 1.0)
    attempts.open_supervisor(tx, job, fence, node)
    resize = resizes.add(tx, job, fence, ResizeCause.SUBMIT, "", (0, 1), [node], 1.0)
    return allocations.add(tx, job, fence, node, slot, resize, 1.0)


class TestSlots:
    def test_a_slot_has_at_most_one_open_allocation(self, database: Database) -> None:
        with database.transaction() as tx:
            first, second, node = add_job(tx), add_job(tx), add_node(tx)
            add_allocation(tx, first, node)
        with pytest.raises(IntegrityError), database.transaction() as tx:
            add_allocation(tx, second, node)
        with database.transaction() as tx:
            add_allocation(tx, second, node, "1")

    def test_a_slot_given_back_can_be_given_again_and_is_given_back_once(self, database: Database) -> None:
        with database.transaction() as tx:
            first, second, node = add_job(tx), add_job(tx), add_node(tx)
            held = add_allocation(tx, first, node)
        with database.transaction() as tx:
            assert allocations.close(tx, held, "left", 2.0)
            assert not allocations.close(tx, held, "lost", 3.0)
            add_allocation(tx, second, node)
        for released in (None, 4.0):
            with pytest.raises(DBAPIError, match="released once"), database.transaction() as tx:
                tx.execute(update(allocation_table).where(allocation_table.c.id == held).values(released_at=released))

    def test_only_slots_that_exist_can_be_given(self, database: Database) -> None:
        with pytest.raises(IntegrityError), database.transaction() as tx:
            add_allocation(tx, add_job(tx), add_node(tx), "7")


class TestFences:
    def test_a_fence_never_shrinks(self, database: Database) -> None:
        with database.transaction() as tx:
            job, node = add_job(tx), add_node(tx)
            add_allocation(tx, job, node)
        with pytest.raises(DBAPIError, match="a fence only grows"), database.transaction() as tx:
            tx.execute(update(job_table).values(fence=0))

    def test_a_job_has_one_live_attempt(self, database: Database) -> None:
        with database.transaction() as tx:
            job, node = add_job(tx), add_node(tx)
            attempts.add(tx, job, node, "token", 1.0)
        with pytest.raises(IntegrityError), database.transaction() as tx:
            attempts.add(tx, job, node, "token", 2.0)

    def test_an_attempt_that_ended_does_not_live_again(self, database: Database) -> None:
        with database.transaction() as tx:
            job, node = add_job(tx), add_node(tx)
            fence = attempts.add(tx, job, node, "token", 1.0)
            attempts.change(tx, job, fence, ended_at=2.0)
        with pytest.raises(DBAPIError, match="ends once"), database.transaction() as tx:
            attempts.change(tx, job, fence, ended_at=None)

    def test_a_supervisor_opens_again_only_if_it_left_and_its_end_is_never_rewritten(self, database: Database) -> None:
        with database.transaction() as tx:
            left, lost, node = add_job(tx), add_job(tx), add_node(tx)
            for job, slot, kind in ((left, "0", ExitKind.LEFT), (lost, "1", ExitKind.LOST)):
                add_allocation(tx, job, node, slot)
                attempts.hand(tx, job, 1, node, 2.0)
                attempts.end_supervisor(tx, job, 1, node, kind, 3.0)
        with database.transaction() as tx:
            for job in (left, lost):
                attempts.open_supervisor(tx, job, 1, node)
            assert [(row.job_id, row.handed_at) for row in attempts.open_on(tx, node)] == [(left, None)]
            attempts.end_supervisor(tx, left, 1, node, ExitKind.LEFT, 4.0)
        for job, ended in ((left, 5.0), (lost, 5.0), (lost, None)):
            with pytest.raises(DBAPIError, match="a supervisor ends once"), database.transaction() as tx:
                tx.execute(update(supervisor_table).where(supervisor_table.c.job_id == job).values(ended_at=ended))

    def test_a_supervisor_that_was_lost_opens_again_once_it_was_spoken_for(self, database: Database) -> None:
        with database.transaction() as tx:
            job, node = add_job(tx), add_node(tx)
            add_allocation(tx, job, node)
            attempts.hand(tx, job, 1, node, 2.0)
            attempts.end_supervisor(tx, job, 1, node, ExitKind.LOST, 3.0)
            attempts.open_supervisor(tx, job, 1, node)
            assert attempts.open_on(tx, node) == []
            attempts.change_supervisor(tx, job, 1, node, reports_complete_at=4.0)
            attempts.open_supervisor(tx, job, 1, node)
            assert [(row.handed_at, row.reports_complete_at) for row in attempts.open_on(tx, node)] == [(None, None)]

    def test_a_report_cursor_never_goes_back(self, database: Database) -> None:
        with database.transaction() as tx:
            job, node = add_job(tx), add_node(tx)
            add_allocation(tx, job, node)
            attempts.change_supervisor(tx, job, 1, node, acked=5)
        with pytest.raises(DBAPIError, match="cursor only grows"), database.transaction() as tx:
            attempts.change_supervisor(tx, job, 1, node, acked=4)


class TestTransitions:
    def test_code_and_schema_know_the_same_transitions(self, database: Database) -> None:
        with database.snapshot() as tx:
            known = {(row.before, row.after) for row in tx.execute(select(job_transitions))}
        assert known == {(before, after) for before, afters in TRANSITIONS.items() for after in afters}

    def test_the_schema_refuses_what_is_not_in_the_table(self, database: Database) -> None:
        with database.transaction() as tx:
            by_state = {state: add_job(tx) for state in JobState}
            for state, number in by_state.items():
                for step in _way_to(state):
                    jobs.move(tx, number, step, "", 1.0)
        for before, after in itertools.permutations(JobState, 2):
            if after in TRANSITIONS[before]:
                continue
            with pytest.raises(DBAPIError, match="illegal transition"), database.transaction() as tx:
                tx.execute(update(job_table).where(job_table.c.id == by_state[before]).values(state=after))

    def test_a_job_is_born_submitted(self, database: Database) -> None:
        with database.transaction() as tx:
            row = jobs.get(tx, add_job(tx))._asdict()
        born = {key: value for key, value in row.items() if key in job_table.c and key != "id"} | {"state": "RUNNING"}
        with pytest.raises(DBAPIError, match="begins as SUBMITTED"), database.transaction() as tx:
            tx.execute(insert(job_table).values(**born))

    def test_the_one_door_writes_the_event_with_the_move_or_neither(self, database: Database) -> None:
        with database.transaction() as tx:
            number = add_job(tx)
            jobs.move(tx, number, JobState.PENDING, "waits", 2.0)
        with pytest.raises(IllegalTransition), database.transaction() as tx:
            jobs.move(tx, number, JobState.RUNNING, "runs", 3.0)
            jobs.move(tx, number, JobState.SUBMITTED, "impossible", 4.0)
        with database.snapshot() as tx:
            assert jobs.get(tx, number).state == JobState.PENDING
            assert [event.data.get("after") for event in jobs.history(tx, number)] == ["SUBMITTED", "PENDING"]


class TestHistory:
    def test_history_has_no_gaps(self, database: Database) -> None:
        with database.transaction() as tx:
            number = add_job(tx)
            for text in ("one", "two", "three"):
                jobs.record(tx, number, "note", text, {}, 1.0)
        with database.snapshot() as tx:
            assert [event.seq for event in jobs.history(tx, number)] == [1, 2, 3, 4]
        row = {"job_id": number, "time": 1.0, "kind": "note", "fence": 0, "message": "", "data": {}}
        with pytest.raises(DBAPIError, match="gap"), database.transaction() as tx:
            tx.execute(insert(job_events).values(seq=6, **row))

    def test_history_is_never_rewritten(self, database: Database) -> None:
        with database.transaction() as tx:
            add_job(tx)
        with pytest.raises(DBAPIError, match="never rewritten"), database.transaction() as tx:
            tx.execute(update(job_events).values(message="no"))

    @pytest.mark.parametrize("table", [job_events, attempt_table, resize_table, allocation_table])
    def test_history_is_not_deleted_while_its_job_is_there(self, database: Database, table: Table) -> None:
        with database.transaction() as tx:
            job, node = add_job(tx), add_node(tx)
            add_allocation(tx, job, node)
        with pytest.raises(DBAPIError, match="history goes only whole"), database.transaction() as tx:
            tx.execute(delete(table))

    def test_a_job_is_deleted_by_a_purge_alone_and_only_when_nothing_of_it_is_left(self, database: Database) -> None:
        with database.transaction() as tx:
            job, node = add_job(tx), add_node(tx)
            held = add_allocation(tx, job, node)
        with pytest.raises(DBAPIError, match="goes only by a purge"), database.transaction() as tx:
            tx.execute(delete(job_table))
        steps: list[Callable[[Connection], object]] = [
            lambda tx: jobs.change(tx, job, deleted_at=2.0),
            lambda tx: jobs.change(tx, job, folder_gone_at=2.0),
            lambda tx: jobs.change(tx, job, finished_at=2.0),
            lambda tx: allocations.close(tx, held, ExitKind.LEFT, 2.0),
            lambda tx: attempts.end_supervisor(tx, job, 1, node, ExitKind.LEFT, 2.0),
            lambda tx: attempts.change(tx, job, 1, ended_at=2.0),
        ]
        for step in steps:
            with pytest.raises(DBAPIError, match="purged once it is deleted, over"), database.transaction() as tx:
                retention.purge(tx, [job])
            with database.transaction() as tx:
                step(tx)
        with database.transaction() as tx:
            retention.purge(tx, [job])
        with database.snapshot() as tx:
            assert jobs.known(tx, [job]) == set()

    def test_a_part_of_a_job_cannot_be_purged(self, database: Database) -> None:
        with database.transaction() as tx:
            job = add_job(tx)
            jobs.change(tx, job, deleted_at=2.0, folder_gone_at=2.0, finished_at=2.0)
        begun = insert(purge_table).values(job_id=job, never=-job)
        with pytest.raises(IntegrityError), database.transaction() as tx:
            tx.execute(begun)
            tx.execute(delete(job_events))
        with pytest.raises(DBAPIError, match="a job is purged whole"), database.transaction() as tx:
            tx.execute(begun)
            tx.execute(delete(job_events))
            tx.execute(delete(purge_table))
        with database.snapshot() as tx:
            assert len(jobs.history(tx, job)) == 1


class TestTransactions:
    def test_writers_take_turns_and_lose_nothing(self, database: Database) -> None:
        with database.transaction() as tx:
            number = add_job(tx)

        def write() -> None:
            for _ in range(5):
                with database.transaction() as tx:
                    seen = jobs.get(tx, number).losses
                    jobs.change(tx, number, losses=seen + 1)

        writers = [threading.Thread(target=write) for _ in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        with database.snapshot() as tx:
            assert jobs.get(tx, number).losses == 20

    def test_a_snapshot_neither_waits_for_a_writer_nor_sees_half_of_what_it_does(self, database: Database) -> None:
        with database.transaction() as tx:
            number = add_job(tx)
        with database.snapshot() as reader:
            assert jobs.get(reader, number).losses == 0
            with database.transaction() as writer:
                jobs.change(writer, number, losses=7)
                assert jobs.get(reader, number).losses == 0
            assert jobs.get(reader, number).losses == 0

    def test_what_raises_leaves_no_trace(self, database: Database) -> None:
        with pytest.raises(ZeroDivisionError), database.transaction() as tx:
            add_job(tx)
            raise ZeroDivisionError
        with database.snapshot() as tx:
            assert tx.execute(select(job_table)).all() == []


def _way_to(state: JobState) -> tuple[JobState, ...]:
    if state is JobState.SUBMITTED:
        return ()
    if state is JobState.PENDING:
        return (JobState.PENDING,)
    return (JobState.PENDING, state)
