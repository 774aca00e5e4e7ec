"""The elastic loop: tick after tick, by whatever engines there are. Room: runners; framework-neutral.

Read with DESIGN.md section 4. An engine's life is a few stages, each a method that returns the next. A reduction also
carries everybody's newest generation; if it shows that all have seen a newer one, the next tick is worked by it. When
the data plane breaks off, wherever that is, the engine stands still, says where it is, and goes on in the group that
the coordinator makes of the survivors.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from edt_runner import environment
from edt_runner.contract import ExitKind
from edt_runner.crash_points import CrashPoint, crash_point
from edt_runner.engine import position
from edt_runner.engine.adapter import Group
from edt_runner.engine.position import Doing
from edt_runner.engine.seat import Hands, Seat, Settings
from edt_runner.engine.work import Runs, Work, width_of
from edt_runner.errors import CheckpointError, PeerLost, StateMismatch

Stage = Callable[[], "Stage | ExitKind"]


class Engine:
    """One engine's life from the door to the exit."""

    def __init__(self, settings: Settings, hands: Hands) -> None:
        self._schedule, self._hands = settings.schedule, hands
        self._adapter, self._link = hands.adapter, hands.link
        self._work = Work(settings, hands)
        self._seat: Seat | None = None
        self._announced = 0
        """The generation that all ranks announced in the last reduction; 0: they differed."""
        self._first_runs: Runs | None = None
        """Who works on what at the coming tick; None: shared alike by all members."""
        self._unreachable: list[str] = []
        """Whom of the others this engine could not reach when a group was not built."""
        self._built: int | None = None
        """The newest round whose group it has built."""
        self._asked = 0
        """The newest round it knew of when it asked to be let in."""
        self._torn = False
        """It has begun to take the whole state over its own: it has none until all of it is here."""
        self._failures = 0
        self._facts: Mapping[str, Any] = {}
        self._outcome: dict[str, Any] = {}
        """Of the training, where this engine tells it."""

    def run(self, facts: Mapping[str, Any]) -> ExitKind:
        """Join, train, and leave one way or another. ``facts`` describe the data, for comparison."""
        self._facts = facts
        stage: Stage = self._join
        while True:
            try:
                following = stage()
            except PeerLost as error:
                print(f"edt: {error}", flush=True)
                following = self._join if self._seat is None else self._recover
            if isinstance(following, ExitKind):
                return following
            stage = following

    # ── coming ────────────────────────────────────────────────────────────────────────────────────────────────
    def _join(self) -> Stage | ExitKind:
        """Ask to be let in until the weights are here. An ExitKind: it will not happen."""
        link = self._link
        position.board.write(Doing.WAITING, 0)
        self._ask()
        deadline: float | None = time.monotonic() + environment.pull_weight_timeout() if self._failures else None
        while True:
            message = link.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if message is None:
                self._pull_failed()
                deadline = None  # the answer decides
                continue
            match message["kind"]:
                case "definition":
                    self._check_definition(message)
                    deadline = time.monotonic() + environment.pull_weight_timeout()
                case "handover":
                    return self._take_from_driver(message)
                case "switched":
                    return self._take_from_members(message)
                case "pull-answer" if message["cancelled"]:
                    if self._failures > environment.pull_failed_limit():
                        return ExitKind.PULL_FAILED
                    self._ask()
                    deadline = time.monotonic() + environment.pull_weight_timeout()
                case "rejoin" if message["round"] > self._asked:
                    self._ask()
                case "exit" if "unlike" in message:
                    print(f"edt: this engine does not join: {message['unlike']}", flush=True)
                    return ExitKind.PULL_FAILED
                case "exit":  # nobody waits for it any more; whoever had asked it to leave knows that
                    return ExitKind.FINISHED

    def _ask(self) -> None:
        self._asked = self._link.answer()  # a round that is called after this is not known when it asks
        self._link.stands("joining")
        addresses = list(self._hands.plane.addresses)
        self._link.tell("ready", facts=dict(self._facts), addresses=addresses, round=self._asked)

    def _pull_failed(self) -> None:
        self._failures += 1
        limit = environment.pull_failed_limit()
        self._link.report("pull-failed", allocation=int(self._link.name), count=self._failures, limit=limit)
        seconds = environment.pull_weight_timeout()
        print(f"PULL_FAILED: no weights within {seconds:g} s ({self._failures})", flush=True)
        self._link.tell("pull-failed")

    def _check_definition(self, definition: Mapping[str, Any]) -> None:
        for field_, own in self._schedule.to_json_object().items():
            if definition["schedule"][field_] != own:
                raise StateMismatch(
                    f"{field_}: {definition['schedule'][field_]} in the driver, {own} in an engine; "
                    "the script must call train() with the same arguments in every process"
                )

    def _take_from_driver(self, message: Mapping[str, Any]) -> Stage:
        """The first engine of an attempt: the state comes from the driver, and counts at once."""
        with contextlib.closing(self._meet(message)) as group:
            self._work.accept(group.receive(self._adapter, donors=[0]))
        crash_point(CrashPoint.ENGINE_JOIN, who=self._link.name)
        self._sit(message["generation"], (self._link.name,), self._hands.plane.solo())
        self._link.tell("received", generation=message["generation"], step=self._work.step)
        self._work.lead()
        self._ask_for_batches()
        return self._train

    def _take_from_members(self, message: Mapping[str, Any]) -> Stage:
        """A newcomer: the members stream the state while they compute tick k; this engine takes part in k's
        reduction with nothing of its own, and counts from k + 1."""
        pending = self._link.pending(message["generation"])
        assert pending.group is not None
        donors = [pending.members.index(name) for name in pending.stayers]
        crash_point(CrashPoint.ENGINE_JOIN, who=self._link.name)
        self._work.accept(pending.group.receive(self._adapter, donors))
        self._sit(pending.number, pending.members, pending.group)
        self._link.tell("received", generation=pending.number, step=self._work.step)
        crash_point(CrashPoint.ENGINE_JOINED, who=self._link.name)
        self._first_runs = self._runs_of(pending.members, pending.stayers)
        self._hands.comparing.joined()
        self._ask_for_batches()
        return self._train

    # ── training ──────────────────────────────────────────────────────────────────────────────────────────────
    def _train(self) -> Stage | ExitKind:
        work = self._work
        while not work.done:
            seat = self._seated()
            if self._announced > seat.generation and not self._switch(self._announced):
                return lambda: self._await_word(ExitKind.LEFT)
            self._announced = work.do(self._seated(), self._runs())
            self._first_runs = None
        return self._end

    def _switch(self, number: int) -> bool:
        """Work by generation ``number`` from this tick on. False: this engine is not part of it."""
        pending, work, name = self._link.pending(number), self._work, self._link.name
        members = self._seated().members
        self._reach(CrashPoint.ENGINE_SWITCH)
        if not pending.members and name == members[0]:
            work.write_checkpoint()
        if name not in pending.members:
            work.resizes.finish(work.boundaries, leads=self._seated().leads)
            self._hands.telemetry.flush()  # before the driver can hear that all have left
            self._link.stands("aside", generation=self._seated().generation, members=list(members), next=number)
            self._link.tell("switching", generation=number, tick=work.tick)
            self._reach(CrashPoint.ENGINE_LEAVE)
            return False
        self._link.tell("switching", generation=number, tick=work.tick)
        self._reach(CrashPoint.ENGINE_SWITCHED)
        assert pending.group is not None
        left = [int(member) for member in members if member not in pending.members]
        self._measure(number, len(pending.members), joined=[int(n) for n in pending.newcomers], left=left)
        led = self._seated().leads
        self._sit(number, pending.members, pending.group)
        if self._seated().leads and not led:
            work.lead()
        if pending.newcomers:
            self._hands.comparing.joined()
            work.finish_sending = self._seated().group.start_sending(
                self._adapter.export_state(),
                work.extra(),
                donors=[pending.members.index(member) for member in pending.stayers],
                to=[pending.members.index(member) for member in pending.newcomers],
            )
        self._first_runs = self._runs_of(pending.members, pending.stayers)
        self._ask_for_batches()
        return True

    def _measure(self, generation: int, workers: int, **lists: Any) -> None:
        body = {"generation": generation, "step": self._work.step, "workers": workers, "lost": [], "recomputed": 0}
        self._work.resizes.begin({**body, **lists}, self._work.boundaries, leads=self._seated().leads)

    def _seated(self) -> Seat:
        assert self._seat is not None
        return self._seat

    def _sit(self, number: int, members: tuple[str, ...], group: Group) -> None:
        """Belong to this generation from now on."""
        old = self._seat.group if self._seat is not None else None
        self._link.enter(number, old)
        self._link.stands("training", generation=number, members=list(members), step=self._work.step)
        self._seat = Seat(number, members, group, self._link.name)
        self._announced, self._first_runs, self._torn = 0, None, False

    def _runs(self) -> Runs:
        """Who works on what at the coming tick."""
        return self._first_runs or self._work.shared(self._seated().group.size)

    def _runs_of(self, members: tuple[str, ...], workers: tuple[str, ...]) -> Runs:
        """The runs of all ranks at a tick that only some of them share."""
        runs = iter(self._work.shared(len(workers)))
        return tuple(next(runs) if member in workers else range(0) for member in members)

    def _ask_for_batches(self, kept: tuple[int, ...] = ()) -> None:
        if not self._work.done:
            self._work.ask_for_batches(self._seated(), self._runs(), kept)

    # ── after a crash ─────────────────────────────────────────────────────────────────────────────────────────
    def _recover(self) -> Stage | ExitKind:
        """The data plane broke off: tell the coordinator, unless it has told us, and wait for its word."""
        position.board.write(Doing.REFORMING, self._work.tick)
        self._link.stands("reforming", **self._membership())
        if not self._link.called:
            where = {"generation": self._seated().generation, "round": self._link.woken}
            built = self._built == self._link.woken
            self._link.tell("trouble", **where, unreachable=self._unreachable, built=built)
        self._unreachable = []
        return lambda: self._await_word(ExitKind.LEFT)

    def _await_word(self, ending: ExitKind) -> Stage | ExitKind:
        """Out of the group, or at the end: whatever the coordinator decides is done. ``ending``: of a mere ``exit``."""
        while True:
            message = self._link.wait()
            assert message is not None
            match message["kind"]:
                case "wake":
                    self._say_where(message["round"])
                case "reform" if message["round"] == self._link.woken:
                    return lambda: self._regroup(message)
                case "rejoin":
                    self._seated().group.close()
                    self._seat = None
                    return self._join
                case "handover":
                    self._hand_over(message)
                case "exit":
                    return ending

    def _say_where(self, round_: int) -> None:
        work = self._work
        self._link.answer(round_)
        self._link.stands("reforming", **self._membership())
        self._link.tell(
            "standing-at",
            round=round_,
            tick=work.tick,
            holds=work.vector is not None,
            ended=work.done,
            **self._coming(),
            spans=[list(span) for span in work.sums.spans()] if work.sums is not None else [],
            addresses=list(self._hands.plane.addresses),
            door=self._hands.plane.door,
        )
        position.board.write(Doing.REFORMING, work.tick)

    def _coming(self) -> dict[str, int]:
        """How wide the coming tick is, and where the training stands after it."""
        if not self._schedule.follows_engines:
            return {"workers": self._schedule.logical_workers}
        workers = 0 if self._work.done else width_of(self._runs())
        return {"workers": workers, "after": self._work.tick + workers}

    def _membership(self) -> dict[str, Any]:
        seat = self._seated()
        return {"generation": seat.generation, "members": list(seat.members)}

    def _regroup(self, message: Mapping[str, Any]) -> Stage | ExitKind:
        """Go on with the survivors: first those who are a tick behind catch up, then the broken tick is done again."""
        self._reach(CrashPoint.ENGINE_REFORM)
        plane, work, name = self._hands.plane, self._work, self._link.name
        taken = (*message["mended"], *(message["behind"] if message["by"] == "state" else ()))
        reads = message["restore"] is not None and name == message["source"]  # all of it, from a checkpoint
        if self._torn and name not in taken and not reads:
            print("edt: the engine that gave its state has died with half of it sent", flush=True)
            return ExitKind.LOST
        members = tuple(message["members"])
        rank, size = members.index(name), len(members)
        try:
            group = plane.build(message["store"], f"round/{message['round']}", rank, size) if size > 1 else plane.solo()
        except PeerLost:
            self._unreachable = [other for other, door in message["doors"].items() if not plane.reaches(door)]
            raise
        self._built = message["round"]
        try:
            self._catch_up(message, group, members)
            mended = not message["source"] or self._mend(message, group, members)
        except PeerLost:
            group.close()
            raise
        if not mended:
            group.close()
            return lambda: self._await_word(ExitKind.LEFT)
        led = self._seated().leads
        self._sit(message["generation"], members, group)
        if message["restore"] is not None:
            self._ask_for_batches()
        elif not work.done:
            self._first_runs = tuple(tuple(run) for run in message["runs"])
            self._ask_for_batches(work.keep(self._first_runs, rank))
        self._link.tell("reformed", round=message["round"])
        lost = [int(engine) for engine in message["lost"]]
        self._measure(message["generation"], size, lost=lost, joined=[], left=[], recomputed=message["recomputed"])
        if self._seated().leads and not led:
            work.lead()
        if not message["source"]:  # engines that were just made equal are compared when the others would be
            self._hands.comparing.joined()
        return self._train

    def _mend(self, message: Mapping[str, Any], group: Group, members: tuple[str, ...]) -> bool:
        """Engines were found to hold different states: one gives its own to the others, after it has gone back to a
        checkpoint where that is asked for. False: there is none."""
        work, name, hands = self._work, self._link.name, self._hands
        source, others = message["source"], message["mended"]
        if name != source and name not in others:
            return True
        if message["restore"] is not None:
            hands.snapshots.finish()
        hands.snapshots.copied()
        hands.comparing.wait()
        if name != source:
            self._torn = True
            work.accept(group.receive(self._adapter, [members.index(source)]))
            if message["restore"] is not None:
                hands.recorder.go_back(work.step, message["generation"])
            return True
        if message["restore"] is not None:
            assert hands.restore is not None
            try:
                work.accept(hands.restore(message["restore"]))
                hands.recorder.go_back(work.step, message["generation"])
            except CheckpointError as error:
                self._link.tell("unrestorable", why=str(error))
                return False
        if others:
            to = [members.index(other) for other in others]
            group.start_sending(self._adapter.export_state(), work.extra(), donors=[members.index(name)], to=to)()
        return True

    def _catch_up(self, message: Mapping[str, Any], group: Group, members: tuple[str, ...]) -> None:
        """Whoever has not applied the last tick gets its reduced vector, or the whole state."""
        work, name = self._work, self._link.name
        behind, donors = message["behind"], [members.index(donor) for donor in message["donors"]]
        if not behind:
            return
        to = [members.index(engine) for engine in behind]
        if message["by"] == "vector":
            if name in behind:
                kind = self._schedule.at(work.tick).kind
                work.commit_up_to(message["tick"], group.take(self._adapter.size(kind), donors[0]), self._seated())
            elif name == message["donors"][0]:
                group.give(work.vector, to)
        elif name in behind:
            self._hands.snapshots.copied()
            self._hands.comparing.wait()
            self._torn = True
            work.accept(group.receive(self._adapter, donors))
        elif name in message["donors"]:
            group.start_sending(self._adapter.export_state(), work.extra(), donors=donors, to=to)()

    # ── going ─────────────────────────────────────────────────────────────────────────────────────────────────
    def _end(self) -> Stage | ExitKind:
        """All ticks are committed: the first engine hands the weights to the driver."""
        work, seat = self._work, self._seated()
        work.resizes.finish(work.boundaries, leads=seat.leads)
        self._hands.telemetry.flush()
        if seat.leads:
            position.board.write(Doing.EXPORTING, work.tick)
            self._hands.snapshots.finish()
        position.board.write(Doing.WAITING, work.tick)
        self._outcome = self._hands.comparing.at_end(names=seat.leads) if seat.group.size > 1 else {}
        if seat.leads:
            self._outcome |= {"digest": self._adapter.digest(), "step": work.step}
        self._stand_at_the_end()
        self._link.tell("finished", generation=seat.generation, body=self._outcome)
        return lambda: self._await_word(ExitKind.FINISHED)

    def _stand_at_the_end(self) -> None:
        self._link.stands("ended", body=self._outcome, **self._membership())

    def _hand_over(self, message: Mapping[str, Any]) -> None:
        """To the driver. If that dies meanwhile, the coordinator will ask again."""
        self._reach(CrashPoint.ENGINE_HAND_OVER)
        self._link.stands("giving", **self._membership())
        try:
            with contextlib.closing(self._meet(message)) as group:
                group.start_sending(self._adapter.export_state(), self._work.extra(), donors=[0], to=[1])()
        except PeerLost as error:
            print(f"edt: the driver did not take the weights: {error}", flush=True)
        self._stand_at_the_end()

    def _meet(self, message: Mapping[str, Any]) -> Group:
        """A group with the driver, for one exchange of weights."""
        return self._hands.plane.build(message["store"], message["key"], message["rank"], message["size"])

    def _reach(self, point: CrashPoint) -> None:
        crash_point(point, at=self._work.tick, who=self._link.name)
