"""What a decision reads: only what has changed, and never anything else than a fresh look would find."""

from __future__ import annotations

import random

from edt_contract.reports import ExitKind, ReportKind
from edt_scheduler.decide.reading import Reader, Rows, read
from edt_scheduler.decide.snapshot import Known, Snapshot, reader_of
from edt_scheduler.model.nodes import SlotSpec
from edt_scheduler.operations import execs, fleet, lives, queues
from edt_scheduler.store import changes
from support.databases import sqlite_first
from support.puppets import Stage

database_url = sqlite_first()


def both(stage: Stage, reader: Reader) -> tuple[Rows, Rows]:
    """What the reader knows after it has caught up, and what is there."""
    keys = stage.platform.secret_key.keys()
    with stage.platform.database.snapshot() as tx:
        return reader.rows(tx, keys), read(tx, keys)


def agree(stage: Stage, reader: Reader, known: Known) -> None:
    """The reader finds what a fresh one finds, in the same order, and the state is the same, too."""
    kept, fresh = both(stage, reader)
    assert kept == fresh
    assert list(kept.jobs) == list(fresh.jobs)
    assert list(kept.allocations) == list(fresh.allocations)
    now = stage.clock()
    with stage.platform.database.snapshot() as tx:
        facts = reader.facts(tx, kept, now)
        anew = reader_of(stage.platform)
        anew.rows(tx, stage.platform.secret_key.keys())
        assert anew.facts(tx, fresh, now) == facts
    assert Snapshot.of(kept, facts, now, known).state == Snapshot.of(fresh, facts, now).state


def test_whatever_happens_a_reader_that_keeps_rows_knows_what_a_fresh_one_reads(stage: Stage) -> None:
    dice = random.Random(7)
    reader, known = reader_of(stage.platform), Known()
    agree(stage, reader, known)
    nodes = [stage.node(f"n{number}", slots=2) for number in range(3)]
    jobs: list[str] = []

    def progress() -> None:
        for node in nodes:
            for key in node.hosting:
                values = {"step": dice.randrange(100), "workers": 1, "seconds": 0.5, "samples": 8}
                node.report(key, ReportKind.PROGRESS, **values)

    def lose_an_engine() -> None:
        for node in nodes:
            for key, engines in node.running.items():
                if engines:
                    node.gone(key, min(engines), ExitKind.LOST)
                    return

    def ends() -> None:
        for node in nodes:
            for key in list(node.hosting):
                node.end(key, ExitKind.FINISHED)
                return

    def pauses() -> None:
        job = stage.job(dice.choice(jobs))
        if job.paused_at is not None and not job.state.terminal:
            lives.go_on(stage.platform, job.exec_id, viewer=stage.admin)
        elif not job.state.terminal and job.stop_requested_at is None:
            lives.pause(stage.platform, job.exec_id, viewer=stage.admin)

    events = [
        lambda: jobs.append(stage.submit(dice.randint(1, 4), queue="/a", after=tuple(jobs[-1:]))),
        lambda: execs.stop(stage.platform, dice.choice(jobs), viewer=stage.admin),
        lambda: fleet.drain(stage.platform, "n1"),
        lambda: fleet.uncordon(stage.platform, "n1"),
        nodes[2].reboot,
        lambda: queues.put_queue(stage.platform, "/a", quota=dice.randint(0, 3)),
        pauses,
        progress,
        lose_an_engine,
        ends,
    ]
    jobs += [stage.submit(2), stage.submit(3)]
    for _ in range(12):
        dice.choice(events)()
        agree(stage, reader, known)
        stage.clock.pass_(2)
        stage.settle()
        agree(stage, reader, known)


def test_what_the_feed_has_forgotten_is_read_anew(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    stage.node()
    reader = reader_of(stage.platform)
    both(stage, reader)
    stage.submit()
    with stage.platform.database.transaction() as tx:
        tx.exec_driver_sql("UPDATE changes SET time = 0")
        assert changes.prune(tx, 1000) > 0
    kept, fresh = both(stage, reader)
    assert kept == fresh


def test_a_row_that_has_not_changed_is_the_same_object_and_so_is_its_job(sqlite_stage: Stage) -> None:
    """So a pass over thousands of jobs that wait costs next to nothing."""
    stage = sqlite_stage
    stage.node(slots=1)
    for _ in range(3):
        stage.submit()
    stage.settle()
    reader, known = reader_of(stage.platform), Known()

    def snapshot() -> Snapshot:
        with stage.platform.database.snapshot() as tx:
            rows = reader.rows(tx, stage.platform.secret_key.keys())
            return Snapshot.of(rows, reader.facts(tx, rows, stage.clock()), stage.clock(), known)

    before = snapshot()
    stage.clock.pass_(1)
    execs.stop(stage.platform, "edt-3", viewer=stage.admin)
    after = snapshot()
    assert [job.id for job in after.state.jobs] == ["edt-1", "edt-2"]
    assert after.state.jobs[1] is before.state.jobs[1]
    assert after.state.jobs[0] is not before.state.jobs[0], "it trains: what it has held grows"


def test_a_state_holds_what_a_job_asked_for_and_what_is_known_of_its_slots(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    node = stage.node(slots=2, offers=(SlotSpec("0", "GPU-a", model="NVIDIA H100"), SlotSpec("1", "GPU-b", model="X")))
    queues.put_queue(stage.platform, "/a", quota=1, limit=3)
    job = stage.submit(2, queue="/a/b/c", priority=3, min_slots=1, sizes=(1, 2), gpu_models=("nvidia h100",))
    wish = {"deadline": 2e6, "time_limit": 600.0, "after": (job,)}
    later = stage.submit(2, **wish)
    stage.settle()
    stage.clock.pass_(10)
    node.report((job, 1), ReportKind.PROGRESS, step=40, workers=2, seconds=1.0)
    with stage.platform.database.snapshot() as tx:
        reader = reader_of(stage.platform)
        rows = reader.rows(tx, stage.platform.secret_key.keys())
        state = Snapshot.of(rows, reader.facts(tx, rows, stage.clock()), stage.clock()).state
    (machine,), (one, two) = state.nodes, state.jobs
    assert (machine.model, machine.free, machine.free_slots) == ("nvidia h100", 0, ())
    assert (one.queue, one.priority, one.allowed, one.models) == ("/a", 3, (1, 2), ("nvidia h100",))
    assert (one.user, one.steps_left, one.attained, one.joined) == ("admin", 60.0, 20.0, None)
    assert one.slots == {"n1": ("1", "0")}, "the youngest goes first"
    assert (two.id, two.after, two.deadline, two.time_limit, two.ends_by) == (later, (job,), 2e6, 600.0, None)
    assert [(queue.id, queue.quota, queue.limit) for queue in state.queues] == [("/a", 1, 3)]
    node.end((job, 1), ExitKind.FINISHED)
    with stage.platform.database.snapshot() as tx:
        rows = reader.rows(tx, stage.platform.secret_key.keys())
        state = Snapshot.of(rows, reader.facts(tx, rows, stage.clock()), stage.clock()).state
    assert {slot: (freed.job, freed.ended) for slot, freed in state.freed.items()} == {
        ("n1", "0"): (job, "is FINISHED"),
        ("n1", "1"): (job, "is FINISHED"),
    }
    assert state.jobs[0].after == ()
