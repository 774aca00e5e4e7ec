"""The event stream of a page: ``GET /api/v1/stream``, text/event-stream.

Without ``Last-Event-ID`` the stream begins with ``hello``. The server takes the cursor before it sends ``hello``. So a
client that then fetches its lists misses nothing: every later change comes as an event. With ``Last-Event-ID`` the
stream continues where it was cut, on any server, because the cursor is a place in the database.

One database query, made through operations, serves all streams of a process. The watcher makes it four times a second
while at least one listener is connected, and never otherwise. A listener gets every batch after the place that the
watcher had reached when the listener joined. A listener with an older cursor of its own first gets the changes between
the two places.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Header, Query
from fastapi.sse import format_sse_event
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from edt_api import to_wire
from edt_api.access.guard import Authenticator
from edt_api.access.rules import Caller
from edt_api.dependencies import TheAuthenticator, TheCaller, ThePlatform, Viewer, kept
from edt_api.schemas import cluster
from edt_scheduler.errors import CursorTooOld, Unavailable
from edt_scheduler.operations import history
from edt_scheduler.platform import Platform
from edt_scheduler.views import Changes, UserView

log = logging.getLogger("edt.api")
router = APIRouter(prefix="/api/v1")

BEAT_SECONDS = 10.0
"""The longest silence of a stream. A page calls the stream stale after 15 s."""
CHECK_SECONDS = 5.0
"""How often a stream checks its credential, so how long it may outlive that credential."""
LOOK_SECONDS = 0.25
MOST_WAITING = 64
"""The most batches that are kept for a slow listener. A listener with more has missed something."""
_HEALTHY_SECONDS = 5.0
_RETRY_MILLISECONDS = 1000
_KEEP_ALIVE = "keep-alive"
_COMMENT = format_sse_event(comment=_KEEP_ALIVE)
_DESCRIBED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events `hello`, `jobs`, `nodes`, `timeline`, `beat`, `reset`, `bye`; `data` is one of these.",
        "content": {
            "text/event-stream": {
                "schema": {
                    "anyOf": [
                        {"$ref": f"#/components/schemas/{shape.__name__}"}
                        for shape in (cluster.JobsChanged, cluster.NodesChanged, cluster.TimelineChanged, cluster.Beat)
                    ]
                }
            }
        },
    }
}


@dataclass
class Batch:
    """Changes of one look at the database, with their events for each viewer. Viewers who see the same share the
    events.
    """

    changes: Changes
    written: dict[int | None, bytes] = field(default_factory=dict)


@dataclass(eq=False)
class Subscriber:
    """One open stream. ``take`` returns batches in their order."""

    cursor: str
    """The place up to which the subscriber has taken all changes."""
    missed: bool = False
    """Whether changes were lost, so that the client must fetch all lists again."""
    over: bool = False
    """Whether no more batches will come."""
    _waiting: deque[Batch] = field(default_factory=deque)
    _ready: asyncio.Event = field(default_factory=asyncio.Event)

    def deliver(self, batch: Batch) -> None:
        """Add a batch behind those that wait. If too many wait, drop those and mark the subscriber with ``missed``."""
        if len(self._waiting) >= MOST_WAITING:
            self.miss()
        self._waiting.append(batch)
        self._ready.set()

    def deliver_first(self, batch: Batch) -> None:
        """Put a batch before all batches that wait already."""
        self._waiting.appendleft(batch)
        self._ready.set()

    def miss(self) -> None:
        """Drop all waiting batches, because a change before them or among them is lost."""
        self._pass_over(list(self._waiting))
        self.missed = True
        self._ready.set()

    def end(self) -> None:
        """Note that no more batches will come."""
        self.over = True
        self._ready.set()

    async def wait(self, seconds: float) -> None:
        """Return as soon as there is something to take, at the latest after this many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ready.wait()

    def take(self) -> list[Batch]:
        """Return all waiting batches, and move the cursor to the end of the last one."""
        taken = list(self._waiting)
        self._pass_over(taken)
        if not self.over:
            self._ready.clear()
        return taken

    def _pass_over(self, batches: list[Batch]) -> None:
        self._waiting.clear()
        if batches:
            self.cursor = batches[-1].changes.cursor


