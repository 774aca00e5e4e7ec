"""The life of a training: start, planned changes, regroups after losses, takeover by a new coordinator, end. No input
or output.

``Lifecycle`` holds the parts of the coordinator's state machine and decides what begins next. Its subclass
``Coordinator`` adds the reactions to the messages of other processes.

A coordinator that is not the attempt's first learns the state of the training from the engines (``Takeover``). Engines
train without a coordinator. They connect to the new coordinator and send it their statuses. If all members of the
newest generation have connected and no change or regroup was half done, the new coordinator continues from there.
Otherwise the engines regroup. A regroup is correct in every situation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from edt_runner.coordinator.changes import Change, Changes, target
from edt_runner.coordinator.members import (
    DRIVER,
    OWN_SUPERVISOR,
    SUPERVISORS,
    Generation,
    Members,
    MemberState,
    Phase,
    ScriptFailures,
)
from edt_runner.coordinator.regroup import Regroups
from edt_runner.coordinator.replicas import Replicas
from edt_runner.protocol.data import EngineResult, EngineState, EngineStatus, MicroBatch
from edt_runner.protocol.engine_messages import ReceiveStateFromDriver, SendStateToDriver
from edt_runner.protocol.messages import (
    DriverReleased,
    ReceiveStateFromEngine,
    SendStateToEngine,
    TrainedStateReceived,
    TrainingCompleted,
    TrainingSuspended,
)

SUCCESSOR_SECONDS = 15.0
"""Seconds that the last engines that shall leave wait for an engine that is being started. It is half of the default
grace period of 30 s."""

_DISAGREE = (
    "user_callback: the hooks in engine {} have ended the training, those in engine {} have not; takes callbacks that "
    "decide alike in every engine: by the values they are given, not by a clock or a process's own data"
)


class Lifecycle:
    """Holds the parts of the coordinator's state machine and decides what begins next. ``now`` is monotonic seconds.

    Args:
        store: address (``host:port``) of the TCPStore, through which the engines of a group find each other.
        recovering: whether this attempt had another coordinator before, so that engines may be training.
    """

    def __init__(self, store: str = "", *, recovering: bool = False, now: float = 0.0) -> None:
        self.members = Members(store)
        self.changes = Changes(self.members)
        self.regroups = Regroups(self.members)
        self.takeover = Takeover(self.members, now)
        self.ending = Ending(self.members)
        self.failures = ScriptFailures(self.members)
        self.replicas = Replicas(self.members, self.failures, self.regroups, self.begin_regroup)
        self._waiting_since: float | None = None
        """Time since which the last engines wait for an engine that can continue the training; None: they do not
        wait."""
        if recovering:
            self.members.phase = Phase.RECOVERING

    @property
    def change(self) -> Change | None:
        return self.changes.change

    @property
    def regrouping(self) -> bool:
        return self.regroups.regroup is not None

    @property
    def working_generations(self) -> tuple[int, int]:
        """The number of the current membership, and the number of the membership that the change under way makes (0:
        there is no change)."""
        return self.members.current.number, self.change.new.number if self.change else 0

    def counts_on(self, name: str) -> bool:
        """Return whether other engines count on engine ``name``, because it is part of the current generation, of the
        change under way or of the regroup under way."""
        change, regroup = self.change, self.regroups.regroup
        return (
            name in self.members.current.names
            or (change is not None and (name in change.old.names or name in change.new.names))
            or (regroup is not None and name in regroup.participants)
        )

    def proceed(self, now: float) -> None:
        """Begin the takeover, the training or the next change, if it can begin now."""
        members = self.members
        if members.phase is Phase.RECOVERING:
            self._take_over(now)
        if self.change is not None or self.regrouping or self.failures.failed or self.ending.results:
            return
        if members.phase is Phase.WAITING and members.driver_connected:
            self._start()
        elif members.phase is Phase.RUNNING and now >= self.changes.not_before and members.definition is not None:
            wanted = target(members)
            if wanted is not None:
                self._waiting_since = None
            elif self._waiting_since is None:
                self._waiting_since = now
            elif now - self._waiting_since > SUCCESSOR_SECONDS:
                wanted = ()
            if wanted is not None and wanted != members.current.members:
                self.changes.propose(wanted, now)

    def _take_over(self, now: float) -> None:
        """Take over from the previous coordinator, if enough engines have sent their statuses."""
        situation = self.takeover.conclude(now)
        if situation is None:
            return
        self.regroups.lost.update(situation.missing)
        self.replicas.send_history()  # engines may hold different histories
        if situation.clean:
            self.ending.results.update(situation.results)
            self.replicas.answer()
            self.check_end()
        else:
            self.begin_regroup()
            self.replicas.answer()

    def _start(self) -> None:
        """Let the driver send its state to the first engine that has asked to join."""
        members = self.members
        first = next(iter(members.waiting), None)
        if first is None:
            return
        members.phase = Phase.STARTING
        members.stop_waiting(first)
        generation = members.next_generation()
        members.current = Generation(generation, (first,))
        key = f"start/{generation}"
        members.send(DRIVER, SendStateToEngine(key, members.store))
        members.send(first, ReceiveStateFromDriver(key, generation, members.store))

    def start_over(self) -> None:
        """Wait for a first engine again, because the first engine or the driver was lost during the transfer of the
        state."""
        self.members.phase = Phase.WAITING
        self.members.current = Generation(self.members.current.number, ())

    def settle(self, now: float) -> None:
        """End the change under way if all members have switched and all joining engines have the state."""
        change = self.changes.settle()
        if change is not None and change.joining and len(change.old.members) == 1 and change.offset is not None:
            # Before this join, one engine trained alone, so all replicas were equal at that offset.
            self.replicas.learn(equal_at=max(self.replicas.history.equal_at, change.offset))
        if change is not None and not change.new.members:
            self.suspend()
        self.proceed(now)

    def begin_regroup(self) -> None:
        """Start a regroup of all engines that have the state. The change under way is cancelled and planned again
        later."""
        if self.members.over:
            return
        change = self.changes.drop()
        self.ending.clear()
        self.regroups.begin(change)

    def regroup_without(self, name: str) -> None:
        """Let the engines that have the state go on without engine ``name``, which does not have it any more."""
        if self.regroups.goes_on_without(name):
            self.check_agreement()
        else:
            self.begin_regroup()

    def check_end(self) -> None:
        """End the training if all members have committed the last step and no change or regroup is under way."""
        if not self.regrouping and self.change is None:
            self.ending.proceed(lambda: self.replicas.ended_equal(self.ending.results))

    def suspend(self) -> None:
        """End the attempt, because no engine is left. The state is in a checkpoint, or the driver has it."""
        self.members.phase = Phase.SUSPENDED
        self.members.send(DRIVER, TrainingSuspended())
        self.members.send(SUPERVISORS, TrainingSuspended())

    def try_again(self, now: float) -> None:
        """Begin the next regroup if the current one has failed. Leave out the engine that the others cannot reach, if
        any."""
        if not self.regroups.has_failed(now) or self.regroups.regroup is None:
            return
        worst = self.regroups.regroup.least_reachable()
        if worst is not None:
            self.members.discard(worst)
            self.regroups.lost.add(worst)
        self.begin_regroup()

    def check_agreement(self) -> None:
        """Fail the training if it has ended in some engines only. Otherwise the engines would wait for each other for
        ever."""
        if pair := self.regroups.disagreement:
            self.failures.fail(_DISAGREE.format(*pair))

    def engine_lost(self, name: str, had_state: bool, micro_batch: MicroBatch | None, how: str, now: float) -> None:
        """Handle the loss of engine ``name``, which was not told to exit.

        Args:
            name: the engine.
            had_state: whether the engine had the state.
            micro_batch: the micro-batch that it was computing; None: its end counts against no micro-batch.
            how: how its process ended, in words.
            now: monotonic seconds.
        """
        members, change = self.members, self.change
        if had_state:
            if not self.failures.is_the_scripts(name, micro_batch, how):
                self.regroups.lost.add(name)
                self.regroup_without(name)
        elif change and change.is_joining(name):
            if not self.changes.take_back(name, now):
                self.regroups.lost.add(name)
                self.begin_regroup()
        elif members.phase is Phase.STARTING and name in members.current.members:
            self.start_over()

    def engine_reconnected(self, name: str, status: EngineStatus) -> None:
        """Handle a new connection of engine ``name``, on which the training counts.

        Messages on the old connection may be lost, in both directions. A regroup replaces all of them, so a regroup
        begins unless the engine and this coordinator both see the same undisturbed training.
        """
        calm = not self.regrouping and self.change is None and self.members.phase is Phase.RUNNING
        if self.members.phase is Phase.STARTING:
            self.members.send_back(name, self.members.next_regroup())
            self.start_over()
        elif not calm or status.state is not EngineState.TRAINING or status.generation != self.members.current.number:
            self.begin_regroup()


class Ending:
    """The end of the training: which engines have committed the last step, and whether the trained state is being
    sent."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self.results: dict[str, EngineResult] = {}
        """The results of the engines that have committed the last step, by name. If there is a result, no member will
        switch to another generation."""
        self.sending = False
        """Whether the first engine and the driver have been told to build their group of two."""

    def clear(self) -> None:
        """Forget all results, because the engines regroup. Each engine will report again that it has finished."""
        self.results.clear()
        self.sending = False
        if self._members.phase is Phase.ENDING:
            self._members.phase = Phase.RUNNING

    @property
    def complete(self) -> bool:
        """Whether all members have committed the last step."""
        current = self._members.current
        return bool(self.results) and len(self.results) >= len(current.members) and self.results.keys() >= current.names

    def proceed(self, replicas_equal: Callable[[], bool]) -> None:
        """End the training if all members have committed the last step. Call this only when no change and no regroup is
        under way.

        Args:
            replicas_equal: is called when all members have finished. If it returns False, the training does not end.
        """
        members = self._members
        if not self.results:
            return
        if members.phase is Phase.RUNNING:
            members.phase = Phase.ENDING
            for other in sorted(members.expected - members.current.names):
                members.discard(other)
        if members.phase is Phase.ENDING and self.complete and replicas_equal():
            digest, step = self.trained_state
            members.send(OWN_SUPERVISOR, TrainingCompleted(digest, step))
            if members.driver_connected:
                self.send_state()

    @property
    def trained_state(self) -> tuple[str, int]:
        """The digest of the trained state and the number of committed training steps, from the first engine's
        result."""
        result = self.results[self._members.current.members[0]]
        assert result.digest is not None and result.step is not None
        return result.digest, result.step

    def send_state(self) -> None:
        """Let the first engine send the trained state to the driver."""
        members, self.sending = self._members, True
        key = f"result/{members.next_regroup()}"
        members.send(members.current.members[0], SendStateToDriver(key, members.store))
        members.send(DRIVER, ReceiveStateFromEngine(key, self.trained_state[0], members.store))

    def delivered(self) -> None:
        """Let the engines exit, because the driver has the trained state."""
        members = self._members
        members.phase = Phase.DONE
        members.send(OWN_SUPERVISOR, TrainedStateReceived())
        for name in sorted(members.expected):
            if name in members.connected:
                members.release(name)
            else:
                members.discard(name)
        if not members.expected:
            members.send(DRIVER, DriverReleased())


