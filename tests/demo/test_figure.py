"""The figure, from what the platform remembers."""

from __future__ import annotations

from pathlib import Path

from edt_api.schemas.cluster import Node, Slot, Timeline, TimelineAllocation
from edt_api.schemas.jobs import Resize
from edt_demo import figure, history
from edt_demo.history import History
from edt_demo.samples import losses

LOG = "".join(
    f"[2026-11-21 12:00:00] Train,\tTimestamp: {1000_000 + 100 * step},\tGlobal steps: {step},\tIteration: {4 * step},"
    f"\tLoss: {2 / step:.5f},\tAccuracy: 0.5\n"
    for step in range(1, 200)
)


def allocation(
    number: int, exec_id: str, slot: str, times: tuple[float, float | None, float | None]
) -> TimelineAllocation:
    started, counted, released = times
    return TimelineAllocation(
        allocation=number, exec_id=exec_id, node="n", slot=slot, decided_at=started, started_at=started,
        counted_at=counted, released_at=released, kind=None,
    )  # fmt: skip


def resize(number: int, exec_id: str, sizes: tuple[int, int], step: int | None, decided_at: float) -> Resize:
    return Resize(
        number=number, exec_id=exec_id, fence=1, cause="room", detail="makes room for edt-2", from_slots=sizes[0],
        to_slots=sizes[1], decided_at=decided_at, notified_at=decided_at,
        woken_by="notification", woken_at=decided_at + 0.02,
        started_at=None, joined_at=None, first_step_at=None, gone_at=None, generation=None, step=step, workers=None,
        pause_seconds=0.012,
    )  # fmt: skip


def made_history() -> History:
    slots = [Slot(slot=str(n), device="cpu", label="", exec_id=None, busy=False, leaving=False) for n in range(2)]
    node = Node(name="n", host="h", cores=2, health="up", registered_at=0, seen_at=0, slots=slots)
    timeline = Timeline(
        now=1020.0,
        since=0.0,
        until=1020.0,
        earliest=1000.0,
        nodes=[node],
        jobs={},
        allocations=[
            allocation(1, "edt-1", "0", (1000.0, 1000.1, None)),
            allocation(2, "edt-1", "1", (1001.0, 1003.0, 1008.0)),
            allocation(3, "edt-2", "1", (1009.0, None, 1012.0)),
            allocation(4, "edt-3", "1", (1013.0, 1014.0, None)),
        ],
        resizes=[],
        failures=[],
    )
    return history.history_of(
        "A title",
        "and more",
        jobs={"job A": "edt-1", "job B": "edt-2"},
        timeline=timeline,
        resizes={
            "job A": [
                resize(1, "edt-1", (0, 1), None, 999.0),
                resize(2, "edt-1", (1, 2), 30, 1001.0),
                resize(3, "edt-1", (2, 1), 80, 1007.5),
                resize(4, "edt-1", (1, 0), None, 1019.0),
            ],
            "job B": [],
        },
        steps={"job A": losses(LOG), "job B": ()},
    )


def test_only_the_jobs_asked_for_and_only_changes_of_size_are_told() -> None:
    happened = made_history()
    assert [bar.job for bar in happened.bars] == ["job A", "job A", "job B"]
    assert [(each.before, each.after) for each in happened.resizes] == [(1, 2), (2, 1)]


def test_a_resize_is_drawn_at_the_first_step_of_the_new_size() -> None:
    assert [each.time for each in made_history().resizes] == [1003.1, 1008.1]
    assert {each.woken_by for each in made_history().resizes} == {"notification"}


def test_an_engine_that_still_runs_has_a_bar_up_to_now() -> None:
    assert made_history().bars[0].ended == 1020.0


def test_the_figure_is_drawn_without_a_display(tmp_path: Path) -> None:
    png, svg = figure.draw(made_history(), tmp_path / "out")
    assert png.read_bytes().startswith(b"\x89PNG") and png.stat().st_size > 20_000
    assert "</svg>" in svg.read_text()


def test_each_step_of_the_log_is_read_once() -> None:
    again = "[2026-11-21 12:00:09] Train,\tTimestamp: 9000000,\tGlobal steps: 7,\tIteration: 28,\tLoss: nan\n"
    test = "[2026-11-21 12:00:09] Test,\tTimestamp: 9000000,\tLoss: 0.5,\tAccuracy: 0.9\n"
    steps = losses(LOG + test + again)
    assert [step.step for step in steps] == list(range(1, 200))
    assert steps[6].time == 9000.0
