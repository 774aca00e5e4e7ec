"""The life of one engine: join, train, switch, regroup, finish. The methods are in the order of the protocol.

Each stage of the life is a method. It returns the next stage, or the kind of the exit (``ExitKind``). In each
reduction, every engine also announces the newest generation that the coordinator has committed. When all engines have
announced the same newer generation, they compute the next step in it. If the data plane breaks, the engine stops its
step and sends the coordinator its status. Then it continues in the group that the coordinator forms of the survivors.
``docs/protocol.md`` shows the messages in order.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from edt_contract.crash_points import CrashPoint, crash_point
from edt_contract.reports import ExitKind
from edt_runner import context, environment
from edt_runner.comm.connections import can_connect
from edt_runner.comm.group import Group
from edt_runner.context import ActivityKind
from edt_runner.engine.link import Membership
from edt_runner.engine.step_runner import EngineParts, StepRunner
from edt_runner.errors import CheckpointError, PeerLost, StateMismatch
from edt_runner.protocol.data import (
    CatchUp,
    EngineResult,
    EngineState,
    EngineStatus,
    RegroupPlan,
    TrainingDefinition,
)
from edt_runner.protocol.engine_messages import (
    ApplyRegroupPlan,
    CheckpointMissing,
    ExitEngine,
    GroupLost,
    JoinAgain,
    JoinCancelled,
    JoinContinues,
    JoinRequest,
    PullFailed,
    ReceiveStateFromDriver,
    ReceiveStateFromMembers,
    RefuseEngine,
    Regrouped,
    SendStateToDriver,
    StartRegroup,
    StateReceived,
    SurvivorStatus,
    Switching,
    TrainingDefined,
    TrainingFinished,
)
from edt_runner.protocol.messages import Resized

Stage = Callable[[], "Stage | ExitKind"]


class Engine:
    """One engine, as the protocol sees it.

    Args:
        parts: what the engine consists of.
    """

    def __init__(self, parts: EngineParts) -> None:
        self._schedule, self._parts, self._link = parts.training.schedule, parts, parts.link
        self._steps = StepRunner(parts)
        self._membership: Membership | None = None
        """The membership in which this engine works; None: it has no state yet, or has to receive it again."""
        self._announced = 0
        """The generation that all engines announced in the last reduction; 0: they announced different ones."""
        self._unreachable: list[str] = []
        """The engines that this engine could not reach when the group of a regroup was not built."""
        self._built: int | None = None
        """The newest regroup whose group this engine has built; None: there was none. ``_unreachable`` is empty in two
        cases: the group was built and lost again, or it was never built. This number lets the coordinator distinguish
        them."""
        self._requested_after = 0
        """The newest regroup that this engine knew when it sent its request to join."""
        self._pull_failures = 0
        self._result = EngineResult()
        """The result of the training, once this engine has committed the last step."""

    def run(self) -> ExitKind:
        """Run the engine until its process should end.

        Returns:
            The kind of the exit. The process ends with the exit status that belongs to it.

        Raises:
            StateMismatch: the script called train() with different arguments in this engine and in the driver.
        """
        stage: Stage = self._join
        while True:
            try:
                following = stage()
            except PeerLost as error:
                print(f"edt: {error}", flush=True)
                following = self._join if self._membership is None else self._report_loss
            if isinstance(following, ExitKind):
                return following
            stage = following

    # ── joining ───────────────────────────────────────────────────────────────────────────────────────────────
    def _join(self) -> Stage | ExitKind:
        """Ask to join, and wait until the state can be received. Returns an ExitKind if this engine will not join."""
        patience = environment.pull_weight_timeout()
        context.page.write(ActivityKind.WAITING, 0)
        self._request_to_join()
        deadline = time.monotonic() + patience if self._pull_failures else None
        while True:
            message = self._link.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
            match message:
                case None:
                    self._pull_failed()
                    deadline = None  # there is no limit until the coordinator has answered
                case TrainingDefined(definition=definition):
                    self._check_definition(definition)
                    deadline = time.monotonic() + patience
                case ReceiveStateFromDriver():
                    return self._receive_from_driver(message)
                case ReceiveStateFromMembers(generation=generation):
                    return self._receive_from_members(generation)
                case JoinCancelled():
                    if self._pull_failures > environment.pull_failed_limit():
                        return ExitKind.PULL_FAILED
                    self._request_to_join()
                    deadline = time.monotonic() + patience
                case JoinContinues():
                    pass
                case StartRegroup(regroup=regroup) | JoinAgain(regroup=regroup) if regroup > self._requested_after:
                    self._request_to_join()  # a coordinator that calls this engine does not know that it has no state
                case RefuseEngine(why=why):
                    print(f"edt: this engine does not join: {why}", flush=True)
                    return ExitKind.PULL_FAILED
                case ExitEngine():  # the supervisor knows whether the engine was asked to leave
                    return ExitKind.FINISHED

    def _request_to_join(self) -> None:
        self._link.set_status(EngineStatus(EngineState.JOINING))  # first: until then it is called to that regroup
        self._requested_after = self._link.acknowledge_regroup()  # a later regroup makes the request stale
        self._link.send(JoinRequest(self._parts.facts, self._requested_after))

    def _pull_failed(self) -> None:
        self._pull_failures += 1
        count, limit = self._pull_failures, environment.pull_failed_limit()
        self._link.report("pull-failed", allocation=int(self._link.name), count=count, limit=limit)
        print(f"PULL_FAILED: no weights within {environment.pull_weight_timeout():g} s ({count})", flush=True)
        self._link.send(PullFailed())

    def _check_definition(self, definition: TrainingDefinition) -> None:
        for name, own in self._schedule.to_json_object().items():
            if definition.schedule[name] != own:
                raise StateMismatch(
                    f"{name}: {definition.schedule[name]} in the driver, {own} in an engine; "
                    "the script must call train() with the same arguments in every process"
                )

    def _receive_from_driver(self, message: ReceiveStateFromDriver) -> Stage:
        """Receive the driver's state, as the first engine of an attempt, and train alone."""
        with contextlib.closing(
            self._parts.plane.build(message.store, message.key, rank=1, size=2, reduces=False)
        ) as group:
            self._steps.transfer(group, sources=[0], receivers=[1])
        crash_point(CrashPoint.ENGINE_JOIN, who=self._link.name)
        self._enter(message.generation, (self._link.name,), self._parts.plane.solo())
        self._link.send(StateReceived(message.generation, self._steps.training_steps))
        self._steps.lead()
        self._steps.request_batches(self.membership.group)
        return self._train

    def _receive_from_members(self, generation: int) -> Stage:
        """Receive the state, as a joining engine, while the members compute a step. This engine takes part in that
        step's reduction without micro-batches of its own. It computes from the next step on."""
        prepared, steps = self._link.prepared(generation), self._steps
        change, group = prepared.message, prepared.group
        assert group is not None
        crash_point(CrashPoint.ENGINE_JOIN, who=self._link.name)
        if prepared.faster:
            group.change_over()
        ranks = _ranks(change.members)
        steps.transfer(group, ranks(change.surviving), ranks(change.joining))
        self._enter(generation, change.members, group)
        self._link.send(StateReceived(generation, steps.training_steps))
        crash_point(CrashPoint.ENGINE_JOINED, who=self._link.name)
        steps.split_over(change.surviving, change.members)
        self._parts.checksum_sender.joined()
        steps.request_batches(group)
        return self._train

    # ── training ──────────────────────────────────────────────────────────────────────────────────────────────
    def _train(self) -> Stage | ExitKind:
        """Run steps until the training is over or this engine has left the group."""
        while not self._steps.done:
            if self._announced > self.membership.generation and not self._switch(self._announced):
                return lambda: self._await_coordinator(ExitKind.LEFT)
            self._announced = self._steps.run(self.membership)
        return self._finish

    def _switch(self, generation: int) -> bool:
        """Work in ``generation`` from the coming step on. Returns False if this engine is not part of that
        generation."""
        prepared, steps, name = self._link.prepared(generation), self._steps, self._link.name
        change, group, old = prepared.message, prepared.group, self.membership
        self._steps.reach(CrashPoint.ENGINE_SWITCH)
        if not change.members and old.leads:
            steps.write_checkpoint()
        if name not in change.members:
            steps.flush()  # before ``Switching``: after that message the training may be suspended
            self._set_status(EngineState.SWITCHED_OUT, next_generation=generation)
            self._link.send(Switching(generation, steps.offset))
            self._steps.reach(CrashPoint.ENGINE_LEAVE)
            return False
        self._link.send(Switching(generation, steps.offset))
        self._steps.reach(CrashPoint.ENGINE_SWITCHED)
        assert group is not None
        if prepared.faster:
            group.change_over()
        joined = _allocations(change.joining)
        staying = set(change.members)
        left = _allocations(member for member in old.members if member not in staying)
        resized = Resized(generation, steps.training_steps, len(change.members), None, joined=joined, left=left)
        steps.pauses.begin(resized)
        group.inherit(old.group)
        self._enter(generation, change.members, group)
        if self.membership.leads and not old.leads:
            steps.lead()
        if change.joining:
            ranks = _ranks(change.members)
            self._parts.checksum_sender.joined()
            steps.finish_sending = steps.transfer(group, ranks(change.surviving), ranks(change.joining))
        steps.split_over(change.surviving, change.members)
        steps.request_batches(group)
        return True

    # ── after a loss ──────────────────────────────────────────────────────────────────────────────────────────
    def _report_loss(self) -> Stage | ExitKind:
        """Tell the coordinator that the data plane broke, unless the coordinator itself has started a regroup."""
        context.page.write(ActivityKind.REGROUPING, self._steps.offset)
        self._set_status(EngineState.REGROUPING)
        if not self._link.regroup_started:
            regroup = self._link.regroup
            built = self._built == regroup
            self._link.send(GroupLost(self.membership.generation, regroup, tuple(self._unreachable), built))
        self._unreachable = []
        return lambda: self._await_coordinator(ExitKind.LEFT)

    def _await_coordinator(self, at_exit: ExitKind) -> Stage | ExitKind:
        """Do what the coordinator says while this engine is in no working group, or has committed the last step.

        Args:
            at_exit: the kind of the exit if the coordinator sends ``ExitEngine`` now.
        """
        while True:
            message = self._link.wait()
            match message:
                case StartRegroup(regroup=regroup):
                    self._send_survivor_status(regroup)
                case ApplyRegroupPlan(regroup=regroup) if regroup == self._link.regroup:
                    return lambda: self._regroup(message)
                case JoinAgain():
                    self.membership.group.close()
                    self._membership = None
                    return self._join
                case SendStateToDriver():
                    self._send_to_driver(message)
                case ExitEngine() | RefuseEngine():
                    return at_exit

    def _send_survivor_status(self, regroup: int) -> None:
        self._set_status(EngineState.REGROUPING)  # first: a new coordinator may ask at any time
        self._link.acknowledge_regroup(regroup)
        status = self._steps.status(self.membership.group.size)
        self._link.send(SurvivorStatus(regroup, status, self._parts.plane.probe_address))
        context.page.write(ActivityKind.REGROUPING, status.offset)

    def _regroup(self, message: ApplyRegroupPlan) -> Stage | ExitKind:
        """Continue with the survivors: engines that are one step behind catch up, then all try the broken step
        again."""
        self._steps.reach(CrashPoint.ENGINE_REGROUP)
        name, plan, led = self._link.name, message.plan, self.membership.leads
        receives = name in plan.repaired or (plan.catch_up is CatchUp.STATE and name in plan.behind)
        restores = plan.restore is not None and name == plan.repair_source
        if self._steps.torn and not receives and not restores:
            print("edt: the engine that sent its state has died with half of it sent", flush=True)
            return ExitKind.LOST
        group = self._build_regrouped(message)
        try:
            self._catch_up(plan, group)
            repaired = self._repair(plan, group, message.generation)
        except PeerLost:
            group.close()
            raise
        if not repaired:
            group.close()
            return lambda: self._await_coordinator(ExitKind.LEFT)
        self._enter(message.generation, plan.members, group)
        if plan.restore is not None:
            self._steps.request_batches(group)
        elif not self._steps.done:
            self._steps.try_again(plan.split, group)
        self._link.send(Regrouped(message.regroup))
        lost, step = _allocations(message.lost), self._steps.training_steps
        resized = Resized(message.generation, step, group.size, None, lost=lost, recomputed=plan.recomputed)
        self._steps.pauses.begin(resized)
        if self.membership.leads and not led:
            self._steps.lead()
        if not plan.repair_source:  # engines that were just made equal need no extra comparison
            self._parts.checksum_sender.joined()
        return self._train

    def _build_regrouped(self, message: ApplyRegroupPlan) -> Group:
        try:
            group = self._link.build_group(message.store, f"regroup/{message.regroup}", message.plan.members)
        except PeerLost:
            probes = message.probe_addresses.items()
            self._unreachable = [other for other, address in probes if not can_connect(address)]
            raise
        self._built = message.regroup
        return group

    def _catch_up(self, plan: RegroupPlan, group: Group) -> None:
        """Let the engines behind catch up: they receive the reduced tensor of the step that they lack, or the whole
        state."""
        steps, ranks = self._steps, _ranks(plan.members)
        sources, behind = ranks(plan.sources), ranks(plan.behind)
        if plan.catch_up is CatchUp.STATE:
            steps.transfer(group, sources, behind)()
        elif plan.catch_up is CatchUp.REDUCED and group.rank in behind:
            step = self._schedule.at(steps.offset, plan.offset - steps.offset)
            reduced = group.receive_reduced(self._parts.adapter.size(step.kind), sources[0])
            steps.commit(reduced, self.membership, step)
        elif plan.catch_up is CatchUp.REDUCED and group.rank == sources[0]:
            group.send_reduced(steps.reduced, behind)

    def _repair(self, plan: RegroupPlan, group: Group, generation: int) -> bool:
        """Make replicas equal that differed: one engine sends its state to the engines that the plan names. If the plan
        contains a restore, that engine first loads a checkpoint. Returns False if there is no such checkpoint."""
        name, parts, steps = self._link.name, self._parts, self._steps
        if name != plan.repair_source and name not in plan.repaired:
            return True
        if plan.restore is not None:
            parts.snapshots.finish()
        parts.snapshots.wait_copied()
        parts.checksum_sender.wait()
        if plan.restore is not None and name == plan.repair_source:
            try:
                steps.accept(parts.restore(plan.restore))
                parts.recorder.go_back(steps.training_steps, generation)
            except CheckpointError as error:
                self._link.send(CheckpointMissing(str(error)))
                return False
        ranks = _ranks(plan.members)
        steps.transfer(group, ranks([plan.repair_source]), ranks(plan.repaired))()
        if plan.restore is not None and name in plan.repaired:
            parts.recorder.go_back(steps.training_steps, generation)
        return True

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────────────
    def _finish(self) -> Stage | ExitKind:
        """Tell the coordinator that the last step is committed, and send the result."""
        steps, member = self._steps, self.membership
        steps.flush()
        if member.leads:
            context.page.write(ActivityKind.EXPORTING, steps.offset)
            self._parts.snapshots.finish()
        context.page.write(ActivityKind.WAITING, steps.offset)
        checksums = self._parts.checksum_sender.at_end(names=member.leads) if member.group.size > 1 else None
        self._result = EngineResult(checksums)
        if member.leads:
            self._result = replace(self._result, digest=self._parts.adapter.digest(), step=steps.training_steps)
        self._set_status(EngineState.ENDED, result=self._result)
        self._link.send(TrainingFinished(member.generation, self._result))
        return lambda: self._await_coordinator(ExitKind.FINISHED)

    def _send_to_driver(self, message: SendStateToDriver) -> None:
        """Send the trained state to the driver. If the driver dies during the transfer, the coordinator asks again."""
        self._steps.reach(CrashPoint.ENGINE_HAND_OVER)
        self._set_status(EngineState.SENDING)
        try:
            with contextlib.closing(
                self._parts.plane.build(message.store, message.key, rank=0, size=2, reduces=False)
            ) as group:
                self._steps.transfer(group, sources=[0], receivers=[1])()
        except PeerLost as error:
            print(f"edt: the driver did not take the weights: {error}", flush=True)
        self._set_status(EngineState.ENDED, result=self._result)

    # ── what the stages share ─────────────────────────────────────────────────────────────────────────────────
    @property
    def membership(self) -> Membership:
        """The membership in which this engine works. It exists only while the engine has a state."""
        assert self._membership is not None
        return self._membership

    def _enter(self, generation: int, members: tuple[str, ...], group: Group) -> None:
        """Work in ``generation`` from now on."""
        self._link.enter(generation, self._membership.group if self._membership is not None else None)
        self._membership = Membership(generation, members, group, self._link.name)
        self._set_status(EngineState.TRAINING, step=self._steps.training_steps)
        self._announced = 0
        self._steps.enter(len(members))

    def _set_status(self, state: EngineState, **fields: Any) -> None:
        self._link.set_status(EngineStatus(state, self.membership.generation, self.membership.members, **fields))


def _ranks(members: tuple[str, ...]) -> Callable[[Iterable[str]], list[int]]:
    """Return a function that returns the ranks of the given engines in ``members``."""
    places = {member: rank for rank, member in enumerate(members)}
    return lambda engines: [places[engine] for engine in engines]


def _allocations(engines: Iterable[str]) -> tuple[int, ...]:
    """Return the names of ``engines`` as numbers; a name is an allocation id."""
    return tuple(int(engine) for engine in engines)
