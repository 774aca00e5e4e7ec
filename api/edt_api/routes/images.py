"""Container images that jobs may name: ``/api/v1/images``. Every user may read the list; admins change it."""

from __future__ import annotations

from functools import partial
from operator import attrgetter

from fastapi import APIRouter, Response

from edt_api.dependencies import AdminViewer, ThePlatform, TheSettings, for_admins, for_users
from edt_api.http import Cursor, Limit, paged
from edt_api.schemas import cluster
from edt_scheduler.operations import images

router = APIRouter(prefix="/api/v1/images")


@router.get("", dependencies=[for_users])
def listing(
    platform: ThePlatform, settings: TheSettings, limit: Limit = 100, cursor: Cursor = None
) -> cluster.ImagePage:
    """The images that an admin has allowed or used, and on which nodes each is ready."""
    patterns = [pattern.strip() for pattern in settings.images.split(",") if pattern.strip()]
    find = partial(images.images, platform)
    return paged(cluster.ImagePage, "images", find, attrgetter("number"), limit, cursor, patterns=patterns)


@router.post("", status_code=201)
def allow(platform: ThePlatform, viewer: AdminViewer, new: cluster.NewImage) -> cluster.Image:
    """Let everybody name an image; again to change whether nodes have it ready."""
    allowed = images.allow_image(platform, new.name, by=viewer, everywhere=new.everywhere)
    return cluster.Image.model_validate(allowed)


@router.delete("/{name:path}", status_code=204, response_class=Response, dependencies=[for_admins])
def forbid(platform: ThePlatform, name: str) -> None:
    """Nobody but an admin may name it any more. Jobs that have it keep it."""
    images.forbid_image(platform, name)
