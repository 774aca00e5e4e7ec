"""How often a password may be wrong before it is looked at no more for a while. Room: api.

Three limits count wrong passwords, in windows that move: by address, by user name, and by both together. An unknown
name counts as a known one does, so that nothing can be told from it. A right password costs nothing.

An address at which a user has signed in before is a familiar one for that user. There only the third limit counts:
neither the neighbours behind one address nor a guesser elsewhere can lock the user out. A guesser at one address meets
the third limit long before the second, so it takes many addresses to keep a user from signing in at a new one.

All of this is kept in this process's memory and forgotten when it ends (docs/decisions/0021).
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

from limits import RateLimitItem, parse
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter

from edt_api.errors import TooManyLogons

log = logging.getLogger("edt.api")

_MOST_FAMILIAR = 10_000


@dataclass(frozen=True)
class Limits:
    """How many wrong passwords are taken in which time."""

    per_address: RateLimitItem = field(default_factory=lambda: parse("100 per 15 minutes"))
    per_user: RateLimitItem = field(default_factory=lambda: parse("100 per 15 minutes"))
    per_user_and_address: RateLimitItem = field(default_factory=lambda: parse("20 per 15 minutes"))


@dataclass(frozen=True)
class _Count:
    """What one limit has counted: of whom, and how that is said in the log."""

    limit: RateLimitItem
    of: tuple[str, ...]
    said: str

    @property
    def of_both(self) -> bool:
        return self.of[0] == "both"

    @property
    def of_user(self) -> bool:
        return self.of[0] != "address"


@dataclass
class Guesses:
    """Counts wrong passwords. ``wrong`` and ``right`` are called in one event loop; ``admit`` changes nothing."""

    limits: Limits = field(default_factory=Limits)
    _counters: SlidingWindowCounterRateLimiter = field(
        default_factory=lambda: SlidingWindowCounterRateLimiter(MemoryStorage()), repr=False
    )
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _familiar: OrderedDict[tuple[str, str], None] = field(default_factory=OrderedDict, repr=False)
    """Users and addresses that have come together with a right password; the newest last."""

    def familiar(self, name: str, address: str) -> bool:
        """Whether this user has signed in at this address since the process began."""
        return (self._hidden(name), network(address)) in self._familiar

    def admit(self, name: str, address: str) -> None:
        """Raises TooManyLogons where a password of this user, sent from there, is not looked at now."""
        familiar = self.familiar(name, address)
        over = [
            count
            for count in self._counts(name, address)
            if (count.of_both or not familiar) and not self._counters.test(count.limit, *count.of)
        ]
        if over:
            free_at = max(self._counters.get_window_stats(count.limit, *count.of).reset_time for count in over)
            whose = "for this user" if over[0].of_user else "from this address"
            raise TooManyLogons(f"too many wrong passwords were sent {whose}", math.floor(free_at - time.time()) + 1)

    def wrong(self, name: str, address: str) -> None:
        """A password of this user, sent from there, was wrong."""
        for count in self._counts(name, address):
            if self._counters.hit(count.limit, *count.of) and not self._counters.test(count.limit, *count.of):
                # The name is not told: what is typed there is now and then a password.
                log.warning("%s wrong passwords %s: more are refused", count.limit, count.said)

    def right(self, name: str, address: str) -> None:
        """A password of this user, sent from there, was right."""
        both = self._hidden(name), network(address)
        self._familiar[both] = None
        self._familiar.move_to_end(both)
        if len(self._familiar) > _MOST_FAMILIAR:
            self._familiar.popitem(last=False)

    def _counts(self, name: str, address: str) -> tuple[_Count, ...]:
        user, place = self._hidden(name), network(address)
        return (
            _Count(self.limits.per_user_and_address, ("both", user, place), f"for one user from {place}"),
            _Count(self.limits.per_user, ("user", user), "for one user from several addresses"),
            _Count(self.limits.per_address, ("address", place), f"from {place}"),
        )

    def _hidden(self, name: str) -> str:
        """The name as it is kept: short however long it is, and of no use to who reads this process's memory."""
        return hmac.digest(self._key, name.encode(errors="surrogatepass"), hashlib.sha256).hex()[:32]


def network(address: str) -> str:
    """What counts as one address: of IPv6 the first 64 bits, since whoever has one address has all of those. Pure."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # a believed proxy may write anything
        return address[:64]
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is None:
            return str(ipaddress.ip_network((found, 64), strict=False))
        found = found.ipv4_mapped
    return str(found)
