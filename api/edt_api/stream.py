"""The event stream of a page: ``GET /api/v1/stream``, text/event-stream. Room: api.

Without ``Last-Event-ID`` it begins with ``hello``: the cursor is taken before that is sent, so lists that are fetched
then miss nothing that no event will tell. With one it goes on where that stream was cut, on whichever server. The
cursor lies in the database, so none of this needs a server's memory. Next: feed.py, where the batches come from.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Header, Query
from fastapi.sse import format_sse_event
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from edt_api import pictures, schemas
from edt_api.access import Caller
from edt_api.auth import Keeper
from edt_api.context import TheCaller, TheFeed, TheHouse, TheKeeper, Viewer
from edt_api.feed import Batch, Feed, Listener
from edt_scheduler.errors import Unavailable
from edt_scheduler.house import House
from edt_scheduler.views import UserView

router = APIRouter(prefix="/api/v1")

BEAT_SECONDS = 10.0
"""Silence is never longer: a page calls the stream stale after 15."""
CHECK_SECONDS = 5.0
"""So long may a stream outlive its credential."""
_RETRY_MILLISECONDS = 1000
_KEEP_ALIVE = "keep-alive"
_DESCRIBED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events `hello`, `jobs`, `nodes`, `timeline`, `beat`, `reset`, `bye`; `data` is one of these.",
        "content": {
            "text/event-stream": {
                "schema": {
                    "anyOf": [
                        {"$ref": f"#/components/schemas/{shape.__name__}"}
                        for shape in (schemas.JobsChanged, schemas.NodesChanged, schemas.TimelineChanged, schemas.Beat)
                    ]
                }
            }
        },
    }
}


class EventStream(StreamingResponse):
    """A response that leaves the feed when it ends, however it ends."""

    media_type = "text/event-stream"

    def __init__(self, told: AsyncIterator[bytes], feed: Feed, listener: Listener) -> None:
        super().__init__(told, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._feed = feed
        self._listener = listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._feed.leave(self._listener)


@router.get("/stream", status_code=200, response_class=EventStream, responses=_DESCRIBED)
async def stream(
    house: TheHouse,
    feed: TheFeed,
    keeper: TheKeeper,
    caller: TheCaller,
    viewer: Viewer,
    last_event_id: Annotated[str | None, Header()] = None,
    after: Annotated[str | None, Query(description="As Last-Event-ID, for clients that cannot send a header.")] = None,
) -> EventStream:
    """What changes, as it changes, at most four times a second. A user is told of their own jobs, an admin of all.

    A batch may be several events; only its last carries an id, so that a cut between them loses none. ``hello``:
    fetch the lists. ``reset``: too much was missed, fetch them anew. ``beat``: nothing has happened for a while.
    ``bye``: the credential has ended.
    """
    cursor = last_event_id or after
    listener = await feed.join(cursor)
    if cursor is None:
        begin = _word("hello", listener.cursor, house.clock(), retry=_RETRY_MILLISECONDS)
    else:  # no id: what came after the client's own cursor is still to be told
        begin = _word("beat", None, house.clock(), retry=_RETRY_MILLISECONDS)
    return EventStream(_events(house, feed, keeper, caller, viewer, listener, begin), feed, listener)


async def _events(
    house: House, feed: Feed, keeper: Keeper, caller: Caller, viewer: UserView, listener: Listener, begin: bytes
) -> AsyncIterator[bytes]:
    clock = asyncio.get_running_loop().time
    told_at = checked_at = clock()
    yield begin
    while True:
        batches = listener.take()
        if listener.missed:
            listener.missed = False
            told_at = clock()
            yield _word("reset", listener.cursor, house.clock())
            batches = []
        for batch in batches:
            if events := await _written(batch, viewer):
                told_at = clock()
                yield events
        if listener.over:
            return
        if clock() - checked_at > CHECK_SECONDS:
            checked_at = clock()
            if not await _still(keeper, caller):
                yield _word("bye", None, house.clock())
                return
        if clock() - told_at >= BEAT_SECONDS:
            told_at = clock()
            yield _word("beat", listener.cursor, house.clock()) if feed.healthy else _comment()
        await listener.news(min(CHECK_SECONDS, told_at + BEAT_SECONDS - clock()))


async def _still(keeper: Keeper, caller: Caller) -> bool:
    """Whether the credential still opens what it did. While the database is away it is not asked."""
    try:
        return await keeper.still(caller)
    except Unavailable:
        return True


async def _written(batch: Batch, viewer: UserView) -> bytes:
    """The batch's events for this viewer: written once for all who see the same. Empty: nothing for their eyes."""
    sees = None if viewer.is_admin else viewer.id
    if sees not in batch.written:
        batch.written[sees] = await to_thread.run_sync(events, batch, viewer)
    return batch.written[sees]


def events(batch: Batch, viewer: UserView) -> bytes:
    """What ``viewer`` is told of a batch. Pure."""
    changes = batch.changes
    told: list[tuple[str, str]] = []
    jobs = schemas.JobsChanged(
        items=[pictures.job(job) for job in changes.jobs if pictures.may_see(viewer, job.owner_id)],
        removed=[job.exec_id for job in changes.removed if pictures.may_see(viewer, job.owner_id)],
    )
    if jobs.items or jobs.removed:
        told.append(("jobs", jobs.model_dump_json()))
    if changes.nodes or changes.removed_nodes:
        nodes = schemas.NodesChanged(
            items=[pictures.node(node, viewer) for node in changes.nodes], removed=list(changes.removed_nodes)
        )
        told.append(("nodes", nodes.model_dump_json()))
    if changes.allocations or changes.resizes or changes.failures:
        timeline = schemas.TimelineChanged(
            allocations=[pictures.timeline_allocation(each) for each in changes.allocations],
            resizes=[pictures.timeline_resize(each, viewer) for each in changes.resizes],
            failures=[pictures.timeline_failure(each, viewer) for each in changes.failures],
        )
        told.append(("timeline", timeline.model_dump_json()))
    last = len(told) - 1
    return b"".join(
        format_sse_event(event=event, data_str=data, id=changes.cursor if number == last else None)
        for number, (event, data) in enumerate(told)
    )


def _word(event: str, cursor: str | None, now: float, retry: int | None = None) -> bytes:
    data = schemas.Beat(now=now).model_dump_json()
    return format_sse_event(event=event, data_str=data, id=cursor, retry=retry, comment=_KEEP_ALIVE)


def _comment() -> bytes:
    return format_sse_event(comment=_KEEP_ALIVE)
