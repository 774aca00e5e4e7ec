"""A request that may come twice and is meant once, told by its Idempotency-Key. Pure.

Next: store/idempotency.py, which remembers what such a request made, in the transaction that made it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass

from edt_scheduler.errors import KeyInvalid

HEADER = "Idempotency-Key"
KEPT_SECONDS = 24 * 3600
"""So long a key means its first request; after that it may mean another one."""
MOST_CHARACTERS = 255


@dataclass(frozen=True)
class IdempotentRequest:
    """One user's key, and which request it stands for."""

    key: str
    request_sha256: str

    @classmethod
    def of(cls, key: str, *parts: str | None, keyed: Callable[[bytes], bytes] | None = None) -> IdempotentRequest:
        """``parts``: all that makes it this request and no other; of an upload its SHA-256. ``keyed``: digests it where
        it may hold secrets, since a plain SHA-256 lets whoever reads it try guesses. Raises KeyInvalid."""
        if not 1 <= len(key) <= MOST_CHARACTERS or not all("!" <= character <= "~" for character in key):
            raise KeyInvalid(HEADER, f"got {key[:64]!r}; it takes 1 to {MOST_CHARACTERS} visible ASCII characters")
        canonical = json.dumps(parts).encode()
        digest = keyed(canonical) if keyed is not None else hashlib.sha256(canonical).digest()
        return cls(key, digest.hex())
