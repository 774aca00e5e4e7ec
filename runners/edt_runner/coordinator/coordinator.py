"""The coordinator's state machine. It decides which engines train together and when the membership changes.

The module does no input or output: ``Coordinator`` takes the messages of other processes and returns the messages to
send. The sockets are in ``server``. A membership has a number, its generation, and lists its engines in rank order.
``changes`` makes planned changes of the membership. ``regroup`` handles the loss of an engine. A regroup cancels the
change under way; the coordinator plans that change again afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edt_runner.coordinator.lifecycle import Lifecycle
from edt_runner.coordinator.members import DRIVER, MemberState, Phase
from edt_runner.protocol.data import EngineResult, EngineState, MicroBatch, TrainingDefinition
from edt_runner.protocol.engine_messages import (
    CheckpointMissing,
    ChecksumsTaken,
    EngineConnected,
    GroupBuildFailed,
    GroupBuilt,
    GroupLost,
    JoinRequest,
    PullFailed,
    Regrouped,
    RetractAnswer,
    StateReceived,
    SurvivorStatus,
    Switching,
    TrainingDefined,
    TrainingFinished,
)
from edt_runner.protocol.messages import (
    BeginTraining,
    DriverReleased,
    EngineExpected,
    EngineGone,
    EngineRaised,
    EngineStuck,
    LeaveEngines,
    Message,
    Note,
    SupervisorIdle,
    TrainedStateReceived,
)

_FAST = 'reduction="fast" adds gradients in an order that depends on the number of engines'


class Coordinator(Lifecycle):
    """Decides which engines train together.

    Each method handles one event. ``members.take_sends`` returns the messages that follow from the events. The argument
    ``now`` is the time in monotonic seconds.
    """

    # ── messages ──────────────────────────────────────────────────────────────────────────────────────────────
    def from_engine(self, name: str, message: Message, now: float) -> None:
        """Handle a message from engine ``name``. Reports do not reach this class; the server sends them on."""
        match message:
            case EngineConnected():
                self.engine_connected(name, message, now)
            case JoinRequest():
                self.join_request(name, message, now)
            case GroupBuilt(generation, faster):
                self.changes.group_built(name, generation, faster=faster)
                self.proceed(now)
            case GroupBuildFailed(generation):
                self.changes.group_build_failed(generation, now)
            case Switching(generation, offset):
                self.changes.switching(name, generation, offset)
                self.settle(now)
            case StateReceived(generation, step):
                self.state_received(name, generation, step, now)
            case RetractAnswer(generation, promised):
                self.retract_answer(name, generation, promised, now)
            case PullFailed():
                self.changes.pull_failed(name, now)
            case TrainingFinished(generation, result):
                self.training_finished(name, generation, result, now)
            case LeaveEngines():
                self.leave([name], now)
            case ChecksumsTaken():
                self.checksums_taken(name, message, now)
            case _:
                self._from_survivor(name, message, now)

    def _from_survivor(self, name: str, message: Message, now: float) -> None:
        match message:
            case GroupLost():
                self.group_lost(name, message, now)
            case SurvivorStatus():
                self.survivor_status(name, message)
            case Regrouped(regroup):
                self.regrouped(name, regroup, now)
            case CheckpointMissing(why):
                self.failures.fail(why)

    def from_driver(self, message: Message, now: float) -> None:
        """Handle a message from the driver."""
        match message:
            case BeginTraining():
                self.begin(message, now)
            case TrainedStateReceived():
                self.ending.delivered()

    def from_supervisor(self, message: Message, now: float) -> None:
        """Handle a message from a supervisor."""
        match message:
            case EngineExpected(engine):
                self.members.expected.add(engine)
            case LeaveEngines(engines):
                self.leave(engines, now)
            case EngineGone(engine, micro_batch, how):
                self.engine_gone(engine, now, micro_batch, how)
            case EngineStuck(engine):
                self.engine_stuck(engine)
            case SupervisorIdle():
                self.supervisor_idle()
            case EngineRaised(engine, text, traceback):
                self.engine_raised(engine, text, traceback)

    # ── messages of supervisors ───────────────────────────────────────────────────────────────────────────────
    def leave(self, names: Sequence[str], now: float) -> None:
        """Let the engines ``names`` leave at the next boundary between steps. Discard those on which no other engine
        counts."""
        members = self.members
        members.leaving.update(names)
        if members.phase is not Phase.RECOVERING:
            for name in sorted(set(names)):
                if not self.counts_on(name):
                    members.discard(name)
        self.proceed(now)

    def engine_gone(self, name: str, now: float, micro_batch: MicroBatch | None = None, how: str = "") -> None:
        """Handle the end of the process of engine ``name``, which its supervisor has seen.

        Args:
            name: the engine.
            now: monotonic seconds.
            micro_batch: the micro-batch that the engine was computing, if that may have ended it.
            how: how the process ended, in words.
        """
        members = self.members
        had_state, released = members.has_state(name), members.is_released(name)
        members.forget(name)
        self.takeover.engine_gone(name)
        if not released and not members.over:
            self.engine_lost(name, had_state, micro_batch, how, now)
        members.leaving.discard(name)
        if members.phase is Phase.DONE and not members.expected:
            members.send(DRIVER, DriverReleased())
        self.proceed(now)

    def engine_stuck(self, name: str) -> None:
        """Start a regroup, because member ``name`` waits far too long in a reduction although every process lives."""
        if self.members.has_state(name) and not self.regrouping and not self.members.over:
            self.begin_regroup()

    def supervisor_idle(self) -> None:
        """Suspend the training if no engine is left, because a supervisor has nothing left to do."""
        members = self.members
        if not members.expected and not members.current.members and members.phase in (Phase.WAITING, Phase.STARTING):
            self.suspend()

    def engine_raised(self, name: str, message: str, traceback: str) -> None:
        """Handle an exception that user code raised in engine ``name``. The engine ends; ``engine_gone`` follows.

        The exception of a joining engine may have a cause in that engine alone, for example a GPU in use or an old copy
        of the data. Such an engine exits, and the training continues without it. The exception of a member may have
        such a cause, too: the other members compute its micro-batches. The training fails only if the same micro-batch
        ends a second engine, or if no engine is left.
        """
        members = self.members
        if members.has_state(name):
            self.failures.raised(name, message, traceback)
        elif members.phase in (Phase.RUNNING, Phase.RECOVERING):
            members.stop_waiting(name)
            members.send(DRIVER, Note(f"engine {name} did not join: {message}"))
            if not self.counts_on(name):
                members.discard(name)
        elif not members.over:
            self.failures.fail(message, traceback)

    # ── messages of the driver ────────────────────────────────────────────────────────────────────────────────
    def begin(self, message: BeginTraining, now: float) -> None:
        """Handle the driver's message that the user's script is in train().

        The driver sends the message again after the driver or this coordinator was started again. The training must
        then be the same; otherwise it fails.
        """
        members, definition = self.members, message.definition
        before, members.definition = members.definition, definition
        members.driver_connected = True
        if members.phase is Phase.STARTING:  # the previous driver began to send the state, and did not finish
            members.send_back(members.current.members[0], members.next_regroup())
            self.start_over()
        members.report(
            "engines-known",
            engines=definition.max_engines,
            steps_total=definition.steps_total,
            epochs=definition.schedule["epochs"],
            **({"follows_engines": True} if definition.schedule.get("follows_engines") else {}),
        )
        if before is not None and (differs := _other_training(before, definition)):
            self.failures.fail(f"the script came to another training when started again: {differs}")
        self.failures.send()
        self.replicas.merge(message.history)
        self.replicas.report_ended_again()
        if members.phase in (Phase.WAITING, Phase.STARTING):
            self.replicas.resumed_at = message.resumed_at
        if not definition.exact:
            self.replicas.end_guarantee("reduction", _FAST)
        self.replicas.require_exact()
        self.replicas.answer()
        defined = TrainingDefined(definition)
        for name in sorted(members.connected):
            members.send(name, defined)
        for name in list(members.waiting):
            self._check_engine(name)
        if members.phase is Phase.ENDING and self.ending.complete:
            if self.ending.sending:
                self.begin_regroup()  # the first engine may still be waiting for the previous driver
            else:
                self.ending.send_state()
        self.proceed(now)

    def driver_disconnected(self) -> None:
        """Note that the connection to the driver has ended. The supervisor starts another driver."""
        self.members.driver_connected = False
        if self.members.phase is Phase.ENDING and self.ending.complete:
            self.begin_regroup()  # the first engine may be waiting for the driver, to send the trained state

    # ── messages of engines ───────────────────────────────────────────────────────────────────────────────────
    def engine_connected(self, name: str, message: EngineConnected, now: float) -> None:
        """Handle the first message of engine ``name`` after it has connected, which contains its status."""
        members, member, status = self.members, self.members[name], message.status
        again = members.has_state(name) or self.counts_on(name)
        if members.phase is Phase.WAITING and status.generation > 0 and not members.current.number:
            members.phase = Phase.RECOVERING  # the previous coordinator died before it could report a join
        members.connected.add(name)
        members.expected.add(name)
        member.holds = message.holds
        members.count_from(status)
        if message.computing:
            member.computing = message.computing
        if message.history is not None:
            self.replicas.merge(message.history)
        if members.has_state(name):
            self.replicas.send_history_to(name)
        if members.definition is not None:
            members.send(name, TrainingDefined(members.definition))
        if members.phase is Phase.RECOVERING:
            self.takeover.add_status(name, status, now)
        elif members.over or (not members.has_state(name) and self._may_exit(name)):
            members.release(name)
        elif again:
            self.engine_reconnected(name, status)
        elif status.generation > 0:  # no engine counts on this one any more
            members.discard(name)
        elif status.regroup < member.sent_back:  # it was not connected when ``JoinAgain`` was sent
            members.send_back(name, members.next_regroup())
        self.proceed(now)

    def _may_exit(self, name: str) -> bool:
        leaves = name in self.members.leaving and not self.counts_on(name)
        return self.members.is_released(name) or leaves or self.members.phase is Phase.ENDING

    def engine_disconnected(self, name: str) -> None:
        """Note that the connection to engine ``name`` has ended. The engine connects again, or its supervisor reports
        its end."""
        self.members.connected.discard(name)

    def join_request(self, name: str, message: JoinRequest, now: float) -> None:
        """Handle the request of engine ``name`` to join. A request older than the last ``JoinAgain`` is ignored,
        because the engine sends another."""
        members, member = self.members, self.members[name]
        if members.is_released(name) or message.regroup < member.sent_back:
            return
        if members.phase is Phase.STARTING and name in members.current.members:
            self.start_over()  # the engine did not receive the state from the driver
        elif members.has_state(name):  # another coordinator has sent it back: it has dropped the state
            members.wait(name)
            self.regroup_without(name)
        elif self.change and self.change.is_joining(name):
            if self.change.offset is None:
                return  # the engine has asked before
            self.begin_regroup()  # the others count on this engine, but it has no state
        if members.phase is Phase.RECOVERING:  # the previous coordinator may have sent it back: it has no state
            self.takeover.change_status(name, state=EngineState.JOINING, generation=0, members=())
        members.wait(name)
        member.facts = message.facts
        if members.definition is not None:
            self._check_engine(name)
        self.proceed(now)

    def _check_engine(self, name: str) -> None:
        """Refuse engine ``name`` if its data differ from the driver's, or if the result must be exact and the engine's
        hardware or libraries differ from the other engines'."""
        members = self.members
        assert members.definition is not None
        if why := _other_data(members.definition, members[name].facts):
            self.engine_raised(name, why, "")
        else:
            self.replicas.refuse_unlike(name)

    def state_received(self, name: str, generation: int, step: int, now: float) -> None:
        """Handle the message that engine ``name`` has received the state.

        Args:
            name: the engine.
            generation: the membership to which the engine now belongs.
            step: number of committed training steps.
            now: monotonic seconds.
        """
        members = self.members
        if members.phase is Phase.RECOVERING:  # the state was being sent when the previous coordinator died
            self.takeover.change_status(
                name, state=EngineState.REGROUPING, generation=generation, members=(name,), step=step
            )
            members.stop_waiting(name)
            self.replicas.send_history_to(name)
            self.proceed(now)
            return
        if members.phase is Phase.STARTING and generation == members.current.number:
            members.phase = Phase.RUNNING
            members.set_state(name, MemberState.WITH_STATE)
            members.report_joined(name, generation, step)
            members.settle(members.current)
            self.replicas.training_began()
            self.replicas.joined(name, step, first=True)
        elif self.changes.state_received(name, generation):
            members.report_joined(name, generation, step)
            self.replicas.joined(name, step, first=False)
        else:
            return
        self.replicas.send_history_to(name)
        self.settle(now)

    def retract_answer(self, name: str, generation: int, promised: bool, now: float) -> None:
        """Handle the answer of member ``name`` to ``RetractGeneration``."""
        missing = self.changes.retract_answer(name, generation, promised, now)
        if missing:
            self.regroups.lost.update(missing)
            self.begin_regroup()
        self.proceed(now)

    def training_finished(self, name: str, generation: int, result: EngineResult, now: float) -> None:
        """Handle the message that engine ``name`` has committed the last step as a member of ``generation``."""
        regroup = self.regroups.regroup
        valid = self.working_generations if regroup is None else (regroup.generation,)
        if self.members.phase is Phase.RECOVERING:
            self.takeover.change_status(name, state=EngineState.ENDED, result=result)
        elif self.members.has_state(name) and generation in valid:
            self.ending.results[name] = result  # before ``settle``, which would otherwise plan another change
            if regroup is None:
                self.changes.training_finished(generation)
                self.settle(now)
            self.check_end()

    def group_lost(self, name: str, message: GroupLost, now: float) -> None:
        """Handle the message that the group of engine ``name`` is broken or was not built."""
        regroup, members = self.regroups.regroup, self.members
        if members.phase is Phase.RECOVERING:
            self.takeover.change_status(name, state=EngineState.REGROUPING)
        elif members.over or members.is_released(name):
            return
        elif not members.has_state(name):
            if message.regroup >= members[name].sent_back:  # it is alive, but counted as gone
                members.discard(name)
        elif regroup is not None and regroup.plan is not None and message.regroup == regroup.number:
            self.regroups.group_lost(name, message.unreachable, now, built=message.built)
            self.try_again(now)
        elif regroup is None and message.generation in self.working_generations:
            self.begin_regroup()
        self.proceed(now)

    def survivor_status(self, name: str, message: SurvivorStatus) -> None:
        """Handle the answer of engine ``name`` to ``StartRegroup``."""
        self.members[name].probe_address = message.probe_address
        self.regroups.add_status(name, message.regroup, message.status)
        self.check_agreement()

    def regrouped(self, name: str, regroup: int, now: float) -> None:
        """Handle the message that engine ``name`` works in the new group of the regroup numbered ``regroup``."""
        if self.regroups.regrouped(name, regroup):
            if self.regroups.repair_needed:  # replicas were found to differ after this regroup was planned
                self.begin_regroup()
            self.check_end()
            self.proceed(now)
        else:
            self.try_again(now)

    def checksums_taken(self, name: str, message: ChecksumsTaken, now: float) -> None:
        """Handle the checksums that engine ``name`` has taken of its state. Ignore them if all engines are about to go
        back to a checkpoint, because that replaces the states."""
        if self.regroups.restore is not None:
            return
        self.replicas.add(name, message)
        self.proceed(now)

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────
    def check_deadlines(self, now: float) -> None:
        """Do what depends on time alone. The server calls this several times a second."""
        self.changes.check_deadline(now)
        self.try_again(now)
        self.proceed(now)


def _other_data(definition: TrainingDefinition, facts: Mapping[str, Any]) -> str:
    """Return how an engine's data differ from the driver's; an empty string if they are equal.

    Args:
        definition: what the driver has sent.
        facts: the engine's facts about its data; empty if they were compared before.
    """
    for fact, value in definition.facts.items():
        if facts and facts.get(fact) != value:
            return (
                f"DatasetMismatch: {fact}: {value} in the driver, {facts.get(fact)} in an engine. "
                "datasets_function() must give every process the same data; it runs under the job's seed."
            )
    return ""


def _other_training(before: TrainingDefinition, now: TrainingDefinition) -> str:
    """Return the first difference between the training ``before`` and the training ``now`` of a restarted driver; an
    empty string if they are equal."""
    old, new = vars(before), vars(now)
    return next((f"{name} was {old[name]} and is {new[name]}" for name in old if old[name] != new[name]), "")
