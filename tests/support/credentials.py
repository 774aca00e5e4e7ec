"""Whom a test signs in, and with which password."""

from __future__ import annotations

from edt_scheduler.model.states import Role
from edt_scheduler.views import UserView

PASSWORD = "a password for tests"
"""The administrator's, of every platform that a test starts."""


def account(password_hash: str, user: int = 1, name: str = "ana") -> UserView:
    """A user as the store tells of them."""
    return UserView(user, name, Role.USER, password_hash, 0.0)
