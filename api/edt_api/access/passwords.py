"""Passwords: argon2id, two at a time, with a short queue and a memory of recent checks.

Hashing is slow and takes much memory by intent (64 MiB), so it runs in two processes of its own. A caller who would
have to wait for long is refused at once, with the time after which to try again. A known caller is signed in, or uses
an address of a former logon. Known callers wait behind at most one unknown caller.

Some clients, such as WMLA's, send the password with each request. Such a password is hashed once: a right password is
remembered for a minute, and requests that come together share one check. A wrong password is remembered too. So a
program that repeats an outdated password neither keeps the processes busy nor uses up the tries of the person who knows
the new one.

The memory holds hashes under a key that only this process has. It also compares the stored hash, so it notices a
changed password or a removed user at once. After too many wrong passwords the API reads neither memory, because its
answer would reveal the right password. Next: logon_limits.py, which counts wrong passwords.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import math
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from edt_api import concurrency
from edt_api.access.logon_limits import FailedLogons, keep_newest, network
from edt_api.concurrency import Runs, SingleFlight
from edt_api.errors import TooManyLogons
from edt_scheduler.views import UserView

_T = TypeVar("_T")
_K = TypeVar("_K")

REMEMBERED_SECONDS = 60.0
WRONG_REMEMBERED_SECONDS = 900.0
LONGEST_WAIT_SECONDS = 10.0
_MOST_REMEMBERED = 1024
_AT_ONCE = concurrency.passwords.most
_MOST_WAITING = 64
"""The queue's limit for known callers, who are signed in or use an address at which they have signed in before."""
_MOST_STRANGERS = 32
"""The queue's limit for unknown callers. It leaves as many places again to known callers."""
_MOST_NEW, _MOST_NEW_BY_ONE = 8, 4
"""The most new passwords in the queue, of all users and of one user, so that nobody can fill the queue with them."""
_USUAL_SECONDS = 0.1


@dataclass
class _Memory:
    """The newest answers to one question. Each holds for ``seconds`` and for one stored hash."""

    seconds: float
    _kept: OrderedDict[bytes, tuple[float, str | None]] = field(default_factory=OrderedDict, repr=False)
    """Maps the keyed hash of a name and a password to the time at which the entry expires, and to the stored hash with
    which the password was compared.
    """

    def keep(self, key: bytes, stored: str | None, now: float) -> None:
        keep_newest(self._kept, key, (now + self.seconds, stored), _MOST_REMEMBERED)

    def holds(self, key: bytes, stored: str | None, now: float) -> bool:
        until, compared_with = self._kept.get(key, (-math.inf, None))
        if now > until:
            self._kept.pop(key, None)
            return False
        return hmac.compare_digest((compared_with or "").encode(), (stored or "").encode())


