"""From what the platform remembers to a story that can be drawn. Room: examples; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edt_api import schemas
from edt_demo import elog
from edt_demo.story import Bar, Curve, Resize, Story


def story(
    title: str,
    subtitle: str,
    *,
    jobs: Mapping[str, str],
    timeline: schemas.Timeline,
    resizes: Mapping[str, Sequence[schemas.Resize]],
    steps: Mapping[str, Sequence[elog.Step]],
) -> Story:
    """``jobs``: name to exec id, in the order of their colours; the rest by name."""
    names = {exec_id: name for name, exec_id in jobs.items()}
    return Story(
        title,
        subtitle,
        tuple(slot.slot for node in timeline.nodes for slot in node.slots),
        tuple(jobs),
        tuple(
            Bar(
                allocation.slot,
                names[allocation.exec_id],
                allocation.started_at,
                allocation.counted_at,
                allocation.released_at or timeline.now,
            )
            for allocation in timeline.allocations
            if allocation.exec_id in names and allocation.started_at is not None
        ),
        tuple(
            sorted(
                (
                    changed(name, each, steps[name])
                    for name in jobs
                    for each in resizes[name]
                    if each.from_slots and each.to_slots
                ),
                key=lambda resize: resize.time,
            )
        ),
        tuple(Curve(name, tuple((step.time, step.loss) for step in steps[name])) for name in jobs),
    )


def changed(name: str, resize: schemas.Resize, steps: Sequence[elog.Step]) -> Resize:
    """One change of size, placed at the first step that was made that way."""
    first = next((step.time for step in steps if resize.step is not None and step.step > resize.step), None)
    woken = None if resize.woken_at is None else resize.woken_at - resize.decided_at
    return Resize(
        name,
        first or resize.first_step_at or resize.gone_at or resize.decided_at,
        resize.from_slots,
        resize.to_slots,
        resize.step or 0,
        resize.detail or resize.cause,
        resize.pause_seconds,
        resize.woken_by,
        woken,
        resize.cause == "engine-lost",
    )
