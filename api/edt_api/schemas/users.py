"""Users. Room: api."""

from __future__ import annotations

import enum
from typing import Annotated

from pydantic import Field

from edt_api.schemas.base import Page, Shown, Typed


class RoleName(enum.StrEnum):
    """What a user may do."""

    ADMIN = "admin"  # sees every job, runs nodes and users
    USER = "user"  # sees and stops their own jobs


MOST_NAME = 64
LEAST_PASSWORD, MOST_PASSWORD = 8, 1024
Password = Annotated[str, Field(min_length=LEAST_PASSWORD, max_length=MOST_PASSWORD)]


class User(Shown):
    """One user."""

    name: str
    role: RoleName
    created_at: float


class UserPage(Page[User]):
    """Users, by name."""


class NewUser(Typed):
    """A user to be added."""

    name: Annotated[str, Field(min_length=1, max_length=MOST_NAME)]
    password: Password
    role: RoleName = RoleName.USER


class NewPassword(Typed):
    """A password to be set; it ends every token of its user."""

    password: Password
    current_password: Annotated[str, Field(max_length=MOST_PASSWORD)] | None = None
    """Who sets their own shows that they know the one they have; an admin who sets somebody else's leaves it out."""
