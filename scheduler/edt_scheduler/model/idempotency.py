"""A request that may arrive twice but must take effect once. Its Idempotency-Key identifies it. Pure.

Next: store/idempotency.py remembers what such a request made, in the transaction that made it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass

from edt_scheduler.errors import KeyInvalid

HEADER = "Idempotency-Key"
KEPT_SECONDS = 24 * 3600
"""How long a key identifies its first request. After this time the key may identify another request."""
MOST_CHARACTERS = 255


@dataclass(frozen=True)
class IdempotentRequest:
    """A user's key, and a digest of the request that the key identifies."""

    key: str
    request_sha256: str

    @classmethod
    def of(cls, key: str, *parts: str | None, keyed: Callable[[bytes], bytes] | None = None) -> IdempotentRequest:
        """The request with this key.

        Args:
            key: The Idempotency-Key: 1 to MOST_CHARACTERS visible ASCII characters.
            parts: Everything that distinguishes this request from others; for an upload, its SHA-256.
            keyed: Digests the parts if they may hold secrets. Anyone who reads a plain SHA-256 could test guesses
                against it.

        Raises:
            KeyInvalid: The key is not accepted.
        """
        if not 1 <= len(key) <= MOST_CHARACTERS or not all("!" <= character <= "~" for character in key):
            raise KeyInvalid(HEADER, f"got {key[:64]!r}; it takes 1 to {MOST_CHARACTERS} visible ASCII characters")
        canonical = json.dumps(parts).encode()
        digest = keyed(canonical) if keyed is not None else hashlib.sha256(canonical).digest()
        return cls(key, digest.hex())
