"""What a home has to have before anybody can come in: a first administrator and a join token. Room: api.

Touches the store through operations and one file, ``join-token``, that only its owner can read. Both are made
once; nothing here writes a password anywhere.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress

from pydantic import SecretStr

from edt_api.passwords import Passwords
from edt_api.settings import Settings
from edt_scheduler import operations
from edt_scheduler.errors import UserExists
from edt_scheduler.house import House
from edt_scheduler.views import Role

ADMIN = "admin"


def first_admin(house: House, passwords: Passwords, password: SecretStr | None) -> str | None:
    """Make the user ``admin`` where there are no users at all, and answer the password it has then.

    None: there are users, nothing was made. Without a given password it gets a random one; whoever called shows
    it, once.
    """
    if operations.users(house, limit=1):
        return None
    word = password.get_secret_value() if password is not None else ""
    word = word or secrets.token_urlsafe(12)
    with suppress(UserExists):  # another process was faster, and knows the password
        operations.add_user(house, ADMIN, passwords.hash_now(word), Role.ADMIN)
        return word
    return None


def ensure_join_token(settings: Settings) -> str:
    """What nodes show to register: as told, or as kept in the home, or made now."""
    if settings.join_token is not None and settings.join_token.get_secret_value():
        return settings.join_token.get_secret_value()
    path = settings.join_token_file
    with suppress(FileNotFoundError):
        if kept := path.read_text().strip():
            return kept
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            path.hardlink_to(draft)  # unlike a rename it fails where another process was faster
        except FileExistsError:
            if not path.read_text().strip():
                draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path.read_text().strip()
