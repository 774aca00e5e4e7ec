"""Whose submission is taken in next. Room: api.

A submission is work from its first byte on: a connection that may be slow, a file on the disk, a process that unpacks.
So each user has a few at a time, and all users together some more. What comes beyond that waits, its body unread, for
some seconds, and is then refused: by 429, with the time after which it may be sent again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from weakref import WeakValueDictionary

from anyio import CapacityLimiter, fail_after

from edt_api.errors import TooManyUploads

WAIT_SECONDS = 10.0
"""So long does a submission wait for its turn: many small ones are taken in meanwhile."""


class Admission:
    """``at_once`` submissions are taken in at a time, ``per_user`` of one user. For one event loop, made inside it."""

    def __init__(self, at_once: int, per_user: int) -> None:
        self._at_once, self._per_user = at_once, per_user
        self._all = CapacityLimiter(at_once)
        self._of_user: WeakValueDictionary[int, CapacityLimiter] = WeakValueDictionary()
        """Of those who send something now: each submission holds its user's."""

    @asynccontextmanager
    async def turn(self, user: int) -> AsyncIterator[None]:
        """The block is the submission's turn. Raises TooManyUploads where it does not come in time."""
        theirs = self._of_user.setdefault(user, CapacityLimiter(self._per_user))
        limit = f"{self._per_user} of one user"
        async with AsyncExitStack() as held:
            try:
                with fail_after(WAIT_SECONDS):
                    await held.enter_async_context(theirs)
                    limit = f"{self._at_once} of all users"
                    await held.enter_async_context(self._all)
            except TimeoutError:
                raise TooManyUploads(limit) from None
            yield
