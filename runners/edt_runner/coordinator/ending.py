"""How a training ends: all steps are committed, and the first engine sends the driver the trained state; or the user's
script is to blame for a failure. No input or output."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from edt_runner.coordinator.members import DRIVER, OWN_SUPERVISOR, Members, Phase
from edt_runner.protocol.data import EngineResult, MicroBatch
from edt_runner.protocol.engine_messages import SendStateToDriver
from edt_runner.protocol.messages import (
    DriverReleased,
    ReceiveStateFromEngine,
    ScriptFailed,
    TrainedStateReceived,
    TrainingCompleted,
)

MOST_DEATHS = 2
"""If a micro-batch ends so many engines, the script is to blame."""


class Ending:
    """Which engines have committed the last step, and whether the trained state is on its way."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self.results: dict[str, EngineResult] = {}
        """Of the engines that have committed the last step, by name. If there is one, no other switch will come."""
        self.sending = False
        """Whether first engine and driver have been told to build their group of two."""

    def clear(self) -> None:
        """The engines regroup, and all of them will say again that they have finished."""
        self.results.clear()
        self.sending = False
        if self._members.phase is Phase.ENDING:
            self._members.phase = Phase.RUNNING

    @property
    def complete(self) -> bool:
        """Whether all members have committed the last step."""
        return bool(self.results) and set(self.results) >= set(self._members.current.members)

    def proceed(self, replicas_equal: Callable[[], bool]) -> None:
        """End the training if all members have committed the last step. To be called when no change and no regroup is
        under way.

        Args:
            replicas_equal: asked when all have finished. False: this is not the end after all.
        """
        members = self._members
        if not self.results:
            return
        if members.phase is Phase.RUNNING:
            members.phase = Phase.ENDING
            for other in sorted(members.expected - set(members.current.members)):
                members.discard(other)
        if members.phase is Phase.ENDING and self.complete and replicas_equal():
            digest, step = self.trained_state
            members.send(OWN_SUPERVISOR, TrainingCompleted(digest, step))
            if members.driver_connected:
                self.send_state()

    @property
    def trained_state(self) -> tuple[str, int]:
        """Digest of the trained state and number of committed training steps, from the first engine's result."""
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
        """The driver has the trained state: engines may exit."""
        members = self._members
        members.phase = Phase.DONE
        members.send(OWN_SUPERVISOR, TrainedStateReceived())
        for name in sorted(members.expected):
            if members[name].connected:
                members.release(name)
            else:
                members.discard(name)
        if not members.expected:
            members.send(DRIVER, DriverReleased())


class ScriptFailures:
    """When the user's script is to blame for an engine's end: what engines have raised and how they ended, and the
    failure of the training once there is one.

    An exception or a crash in one engine may be that engine's own: the others compute its share, and the training goes
    on. It is the script's failure if the same micro-batch ends a second engine, or if it raised and no engine is left.
    An engine that was killed from outside was ended by no micro-batch, however often that happens: its supervisor names
    none.
    """

    def __init__(self, members: Members) -> None:
        self._members = members
        self._failure: ScriptFailed | None = None
        self._raised: dict[str, tuple[str, str]] = {}
        """By engine: message and traceback."""
        self._deaths: defaultdict[MicroBatch, list[str]] = defaultdict(list)
        """How engines ended in each micro-batch."""

    @property
    def failed(self) -> bool:
        """Whether the training has failed."""
        return self._failure is not None

    def raised(self, name: str, message: str, traceback: str) -> None:
        """User code raised in member ``name``, which ends by that."""
        self._raised[name] = (message, traceback)

    def is_the_scripts(self, name: str, micro_batch: MicroBatch | None, how: str) -> bool:
        """Member ``name`` is gone. Returns True if the training has failed by that."""
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
        """End the training by a failure. The driver shows it once it is in train()."""
        if self._failure is None and not self._members.over:
            self._failure = ScriptFailed(message, traceback, step)
            self.send()

    def send(self) -> None:
        """Send the failure, if there is one, to driver and supervisor, once the driver is in train()."""
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
