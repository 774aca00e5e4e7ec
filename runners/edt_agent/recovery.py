"""Takes over what earlier agents of this node have left without a record: it adopts the supervisors of assigned
attempts, and ends what belongs to no attempt.

Supervisors with a record are adopted before, by the agent itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from edt_agent.attempt import Attempt
from edt_agent.decide import Assigned
from edt_agent.errors import LauncherAway, StartFailed, backoff_seconds
from edt_agent.launchers import Launcher
from edt_agent.supervisor_records import Key, SupervisorRecord, SupervisorRecords
from edt_contract.attempt import AttemptSpec

log = logging.getLogger(__name__)


class Recovery:
    """The agent calls ``run`` once, after the API's first answer, and starts nothing before ``done``.

    Args:
        launcher: finds and ends supervisors.
        records: get the records of the supervisors that are found.
        attempts: the attempts that the agent knows.
        adopt: watches a supervisor from now on.
    """

    def __init__(
        self,
        launcher: Launcher,
        records: SupervisorRecords,
        attempts: Mapping[Key, Attempt],
        adopt: Callable[[SupervisorRecord], object],
    ) -> None:
        self._launcher, self._records, self._attempts, self._adopt = launcher, records, attempts, adopt
        self.done = False
        """Whether what was left is adopted or ended, as far as the launcher could do it at once."""

    async def run(self, assigned: Assigned) -> None:
        """Find supervisors without a record, end what belongs to no attempt, and adopt those that were found.

        The order matters. If a supervisor without a record is gone, what it has left belongs to no attempt. It must be
        gone before the attempt's end is reported or the attempt is started again.

        Args:
            assigned: the assignments of the API's first answer.
        """
        found = [
            known
            for key, assignment in assigned.assignments.items()
            if key not in self._attempts and (known := await self._find(assignment.spec)) is not None
        ]
        failed = 0
        while True:
            try:
                strays = await self._launcher.sweep(lambda: [*self._known(), *found])
                break
            except (StartFailed, OSError) as error:
                failed += 1
                log.warning("what earlier agents have left is not removed yet: %s", error)
            self._adopt_all(found)
            await asyncio.sleep(backoff_seconds(failed))
        self._adopt_all(found)
        if strays:
            log.warning(
                "%d processes or containers of an earlier agent, which belong to no attempt, were ended", strays
            )

    def _known(self) -> list[SupervisorRecord]:
        return [attempt.record for attempt in self._attempts.values()]

    async def _find(self, spec: AttemptSpec) -> SupervisorRecord | None:
        """Search for a supervisor without a record, again and again while the launcher does not answer."""
        failed = 0
        while True:
            try:
                return await self._launcher.find(spec)
            except LauncherAway as error:
                failed += 1
                log.warning("what runs here without a record is not known yet: %s", error)
                await asyncio.sleep(backoff_seconds(failed))
            except OSError as error:
                log.warning("%s: its spool cannot be read: %s", Key.of(spec), error)
                return None  # the agent looks again before it starts the attempt

    def _adopt_all(self, found: Sequence[SupervisorRecord]) -> None:
        for record in found:
            if record.key not in self._attempts:
                try:
                    self._records.write(record)
                except OSError as error:
                    log.warning("%s is not adopted yet: %s", record.key, error)
                    continue
                self._adopt(record)
        self.done = True
