"""Whether the server has been asked to go. Room: api."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Closing:
    """Set once the server has been asked to go: whoever holds a request open lets go of it."""

    asked: bool = False
