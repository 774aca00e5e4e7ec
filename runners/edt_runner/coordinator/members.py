"""What the coordinator knows about each engine, and the messages that it wants to send. No input or output.

All parts of the state machine share one ``Members`` object. ``changes`` lets engines join and leave. ``regroup``
handles losses. ``replicas`` compares the engines' states. ``lifecycle`` decides what begins next, also for a
coordinator that replaces an earlier one. ``coordinator`` dispatches messages.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from edt_runner.protocol.data import EngineStatus, MembersDifference, MicroBatch, TrainingDefinition
from edt_runner.protocol.differences import difference
from edt_runner.protocol.engine_messages import ExitEngine, GenerationSettled, JoinAgain
from edt_runner.protocol.messages import DiscardEngine, Message, ScriptFailed, StateLost, TrainingReport
from edt_runner.schedule import Schedule

DRIVER, OWN_SUPERVISOR, SUPERVISORS = "driver", "own supervisor", "supervisors"
"""Receivers of a ``Send`` that are not engines."""
MOST_DEATHS = 2
"""If one micro-batch ends this many engines, the training fails and the script is to blame."""


class Phase(enum.Enum):
    """The phase of the training in this attempt."""

    RECOVERING = "recovering"  # this coordinator is not the first: it waits for the engines' statuses
    WAITING = "waiting"  # it waits for the driver to reach train(), or for a first engine to ask to join
    STARTING = "starting"  # the driver sends the initial state to the first engine
    RUNNING = "running"
    ENDING = "ending"  # all steps are committed; the first engine sends the trained state to the driver
    SUSPENDED = "suspended"  # the last engine has left; the next attempt resumes from its checkpoint
    DONE = "done"  # the driver has the trained state
    FAILED = "failed"


class MemberState(enum.Enum):
    """What part an engine has in the training."""

    WITHOUT_STATE = "without state"  # it runs the user's script up to train(), or is part of a change
    WAITING = "waiting"  # it has asked to join
    WITH_STATE = "with state"  # a member, or an engine that has left and may not exit yet
    RELEASED = "released"  # it was told to exit, and no engine counts on it


@dataclass
class Member:
    """What the coordinator knows about one engine. The record stays after the process has ended, because messages that
    name the engine may still arrive."""

    name: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Facts about its data, from its request to join (``TrainingDefinition.facts``)."""
    sent_back: int = 0
    """Number of the newest ``JoinAgain`` that was sent to it. An older request to join is stale."""
    holds: int = 0
    """A generation whose members it holds; other memberships can be told to it as differences from that. 0: none."""
    probe_address: str = ""
    """``host:port`` at which other engines test whether they can reach this engine."""
    computing: Mapping[str, Any] = field(default_factory=dict)
    """Its hardware, libraries and their settings, by name (``frameworks``)."""


@dataclass(frozen=True)
class Generation:
    """One membership: its number and its engines in rank order."""

    number: int
    members: tuple[str, ...]

    @cached_property
    def names(self) -> frozenset[str]:
        """The engines without their order, to look one up."""
        return frozenset(self.members)


@dataclass(frozen=True)
class Send:
    """A message to an engine by its name, or to ``DRIVER``, ``OWN_SUPERVISOR`` or all ``SUPERVISORS``."""

    to: str
    message: Message


