"""Takes checksums of an engine's replica and sends them to the coordinator. Framework-neutral; uses a thread.

All engines of a generation decide from the step alone when they take checksums. So the coordinator gets the checksums
of the same committed step from all of them. A thread takes the checksums during the next step's forward and backward
passes, while the state does not change. The copy for a checkpoint is made in the same way. Code that changes the state
calls ``wait()`` first. The training does not wait for the coordinator's comparison.
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
"""The value of ``compare_interval`` that turns comparisons off."""


class ChecksumSender:
    """Takes checksums and sends them. Only the thread that trains calls its methods.

    Args:
        link: the connection to the coordinator.
        export: returns the state by reference. The thread that trains calls it between two steps, because a forward or
            backward pass may move the model's tensors and put them back.
        take: returns (name, value or checksum) for each part of a state. Another thread calls it while the state does
            not change.
        interval: training steps from one comparison to the next. None: the end of each epoch; where the coordinator
            has excluded it to save time, only settings are compared, such as learning rates, which differ where a hook
            of an optimizer remembers something of its own. ``NEVER``: no comparisons. Except with ``NEVER``, replicas
            are also compared after joins and at the end.
        hooks: whether user callbacks run in the engines; they can make replicas differ.
        clock: returns monotonic seconds.
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
        """Time (monotonic seconds) and offset at which the last comparison began."""

    def joined(self) -> None:
        """Let the next training step be compared, because the engines of this generation have not trained together
        before."""
        self._joined = True

    def committed(self, step: Step, offset: int, membership: Membership) -> None:
        """Begin to take checksums if the step that was just committed is one after which replicas are compared.

        Args:
            step: the committed step; it is not the last of the training.
            offset: the offset after it.
            membership: the membership that committed it.
        """
        if self._since is None:
            self._since = (self._clock(), offset)
        reason = self._reason(step, offset) if len(membership.members) > 1 else None
        if len(membership.members) < 2 or reason is ComparisonReason.JOIN:
            self._joined = False
        if reason is None:
            return
        self.wait()
        now, (since, before) = self._clock(), self._since
        if reason is not ComparisonReason.SETTINGS:
            self._since = (now, offset)
        taken = ChecksumsTaken(
            generation=membership.generation,
            members=membership.members if membership.leads else (),
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
        """Return checksums of the trained state, for ``TrainingFinished``.

        Args:
            names: whether to include the name of each value; only the first engine sends names.

        Returns:
            The checksums; None: comparisons are turned off, or the checksums could not be taken.
        """
        self.wait()
        if self._interval == NEVER and not self._hooks:
            return None
        try:
            return self._checksums([self._export()], names=names)
        except Exception as error:
            self._no_checksums("at the end", error)
            return None

    def wait(self) -> None:
        """Wait until the checksums are taken. Code that changes the state calls this first."""
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
            if not step.ends_epoch:
                return None
            return ComparisonReason.EPOCH if offset >= self._link.compare_from else ComparisonReason.SETTINGS
        crossed = step.training_steps_after // self._interval > step.training_steps_before // self._interval
        return ComparisonReason.INTERVAL if trains and crossed else None

    def _take(self, taken: ChecksumsTaken, exported: list[State], names: bool) -> None:
        begun = self._clock()
        try:
            if taken.reason is ComparisonReason.SETTINGS:
                exported[0] = replace(exported[0], tensors={})
            checksums = self._checksums(exported, names=names)
        except Exception as error:
            self._no_checksums(f"at step {taken.step}", error)
            return
        self._link.send(replace(taken, checksums=checksums, seconds=self._clock() - begun))

    def _no_checksums(self, when: str, error: Exception) -> None:
        """Send a note to the user about checksums that could not be taken. The training continues without this
        comparison."""
        self._link.send(Note(f"no checksums {when}: {str(error) or type(error).__name__}"))

    def _checksums(self, exported: list[State], *, names: bool) -> ReplicaChecksums:
        """Take the checksums of the state in ``exported``, a list of one state. This removes the state from the list,
        because TensorFlow copies a variable before each write as long as a reference to it exists."""
        entries = self._entries(exported.pop())
        called = tuple(name for name, _ in entries) if names else ()
        return ReplicaChecksums(tuple(value for _, value in entries), called, self._hooks)
