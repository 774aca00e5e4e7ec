"""Passwords: argon2id, at most two at a time, and a minute's memory of those that were right. Room: api.

Hashing is slow and large by intent (64 MiB), so it happens in threads and behind a semaphore: many wrong logons
wait for each other, not the platform for them. What is remembered is a hash under a key that only this process
has; a changed password or a removed user is noticed at once, because the stored hash is compared too.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from anyio import to_thread
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError

REMEMBERED_SECONDS = 60.0
_MOST_REMEMBERED = 1024
_AT_ONCE = 2


@dataclass
class Passwords:
    """Hashes and verifies. One for each event loop, since its semaphore belongs to that."""

    hasher: PasswordHasher = field(default_factory=PasswordHasher)
    clock: Callable[[], float] = time.monotonic
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _right: dict[bytes, tuple[float, str]] = field(default_factory=dict, repr=False)
    """Keyed hash of a name and password to when it is forgotten and the stored hash it was right for."""
    _turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE), repr=False)
    _dummy: str = field(default="", repr=False)

    def hash_now(self, password: str) -> str:
        """What is stored of a password. Takes a tenth of a second: call it from a thread."""
        return self.hasher.hash(password)

    async def hash(self, password: str) -> str:
        async with self._turn:
            return await to_thread.run_sync(self.hash_now, password)

    async def verify(self, name: str, password: str, stored: str | None) -> bool:
        """Whether this is the password behind ``stored``; None, an unknown user, takes as long as a wrong one."""
        key = hmac.digest(self._key, f"{name}\0{password}".encode(errors="surrogatepass"), hashlib.sha256)
        if self._remembers(key, stored):
            return True
        async with self._turn:
            if self._remembers(key, stored):  # a request like this one was before us
                return True
            right = await to_thread.run_sync(self._check, stored, password)
        if right and stored is not None:
            if len(self._right) >= _MOST_REMEMBERED:
                self._right.pop(next(iter(self._right)))
            self._right[key] = (self.clock() + REMEMBERED_SECONDS, stored)
        return right

    def _remembers(self, key: bytes, stored: str | None) -> bool:
        until, was_right_for = self._right.get(key, (0.0, ""))
        if until and until < self.clock():
            del self._right[key]
            return False
        return stored is not None and bool(until) and hmac.compare_digest(was_right_for, stored)

    def _check(self, stored: str | None, password: str) -> bool:
        if stored is None:
            self._dummy = self._dummy or self.hash_now(secrets.token_hex())
        try:
            return self.hasher.verify(stored or self._dummy, password) and stored is not None
        except (VerifyMismatchError, VerificationError, InvalidHashError):
            return False
