"""How many wrong passwords the API takes before it refuses further ones for some time.

Three limits count wrong passwords in moving windows: by address, by user name, and by both together. Unknown names
count like known ones, so the limits do not reveal which names exist. A right password does not count.

An address at which a user has signed in before is familiar for that user. Only the third limit counts there. So neither
other people behind the same address nor a guesser elsewhere can lock the user out. A guesser at one address reaches the
third limit long before the second. So a guesser needs many addresses to keep a user from signing in at a new one.

The counts are kept in this process's memory. Their number is limited, and they are lost when the process ends
(docs/decisions/0021).
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
"""The most users whose familiar addresses are kept."""
_MOST_PLACES = 32
"""The most familiar addresses of one user."""
_MOST_COUNTED = 200_000
"""The most counters of wrong passwords. Each guess is hashed and makes at most three counters, so the guesses of half
an hour make fewer.
"""


@dataclass(frozen=True)
class Limits:
    """How many wrong passwords each limit takes, and in which time."""

    per_address: RateLimitItem = field(default_factory=lambda: parse("100 per 15 minutes"))
    per_user: RateLimitItem = field(default_factory=lambda: parse("100 per 15 minutes"))
    per_user_and_address: RateLimitItem = field(default_factory=lambda: parse("20 per 15 minutes"))


@dataclass(frozen=True)
class _Count:
    """One count: its limit, its key, and its description for the log."""

    limit: RateLimitItem
    of: tuple[str, ...]
    described: str


class _Counters(MemoryStorage):
    """The counters of the ``limits`` library, limited to the newest ``most``. One thread counts; any thread may read.

    The library's own storage instead looks through all counters in a separate thread, soon after each count.
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
    """The networks at which one user has signed in; the newest is last."""

    user: int | None
    networks: OrderedDict[str, None] = field(default_factory=OrderedDict)


@dataclass
class FailedLogons:
    """Counts wrong passwords. ``admit`` and ``familiar`` change nothing. All other methods are called in one event
    loop.
    """

    limits: Limits = field(default_factory=Limits)
    _counters: SlidingWindowCounterRateLimiter = field(
        default_factory=lambda: SlidingWindowCounterRateLimiter(_Counters()), repr=False
    )
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _familiar: OrderedDict[str, _Places] = field(default_factory=OrderedDict, repr=False)
    """Keyed by the hidden name, since a request shows only a name at first. The user with the newest logon is last."""

    def familiar(self, name: str, address: str) -> bool:
        """Whether the user of this name has signed in at this address since the process began."""
        places = self._familiar.get(self._hidden(name))
        return places is not None and network(address) in places.networks

    def belongs(self, name: str, user: int | None) -> None:
        """Note that ``user`` has this name now; None: no user has it. An earlier user's familiar addresses are
        forgotten.
        """
        places = self._familiar.get(self._hidden(name))
        if places is not None and places.user != user:
            del self._familiar[self._hidden(name)]

    def admit(self, name: str, address: str) -> None:
        """Check that a password for this name and from this address may be verified now.

        Raises:
            TooManyLogons: too many passwords were wrong.
        """
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
        """Count a wrong password for this name and from this address."""
        for count in self._counts(name, address):
            if self._counters.hit(count.limit, *count.of) and not self._counters.test(count.limit, *count.of):
                # The name is not logged, because people sometimes type a password in its place.
                log.warning("%s wrong passwords %s: more are refused", count.limit, count.described)

    def right(self, name: str, user: int, address: str) -> None:
        """Note that the right password of ``user``, who has this name, came from this address."""
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
        """Return a keyed hash of the name. Its length is fixed, and a reader of this process's memory cannot use it."""
        return hmac.digest(self._key, name.encode(errors="surrogatepass"), hashlib.sha256).hex()[:32]


def keep_newest(kept: OrderedDict[_K, _T], key: _K, value: _T, most: int) -> None:
    """Put the item last. Remove the first item if there are more than ``most``."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)


LINE, SITE = 64, 56
"""Prefix lengths of an IPv6 address, in bits. The holder of one address has at least a whole LINE network. A provider
gives a SITE network to one home or office.
"""


def network(address: str, of_ipv6: int = LINE) -> str:
    """Return what the limits count as one address: of IPv6 the network of the first ``of_ipv6`` bits. Pure."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # a believed proxy may send any text
        return address[:64]
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is None:
            return str(ipaddress.ip_network((found, of_ipv6), strict=False))
        found = found.ipv4_mapped
    return str(found)
