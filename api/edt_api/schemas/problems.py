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
    """Answer of ``/readyz``: each part and what is the matter with it, ``ok`` where nothing is."""

    ready: bool
    database: str
    migrations: str
    broker: str
    """Never a reason to be unready: without a broker the timers serve."""
