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
    """List the images that an admin has allowed or used, and the nodes on which each image is ready."""
    patterns = [pattern.strip() for pattern in settings.images.split(",") if pattern.strip()]
    find = partial(images.images, platform)
    return paged(cluster.ImagePage, "images", find, attrgetter("number"), limit, cursor, patterns=patterns)


@router.post("", status_code=201)
def allow(platform: ThePlatform, viewer: AdminViewer, new: cluster.NewImage) -> cluster.Image:
    """Allow every user to name an image. Send it again to change whether nodes fetch the image in advance."""
    allowed = images.allow_image(platform, new.name, by=viewer, everywhere=new.everywhere)
    return cluster.Image.model_validate(allowed)


@router.delete("/{name:path}", status_code=204, response_class=Response, dependencies=[for_admins])
def forbid(platform: ThePlatform, name: str) -> None:
    """Allow only admins to name this image from now on. Jobs that use it keep it.

    Every user may still name an image that matches a pattern of EDT_IMAGES.
    """
    images.forbid_image(platform, name)