SETTLE_SECONDS = 5.0
"""Seconds that the coordinator waits for other engines after the first status of an engine that has the state. It waits
for engines that a status names as members, and for engines that a supervisor has announced."""
SILENT_SECONDS = 10.0
"""Seconds that the coordinator waits for the first status. After a change of the head node, engines stay connected to
the old coordinator until it dies."""
NUMBERS_APART = 1000
"""A new coordinator adds this number to the highest generation number that an engine has told it. Engines that have not
connected yet may know higher numbers of the previous coordinator."""


@dataclass(frozen=True)
class Situation:
    """The situation of the engines when a new coordinator takes over."""

    missing: frozenset[str]
    """Members of the newest generation that have sent no status."""
    clean: bool
    """Whether all members work in the newest generation, and no later generation was announced."""
    results: Mapping[str, EngineResult]
    """The results of the members that have committed the last step, by name."""


class Takeover:
    """Collects the engines' statuses for a new coordinator until it can take over. ``now`` is monotonic seconds."""

    def __init__(self, members: Members, now: float) -> None:
        self._members = members
        self._statuses: dict[str, EngineStatus] = {}
        self._gone: set[str] = set()
        self._deadline = now + SILENT_SECONDS
        self._waits_for = ""
        """One of the engines that had sent no status when they were last counted; empty: not counted yet, or none. They
        are counted again when this one has connected or is gone, not at each status."""

    def add_status(self, name: str, status: EngineStatus, now: float) -> None:
        """Keep the status of engine ``name``, which has connected."""
        self._statuses[name] = status
        self._answered(name)
        if status.generation > 0:
            self._deadline = min(self._deadline, now + SETTLE_SECONDS)

    def change_status(self, name: str, **fields: Any) -> None:
        """Update the status of engine ``name`` after a later message. ``fields`` are the changed fields of
        ``EngineStatus``."""
        if name in self._statuses:
            self._statuses[name] = replace(self._statuses[name], **fields)

    def engine_gone(self, name: str) -> None:
        self._statuses.pop(name, None)
        self._gone.add(name)
        self._answered(name)

    def _answered(self, name: str) -> None:
        if name == self._waits_for:
            self._waits_for = ""

    def conclude(self, now: float) -> Situation | None:
        """Take over and change the phase, once all engines have sent their statuses, or ``SETTLE_SECONDS`` after the
        first status of an engine that has the state.

        Returns:
            The situation. None: the coordinator still waits, or the wait is over and no engine has the state; the
            attempt then ends.
        """
        members, statuses = self._members, self._statuses
        if now < self._deadline and self._waits_for:
            return None
        with_state = {name: status for name, status in statuses.items() if status.generation > 0}
        newest = max(with_state.values(), key=lambda each: (each.generation, len(each.members)), default=None)
        current = Generation(newest.generation, newest.members) if newest else Generation(0, ())
        missing = current.names - set(with_state)
        silent = members.expected - set(statuses) | (missing - self._gone)
        if now < self._deadline and (silent or not current.members):
            self._waits_for = max(silent, default="")
            return None
        if newest is None:
            members.lose("its coordinator ended, and no engine has the weights")
            return None
        there = [status for name, status in with_state.items() if name in current.names]
        clean = (
            not missing
            and bool(there)  # else all engines are gone that name the members
            and all(_works_in(newest.generation, status) for status in there)
            and all(status.next_generation <= newest.generation for status in with_state.values())
        )
        for status in statuses.values():
            members.count_from(status)
        members.newest_generation += NUMBERS_APART
        members.phase = Phase.RUNNING
        members.current = current
        for name in current.members if clean else sorted(with_state):
            members.set_state(name, MemberState.WITH_STATE)
        for name, status in statuses.items():
            if members.has_state(name) and not status.settled:  # the previous coordinator may have died before it
                members.report_joined(name, status.generation, status.step)
            if name not in with_state:
                members.send_back(name, members.next_regroup())
            elif not members.has_state(name):
                members.release(name)
        results = {name: found for name in current.members if name in with_state and (found := with_state[name].result)}
        return Situation(missing, clean, results)


def _works_in(generation: int, status: EngineStatus) -> bool:
    """Return whether an engine works in this generation and has announced no later generation."""
    working = status.state in (EngineState.TRAINING, EngineState.ENDED)
    return working and status.generation == generation and status.announced <= generation
