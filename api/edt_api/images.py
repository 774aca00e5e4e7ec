"""Container images that jobs may name: ``/api/v1/images``. Everybody reads the list, admins change it. Room: api."""

from __future__ import annotations

from fastapi import APIRouter, Response

from edt_api import schemas
from edt_api.context import AdminViewer, TheHouse, TheSettings, for_admins, for_users
from edt_api.paging import Cursor, Limit, cursor_of, cut, number_of
from edt_scheduler import operations

router = APIRouter(prefix="/api/v1/images")


@router.get("", dependencies=[for_users])
def listing(house: TheHouse, settings: TheSettings, limit: Limit = 100, cursor: Cursor = None) -> schemas.ImagePage:
    """The images that an admin has allowed or used, and on which nodes each is ready."""
    after = number_of("images", cursor) or 0
    page, more = cut(operations.images(house, limit=limit + 1, after=after), limit)
    return schemas.ImagePage(
        items=[schemas.Image.model_validate(each) for each in page],
        next=cursor_of("images", page[-1].number if more else None),
        patterns=[pattern.strip() for pattern in settings.images.split(",") if pattern.strip()],
    )


@router.post("", status_code=201)
def allow(house: TheHouse, viewer: AdminViewer, new: schemas.NewImage) -> schemas.Image:
    """Let everybody name an image; again to change whether nodes have it ready."""
    allowed = operations.allow_image(house, new.name, by=viewer, everywhere=new.everywhere)
    return schemas.Image.model_validate(allowed)


@router.delete("/{name:path}", status_code=204, dependencies=[for_admins])
def forbid(house: TheHouse, name: str) -> Response:
    """Nobody but an admin may name it any more. Jobs that have it keep it."""
    operations.forbid_image(house, name)
    return Response(status_code=204)
