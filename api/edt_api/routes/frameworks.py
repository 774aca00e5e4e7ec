"""The framework catalogue: ``/api/v1/frameworks``. Every user may read it; admins change it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Response

from edt_api.dependencies import AdminViewer, ThePlatform, for_admins, for_users
from edt_api.schemas.frameworks import Catalogue, CatalogueEntry
from edt_scheduler.operations import frameworks
from edt_scheduler.views import FrameworkView

router = APIRouter(prefix="/api/v1/frameworks")


@router.get("", dependencies=[for_users])
def listing(platform: ThePlatform) -> Catalogue:
    """List the entries of the catalogue: the built-in ones, then those that admins have added."""
    return Catalogue(frameworks=[_shown(each) for each in frameworks.frameworks(platform)])


@router.post("", status_code=201)
def add(platform: ThePlatform, viewer: AdminViewer, entry: Annotated[dict[str, Any], Body()]) -> CatalogueEntry:
    """Add an entry, or replace the added entry of its name. Jobs that were submitted before keep what they have.

    The body has the keys of an entry. ``name`` is needed, and ``command`` unless ``elastic`` is true.
    """
    return _shown(frameworks.add_framework(platform, entry, by=viewer))


@router.delete("/{name}", status_code=204, response_class=Response, dependencies=[for_admins])
def remove(platform: ThePlatform, name: str) -> None:
    """Remove an added entry. Jobs that have it keep it."""
    frameworks.remove_framework(platform, name)


def _shown(view: FrameworkView) -> CatalogueEntry:
    return CatalogueEntry.model_validate(vars(view.entry) | {"added_by": view.added_by, "added_at": view.added_at})