class ChangeWatcher:
    """Watches for changes in one process and delivers them to its listeners. Belongs to one event loop."""

    def __init__(self, platform: Platform, stopping: threading.Event) -> None:
        self._platform = platform
        self._stopping = stopping
        self._subscribers: set[Subscriber] = set()
        self._watching: asyncio.Task[None] | None = None
        self._beginning = asyncio.Lock()
        self._cursor = ""
        self._looked_at = 0.0

    @property
    def healthy(self) -> bool:
        """Whether the last look was recent. Silence then means that nothing has changed."""
        return asyncio.get_running_loop().time() - self._looked_at < _HEALTHY_SECONDS

    async def join(self, cursor: str | None) -> Subscriber:
        """Listen from ``cursor`` on; None: from now on. If the cursor is too old, the subscriber has ``missed`` set.

        Raises:
            CursorInvalid: the text is not a cursor.
        """
        async with self._beginning:
            if self._watching is None or self._watching.done():
                self._cursor = await to_thread.run_sync(history.newest_change, self._platform)
                self._looked_at = asyncio.get_running_loop().time()
                self._watching = asyncio.create_task(self._watch(), name="the stream's watcher")
            # Nothing is awaited from here to the end of the block, so no batch can come between the two lines.
            subscriber = Subscriber(self._cursor)
            self._subscribers.add(subscriber)
        try:
            if cursor is not None and cursor != subscriber.cursor:
                await self._catch_up(subscriber, cursor)
        except BaseException:
            self.leave(subscriber)
            raise
        return subscriber

    async def _catch_up(self, subscriber: Subscriber, cursor: str) -> None:
        """Deliver the changes between ``cursor`` and the place where the listener joined, before all later batches."""
        until = subscriber.cursor
        try:
            changes = await to_thread.run_sync(lambda: history.changes_since(self._platform, cursor, until=until))
        except CursorTooOld:
            subscriber.miss()
        else:
            subscriber.deliver_first(Batch(replace(changes, cursor=until)))

    def leave(self, subscriber: Subscriber) -> None:
        self._subscribers.discard(subscriber)

    async def _watch(self) -> None:
        try:
            while self._subscribers and not self._stopping.is_set():
                await asyncio.sleep(LOOK_SECONDS)
                with suppress(Unavailable):  # ``healthy`` becomes false meanwhile, and streams send no beat
                    await self._look()
        except Exception:
            log.exception("the changes cannot be looked at; whoever listened will call again")
        for subscriber in self._subscribers:
            subscriber.end()

    async def _look(self) -> None:
        try:
            changes = await to_thread.run_sync(history.changes_since, self._platform, self._cursor)
        except CursorTooOld:  # the machine was suspended for longer than changes are kept
            changes = Changes(await to_thread.run_sync(history.newest_change, self._platform))
            for subscriber in self._subscribers:
                subscriber.miss()
        self._looked_at = asyncio.get_running_loop().time()
        if changes.cursor == self._cursor:
            return
        self._cursor = changes.cursor
        batch = Batch(changes)
        for subscriber in self._subscribers:
            subscriber.deliver(batch)


TheChanges = Annotated[ChangeWatcher, kept("watcher")]


