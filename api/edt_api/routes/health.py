"""Whether the process runs and whether it can serve: ``/livez``, ``/readyz``; open to anyone."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from fastapi import APIRouter, Request, Response

from edt_api import concurrency
from edt_api.concurrency import SingleFlight
from edt_api.dependencies import for_anyone
from edt_api.http import on_this_machine
from edt_api.schemas import cluster, jobs
from edt_migrations import DatabaseTooNew
from edt_scheduler.errors import Unavailable
from edt_scheduler.operations import fleet
from edt_scheduler.platform import Platform

log = logging.getLogger("edt.api")
router = APIRouter()

OK = "ok"
_REMEMBERED_SECONDS = 1.0
_BROKER_SECONDS = 0.5


@router.get("/livez", dependencies=[for_anyone])
async def livez() -> jobs.Message:
    """Answer that the process runs.

    Nothing else is checked: a restart of the process would not repair a database, for example.
    """
    return jobs.Message(message=OK)


@router.get("/readyz", dependencies=[for_anyone], response_model_exclude_none=True)
async def readyz(request: Request, response: Response) -> cluster.Ready:
    """Return whether the server can serve requests; the status is 503 if it cannot.

    A request from the server's own machine also gets the reason.
    """
    readiness: Readiness = request.app.state.readiness
    found = await readiness.now()
    response.status_code = 200 if found.ready else 503
    return found if on_this_machine(request.scope) else cluster.Ready(ready=found.ready)


@dataclass
class Readiness:
    """The state of database, schema and broker.

    Anyone may ask for it, so one look serves all requests that come during that look and within a second after it.
    """

    platform: Platform
    clock: Callable[[], float] = time.monotonic
    _found: cluster.Ready | None = None
    _until: float = 0.0
    _looks: SingleFlight[str, cluster.Ready] = field(default_factory=SingleFlight)

    async def now(self) -> cluster.Ready:
        if self._found is None or self.clock() > self._until:
            return await self._looks.ask("state", self._look)
        return self._found

    async def _look(self) -> cluster.Ready:
        trouble = None
        try:
            database, migrations = await concurrency.lookups.run(_database, self.platform)
        except Exception as error:  # any error means that the database does not serve
            database, migrations, trouble = "does not answer", "unknown", error
        broker = await _broker(self.platform.settings.broker_url)
        ready = database == migrations == OK
        found = cluster.Ready(ready=ready, database=database, migrations=migrations, broker=broker)
        before = (self._found.database, self._found.migrations) if self._found is not None else (OK, OK)
        if (database, migrations) != before:  # only changes are logged, since a look may come each second
            change = "ready again" if ready else f"not ready: database {database}, schema {migrations}"
            log.warning("%s", change, exc_info=trouble)
        self._found, self._until = found, self.clock() + _REMEMBERED_SECONDS
        return found


def _database(platform: Platform) -> tuple[str, str]:
    """Return the state of the database and the state of its schema. Each is ``ok`` or a description of the fault.

    Raises:
        Exception: the database driver's own errors.
    """
    try:
        newest = fleet.serves(platform)
    except DatabaseTooNew as error:
        return OK, str(error)
    except Unavailable as error:
        return str(error), "unknown"
    return OK, OK if newest else "the schema is older than this version: restart a process, which migrates it"


async def _broker(url: str) -> str:
    """Return the state of the broker; ``none`` if no broker is configured.

    A broker that does not answer makes nothing unready, because timers do the work of its notifications.
    """
    if not url:
        return "none"
    where = urlsplit(url)
    try:
        async with asyncio.timeout(_BROKER_SECONDS):
            if "socket" in where.scheme or where.scheme == "unix":
                _, writer = await asyncio.open_unix_connection(unquote(where.path))
            else:
                _, writer = await asyncio.open_connection(where.hostname or "127.0.0.1", where.port or 6379)
            writer.close()
    except (OSError, TimeoutError):
        return "does not answer"
    return OK
