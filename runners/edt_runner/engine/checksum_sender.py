"""When an engine takes checksums of its replica, and that it sends them. Threads, framework-neutral.

All engines of a generation decide alike, by the step alone, so that the coordinator gets the checksums of one committed
step from all of them. They are taken beside the next step's forward and backward passes, while the state stands still,
as the copy for a checkpoint is; whoever changes the state calls ``wait()`` first. The training does not wait for what
the coordinator makes of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from edt_runner.adapter import State
from edt_runner.engine.link import EngineLink, Membership
from edt_runner.protocol.data import ComparisonReason, ReplicaChecksums
from edt_runner.protocol.engine_messages import ChecksumsTaken
from edt_runner.protocol.messages import Note
from edt_runner.schedule import Step, StepKind

NEVER = 0
"""Of ``compare_interval``: replicas are not compared."""


class ChecksumSender:
    """Takes checksums and sends them. All methods belong to the thread that trains.

    Args:
        link: to the coordinator.
        export: gives the state by reference; called between two steps by the thread that trains, since a pass may move
            what the model holds and put it back.
        take: makes (name, value or checksum) of everything in a state; called by another thread, while it stands still.
        interval: training steps from one comparison to the next; None: each epoch's end, as far as the coordinator
            finds it worth its time; ``NEVER``: none at all. Joins and the end come on top of the first two.
        hooks: whether user callbacks run in the engines, which may be why replicas differ.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        link: EngineLink,
        export: Callable[[], State],
        take: Callable[[State], Sequence[tuple[str, str]]],
        interval: int | None = None,
        *,
        hooks: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link, self._export, self._entries = link, export, take
        self._interval, self._hooks, self._clock = interval, hooks, clock
        self._thread: threading.Thread | None = None
        self._joined = False
        self._since: tuple[float, int] | None = None
        """When the last comparison began, and at which offset."""

    def joined(self) -> None:
        """The engines of this generation have not trained together before: the next training step is compared."""
        self._joined = True

    def committed(self, step: Step, offset: int, membership: Membership) -> None:
        """``step`` is committed, which brought the training to ``offset``; others follow. Begin a comparison if all
        engines of the membership begin one here."""
        if self._since is None:
            self._since = (self._clock(), offset)
        reason = self._reason(step, offset) if len(membership.members) > 1 else None
        if len(membership.members) < 2 or reason is ComparisonReason.JOIN:
            self._joined = False
        if reason is None:
            return
        self.wait()
        now, (since, before) = self._clock(), self._since
        self._since = (now, offset)
        taken = ChecksumsTaken(
            generation=membership.generation,
            members=membership.members,
            offset=offset,
            step=step.training_steps_after,
            reason=reason,
            checksums=ReplicaChecksums(()),
            seconds=0.0,
            seconds_per_offset=(now - since) / max(1, offset - before),
        )
        try:
            exported = [self._export()]
        except Exception as error:
            self._no_checksums(f"at step {step.training_steps_after}", error)
            return
        self._thread = threading.Thread(
            target=self._take, args=(taken, exported, membership.leads), name="edt-checksums", daemon=True
        )
        self._thread.start()

    def at_end(self, *, names: bool) -> ReplicaChecksums | None:
        """Checksums of the trained state, for the message that the training is over. None where none are wanted or
        none can be taken. ``names``: with what each is called, which the first engine sends."""
        self.wait()
        if self._interval == NEVER and not self._hooks:
            return None
        try:
            return self._checksums([self._export()], names=names)
        except Exception as error:
            self._no_checksums("at the end", error)
            return None

    def wait(self) -> None:
        """Called before the state changes."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _reason(self, step: Step, offset: int) -> ComparisonReason | None:
        if self._interval == NEVER:
            return None
        trains = step.kind is StepKind.TRAIN
        if self._joined and trains:
            return ComparisonReason.JOIN
        if self._interval is None:
            ends = step.ends_epoch and offset >= self._link.compare_from
            return ComparisonReason.EPOCH if ends else None
        crossed = step.training_steps_after // self._interval > step.training_steps_before // self._interval
        return ComparisonReason.INTERVAL if trains and crossed else None

    def _take(self, taken: ChecksumsTaken, exported: list[State], names: bool) -> None:
        begun = self._clock()
        try:
            checksums = self._checksums(exported, names=names)
        except Exception as error:
            self._no_checksums(f"at step {taken.step}", error)
            return
        self._link.send(replace(taken, checksums=checksums, seconds=self._clock() - begun))

    def _no_checksums(self, when: str, error: Exception) -> None:
        """Whatever it is, the training goes on without this comparison, or has ended well."""
        self._link.send(Note(f"no checksums {when}: {str(error) or type(error).__name__}"))

    def _checksums(self, exported: list[State], *, names: bool) -> ReplicaChecksums:
        """``exported``: [the state], which is popped: while a reference is held, TensorFlow copies a variable before it
        writes."""
        entries = self._entries(exported.pop())
        called = tuple(name for name, _ in entries) if names else ()
        return ReplicaChecksums(tuple(value for _, value in entries), called, self._hooks)