class EventStream(StreamingResponse):
    """A response that ends its subscription when the response ends for any reason."""

    media_type = "text/event-stream"

    def __init__(self, written: AsyncIterator[bytes], watcher: ChangeWatcher, subscriber: Subscriber) -> None:
        super().__init__(written, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._watcher = watcher
        self._subscriber = subscriber

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._watcher.leave(self._subscriber)


@router.get("/stream", status_code=200, response_class=EventStream, responses=_DESCRIBED)
async def stream(
    platform: ThePlatform,
    watcher: TheChanges,
    authenticator: TheAuthenticator,
    caller: TheCaller,
    viewer: Viewer,
    last_event_id: Annotated[str | None, Header()] = None,
    after: Annotated[str | None, Query(description="As Last-Event-ID, for clients that cannot send a header.")] = None,
) -> EventStream:
    """Send changes as they happen, at most four times a second.

    A user gets the changes of their own jobs. An admin gets the changes of all jobs. A batch of changes may consist of
    several events. Only the last event of a batch has an id, so a connection that breaks between them loses no event.

    ``hello``: the stream begins, and the client should fetch the lists. ``reset``: the client has missed too much, and
    should fetch the lists again. ``beat``: the stream is alive. It is sent when a stream is resumed, and when nothing
    else was sent for ten seconds. ``bye``: the credential has ended.
    """
    cursor = last_event_id or after
    subscriber = await watcher.join(cursor)
    if cursor is None:
        begin = _heartbeat("hello", subscriber.cursor, platform.clock(), retry=_RETRY_MILLISECONDS)
    else:  # no id, since changes after the client's own cursor are still to be sent
        begin = _heartbeat("beat", None, platform.clock(), retry=_RETRY_MILLISECONDS)
    return EventStream(
        _events(platform, watcher, authenticator, caller, viewer, subscriber, begin), watcher, subscriber
    )


async def _events(
    platform: Platform,
    watcher: ChangeWatcher,
    authenticator: Authenticator,
    caller: Caller,
    viewer: UserView,
    subscriber: Subscriber,
    begin: bytes,
) -> AsyncIterator[bytes]:
    clock = asyncio.get_running_loop().time
    sent_at = checked_at = clock()
    yield begin
    while True:
        batches = subscriber.take()
        if subscriber.missed:
            subscriber.missed = False
            sent_at = clock()
            yield _heartbeat("reset", subscriber.cursor, platform.clock())
            batches = []
        for batch in batches:
            if events := await _written(batch, viewer):
                sent_at = clock()
                yield events
        if subscriber.over:
            return
        if clock() - checked_at > CHECK_SECONDS:
            checked_at = clock()
            if not await _still(authenticator, caller):
                yield _heartbeat("bye", None, platform.clock())
                return
        if clock() - sent_at >= BEAT_SECONDS:
            sent_at = clock()
            yield _heartbeat("beat", subscriber.cursor, platform.clock()) if watcher.healthy else _COMMENT
        await subscriber.wait(min(CHECK_SECONDS, sent_at + BEAT_SECONDS - clock()))


async def _still(authenticator: Authenticator, caller: Caller) -> bool:
    """Whether the credential still admits the same user. While the database does not answer, the credential stays
    valid.
    """
    try:
        return await authenticator.still(caller)
    except Unavailable:
        return True


async def _written(batch: Batch, viewer: UserView) -> bytes:
    """Return the batch's events for this viewer, made once for all viewers who see the same; empty if there are
    none.
    """
    sees = None if viewer.sees_all else viewer.id
    if sees not in batch.written:
        batch.written[sees] = await to_thread.run_sync(events_of, batch, viewer)
    return batch.written[sees]


def events_of(batch: Batch, viewer: UserView) -> bytes:
    """Return the events of a batch for ``viewer``. Pure."""
    changes = batch.changes
    events: list[tuple[str, str]] = []
    jobs = cluster.JobsChanged(
        items=[to_wire.job(job) for job in changes.jobs if to_wire.may_see(viewer, job.owner_id)],
        removed=[job.exec_id for job in changes.removed if to_wire.may_see(viewer, job.owner_id)],
    )
    if jobs.items or jobs.removed:
        events.append(("jobs", jobs.model_dump_json()))
    if changes.nodes or changes.removed_nodes:
        nodes = cluster.NodesChanged(
            items=[to_wire.node(node, viewer) for node in changes.nodes], removed=list(changes.removed_nodes)
        )
        events.append(("nodes", nodes.model_dump_json()))
    if changes.allocations or changes.resizes or changes.failures:
        events.append(("timeline", to_wire.timeline_changed(changes, viewer)))
    last = len(events) - 1
    return b"".join(
        format_sse_event(event=event, data_str=data, id=changes.cursor if number == last else None)
        for number, (event, data) in enumerate(events)
    )


def _heartbeat(event: str, cursor: str | None, now: float, retry: int | None = None) -> bytes:
    data = cluster.Beat(now=now).model_dump_json()
    return format_sse_event(event=event, data_str=data, id=cursor, retry=retry, comment=_KEEP_ALIVE)
