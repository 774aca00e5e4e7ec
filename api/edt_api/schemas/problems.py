"""What is the matter: with a request, with the service. Room: api."""

from __future__ import annotations

from edt_api.schemas.base import Shown


class Problem(Shown):
    """RFC 9457 ``application/problem+json``: every error under ``/api/v1``."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    """Stable, for programs."""


class Ready(Shown):
    """Answer of ``/readyz``. Who asks on the server itself is also told what is the matter with each part, ``ok``
    where nothing is."""

    ready: bool
    database: str | None = None
    migrations: str | None = None
    broker: str | None = None
    """Never a reason to be unready: without a broker the timers serve."""
