"""What ``GET /api/v1/stream`` sends: the ``data`` of its events. Room: api.

Everything is told as it stands now, whole: a client puts it in the place of what it had under that id.
"""

from __future__ import annotations

from edt_api.schemas.base import Shown
from edt_api.schemas.jobs import Job
from edt_api.schemas.nodes import Node
from edt_api.schemas.timeline import TimelineAllocation, TimelineFailure, TimelineResize


class JobsChanged(Shown):
    """``event: jobs``: jobs that are new or have changed, and ids of those that are on no list any more."""

    items: list[Job]
    removed: list[str]


class NodesChanged(Shown):
    """``event: nodes``: nodes that are new or have changed, and names of those that were removed."""

    items: list[Node]
    removed: list[str]


class TimelineChanged(Shown):
    """``event: timeline``: bars and marks that are new or have changed."""

    allocations: list[TimelineAllocation]
    resizes: list[TimelineResize]
    failures: list[TimelineFailure]


class Beat(Shown):
    """``event: hello`` (the stream begins: fetch the lists now), ``reset`` (too much was missed: fetch them anew),
    ``beat`` (nothing has happened for a while) and ``bye`` (the credential has ended)."""

    now: float
