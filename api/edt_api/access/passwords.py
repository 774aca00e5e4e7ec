"""Passwords: argon2id, two at a time, behind a short queue; and a memory of what was just checked.

Hashing is slow and large by intent (64 MiB), so it happens in two processes of its own, and whoever would have to wait
for long is refused at once, with the time to come again. A known caller, signed in or at an address of a former logon,
waits behind one unknown at most. The password of a client that sends it with each request, as WMLA's do, is hashed
once: a right password is remembered for a minute, and requests that come together share one look. A wrong one is
remembered too, so a program that repeats an outdated password neither keeps the processes busy nor uses up the tries of
the person who knows the new one. What is remembered is a hash under a key that only this process has; a changed
password or a removed user is noticed at once, because the stored hash is compared too. Where too many were wrong,
nothing is looked up in either memory: the right one of them would be found out. Next: logon_limits.py, which counts.
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
"""Of those whom we know: signed in, or at an address at which they have signed in before."""
_MOST_STRANGERS = 32
"""However many unknown callers wait, as many known ones are still taken."""
_MOST_NEW, _MOST_NEW_BY_ONE = 8, 4
"""New passwords in the queue, of all users and of one: nobody can fill the queue by setting passwords."""
_USUAL_SECONDS = 0.1


@dataclass
class _Memory:
    """The newest answers to one question, each for a while and for one stored hash."""

    seconds: float
    _kept: OrderedDict[bytes, tuple[float, str | None]] = field(default_factory=OrderedDict, repr=False)
    """Keyed hash of a name and a password to when it is forgotten and the stored hash it was compared with."""

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
    """Hashes and verifies. One for each event loop, since its queue belongs to that."""

    hasher: PasswordHasher = field(default_factory=PasswordHasher)
    failed_logons: FailedLogons = field(default_factory=FailedLogons)
    clock: Callable[[], float] = time.monotonic
    """Seconds, for what is remembered."""
    hashing: Runs = concurrency.passwords
    """Where passwords are hashed."""
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _right: _Memory = field(default_factory=lambda: _Memory(REMEMBERED_SECONDS), repr=False)
    _wrong: _Memory = field(default_factory=lambda: _Memory(WRONG_REMEMBERED_SECONDS), repr=False)
    _looks: SingleFlight[tuple[bytes, str | None, str], bool] = field(default_factory=SingleFlight, repr=False)
    _turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE), repr=False)
    _turn_of_strangers: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1), repr=False)
    """Who holds it may wait for a turn: so those whom we know wait behind one stranger at most."""
    _queued: Counter[str] = field(default_factory=Counter, repr=False)
    """How many wait or are being hashed, by the network they come from."""
    _new: Counter[int] = field(default_factory=Counter, repr=False)
    """How many of these are new passwords, by the user who sets them."""
    _seconds: float = _USUAL_SECONDS
    """How long one took lately."""

    def hash_now(self, password: str) -> str:
        """What is stored of a password. Takes a tenth of a second: not for an event loop."""
        return self.hasher.hash(password)

    async def hash(self, password: str, by: int, address: str) -> str:
        """The same in its turn, for the user ``by``, who sets it from ``address``.

        Raises TooManyLogons where the queue is full, or this user has several passwords in it.
        """
        if self._new.total() >= _MOST_NEW or self._new[by] >= _MOST_NEW_BY_ONE:
            raise self._busy("too many passwords are being set at this moment")
        with _counted(self._new, by):
            return await self._in_turn(network(address), True, partial(self.hasher.hash, password))

    async def verify(self, name: str, password: str, user: UserView | None, address: str) -> bool:
        """Whether this is the password of ``user``, who has this name; None, nobody, takes as long as a wrong one.

        ``address`` is where it comes from. Raises TooManyLogons where it is not looked at now: too many were wrong,
        or too many wait.
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
        # Others may have been wrong while this one waited.
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
        """What ``do()`` returns, elsewhere; ``still`` may refuse it when its turn has come.

        ``known``: it is asked by somebody whom we know, from there.
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
    """Whether ``password`` is the one ``stored`` was made of. None: it is nobody's, which takes as long."""
    if stored is None:
        hasher.hash(password)
        return False
    try:
        return hasher.verify(stored, password)
    except (VerificationError, InvalidHashError):
        return False


@contextmanager
def _counted(held: Counter[_K], key: _K) -> Iterator[None]:
    """The block is counted while it runs; who counts nothing is not kept."""
    held[key] += 1
    try:
        yield
    finally:
        held[key] -= 1
        if not held[key]:
            del held[key]
