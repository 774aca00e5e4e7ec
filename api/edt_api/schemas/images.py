"""Container images that jobs may name. Room: api."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from edt_api.schemas.base import Page, Shown, Typed


class NewImage(Typed):
    """An image that every job may name from now on."""

    name: Annotated[str, Field(min_length=1, max_length=255)]
    everywhere: bool = False
    """Every node that starts containers fetches it before a job comes."""


class ImageOnNode(Shown):
    """What became of having an image ready on one node. Times in seconds since the epoch."""

    node: str
    asked_at: float
    done_at: float | None
    """None: it is being fetched."""
    error: str | None
    """Why the node could not fetch it; None: it is there, or on its way."""


class Image(Shown):
    """An image that every job may name."""

    name: str
    allowed_by: str
    allowed_at: float
    everywhere: bool
    nodes: list[ImageOnNode]


class ImagePage(Page[Image]):
    """Images, oldest first."""

    patterns: list[str]
    """Besides the images of all pages, whatever these match (EDT_IMAGES)."""
