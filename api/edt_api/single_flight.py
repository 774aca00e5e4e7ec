"""One search for all who want the same answer at the same time. Room: api. Pure but for the event loop's tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Found = TypeVar("_Found")


@dataclass
class SingleFlight(Generic[_Key, _Found]):
    """Whoever asks for a key while its answer is being looked for gets that answer, or its exception."""

    _looking: dict[_Key, asyncio.Task[_Found]] = field(default_factory=dict)

    async def ask(self, key: _Key, look: Callable[[], Coroutine[Any, Any, _Found]]) -> _Found:
        """What ``look()`` finds. One who goes away does not end it for the others."""
        task = self._looking.get(key)
        if task is None:
            task = self._looking[key] = asyncio.create_task(look())
            task.add_done_callback(lambda done: self._over(key, done))
        return await asyncio.shield(task)

    def _over(self, key: _Key, task: asyncio.Task[_Found]) -> None:
        del self._looking[key]
        if not task.cancelled():
            task.exception()  # looked at here, or the event loop reports it where all who asked have gone
