"""Lists in pages: a limit, and a cursor that says where the next page begins. Room: api. Pure.

A cursor is opaque to clients; it holds the number of the last item seen, and the name of the list it is of.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, TypeVar

from fastapi import Query

from edt_api.errors import RequestInvalid

MOST = 500
_LARGEST = 2**63 - 1
_Item = TypeVar("_Item")

Limit = Annotated[int, Query(ge=1, le=MOST, description="The most items of this page.")]
Cursor = Annotated[str | None, Query(max_length=128, description="`next` of the page before this one.")]


def cursor_of(listed: str, number: int | None) -> str | None:
    """The cursor behind item ``number`` of a list; None: there is no more."""
    if number is None:
        return None
    return base64.urlsafe_b64encode(f"{listed}:{number}".encode()).decode().rstrip("=")


def number_of(listed: str, cursor: str | None) -> int | None:
    """The number in a cursor of this list; None: there is no cursor. Raises RequestInvalid for any other."""
    if cursor is None:
        return None
    try:
        name, _, digits = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii").partition(":")
        if name == listed and digits.isdigit() and int(digits) <= _LARGEST:
            return int(digits)
    except (binascii.Error, ValueError):
        pass
    raise RequestInvalid(f"cursor: {cursor!r} is none of this list's; take the `next` of a page, or leave it out")


def cut(found: Sequence[_Item], limit: int) -> tuple[Sequence[_Item], bool]:
    """A page out of what was found when one more was asked for, and whether another follows."""
    return found[:limit], len(found) > limit
