"""When the script is to blame for an engine's end. Room: runners; pure.

An exception or a crash in one engine may be that engine's own: the others do its share, and the training goes on. It
is the script's failure if the same micro-batch ends a second engine, or if it raised and nobody is left. An engine that
was killed from outside was ended by no micro-batch, however often that happens: its supervisor names none
(``exits.blames_the_script``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from edt_runner.engine import shares
from edt_runner.engine.schedule import Schedule
from edt_runner.generations import Phase
from edt_runner.roster import Roster

MicroBatch = tuple[int, int]
"""(tick, logical worker)"""
MOST_DEATHS = 2
"""So many engines does one micro-batch end before the script is to blame."""


class Failures:
    """What engines raised and died in, and the failure of the training once there is one."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._failure: Mapping[str, Any] | None = None
        self._raised: dict[str, tuple[str, str]] = {}
        self._deaths: defaultdict[MicroBatch, list[str]] = defaultdict(list)
        """How engines ended in each."""

    @property
    def known(self) -> bool:
        """The training has failed."""
        return self._failure is not None

    def raised(self, name: str, message: str, traceback: str) -> None:
        """User code raised in member ``name``, which ends by that."""
        self._raised[name] = (message, traceback)

    def is_the_scripts(self, name: str, micro_batch: MicroBatch | None, how: str) -> bool:
        """A member has died. True: the training has failed by that, and it has been told."""
        deaths: list[str] = []
        if micro_batch is not None:
            deaths = self._deaths[micro_batch]
            deaths.append(how)
        message, traceback = self._raised.get(name, ("", ""))
        if len(deaths) >= MOST_DEATHS and micro_batch is not None:
            where, ended = self._name_of(micro_batch), " and ".join(filter(None, deaths))
            message = f"{message or 'an engine was ended'}; {where} ended {len(deaths)} engines ({ended})"
        elif not message or self._roster.holders:
            return False
        self.fail(name, message, traceback, self._step_of(micro_batch))
        return True

    def fail(self, engine: str, message: str, traceback: str, step: int | None = None) -> None:
        """The script is to blame. The driver shows it once it is in train()."""
        if self._failure is None and not self._roster.over:
            self._failure = {"engine": engine, "message": message, "traceback": traceback, "failed_step": step}
            self.tell()

    def tell(self) -> None:
        """Let driver and supervisor know, once the driver is in train()."""
        roster = self._roster
        if self._failure is not None and roster.definition is not None and roster.phase is not Phase.FAILED:
            roster.phase = Phase.FAILED
            roster.send("driver", "failed", **self._failure)
            roster.send("leader", "failed", **self._failure)

    def _name_of(self, micro_batch: MicroBatch) -> str:
        tick, worker = micro_batch
        schedule, definition = self._schedule(), self._roster.definition
        if schedule is None or definition is None:
            return f"the micro-batch of logical worker {worker} at position {tick}"
        where = schedule.at(tick)
        found: Sequence[int] = shares.samples(schedule, int(definition["seed"]), where, worker).tolist()
        named = ", ".join(map(str, found[:8])) + (", …" if len(found) > 8 else "")
        return f"the micro-batch of samples {named} (epoch {where.epoch + 1}, step {where.step})"

    def _step_of(self, micro_batch: MicroBatch | None) -> int | None:
        schedule = self._schedule()
        return schedule.steps_before(micro_batch[0]) if schedule is not None and micro_batch is not None else None

    def _schedule(self) -> Schedule | None:
        definition = self._roster.definition
        return None if definition is None else Schedule.from_json_object(dict(definition["schedule"]))
