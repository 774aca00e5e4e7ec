"""Who is in the training, and when that changes. Pure; room: runners. Effects: ``coordinator``.

A membership is a numbered generation: the engines in rank order. Planned changes pass through ``changes``, crashes
through ``rounds``; a round does away with the change under way, which is proposed anew afterwards. Here is what events
mean, and what is decided next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from edt_runner import decisions
from edt_runner.changes import BUILD_SECONDS, RETRY_SECONDS, Changes
from edt_runner.ending import Ending
from edt_runner.engine.schedule import Schedule
from edt_runner.failures import Failures, MicroBatch
from edt_runner.generations import Change, Generation, Phase, Send
from edt_runner.recovery import Recovery
from edt_runner.reform import Standing
from edt_runner.replicas import History, Replicas, Verdict
from edt_runner.roster import Roster
from edt_runner.rounds import Rounds, span_of

__all__ = ["BUILD_SECONDS", "RETRY_SECONDS", "SUCCESSOR_SECONDS", "Membership"]

SUCCESSOR_SECONDS = 15.0
"""How long the last engines that shall leave wait for one that is on its way; half of the least grace."""

_AT_ODDS = (
    "user_callback: the hooks in engine {} have ended the training, those in engine {} have not; takes callbacks that "
    "decide alike in every engine: by the values they are given, not by a clock or a process's own data"
)
_FAST = 'reduction="fast" adds gradients in an order that depends on the number of engines'


class Membership:
    """The coordinator's mind. Events come in by methods, effects go out by ``take()``; ``now`` is monotonic seconds.

    Args:
        recovering: there was another coordinator before this one: engines may be training.
    """

    def __init__(self, *, recovering: bool = False, now: float = 0.0) -> None:
        self._roster = Roster()
        self._changes = Changes(self._roster)
        self._rounds = Rounds(self._roster)
        self._recovery = Recovery(self._roster, now)
        self._ending = Ending(self._roster)
        self._failures = Failures(self._roster)
        self._replicas = Replicas(self._roster)
        self._unanswered: Verdict | None = None
        """Engines differ, and the driver has not yet told this coordinator what is to be done then."""
        self._waiting_since: float | None = None
        """Since when the last engines wait for one that shall carry on."""
        if recovering:
            self._roster.phase = Phase.RECOVERING

    @property
    def phase(self) -> Phase:
        return self._roster.phase

    @property
    def current(self) -> Generation:
        return self._roster.current

    @property
    def change(self) -> Change | None:
        return self._changes.change

    @property
    def round(self) -> int:
        """The newest round."""
        return self._roster.round

    @property
    def re_forming(self) -> bool:
        return self._rounds.round is not None

    # ── events from supervisors ───────────────────────────────────────────────────────────────────────────────
    def expect(self, name: str) -> None:
        """A supervisor has forked engine ``name``."""
        self._roster.expected.add(name)

    def leave(self, names: Sequence[str], now: float) -> None:
        """Engines ``names`` shall leave at the next boundary."""
        roster = self._roster
        roster.leaving.update(names)
        if roster.phase is not Phase.RECOVERING:
            for name in set(names) - self._bound():
                roster.ready.pop(name, None)
                roster.dismiss(name)
        self._proceed(now)

    def gone(self, name: str, now: float, micro_batch: MicroBatch | None = None, how: str = "") -> None:
        """The process of engine ``name`` was seen gone. ``micro_batch``: what it was computing; ``how`` it ended."""
        roster = self._roster
        held, unasked = name in roster.holders, name not in roster.released
        roster.forget(name)
        self._recovery.gone(name)
        if unasked and not roster.over:
            self._died(name, held, micro_batch, how, now)
        roster.leaving.discard(name)
        if roster.phase is Phase.DONE and not roster.expected:
            roster.send("driver", "released")
        self._proceed(now)

    def _died(self, name: str, held: bool, micro_batch: MicroBatch | None, how: str, now: float) -> None:
        roster, change = self._roster, self.change
        if held:
            if not self._failures.is_the_scripts(name, micro_batch, how):
                self._rounds.lost(name)
                if self._rounds.goes_on_without(name):
                    self._look_for_odds()
                else:
                    self._re_form()
        elif change and name in change.newcomers:
            if not self._changes.take_back(name, now):
                self._rounds.lost(name)
                self._re_form()
        elif roster.phase is Phase.STARTING and name in roster.current.members:
            self._start_over()

    def stuck(self, name: str) -> None:
        """Member ``name`` waits in a reduction for much longer than one takes, and every process lives."""
        if name in self._roster.holders and self._rounds.round is None and not self._roster.over:
            self._re_form()

    def idle(self) -> None:
        """A supervisor has nothing left to do. Without any engine the attempt is over for now."""
        roster = self._roster
        if not roster.expected and not roster.current.members and roster.phase in (Phase.WAITING, Phase.STARTING):
            self._suspend(None)

    def raised(self, name: str, message: str, traceback: str) -> None:
        """User code raised in engine ``name``, which ends by that: ``gone`` follows.

        Of a newcomer to a running training it is that engine's own trouble (a GPU in use, a stale copy of the
        data): it goes, and the training goes on without it. Of a member it may be: the others do its share, and only
        if the same micro-batch ends another one, or nobody is left, it is the script's failure.
        """
        roster = self._roster
        if name in roster.holders:
            self._failures.raised(name, message, traceback)
        elif roster.phase in (Phase.RUNNING, Phase.RECOVERING):
            roster.ready.pop(name, None)
            roster.send("driver", "note", text=f"engine {name} did not join: {message}")
            if name not in self._bound():
                roster.dismiss(name)
        elif not roster.over:
            self._failures.fail(name, message, traceback)

    # ── events from the driver ────────────────────────────────────────────────────────────────────────────────
    def begin(
        self,
        definition: Mapping[str, Any],
        now: float,
        history: Mapping[str, Any] | None = None,
        resumed_at: int | None = None,
    ) -> None:
        """The driver has reached train(). ``definition``: schedule, seed, reduction, facts, tick. Not the first time
        where the driver, or this coordinator, was started again: then it must be the same training. ``history``: what
        the driver knows of the replicas, see ``replicas.History``. ``resumed_at``: the position of the checkpoint
        whose state it has; None: that of the script."""
        roster = self._roster
        before, roster.definition = roster.definition, definition
        roster.driver_there = True
        if roster.phase is Phase.STARTING:  # by the driver before this one: had it given all, we would have heard so
            roster.send_back(roster.current.members[0], roster.next_round())
            self._start_over()
        schedule = definition["schedule"]
        roster.report(
            "engines-known",
            engines=decisions.most_engines(definition),
            steps_total=definition["steps_total"],
            epochs=schedule["epochs"],
            **({"follows_engines": True} if schedule.get("follows_engines") else {}),
        )
        if before is not None and (differs := decisions.other_training(before, definition)):
            self._failures.fail("driver", f"the script came to another training when started again: {differs}", "")
        self._failures.tell()
        self._replicas.take_up(History.from_json_object(history or {}))
        self._replicas.end_again()
        if roster.phase in (Phase.WAITING, Phase.STARTING):
            self._replicas.resumed_at = resumed_at
        if not definition.get("exact", True):
            self.guarantee_ended("reduction", _FAST)
        self._require_exact()
        self._answer()
        for name in roster.connected:
            roster.send(name, "definition", **definition)
        for name in list(roster.ready):
            self._compare(name)
        if roster.phase is Phase.ENDING and self._ending.complete:
            if self._ending.handed:
                self._re_form()  # they did not meet, and the first engine may wait for a driver that has gone
            else:
                self._ending.hand_over()
        self._proceed(now)

    def driver_lost(self) -> None:
        """The line to the driver has ended. Its supervisor starts another."""
        roster = self._roster
        roster.driver_there = False
        if roster.phase is Phase.ENDING and self._ending.complete:
            self._re_form()  # the first may be waiting for it with the weights

    def driver_received(self) -> None:
        """The driver has the trained weights: engines may go."""
        self._ending.delivered()

    # ── events from engines ───────────────────────────────────────────────────────────────────────────────────
    def connect(self, name: str, standing: Mapping[str, Any], now: float) -> None:
        """Engine ``name`` has taken up the line, with what it knows of itself."""
        roster = self._roster
        again = name in roster.holders or name in self._bound()
        if roster.phase is Phase.WAITING and standing["generation"] > 0 and not roster.current.number:
            roster.phase = Phase.RECOVERING  # the coordinator before this one died before it could tell that they train
        roster.connected.add(name)
        roster.expected.add(name)
        roster.round = max(roster.round, int(standing["round"]))  # it would take the next one for an older one
        if standing.get("computing"):
            roster.computing[name] = standing["computing"]
        if standing.get("history"):
            self._replicas.take_up(History.from_json_object(standing["history"]))
        if name in roster.holders:
            self._replicas.tell_engine(name)
        if roster.definition is not None:
            roster.send(name, "definition", **roster.definition)
        if roster.phase is Phase.RECOVERING:
            self._recovery.hear(name, standing, now)
        elif roster.over or (name not in roster.holders and self._may_go(name)):
            roster.release(name)
        elif again:
            self._reconnected(name, standing)
        elif standing["generation"] > 0:  # nobody counts on it any more
            roster.dismiss(name)
        elif standing["round"] < roster.sent_back.get(name, 0):  # it was off the line when it was told
            roster.send_back(name, roster.next_round())
        self._proceed(now)

    def _may_go(self, name: str) -> bool:
        leaves = name in self._roster.leaving - self._bound()
        return name in self._roster.released or leaves or self.phase is Phase.ENDING

    def _reconnected(self, name: str, standing: Mapping[str, Any]) -> None:
        """What was said on its line meanwhile is lost, in either direction. A round makes good for all of it."""
        calm = self._rounds.round is None and self.change is None and self.phase is Phase.RUNNING
        if self.phase is Phase.STARTING:
            self._roster.send_back(name, self._roster.next_round())
            self._start_over()
        elif not calm or standing["doing"] != "training" or standing["generation"] != self.current.number:
            self._re_form()

    def disconnect(self, name: str) -> None:
        """The line to engine ``name`` has ended; it comes again, or its supervisor says what became of it."""
        self._roster.connected.discard(name)

    def ready(self, name: str, facts: Mapping[str, Any], addresses: Sequence[str], now: float, round_: int = 0) -> None:
        """Engine ``name`` asks to be let in. ``facts``: lengths of its data sets and a probe of a sample. ``round_``:
        the newest it knows of; where it has been told to ask anew since, it will."""
        roster = self._roster
        roster.addresses[name] = list(addresses)
        if name in roster.released or round_ < roster.sent_back.get(name, 0):
            return
        if roster.phase is Phase.STARTING and name in roster.current.members:
            self._start_over()  # it did not get the weights from the driver
        elif self.change and name in self.change.newcomers:
            if self.change.tick is None:
                return  # it has asked before
            self._re_form()  # the others count on it, and it has not got the weights
        if roster.phase is Phase.RECOVERING:  # it obeys the coordinator before this one, and has given up what it had
            self._recovery.learn(name, doing="joining", generation=0, members=[])
        roster.holders.discard(name)
        roster.ready[name] = facts
        if roster.definition is not None:
            self._compare(name)
        self._proceed(now)

    def built(self, name: str, number: int, now: float) -> None:
        self._changes.built(name, number)
        self._proceed(now)

    def build_failed(self, name: str, number: int, now: float) -> None:
        self._changes.build_failed(number, now)

    def switching(self, name: str, number: int, tick: int, now: float) -> None:
        """Member ``name`` has left the old group: it works by generation ``number`` from ``tick`` on."""
        self._changes.switching(name, number, tick)
        self._settle(now)

    def received(self, name: str, number: int, step: int, now: float) -> None:
        """Engine ``name`` has the weights, as a member of generation ``number``."""
        roster = self._roster
        if roster.phase is Phase.RECOVERING:  # they were on their way when the coordinator before this one died
            self._recovery.learn(name, doing="reforming", generation=number, members=[name], step=step)
            roster.ready.pop(name, None)
            self._replicas.tell_engine(name)
            self._proceed(now)
            return
        if roster.phase is Phase.STARTING and number == roster.current.number:
            roster.phase = Phase.RUNNING
            roster.holders.add(name)
            roster.report_joined(name, number, step)
            roster.send(name, "settled", generation=number)
            self._replicas.begun()
            self._look_at_the_first(name, step)
        elif self._changes.received(name, number):
            roster.report_joined(name, number, step)
            self._look_at(name, step)
        else:
            return
        self._replicas.tell_engine(name)
        self._settle(now)

    def retracted(self, name: str, number: int, promised: bool, now: float) -> None:
        """See ``Changes.retracted``."""
        missing = self._changes.retracted(name, number, promised, now)
        if missing:
            for newcomer in missing:
                self._rounds.lost(newcomer)
            self._re_form()
        self._proceed(now)

    def pull_failed(self, name: str, now: float) -> None:
        """Newcomer ``name`` has waited long enough for the weights."""
        self._changes.pull_failed(name, now)

    def finished(self, name: str, number: int, body: Mapping[str, Any], now: float) -> None:
        """Engine ``name`` has committed the last tick, as a member of generation ``number``."""
        round_, change = self._rounds.round, self.change
        valid = {round_.generation} if round_ is not None else {self.current.number, change.new.number if change else 0}
        if self.phase is Phase.RECOVERING:
            self._recovery.learn(name, doing="ended", body=body)
        elif name in self._roster.holders and number in valid:
            self._ending.finished({name: body})  # first, or what was planned would be planned anew
            if round_ is None:
                self._changes.overtaken(number)
                self._settle(now)
            self._look_for_the_end()

    def trouble(
        self, name: str, generation: int, round_: int, unreachable: Sequence[str], now: float, *, built: bool = False
    ) -> None:
        """The data plane broke off under ``name``, in this generation, or while it built the group of this round, or
        when it had ``built`` that."""
        under_way, roster = self._rounds.round, self._roster
        if roster.phase is Phase.RECOVERING:
            self._recovery.learn(name, doing="reforming")
        elif roster.over or name in roster.released:
            return
        elif name not in roster.holders:
            if round_ >= roster.sent_back.get(name, 0):  # taken for dead, while only its supervisor was not heard
                roster.dismiss(name)
        elif under_way is not None and under_way.plan is not None and round_ == under_way.number:
            self._rounds.troubled(name, unreachable, now, built=built)
            self._try_again(now)
        elif under_way is None and generation in (self.current.number, self.change.new.number if self.change else 0):
            self._re_form()
        self._proceed(now)

    def stands(self, name: str, round_: int, standing: Mapping[str, Any], now: float) -> None:
        """A participant's answer to ``wake``."""
        roster = self._roster
        roster.addresses[name] = list(standing["addresses"])
        roster.doors[name] = str(standing["door"])
        spans = tuple(span_of(pair) for pair in standing["spans"])
        workers, after = int(standing["workers"]), standing.get("after")
        where = Standing(int(standing["tick"]), bool(standing["holds"]), spans, bool(standing["ended"]))
        if after is not None:  # the batch follows the engines: each tick has a width of its own
            where = replace(where, workers=workers, after=int(after))
        self._rounds.stands(name, round_, where, workers)
        self._look_for_odds()

    def _look_for_odds(self) -> None:
        """Of a round in which all have spoken: whether they would wait for each other for ever."""
        if odd := self._rounds.at_odds:
            self._failures.fail(odd[0], _AT_ODDS.format(*odd), "")

    def reformed(self, name: str, round_: int, now: float) -> None:
        """A participant works in the new group."""
        if self._rounds.reformed(name, round_):
            if self._rounds.unmended:  # it was found when this round was planned already
                self._re_form()
            self._look_for_the_end()
            self._proceed(now)
        else:
            self._try_again(now)

    def _try_again(self, now: float) -> None:
        """Call the next round if this one has failed, without whom the others cannot reach."""
        if not self._rounds.failed(now):
            return
        worst = self._rounds.least_reachable()
        if worst is not None:
            self._roster.dismiss(worst)
            self._rounds.lost(worst)
        self._re_form()

    # ── time and effects ──────────────────────────────────────────────────────────────────────────────────────
    def tick(self, now: float) -> None:
        """Call now and then: deadlines."""
        if self._changes.late(now):
            self._changes.cancel(now)
        self._try_again(now)
        self._proceed(now)

    def take(self) -> list[Send]:
        """Effects since the last call, in order."""
        return self._roster.take()

    # ── decisions ─────────────────────────────────────────────────────────────────────────────────────────────
    def _proceed(self, now: float) -> None:
        roster = self._roster
        if roster.phase is Phase.RECOVERING:
            self._recover(now)
        if self.change is not None or self._rounds.round is not None or self._failures.known or self._ending.begun:
            return
        if roster.phase is Phase.WAITING and roster.driver_there:
            self._start()
        elif roster.phase is Phase.RUNNING and now >= self._changes.not_before and roster.definition is not None:
            target = decisions.target(roster)
            if target is not None:
                self._waiting_since = None
            elif self._waiting_since is None:
                self._waiting_since = now
            elif now - self._waiting_since > SUCCESSOR_SECONDS:
                target = ()
            if target is not None and target != roster.current.members:
                self._changes.propose(target, now)

    def _recover(self, now: float) -> None:
        """Take over from the coordinator before this one, when that is possible."""
        found = self._recovery.conclude(now)
        if found is None:
            return
        for name in found.missing:
            self._rounds.lost(name)
        self._replicas.tell()  # each of them knew what it was told last, and not all the same
        if found.clean:
            self._ending.finished(found.finished)
            self._answer()
            self._look_for_the_end()
        else:
            self._re_form()
            self._answer()

    def _start(self) -> None:
        roster = self._roster
        first = next(iter(roster.ready), None)
        if first is None:
            return
        roster.phase = Phase.STARTING
        roster.ready.pop(first)
        roster.current = Generation(roster.next_generation(), (first,))
        key = f"start/{roster.current.number}"
        roster.send("driver", "handover", key=key, rank=0, size=2)
        roster.send(first, "handover", key=key, rank=1, size=2, generation=roster.current.number)

    def _start_over(self) -> None:
        """The first engine, or the driver, died while the weights were handed over."""
        self._roster.phase = Phase.WAITING
        self._roster.current = Generation(self._roster.current.number, ())

    def _settle(self, now: float) -> None:
        change = self._changes.settle()
        if change is not None and change.newcomers and len(change.old.members) == 1 and change.tick is not None:
            # Until this join one engine trained alone, so at that position all replicas were equal.
            self._replicas.know(equal_at=max(self._replicas.history.equal_at, change.tick))
        if change is not None and not change.new.members:
            self._suspend(change.tick)
        self._proceed(now)

    def _re_form(self) -> None:
        """Call a round of those who have the state. Whatever was planned is planned anew afterwards."""
        roster = self._roster
        if roster.over:
            return
        change = self._changes.drop()
        self._ending.clear()
        self._rounds.begin(change)

    def _look_for_the_end(self) -> None:
        if self._rounds.round is None and self.change is None:
            self._ending.look(self._ended_alike)

    def _suspend(self, tick: int | None) -> None:
        self._roster.phase = Phase.SUSPENDED
        self._roster.send("driver", "suspended", tick=tick)
        self._roster.send("supervisors", "suspended", tick=tick)

    def _compare(self, name: str) -> None:
        """Whether engine ``name`` has the data that the driver has."""
        definition = self._roster.definition
        assert definition is not None
        why = decisions.other_data(definition, self._roster.ready.get(name))
        if why:
            self.raised(name, why, "")
        elif definition.get("require_exact") and (unlike := self._unlike(name)):
            self._refuse(name, unlike)

    # ── whether all engines are alike, and hold the same ──────────────────────────────────────────────────────
    def replica(self, name: str, message: Mapping[str, Any], now: float) -> None:
        """Engine ``name`` has taken checksums of what it holds. Until all have gone back to a checkpoint, these are of
        the states that they give up."""
        if self._rounds.restore is not None:
            return
        verdict = self._replicas.told(name, message)
        if verdict is not None and not self._roster.over and not self._failures.known:
            self._judge(verdict)
            self._proceed(now)

    def unrestorable(self, why: str) -> None:
        """The engine that should have taken a checkpoint for all of them found none."""
        self._failures.fail(self.current.members[0], why, "")

    def guarantee_ended(self, what: str, why: str, **fields: Any) -> None:
        """The result is no longer exact because of ``what``; reported once. ``fields``: as GUARANTEE_ENDED has them."""
        if not self._replicas.end(what, f"{what}: {why}", fields):
            return
        self._roster.report("guarantee-ended", what=what, why=why, **fields)
        self._roster.send("driver", "note", text=f"The result is no longer exact because of {what}: {why}.")
        self._require_exact()

    def _require_exact(self) -> None:
        definition, ended = self._roster.definition, self._replicas.history.ended
        if ended and definition is not None and definition.get("require_exact"):
            self._failures.fail("", f"require_exact=True, and the result is no longer exact because of {ended}", "")

    def _judge(self, verdict: Verdict) -> None:
        """Engines were compared. Where they differ the user has said what then."""
        self._replicas.count(verdict)
        if verdict.equal:
            return
        other = verdict.differing[0]
        fields = {"engine": int(other), "step": verdict.step, "difference": verdict.difference}
        self.guarantee_ended(verdict.what, verdict.why, **fields)
        self._unanswered = verdict
        self._answer()

    def _answer(self) -> None:
        """To engines that differ: as the user has said. Until this coordinator knows who trains and what the user has
        said, the answer waits."""
        verdict, definition = self._unanswered, self._roster.definition
        if verdict is None or definition is None or self.phase is Phase.RECOVERING:
            return
        self._unanswered = None
        if self._failures.known or self.phase not in (Phase.RUNNING, Phase.ENDING):
            return
        then, other = definition.get("on_mismatch", "mark"), verdict.differing[0]
        if then == "stop" or (then == "restore" and self._replicas.history.restored):
            again = " for the second time" if then == "restore" else ""
            self._failures.fail(other, f"on_mismatch={then!r}: {verdict.why}{again}", "")
        elif then == "restore":
            self._replicas.know(restored=True)
            self._rounds.restore = self._replicas.history.equal_at
            self._re_form()
        elif self.phase is Phase.RUNNING:
            self._rounds.distrusted.update(verdict.differing)
            if self._rounds.round is None:
                self._re_form()

    def _ended_alike(self) -> bool:
        """All have committed the last step. False: they go back to a checkpoint, or the training has failed."""
        roster = self._roster
        told, definition, tick = self._ending.told, roster.definition, self._replicas.history.equal_at
        if definition is not None:  # the driver has told a coordinator that is new
            tick = Schedule.from_json_object(dict(definition["schedule"])).ticks
        verdict = self._replicas.at_end(
            roster.current.members, told, tick, int(told[roster.current.members[0]]["step"])
        )
        if verdict is not None:
            self._judge(verdict)
        return self.phase is Phase.ENDING

    def _look_at_the_first(self, name: str, step: int) -> None:
        """The engine that an attempt begins with has the state: it says what the others should compute with. A
        training that goes on from a checkpoint was done with something, too."""
        if unlike := self._unlike(name):
            why = f"the training goes on from a checkpoint, and {unlike}"
            self.guarantee_ended("unlike engines", why, engine=int(name), step=step, difference=unlike)
        if name in self._roster.computing:
            self._replicas.know(computing=self._roster.computing[name])

    def _look_at(self, name: str, step: int) -> None:
        """Engine ``name`` has joined others."""
        if not self._replicas.history.several:
            self._replicas.know(several=True)
        if unlike := self._unlike(name):
            why = f"not all engines compute alike: {unlike}"
            self.guarantee_ended("unlike engines", why, engine=int(name), step=step, difference=unlike)

    def _unlike(self, name: str) -> str:
        """What engine ``name`` computes with that others do not, or did not; empty: nothing."""
        roster, before = self._roster, self._replicas.history.computing
        first = next((other for other in roster.current.members if other in roster.computing), None)
        if first is not None and first != name:
            before, who = roster.computing[first], f"engine {first}"
        else:
            who = "the engines before"
        own = roster.computing.get(name)
        what = decisions.unlike(before, own) if before and own else ""
        return f"{what}: {before[what]} in {who}, {own[what]} in engine {name}" if what and before and own else ""

    def _refuse(self, name: str, unlike: str) -> None:
        """``require_exact``: a joining engine that is unlike the others goes, and the training goes on without it. If
        there is none to be unlike to, it is the machine that the training cannot go on with."""
        roster = self._roster
        why = f"require_exact=True, and {unlike}"
        if roster.phase in (Phase.RUNNING, Phase.RECOVERING):
            roster.ready.pop(name, None)
            roster.send("driver", "note", text=f"engine {name} was sent away: {why}")
            roster.released.add(name)
            roster.send(name, "exit", unlike=why)
        elif not roster.over:
            self._failures.fail(name, f"{why}; the training can go on where the engines are like those before", "")

    # ── helpers ───────────────────────────────────────────────────────────────────────────────────────────────
    def _bound(self) -> set[str]:
        """Engines that others count on: in this generation, in the change under way, in the round under way."""
        change, round_ = self.change, self._rounds.round
        planned = change.everybody if change else ()
        return {*self.current.members, *planned, *(round_.participants if round_ else ())}
