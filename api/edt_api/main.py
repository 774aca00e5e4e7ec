"""The application: routes, the guard before them, the open house behind them. Room: api.

``create_app`` touches nothing; the lifespan opens the house (folders, migrations, connections) and closes it.
Next: access.py, which says who may come in; one module a resource for what is answered.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio import to_thread
from fastapi import FastAPI
from starlette.middleware import Middleware

from edt_api import agents, answers, execs, health, jobs, logon, nodes, timeline, users
from edt_api.auth import Guard, Keeper
from edt_api.context import Closing
from edt_api.first_start import ensure_join_token, first_admin
from edt_api.passwords import Passwords
from edt_api.settings import Settings
from edt_scheduler import operations
from edt_scheduler.house import open_house

log = logging.getLogger("edt.api")

ROUTERS = tuple(module.router for module in (health, logon, execs, agents, nodes, users, jobs, timeline))


def create_app(settings: Settings | None = None, *, passwords: Passwords | None = None) -> FastAPI:
    """The application for one home. ``passwords``: another hasher, for tests that sign in often."""
    settings = settings or Settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        house = await to_thread.run_sync(open_house, settings)
        try:
            app.state.house = house
            house.doorbells.start()
            app.state.passwords = passwords or Passwords()
            join_token = await to_thread.run_sync(ensure_join_token, settings)
            app.state.keeper = Keeper(house, app.state.passwords, join_token)
            if settings.admin_password is not None:
                await to_thread.run_sync(first_admin, house, app.state.passwords, settings.admin_password)
            if not await to_thread.run_sync(operations.users, house):
                log.warning("there are no users yet: `python -m edt_api --ensure-admin` makes the first one")
            yield
        finally:
            await to_thread.run_sync(house.close)

    app = FastAPI(
        title="OpenEDT",
        description="Elastic distributed training: jobs, nodes, users.",
        lifespan=lifespan,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # its page would come from somebody else's server
        redoc_url=None,
        redirect_slashes=False,  # a redirected upload would be sent twice
        middleware=[Middleware(Guard)],
    )
    app.state.settings = settings
    app.state.closing = Closing()
    answers.install(app)
    for router in ROUTERS:
        app.router.routes.extend(router.routes)  # flat, so that a walk of app.routes meets every one
    return app
