"""The logs of a job's processes as WMLA's clients ask for them: of the driver, and of each engine by its number.

A gang has no driver: rank 0 stands in its place. The number of each of its processes is its rank + 1.

``launcherlog`` is what the platform did: for the driver all events of the job's history, for an engine its own steps.
It is made of the database, so it is there also after the job's files were removed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator

from fastapi.responses import StreamingResponse

from edt_api import concurrency, to_wmla
from edt_api.errors import NoSuchObject
from edt_api.job_files import logs
from edt_api.schemas.wmla import LogName
from edt_scheduler.operations import execs, history
from edt_scheduler.platform import Platform
from edt_scheduler.views import UserView

_EVENTS_AT_ONCE = 1000
_STREAMS = {LogName.STDOUT: logs.Stream.OUT, LogName.STDERR: logs.Stream.ERR}


def of_driver(
    platform: Platform, viewer: UserView, exec_id: str, name: LogName, last: int | None = None
) -> StreamingResponse:
    """Return a log of the job's driver as text, empty if there is nothing in it yet.

    Args:
        platform: the open platform.
        viewer: the user who asks.
        exec_id: the job.
        name: which log.
        last: only so many lines of its end.

    Raises:
        NoSuchJob: the viewer may see no job of this id.
        ResultsRemoved: the job's files were removed because of their age.
    """
    job = execs.job(platform, exec_id, viewer=viewer)
    if name is LogName.LAUNCHER:
        return _as_text(_last(_events(platform, exec_id, viewer), last))
    return _as_text(logs.of_driver(job, _STREAMS[name], last))


def of_engine(
    platform: Platform, viewer: UserView, exec_id: str, number: str, name: LogName, last: int | None = None
) -> StreamingResponse:
    """Return a log of one engine, as ``of_driver`` does. ``number`` counts engines from 1, as they started, and the
    processes of a gang from 1 by their ranks.

    Raises:
        NoSuchObject: the job has had no process of this number.
        NoSuchJob, ResultsRemoved: as above.
    """
    job = execs.job(platform, exec_id, viewer=viewer)
    engines = history.processes(platform, [job])[job.exec_id].engines
    engine = next((each for each in engines if str(each.number) == number), None)
    if engine is None:
        raise NoSuchObject(
            f"{exec_id} has no executor {number[:64]!r}: it has started {len(engines)} so far, numbered from 1"
        )
    if name is LogName.LAUNCHER:
        return _as_text(_last(to_wmla.engine_history(engine), last))
    return _as_text(logs.of_process(job, engine, _STREAMS[name], last))


def _events(platform: Platform, exec_id: str, viewer: UserView) -> Iterator[str]:
    after = 0
    while some := history.events(platform, exec_id, viewer=viewer, after=after, limit=_EVENTS_AT_ONCE):
        yield "".join(to_wmla.line(event.time, f"{event.kind}: {event.message}") for event in some)
        after = some[-1].seq


def _last(texts: Iterable[str], last: int | None) -> Generator[str, None, None]:
    if last is None:
        yield from texts
        return
    lines = deque((line for text in texts for line in text.splitlines(keepends=True)), maxlen=last)
    yield "".join(lines)


def _as_text(pieces: Generator[str, None, None]) -> StreamingResponse:
    return StreamingResponse(concurrency.files.pieces(pieces), media_type="text/plain; charset=utf-8")