class Members:
    """All engines of the attempt by name. ``members[name]`` makes a record if there is none.

    What is asked at every message is kept in sets. So the work for a message does not grow with the number of engines.

    Args:
        store: address of the TCPStore, over which the engines' groups find each other; empty in tests.
    """

    def __init__(self, store: str = "") -> None:
        self.store = store
        self.phase = Phase.WAITING
        self.definition: TrainingDefinition | None = None
        """What the driver has sent about the training; None: no driver has begun."""
        self.driver_connected = False
        """Whether the driver has sent ``BeginTraining`` and is still connected."""
        self.current = Generation(0, ())
        self.newest_generation = 0
        """The highest generation number so far."""
        self.newest_regroup = 0
        self.expected: set[str] = set()
        """Engines whose supervisor has announced their process and has not reported its end."""
        self.connected: set[str] = set()
        self.leaving: set[str] = set()
        """Engines that shall leave the training, because their slot is not desired any more or they received
        SIGTERM."""
        self._by_name: dict[str, Member] = {}
        self._states: dict[MemberState, dict[str, None]] = {state: {} for state in MemberState}
        """The engines of each state, in the order in which they came to it."""
        self._state: dict[str, MemberState] = {}
        self._sends: list[Send] = []

    def __getitem__(self, name: str) -> Member:
        return self._by_name.setdefault(name, Member(name))

    @property
    def with_state(self) -> Collection[str]:
        """Engines that have the state: members, joining engines that have received it, and engines that have left and
        may not exit yet."""
        return self._states[MemberState.WITH_STATE].keys()

    @property
    def waiting(self) -> Collection[str]:
        """Engines that have asked to join, in the order of their requests."""
        return self._states[MemberState.WAITING].keys()

    def state_of(self, name: str) -> MemberState:
        return self._state.get(name, MemberState.WITHOUT_STATE)

    def has_state(self, name: str) -> bool:
        return self.state_of(name) is MemberState.WITH_STATE

    def is_released(self, name: str) -> bool:
        return self.state_of(name) is MemberState.RELEASED

    @property
    def over(self) -> bool:
        """Whether the training has ended for this attempt. After that, no event of an engine changes the outcome."""
        return self.phase in (Phase.DONE, Phase.SUSPENDED, Phase.FAILED)

    @property
    def schedule(self) -> Schedule | None:
        """The schedule of the training; None: no driver has begun."""
        return None if self.definition is None else Schedule.from_json_object(dict(self.definition.schedule))

    # ── changes of a record ───────────────────────────────────────────────────────────────────────────────────
    def set_state(self, name: str, state: MemberState) -> None:
        """Note what part engine ``name`` has in the training now. An engine that has it already keeps its place in the
        order."""
        before = self.state_of(name)
        if state is not before:
            self._states[before].pop(name, None)
            self._states[state][name] = None
            self._state[name] = state

    def wait(self, name: str) -> None:
        """Note that engine ``name`` has asked to join. An engine that waits already keeps its place."""
        self.set_state(name, MemberState.WAITING)
        self[name].holds = 0

    def stop_waiting(self, name: str) -> None:
        """Take engine ``name`` out of the queue: it is part of a change now, or has to ask again."""
        if self.state_of(name) is MemberState.WAITING:
            self.set_state(name, MemberState.WITHOUT_STATE)

    def forget(self, name: str) -> None:
        """Note that the process of engine ``name`` is gone."""
        self.expected.discard(name)
        self.connected.discard(name)
        self[name].computing = {}
        if not self.is_released(name):
            self.set_state(name, MemberState.WITHOUT_STATE)

    def settle(self, generation: Generation) -> None:
        """Make ``generation`` the current membership, because all its engines work in it, and tell them so. From now on
        each of them holds it: it was told when the generation was prepared, or in the regroup's plan."""
        self.current = generation
        settled = GenerationSettled(generation.number)
        for name in generation.members:
            self[name].holds = generation.number
            self.send(name, settled)

    def from_current(self, members: tuple[str, ...]) -> MembersDifference | None:
        """Return a membership as a difference from the current one. None: it is told whole."""
        return difference(self.current.number, self.current.members, members) if self.current.number else None

    def holds_current(self, name: str) -> bool:
        """Return whether engine ``name`` holds the current membership, so that a difference from it can be told."""
        return self[name].holds == self.current.number

    def count_from(self, status: EngineStatus) -> None:
        """Give higher numbers only than those that an engine knows. Another coordinator has given them: engines ignore
        a regroup with a lower number, and a message that names a generation would count for two."""
        generation = max(status.generation, status.announced, status.known)
        self.newest_generation = max(self.newest_generation, generation)
        self.newest_regroup = max(self.newest_regroup, status.regroup)

    def next_generation(self) -> int:
        self.newest_generation += 1
        return self.newest_generation

    def next_regroup(self) -> int:
        self.newest_regroup += 1
        return self.newest_regroup

    # ── messages ──────────────────────────────────────────────────────────────────────────────────────────────
    def send(self, to: str, message: Message) -> None:
        self._sends.append(Send(to, message))

    def report(self, kind: str, **body: Any) -> None:
        """Send a report to the platform through the coordinator's own supervisor. ``kind`` is a ``ReportKind``."""
        self.send(OWN_SUPERVISOR, TrainingReport(kind, body))

    def report_joined(self, name: str, generation: int, step: int | None) -> None:
        self.report("engine-joined", allocation=int(name), generation=generation, step=step)

    def take_sends(self) -> list[Send]:
        """Return the messages to send that were added since the last call, in order."""
        sends, self._sends = self._sends, []
        return sends

    def release(self, name: str) -> None:
        """Tell engine ``name`` to exit. The engine exits once it is in train() and reads the message."""
        self.set_state(name, MemberState.RELEASED)
        if name in self.connected:
            self.send(name, ExitEngine())

    def discard(self, name: str) -> None:
        """Let the supervisors kill engine ``name`` at once, even in the middle of user code. No engine counts on it."""
        self.release(name)
        self.send(SUPERVISORS, DiscardEngine(name))

    def send_back(self, name: str, regroup: int) -> None:
        """Tell engine ``name`` to ask to join again. It has no state, and the engines that it waits for will not send
        it."""
        self.stop_waiting(name)
        self[name].sent_back = regroup
        self.send(name, JoinAgain(regroup))

    def lose(self, why: str) -> None:
        """End the attempt, because no engine is left that has the state. The next attempt starts from the newest
        checkpoint."""
        if not self.over:
            self.phase = Phase.FAILED
            self.send(SUPERVISORS, StateLost(why))


