"""When an engine takes checksums of its replica, and that it tells them. Room: runners; threads, framework-neutral.

All engines of a generation decide alike, by the step alone, so that the coordinator gets the checksums of one committed
step from all of them. They are taken beside the next step's forward and backward passes, while the state stands still,
as the copy for a checkpoint is; whoever changes the state asks ``wait()`` first. Nobody waits for what comes of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from edt_runner.engine.adapter import State
from edt_runner.engine.schedule import Tick, TickKind

NEVER = 0
"""Of ``compare_interval``: replicas are not compared."""


class Line(Protocol):
    """What is needed of a ``Link``."""

    @property
    def compare_from(self) -> int:
        """The coordinator has said: no epoch's end before this position is worth a comparison."""

    def tell(self, kind: str, **fields: Any) -> None: ...


class Comparing:
    """Begins and tells. All methods belong to the thread that trains.

    Args:
        line: to the coordinator.
        export: the state by reference; called at the boundary by the thread that trains, since a pass may move what
            the model holds and put it back.
        take: (name, value or checksum) of everything in it; called by another thread, while the state stands.
        interval: training steps from one comparison to the next; None: each epoch's end, as far as the coordinator
            finds it worth its time; ``NEVER``: none at all. Joins and the end come on top of the first two.
        hooks: whether user callbacks run in the engines, which may be why replicas differ.
    """

    def __init__(
        self,
        line: Line,
        export: Callable[[], State],
        take: Callable[[State], Sequence[tuple[str, str]]],
        interval: int | None = None,
        *,
        hooks: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._line, self._export, self._entries = line, export, take
        self._interval, self._hooks, self._clock = interval, hooks, clock
        self._thread: threading.Thread | None = None
        self._joined = False
        self._since: tuple[float, int] | None = None
        """When the last comparison began, and at which position."""

    def joined(self) -> None:
        """The engines of this generation have not trained together before: the next training step is compared."""
        self._joined = True

    def committed(self, where: Tick, tick: int, *, generation: int, members: tuple[str, ...], name: str) -> None:
        """Step ``where`` is committed, which brought the training to position ``tick``; it goes on after that.
        ``members`` of this generation in rank order, ``name`` is this engine."""
        if self._since is None:
            self._since = (self._clock(), tick)
        reason = self._reason(where, tick) if len(members) > 1 else ""
        if len(members) < 2 or reason == "join":
            self._joined = False
        if not reason:
            return
        self.wait()
        now, (since, before) = self._clock(), self._since
        self._since = (now, tick)
        fields = {
            "generation": generation,
            "members": list(members),
            "tick": tick,
            "step": where.steps,
            "reason": reason,
            "tick_seconds": (now - since) / max(1, tick - before),
        }
        try:
            exported = [self._export()]
        except Exception as error:
            self._no_checksums(f"at step {where.steps}", error)
            return
        self._thread = threading.Thread(
            target=self._take, args=(fields, exported, members[0] == name), name="edt-checksums", daemon=True
        )
        self._thread.start()

    def at_end(self, *, names: bool) -> dict[str, Any]:
        """Checksums of the trained state, for the word that the training is over; nothing where none are wanted or
        none can be taken. ``names``: with what each is called, which the first engine tells."""
        self.wait()
        if self._interval == NEVER and not self._hooks:
            return {}
        try:
            return self._checksums([self._export()], names=names)
        except Exception as error:
            self._no_checksums("at the end", error)
            return {}

    def wait(self) -> None:
        """Called before the state changes."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _reason(self, where: Tick, tick: int) -> str:
        if self._interval == NEVER:
            return ""
        trains = where.kind is TickKind.TRAIN
        if self._joined and trains:
            return "join"
        if self._interval is None:
            return "epoch" if where.ends_epoch and tick >= self._line.compare_from else ""
        crossed = where.steps // self._interval > where.step // self._interval
        return "interval" if trains and crossed else ""

    def _take(self, fields: dict[str, Any], exported: list[State], names: bool) -> None:
        begun = self._clock()
        try:
            found = self._checksums(exported, names=names)
        except Exception as error:
            self._no_checksums(f"at step {fields['step']}", error)
            return
        self._line.tell("replica", **fields, **found, seconds=self._clock() - begun)

    def _no_checksums(self, when: str, error: Exception) -> None:
        """Whatever it is, the training goes on without this comparison, or has ended well."""
        self._line.tell("note", text=f"no checksums {when}: {str(error) or type(error).__name__}")

    def _checksums(self, exported: list[State], *, names: bool) -> dict[str, Any]:
        """``exported``: [the state], which is popped: while a reference is held, TensorFlow copies a variable before it
        writes."""
        entries = self._entries(exported.pop())
        found: dict[str, Any] = {"values": [value for _, value in entries], "hooks": self._hooks}
        return {**found, "names": [called for called, _ in entries]} if names else found
