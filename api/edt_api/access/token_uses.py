"""When API tokens were used, noted in memory and recorded from time to time.

A request that reads must not wait for the writer's lock, so it only notes the use. The API's beat records it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from edt_scheduler.operations import api_tokens
from edt_scheduler.platform import Platform

RECORDED_SECONDS = 60.0
"""The shortest time between two records of one token."""


@dataclass
class ApiTokenUses:
    """The latest use of each API token in this process. Threads may note uses while another one records them."""

    _noted: dict[int, float] = field(default_factory=dict)
    _recorded: dict[int, float] = field(default_factory=dict)

    def note(self, token: int, now: float) -> None:
        """Note that the token of this number was used now."""
        self._noted[token] = now

    def record(self, platform: Platform) -> int:
        """Write the uses that were noted, each token at most once in RECORDED_SECONDS; return how many were written.

        Raises:
            Unavailable: the database cannot be written. The uses stay noted.
        """
        due = {
            token: at
            for token, at in list(self._noted.items())
            if at - self._recorded.get(token, -math.inf) >= RECORDED_SECONDS
        }
        if due:
            api_tokens.record_uses(platform, due)
            self._recorded |= due
        return len(due)