class ScriptFailures:
    """Decides whether the user's script is to blame for the end of an engine, and keeps the failure of the training.

    An exception or a crash in one engine may have a cause in that engine alone. Then the other engines compute its
    micro-batches, and the training continues. The script is to blame if the same micro-batch ends a second engine, or
    if user code raised and no engine is left. For an engine that was killed from outside, the supervisor names no
    micro-batch, so such deaths never count against the script.
    """

    def __init__(self, members: Members) -> None:
        self._members = members
        self._failure: ScriptFailed | None = None
        self._raised: dict[str, tuple[str, str]] = {}
        """The message and the traceback of the exception in each engine, by name."""
        self._deaths: defaultdict[MicroBatch, list[str]] = defaultdict(list)
        """For each micro-batch, how the engines that computed it ended, in words."""

    @property
    def failed(self) -> bool:
        """Whether the training has failed."""
        return self._failure is not None

    def raised(self, name: str, message: str, traceback: str) -> None:
        """Keep the exception that user code raised in member ``name``. The engine ends by that exception."""
        self._raised[name] = (message, traceback)

    def is_the_scripts(self, name: str, micro_batch: MicroBatch | None, how: str) -> bool:
        """Note that member ``name`` is gone, and fail the training if the script is to blame.

        Args:
            name: the engine.
            micro_batch: the micro-batch that it was computing; None: its end counts against no micro-batch.
            how: how its process ended, in words.

        Returns:
            Whether the training has failed.
        """
        deaths: list[str] = []
        if micro_batch is not None:
            deaths = self._deaths[micro_batch]
            deaths.append(how)
        message, traceback = self._raised.get(name, ("", ""))
        if len(deaths) >= MOST_DEATHS and micro_batch is not None:
            where, ended = self._describe(micro_batch), " and ".join(filter(None, deaths))
            message = f"{message or 'an engine was ended'}; {where} ended {len(deaths)} engines ({ended})"
        elif not message or self._members.with_state:
            return False
        self.fail(message, traceback, self._step_of(micro_batch))
        return True

    def fail(self, message: str, traceback: str = "", step: int | None = None) -> None:
        """End the training with a failure, which the driver shows once it is in train(). Only the first failure counts.

        Args:
            message: the sentence that the user sees.
            traceback: traceback of user code; empty: there is none.
            step: training steps committed before the step that failed; None: the failure is not in a step.
        """
        if self._failure is None and not self._members.over:
            self._failure = ScriptFailed(message, traceback, step)
            self.send()

    def send(self) -> None:
        """Send the failure, if there is one, to the driver and to the coordinator's own supervisor. This waits until
        the driver is in train()."""
        members = self._members
        if self._failure is not None and members.definition is not None and members.phase is not Phase.FAILED:
            members.phase = Phase.FAILED
            members.send(DRIVER, self._failure)
            members.send(OWN_SUPERVISOR, self._failure)

    def _describe(self, micro_batch: MicroBatch) -> str:
        schedule, definition = self._members.schedule, self._members.definition
        if schedule is None or definition is None:
            return f"micro-batch {micro_batch.index} at offset {micro_batch.offset}"
        step = schedule.at(micro_batch.offset)
        samples: list[int] = schedule.samples(definition.seed, step, micro_batch.index).tolist()
        named = ", ".join(map(str, samples[:8])) + (", …" if len(samples) > 8 else "")
        return f"the micro-batch of samples {named} (epoch {step.epoch + 1}, step {step.training_steps_before})"

    def _step_of(self, micro_batch: MicroBatch | None) -> int | None:
        schedule = self._members.schedule
        return schedule.steps_before(micro_batch.offset) if schedule is not None and micro_batch is not None else None
