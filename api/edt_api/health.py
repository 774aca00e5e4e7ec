"""Whether the process lives and whether it can serve: ``/livez``, ``/readyz``; open to anyone. Room: api."""

from __future__ import annotations

import asyncio
import logging
import time
from urllib.parse import unquote, urlsplit

from anyio import to_thread
from fastapi import APIRouter, Request, Response

from edt_api import schemas
from edt_api.context import TheHouse, for_anyone
from edt_migrations import DatabaseTooNew, at_head
from edt_scheduler import operations
from edt_scheduler.errors import Unavailable
from edt_scheduler.house import House

log = logging.getLogger("edt.api")
router = APIRouter()

OK = "ok"
_REMEMBERED_SECONDS = 1.0
"""Anyone may ask, so the parts are not looked at for each who does."""
_BROKER_SECONDS = 0.5


@router.get("/livez", dependencies=[for_anyone])
async def livez() -> schemas.Message:
    """The process answers. Nothing else is looked at: a restart would not mend a database."""
    return schemas.Message(message=OK)


@router.get("/readyz", dependencies=[for_anyone])
async def readyz(request: Request, response: Response, house: TheHouse) -> schemas.Ready:
    """Every part and what is the matter with it; 503 where requests would fail."""
    until, ready = getattr(request.app.state, "ready", (0.0, None))
    if ready is None or time.monotonic() > until:
        database, migrations = await to_thread.run_sync(_database, house)
        broker = await _broker(house.settings.broker_url)
        ready = schemas.Ready(
            ready=database == migrations == OK, database=database, migrations=migrations, broker=broker
        )
        request.app.state.ready = (time.monotonic() + _REMEMBERED_SECONDS, ready)
    response.status_code = 200 if ready.ready else 503
    return ready


def _database(house: House) -> tuple[str, str]:
    """What the matter is with the database, and with its schema."""
    try:
        operations.nodes(house)
        current = at_head(house.settings.database)
        if house.database.trouble is not None:
            raise house.database.trouble
    except DatabaseTooNew as error:
        return OK, str(error)
    except Unavailable as error:
        return str(error), "unknown"
    except Exception:  # whatever it is, the database does not serve
        log.exception("the database does not answer")
        return "does not answer", "unknown"
    return OK, OK if current else "the schema is older than this version: restart a part, which migrates it"


async def _broker(url: str) -> str:
    """``none`` where there is no broker to be had; being silent makes nothing unready, the timers serve."""
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
