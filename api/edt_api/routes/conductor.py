"""What notebooks of WMLA 1.2 ask of Spectrum Conductor: ``/platform/rest/conductor/v1``.

An instance group is the whole platform, whatever name or id a notebook has for it. The id of a driver is the id of its
job.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import PlainTextResponse

from edt_api import process_logs
from edt_api.access import tokens
from edt_api.access.guard import shown
from edt_api.dependencies import TheCaller, ThePlatform, TheSettings, Viewer, for_accounts, for_users
from edt_api.errors import NotAuthenticated
from edt_api.listing import Length, Start, api_url
from edt_api.routes import applications
from edt_api.routes.applications import Order, Sort, States, Text
from edt_api.schemas import jobs, wmla
from edt_scheduler.operations import accounts

router = APIRouter(prefix="/platform/rest/conductor/v1")

_Group = Annotated[str, Path(max_length=256, description="Id of an instance group; any.")]


@router.get("/auth/logon")
@router.get("/auth/logon/")
def logon(
    request: Request, platform: ThePlatform, settings: TheSettings, caller: TheCaller, viewer: Viewer
) -> wmla.Signed:
    """Say who the caller is. A caller who sends a name and a password also gets a new token; others keep theirs."""
    token = caller.token
    if token is None:
        token = tokens.issue(platform, viewer, settings.token_hours * 3600)
    elif shown(request.headers) is None:  # no page gets the token of its session
        raise NotAuthenticated("sign in with a name and a password (Authorization: Basic)")
    return wmla.Signed(accessToken=token, username=viewer.name, role=tokens.wmla_role(viewer.role))


@router.get("/auth/logoff", dependencies=[for_accounts])
@router.get("/auth/logoff/", dependencies=[for_accounts])
def logoff(request: Request, platform: ThePlatform, caller: TheCaller) -> jobs.Message:
    """End the token of this request. A request with a password, or with the session of a page, ends nothing."""
    if caller.token is not None and shown(request.headers) is not None:  # any site can make a browser send a GET
        accounts.revoke_token(platform, caller.token)
    return jobs.Message(message="Signed off.")


@router.get("/instances", dependencies=[for_users])
@router.get("/instances/", dependencies=[for_users])
async def instances(request: Request) -> list[wmla.Instance]:
    """List the instance groups: the platform is one."""
    return [applications.instance(api_url(request))]


@router.get("/instances/{sig_id}/applications", response_model=list[wmla.Application])
@router.get("/instances/{sig_id}/applications/", response_model=list[wmla.Application])
async def listing(
    request: Request,
    platform: ThePlatform,
    viewer: Viewer,
    sig_id: _Group,
    state: States = None,
    search: Text = "",
    sort: Sort = "id",
    order: Order = "",
    start: Start = 0,
    length: Length = None,
) -> Response:
    """List the caller's jobs as applications, with how busy their slots are.

    Admins and viewers get those of all users.
    """
    return await applications.applications(
        request, platform, viewer, search=search, sort=sort, order=order, start=start, length=length, state=state
    )


@router.get("/instances/{sig_id}/applications/{exec_id}/logs/{log}/download", response_class=PlainTextResponse)
def driver_log(platform: ThePlatform, viewer: Viewer, sig_id: _Group, exec_id: str, log: wmla.LogName) -> Response:
    """Return a log of the driver as text."""
    return process_logs.of_driver(platform, viewer, exec_id, log)


@router.get("/instances/{sig_id}/applications/{exec_id}/{number}/logs/{log}/download", response_class=PlainTextResponse)
def executor_log(
    platform: ThePlatform, viewer: Viewer, sig_id: _Group, exec_id: str, number: str, log: wmla.LogName
) -> Response:
    """Return a log of one engine as text. ``number`` is its ``id`` among the application's ``executors``."""
    return process_logs.of_engine(platform, viewer, exec_id, number, log)