@dataclass
class Passwords:
    """Hashes and verifies passwords. Each event loop has its own object, since the queue belongs to one loop."""

    hasher: PasswordHasher = field(default_factory=PasswordHasher)
    failed_logons: FailedLogons = field(default_factory=FailedLogons)
    clock: Callable[[], float] = time.monotonic
    """Clock of the memory, in seconds."""
    hashing: Runs = concurrency.passwords
    """The processes or threads that hash passwords."""
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _right: _Memory = field(default_factory=lambda: _Memory(REMEMBERED_SECONDS), repr=False)
    _wrong: _Memory = field(default_factory=lambda: _Memory(WRONG_REMEMBERED_SECONDS), repr=False)
    _looks: SingleFlight[tuple[bytes, str | None, str], bool] = field(default_factory=SingleFlight, repr=False)
    _turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE), repr=False)
    _turn_of_strangers: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1), repr=False)
    """An unknown caller must hold this before it waits for a turn. So known callers wait behind at most one unknown
    caller.
    """
    _queued: Counter[str] = field(default_factory=Counter, repr=False)
    """How many passwords wait or are being hashed, by the network from which they come."""
    _new: Counter[int] = field(default_factory=Counter, repr=False)
    """How many of these are new passwords, by the user who sets them."""
    _seconds: float = _USUAL_SECONDS
    """Moving average of the duration of one hash, in seconds."""

    def hash_now(self, password: str) -> str:
        """Return the hash that is stored for a password. The call takes a tenth of a second, so no event loop may make
        it.
        """
        return self.hasher.hash(password)

    async def hash(self, password: str, by: int, address: str) -> str:
        """Return the hash that is stored for a password, when its turn in the queue has come.

        Args:
            password: the new password.
            by: id of the user who sets it.
            address: address from which that user sends it.

        Raises:
            TooManyLogons: the queue is full, or this user has several passwords in it.
        """
        if self._new.total() >= _MOST_NEW or self._new[by] >= _MOST_NEW_BY_ONE:
            raise self._busy("too many passwords are being set at this moment")
        with _counted(self._new, by):
            return await self._in_turn(network(address), True, partial(self.hasher.hash, password))

    async def verify(self, name: str, password: str, user: UserView | None, address: str) -> bool:
        """Whether this is the password of ``user``. For no user the check takes as long as for a wrong password.

        Args:
            name: name that the request shows.
            password: password that the request shows.
            user: the user of this name; None if there is none.
            address: address from which the request comes.

        Raises:
            TooManyLogons: the password is not checked now, because too many were wrong or too many wait.
        """
        stored = user.password_hash if user is not None else None
        self.failed_logons.belongs(name, user.id if user is not None else None)
        self.failed_logons.admit(name, address)
        key = hmac.digest(self._key, f"{name}\0{password}".encode(errors="surrogatepass"), hashlib.sha256)
        if user is not None and self._right.holds(key, stored, self.clock()):
            self.failed_logons.right(name, user.id, address)
            return True
        if self._wrong.holds(key, stored, self.clock()):
            return False
        look = partial(self._look, key, name, password, user, address)
        return await self._looks.ask((key, stored, network(address)), look)

    async def _look(self, key: bytes, name: str, password: str, user: UserView | None, address: str) -> bool:
        stored = user.password_hash if user is not None else None
        known = self.failed_logons.familiar(name, address)
        check = partial(_check, self.hasher, stored, password)
        # Other passwords may have been found wrong while this one waited.
        still = partial(self.failed_logons.admit, name, address)
        right = await self._in_turn(network(address), known, check, still)
        if right and user is not None:
            self._right.keep(key, stored, self.clock())
            self.failed_logons.right(name, user.id, address)
        else:
            self._wrong.keep(key, stored, self.clock())
            self.failed_logons.wrong(name, address)
        return right

    async def _in_turn(
        self, place: str, known: bool, do: Callable[[], _T], still: Callable[[], None] = lambda: None
    ) -> _T:
        """Return what ``do()`` returns in a process of ``hashing``. ``still`` may refuse the call when its turn has
        come.

        ``known``: a known caller asks.
        """
        most = _MOST_WAITING if known else _MOST_STRANGERS
        if self._queued.total() >= most or (place and self._queued[place] >= most // 2):
            raise self._busy()
        async with AsyncExitStack() as held:
            held.enter_context(_counted(self._queued, place))
            try:
                async with asyncio.timeout(LONGEST_WAIT_SECONDS):
                    if not known:
                        await held.enter_async_context(self._turn_of_strangers)
                    await held.enter_async_context(self._turn)
            except TimeoutError:
                raise self._busy() from None
            still()
            began = time.monotonic()
            done = await self.hashing.run(do)
            self._seconds += (time.monotonic() - began - self._seconds) / 8
            return done

    def _busy(self, why: str = "too many people are signing in at this moment") -> TooManyLogons:
        return TooManyLogons(why, math.ceil(self._queued.total() * self._seconds))


def _check(hasher: PasswordHasher, stored: str | None, password: str) -> bool:
    """Whether ``stored`` is a hash of ``password``. None: there is no such user, and the check takes as long."""
    if stored is None:
        hasher.hash(password)
        return False
    try:
        return hasher.verify(stored, password)
    except (VerificationError, InvalidHashError):
        return False


@contextmanager
def _counted(held: Counter[_K], key: _K) -> Iterator[None]:
    """Count ``key`` while the block runs. A key whose count is 0 is removed."""
    held[key] += 1
    try:
        yield
    finally:
        held[key] -= 1
        if not held[key]:
            del held[key]
