"""Shapes of a page's session. Room: api."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from edt_api.schemas.base import Shown, Typed
from edt_api.schemas.users import RoleName


class NewSession(Typed):
    """Who signs in. Of any length: a password that is too short to be set is simply wrong."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    password: Annotated[str, Field(max_length=1024)]


class Me(Shown):
    """Who asks, and what answers."""

    name: str
    role: RoleName
    version: str
    """The server's."""
