"""The application: routes, the guard before them, the open house behind them. Room: api.

``create_app`` touches nothing; the lifespan opens the house (folders, migrations, connections) and closes it.
Next: access.py, which says who may come in; one module a resource for what is answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

from anyio import to_thread
from argon2 import PasswordHasher
from fastapi import FastAPI
from starlette.middleware import Middleware

from edt_api import (
    agents,
    answers,
    execs,
    health,
    images,
    jobs,
    logon,
    nodes,
    openapi,
    pages,
    session,
    stream,
    threads,
    timeline,
    usage,
    users,
)
from edt_api.admission import Admission
from edt_api.auth import Guard, Keeper
from edt_api.bodies import Bodies
from edt_api.closing import Closing
from edt_api.feed import Feed
from edt_api.first_start import ensure_join_token, first_admin
from edt_api.guessing import Guesses
from edt_api.passwords import Passwords
from edt_api.proxies import Forwarded
from edt_api.settings import Settings
from edt_scheduler import operations
from edt_scheduler.errors import Unavailable
from edt_scheduler.house import House, open_house

log = logging.getLogger("edt.api")

BEAT_SECONDS = 3.0
_RESOURCES = (
    health,
    openapi,
    pages,
    session,
    logon,
    execs,
    agents,
    nodes,
    images,
    users,
    jobs,
    timeline,
    usage,
    stream,
)
ROUTERS = tuple(module.router for module in _RESOURCES)


async def _beat(house: House) -> None:
    """Tell the scheduler that nodes can be heard. It also shows soon whether the database can be written."""
    while True:
        with suppress(Unavailable):
            await threads.agents.run(operations.beat, house)
        await asyncio.sleep(BEAT_SECONDS)


def create_app(settings: Settings | None = None, *, hasher: PasswordHasher | None = None) -> FastAPI:
    """The application for one home. ``hasher``: another one, for tests that sign in often."""
    settings = settings or Settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        to_thread.current_default_thread_limiter().total_tokens = threads.SHARED
        house = await to_thread.run_sync(open_house, settings)
        try:
            app.state.house = house
            house.doorbells.start()
            app.state.passwords = Passwords(hasher or PasswordHasher(), Guesses(settings.logon_limits))
            join_token = await to_thread.run_sync(ensure_join_token, settings)
            app.state.keeper = Keeper(house, app.state.passwords, join_token)
            app.state.admission = Admission(settings.uploads_at_once, settings.uploads_per_user)
            app.state.readiness = health.Readiness(house)
            app.state.feed = Feed(house, app.state.closing)
            if settings.admin_password is not None:
                await to_thread.run_sync(first_admin, house, app.state.passwords, settings.admin_password)
            if not await to_thread.run_sync(partial(operations.users, house, limit=1)):
                log.warning("there are no users yet: `python -m edt_api --ensure-admin` makes the first one")
            if pages.built(pages.STATIC, "index.html") is None:
                log.warning(
                    "the dashboard is not built, only its pages are missing: `make dashboard` in a clone builds it"
                )
            pulse = asyncio.create_task(_beat(house), name="the front door's pulse")
            try:
                yield
            finally:
                pulse.cancel()
                await asyncio.gather(pulse, return_exceptions=True)
        finally:
            await to_thread.run_sync(house.close)

    app = FastAPI(
        title="OpenEDT",
        description="Elastic distributed training: jobs, nodes, users.",
        lifespan=lifespan,
        openapi_url=None,  # the framework would serve it by a route that says nothing of whom it opens to
        docs_url=None,  # its page would come from somebody else's server
        redoc_url=None,
        redirect_slashes=False,  # a redirected upload would be sent twice
        middleware=[
            Middleware(Forwarded, believed=settings.forwarded_allow_ips),
            Middleware(Guard),
            Middleware(Bodies),
        ],
    )
    app.state.settings = settings
    app.state.closing = Closing()
    answers.install(app)
    openapi.install(app)
    for router in ROUTERS:
        app.router.routes.extend(router.routes)  # flat, so that a walk of app.routes meets every one
    return app
