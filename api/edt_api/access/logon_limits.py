"""How many wrong passwords are taken before further ones are refused for a while.

Three limits count wrong passwords, in windows that move: by address, by user name, and by both together. An unknown
name counts as a known one does, so that nothing can be learned from it. A right password costs nothing.

An address at which a user has signed in before is a familiar one for that user. There only the third limit counts:
neither the neighbours behind one address nor a guesser elsewhere can lock the user out. A guesser at one address meets
the third limit long before the second, so it takes many addresses to keep a user from signing in at a new one.

All of this is kept in this process's memory, so much of it at most, and forgotten when it ends (docs/decisions/0021).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import math
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TypeVar

from limits import RateLimitItem, parse
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter

from edt_api.errors import TooManyLogons

log = logging.getLogger("edt.api")
_K = TypeVar("_K")
_T = TypeVar("_T")

_MOST_FAMILIAR = 10_000
"""Users with familiar addresses."""
_MOST_PLACES = 32
"""Familiar addresses of one user."""
_MOST_COUNTED = 200_000
"""Counters of wrong passwords. Each guess is hashed and makes three at most, so there are fewer in half an hour."""


@dataclass(frozen=True)
class Limits:
    """How many wrong passwords are taken in which time."""

    per_address: RateLimitItem = field(default_factory=lambda: parse("100 per 15 minutes"))
    per_user: RateLimitItem = field(default_factory=lambda: parse("100 per 15 minutes"))
    per_user_and_address: RateLimitItem = field(default_factory=lambda: parse("20 per 15 minutes"))


@dataclass(frozen=True)
class _Count:
    """What one limit has counted: of whom, and how the log describes that."""

    limit: RateLimitItem
    of: tuple[str, ...]
    described: str


class _Counters(MemoryStorage):
    """The library's counters, the newest ``most`` of them; counting is done in one thread, reading in any.

    The library itself looks through all counters in a thread of its own, soon after each count.
    """

    def __init__(self, most: int = _MOST_COUNTED) -> None:
        super().__init__()
        self.timer.cancel()
        self._most = most

    def incr(self, key: str, expiry: float, amount: int = 1) -> int:
        now, count = time.time(), self.get(key) + amount
        if count == amount:
            self.clear(key)
            self.expirations[key] = now + expiry
        self.storage[key] = count
        while (oldest := next(iter(self.expirations))) != key and (
            len(self.expirations) > self._most or self.expirations[oldest] <= now
        ):
            self.clear(oldest)
        return count

    def get(self, key: str) -> int:
        return self.storage.get(key, 0) if self.expirations.get(key, 0.0) > time.time() else 0


@dataclass
class _Places:
    """Where one user has signed in; the newest last."""

    user: int | None
    networks: OrderedDict[str, None] = field(default_factory=OrderedDict)


@dataclass
class FailedLogons:
    """Counts wrong passwords. ``admit`` and ``familiar`` change nothing; all else is called in one event loop."""

    limits: Limits = field(default_factory=Limits)
    _counters: SlidingWindowCounterRateLimiter = field(
        default_factory=lambda: SlidingWindowCounterRateLimiter(_Counters()), repr=False
    )
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _familiar: OrderedDict[str, _Places] = field(default_factory=OrderedDict, repr=False)
    """By name, since who asks is first known by it alone; the newest logon is last."""

    def familiar(self, name: str, address: str) -> bool:
        """Whether the user of this name has signed in at this address since the process began."""
        places = self._familiar.get(self._hidden(name))
        return places is not None and network(address) in places.networks

    def belongs(self, name: str, user: int | None) -> None:
        """``user`` has this name now; None: nobody has. What was familiar to another one of this name is forgotten."""
        places = self._familiar.get(self._hidden(name))
        if places is not None and places.user != user:
            del self._familiar[self._hidden(name)]

    def admit(self, name: str, address: str) -> None:
        """Raises TooManyLogons where a password of this user, sent from there, is not looked at now."""
        familiar = self.familiar(name, address)
        over = [
            count
            for count in self._counts(name, address)
            if (count.of[0] == "both" or not familiar) and not self._counters.test(count.limit, *count.of)
        ]
        if over:
            free_at = max(self._counters.get_window_stats(count.limit, *count.of).reset_time for count in over)
            whose = "from this address" if over[0].of[0] == "address" else "for this user"
            raise TooManyLogons(f"too many wrong passwords were sent {whose}", math.floor(free_at - time.time()) + 1)

    def wrong(self, name: str, address: str) -> None:
        """A password of this user, sent from there, was wrong."""
        for count in self._counts(name, address):
            if self._counters.hit(count.limit, *count.of) and not self._counters.test(count.limit, *count.of):
                # The name is not logged: what is typed there is now and then a password.
                log.warning("%s wrong passwords %s: more are refused", count.limit, count.described)

    def right(self, name: str, user: int, address: str) -> None:
        """The password of the user of this name, sent from there, was right."""
        self.belongs(name, user)
        hidden = self._hidden(name)
        networks = self._familiar.setdefault(hidden, _Places(user)).networks
        keep_newest(networks, network(address), None, _MOST_PLACES)
        keep_newest(self._familiar, hidden, self._familiar[hidden], _MOST_FAMILIAR)

    def _counts(self, name: str, address: str) -> tuple[_Count, ...]:
        user, place, site = self._hidden(name), network(address), network(address, of_ipv6=SITE)
        return (
            _Count(self.limits.per_user_and_address, ("both", user, place), f"for one user from {place}"),
            _Count(self.limits.per_user, ("user", user), "for one user from several addresses"),
            _Count(self.limits.per_address, ("address", site), f"from {site}"),
        )

    def _hidden(self, name: str) -> str:
        """The name as it is kept: short however long it is, and of no use to who reads this process's memory."""
        return hmac.digest(self._key, name.encode(errors="surrogatepass"), hashlib.sha256).hex()[:32]


def keep_newest(kept: OrderedDict[_K, _T], key: _K, value: _T, most: int) -> None:
    """Put it last; where there are more than ``most``, the first one goes."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)


LINE, SITE = 64, 56
"""First bits of an IPv6 address: what whoever has one address has of them at least, and what a provider gives to one
home or office."""


def network(address: str, of_ipv6: int = LINE) -> str:
    """What counts as one address: of IPv6 so many first bits. Pure."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # a believed proxy may write anything
        return address[:64]
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is None:
            return str(ipaddress.ip_network((found, of_ipv6), strict=False))
        found = found.ipv4_mapped
    return str(found)
