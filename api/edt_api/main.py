"""The application: the routes, the guard that runs before them, and the open platform that they use.

``create_app`` touches nothing. The application's lifespan opens the platform (folders, migrations, connections) and
closes it at the end. At the start the lifespan makes a join token if the home has none, and the first administrator if
a password for that user is set. No password is written anywhere. Next: access/rules.py, which holds the access rules;
routes/ has a module for each resource.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import cache, partial

from anyio import to_thread
from argon2 import PasswordHasher
from fastapi import FastAPI
from pydantic import SecretStr
from starlette.middleware import Middleware

from edt_api import concurrency, http, openapi
from edt_api.access.guard import Authenticator, BodyLimit, Guard
from edt_api.access.logon_limits import FailedLogons
from edt_api.access.passwords import Passwords
from edt_api.access.token_uses import ApiTokenUses
from edt_api.job_files.following import LogFollowing
from edt_api.routes import (
    agents,
    answers,
    applications,
    conductor,
    configuration,
    execs,
    frameworks,
    health,
    images,
    jobs,
    legacy,
    lives,
    logon,
    nodes,
    pages,
    pools,
    queues,
    session,
    stream,
    timeline,
    tokens,
    usage,
    users,
)
from edt_api.settings import Settings
from edt_api.submissions.uploads import Admission
from edt_contract.durable import draft_beside
from edt_scheduler.errors import Unavailable, UserExists
from edt_scheduler.model.states import Role
from edt_scheduler.operations import accounts, fleet, submitting
from edt_scheduler.platform import Platform, open_platform

log = logging.getLogger("edt.api")

BEAT_SECONDS = 3.0
SUBMITTED_TOGETHER = 16
"""How many submissions one transaction writes at most."""
SUBMITTED_TOGETHER_SECONDS = 0.02
"""How long the first of them waits for others that are being unpacked."""
_RESOURCES = (
    health,
    openapi,
    pages,
    session,
    logon,
    execs,
    applications,
    configuration,
    conductor,
    legacy,
    agents,
    nodes,
    images,
    frameworks,
    users,
    tokens,
    jobs,
    answers,
    lives,
    pools,
    queues,
    timeline,
    usage,
    stream,
)
ROUTERS = tuple(module.router for module in _RESOURCES)


def first_admin(platform: Platform, passwords: Passwords, password: SecretStr | None) -> str | None:
    """Make the user ``admin`` if there are no users at all.

    The new user gets a random password if none is given. The caller shows that password once.

    Returns:
        The password of the new user; None if there are users already and nothing was made.
    """
    if accounts.users(platform, limit=1):
        return None
    word = password.get_secret_value() if password is not None else ""
    word = word or secrets.token_urlsafe(12)
    with suppress(UserExists):  # another process was faster, and that process knows the password
        accounts.add_user(platform, "admin", passwords.hash_now(word), Role.ADMIN)
        return word
    return None


def ensure_join_token(settings: Settings) -> str:
    """Return the join token from the settings or from the file in EDT_HOME. Make the file if it is missing."""
    if settings.join_token is not None and settings.join_token.get_secret_value():
        return settings.join_token.get_secret_value()
    path = settings.home / "join-token"
    with suppress(FileNotFoundError):
        if kept := path.read_text().strip():
            return kept
    with draft_beside(path, secrets.token_urlsafe(32) + "\n", mode=0o600) as draft:
        try:
            path.hardlink_to(draft)  # unlike a rename, this fails if another process was faster
        except FileExistsError:
            if not path.read_text().strip():
                draft.replace(path)
    return path.read_text().strip()


async def _beat(platform: Platform, uses: ApiTokenUses, ending: asyncio.Event) -> None:
    """Record every BEAT_SECONDS that this API can receive the nodes' requests, and which API tokens were used, until
    the server is ending.

    The record also shows quickly whether the database can be written.
    """
    while not ending.is_set():
        with suppress(Unavailable):
            await concurrency.agents.run(fleet.beat, platform)
            await concurrency.agents.run(uses.record, platform)
        with suppress(TimeoutError):
            await asyncio.wait_for(ending.wait(), BEAT_SECONDS)


def create_app(settings: Settings, *, hasher: PasswordHasher | None = None) -> FastAPI:
    """Return the application for one home.

    Args:
        settings: settings of the API.
        hasher: hashes passwords; tests that sign in often pass a cheaper one than the default.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        to_thread.current_default_thread_limiter().total_tokens = concurrency.SHARED
        platform = await to_thread.run_sync(open_platform, settings)
        try:
            app.state.platform = platform
            platform.notifier.start()
            app.state.passwords = Passwords(hasher or PasswordHasher(), FailedLogons(settings.logon_limits))
            join_token = await to_thread.run_sync(ensure_join_token, settings)
            app.state.authenticator = Authenticator(platform, app.state.passwords, join_token)
            app.state.admission = Admission(settings.uploads_at_once, settings.uploads_per_user)
            submit_all = partial(submitting.submit_all, platform)
            app.state.submits = concurrency.Gathered(
                submit_all, concurrency.uploads, SUBMITTED_TOGETHER, SUBMITTED_TOGETHER_SECONDS
            )
            app.state.readiness = health.Readiness(platform)
            app.state.following = LogFollowing(platform, app.state.stopping)
            app.state.watcher = stream.ChangeWatcher(platform, app.state.stopping)
            if settings.admin_password is not None:
                await to_thread.run_sync(first_admin, platform, app.state.passwords, settings.admin_password)
            if not await to_thread.run_sync(partial(accounts.users, platform, limit=1)):
                log.warning("there are no users yet: `python -m edt_api --ensure-admin` makes the first one")
            if pages.built(pages.STATIC, "index.html") is None:
                log.warning(
                    "the dashboard is not built, only its pages are missing: `make dashboard` in a clone builds it"
                )
            ending = asyncio.Event()
            pulse = asyncio.create_task(_beat(platform, app.state.authenticator.uses, ending), name="the API's beat")
            try:
                yield
            finally:
                ending.set()
                # A cancelled task does not end its thread, and the platform closes only connections that no thread has.
                await asyncio.wait([pulse], timeout=BEAT_SECONDS)
                pulse.cancel()
                await asyncio.gather(pulse, return_exceptions=True)
        finally:
            await to_thread.run_sync(platform.close)

    app = FastAPI(
        title="OpenEDT",
        description="Elastic distributed training: jobs, nodes, users.",
        lifespan=lifespan,
        openapi_url=None,  # the framework's own route for the document names no audience
        docs_url=None,  # the framework's page loads its scripts from a foreign server
        redoc_url=None,
        redirect_slashes=False,  # a client would send a redirected upload twice
        exception_handlers=http.HANDLERS,
        middleware=[
            Middleware(http.Forwarded, believed=settings.forwarded_allow_ips),
            Middleware(Guard),
            Middleware(BodyLimit),
        ],
    )
    app.state.settings = settings
    app.state.stopping = threading.Event()
    app.openapi = cache(partial(openapi.document, app))  # type: ignore[method-assign]  # FastAPI's own way
    for router in ROUTERS:
        app.router.routes.extend(router.routes)  # flat, so that a loop over app.routes finds every route
    return app
