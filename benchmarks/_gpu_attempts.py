"""Runs the trainings of ``prove_gpu``: attempts without a platform, whose engines join, leave and are killed."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "runners"))

from _gpu_training import FOLDER, GO
from _resize_notes import VARIABLE as NOTES

from edt_contract.attempt import AttemptSpec, DesiredSlot, DesiredState
from edt_contract.reports import ReportKind
from edt_runner.launch.supervisor_client import SupervisorClient

HERE = Path(__file__).parent
RUNNERS = HERE.parent / "runners"
SCRIPT = HERE / "_gpu_training.py"
COLLECTIVES = "EDT_COLLECTIVES"
START_SECONDS, LONGEST_SECONDS = 90.0, 120.0
_POLL_SECONDS = 0.01
_REFUSED = re.compile("reductions stay on the ordinary network.*")


class Failed(Exception):
    """A training did not do what it was to do; the message has the end of its logs."""


@dataclass(frozen=True)
class Place:
    """Where trainings run.

    Attributes:
        devices: of the engines, in turn: numbers of GPUs, or "cpu".
        threads: of an engine.
        cores: of the machine.
        collectives: what EDT_COLLECTIVES is where reductions shall be collective.
        over: what an engine then says that they go over, or the beginning of it.
        environ: what engines have in their environment for that.
    """

    folder: Path
    devices: Sequence[str]
    threads: int
    cores: int
    collectives: str
    over: str
    environ: Mapping[str, str]


class Attempt:
    """One attempt of a training. Use it as a context manager: at its end no process of it is left.

    Args:
        place: where it runs.
        name: a folder's name; the folder may exist from an attempt before this one.
        words: the arguments of ``_gpu_training``.
        engines: the most engines at a time.
        collectives: whether reductions shall be collective.
        fence: the number of the attempt.
        environ: more for its processes.
    """

    def __init__(
        self,
        place: Place,
        name: str,
        words: Sequence[object],
        engines: int,
        *,
        collectives: bool = False,
        fence: int = 1,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self._place = name, place
        self.folder = place.folder / name
        self.folder.mkdir(exist_ok=True)
        chosen = {COLLECTIVES: place.collectives, **place.environ} if collectives else {COLLECTIVES: "gloo"}
        spec = AttemptSpec(
            job="edt-1",
            fence=fence,
            node="here",
            framework="pytorch",
            main=str(SCRIPT),
            arguments=tuple(map(str, words)),
            work_dir=str(self.folder),
            result_dir=str(self.folder),
            log_dir=str(self.folder / "log"),
            checkpoint_dir=str(self.folder / "checkpoint"),
            spool_dir=str(self.folder / "spool"),
            socket=str(self.folder / f"socket-{fence}"),
            environ={FOLDER: str(self.folder), NOTES: str(self.folder), **chosen, **(environ or {})},
            seed=1,
            max_engines=engines,
            threads=place.threads,
            cores=place.cores,
            grace_seconds=30.0,
            token="benchmark",  # noqa: S106 - it opens nothing
        )
        self.engines: list[int] = []
        """Those that it shall have."""
        self._slots: dict[int, DesiredSlot] = {}
        self.supervisor = SupervisorClient(spec)

    def __enter__(self) -> Attempt:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.supervisor.kill()

    # ── commands ──────────────────────────────────────────────────────────────────────────────────────────────
    def hold(self, engines: Iterable[int]) -> float:
        """Have exactly these engines; a new number is a new engine. Returns when that was said."""
        self.engines = list(engines)
        devices = self._place.devices
        for number in self.engines:
            device = devices[(number - 1) % len(devices)]
            self._slots.setdefault(number, DesiredSlot(number, str(number), device))
        slots = tuple(self._slots[number] for number in self.engines)
        moment = time.monotonic()
        self.supervisor.set_desired(DesiredState(self.supervisor.spec.fence, slots))
        return moment

    def kill_engine(self, number: int) -> float:
        """SIGKILL. Returns when."""
        pids = [body["pid"] for body in self.told(ReportKind.ENGINE_STARTED) if body["allocation"] == number]
        moment = time.monotonic()
        os.kill(pids[-1], signal.SIGKILL)
        return moment

    def go(self) -> None:
        """Let the training go on without rests between its steps."""
        (self.folder / GO).touch()

    # ── observations ──────────────────────────────────────────────────────────────────────────────────────────
    def told(self, kind: ReportKind) -> list[dict[str, Any]]:
        """The bodies of all its reports of a kind."""
        self.supervisor.poll()
        return [dict(report.body) for report in self.supervisor.reports if report.kind is kind]

    def wait(self, happened: Callable[[], object], what: str, seconds: float = START_SECONDS) -> None:
        """Wait for what the training shall do while it goes on.

        Raises:
            Failed: it did not do it in this time, or it is over.
        """
        deadline = time.monotonic() + seconds
        while not happened():
            if self.supervisor.process.poll() is not None and not happened():
                raise Failed(f"{self.name}: it is over before {what}\n{self.why()}")
            if time.monotonic() > deadline:
                raise Failed(f"{self.name}: not within {seconds:.0f} s: {what}\n{self.why()}")
            time.sleep(_POLL_SECONDS)

    def wait_until_counted(self, number: int) -> None:
        """Until an engine has a share in a committed step."""
        self.wait(
            lambda: any(body["allocation"] == number for body in self.told(ReportKind.ENGINE_COUNTED)),
            f"engine {number} computes",
        )

    def wait_until_gone(self, number: int) -> None:
        self.wait(
            lambda: any(body["allocation"] == number for body in self.told(ReportKind.ENGINE_GONE)),
            f"engine {number} is gone",
        )

    def digest(self, seconds: float = LONGEST_SECONDS) -> str:
        """Wait for the end. Returns the digest of the trained state.

        Raises:
            Failed: it did not end well.
        """
        self.wait(lambda: self.told(ReportKind.ATTEMPT_ENDED), "its end", seconds)
        end = self.told(ReportKind.ATTEMPT_ENDED)[-1]
        if not end.get("digest"):
            raise Failed(f"{self.name}: it ended with {end}\n{self.why()}")
        return str(end["digest"])

    def changes_over(self) -> int:
        """How often engines have said in their logs that the reductions of a group are collective now."""
        return self._logs().count(f"reductions go over {self._place.over}")

    def wait_for_changes(self, number: int, seconds: float) -> None:
        """Wait until engines have said so that often.

        Raises:
            Failed: they did not in this time, or one said why they cannot.
        """

        def changed() -> bool:
            if self.changes_over() >= number:
                return True
            if (refused := _REFUSED.search(self._logs())) is not None:
                raise Failed(f"{self.name}: {refused.group()}")
            return False

        self.wait(changed, "reductions are collective", seconds)

    def _logs(self) -> str:
        paths = [path for path in (self.folder / "log").glob("*") if path.is_file()]
        return "\n".join(path.read_text(errors="replace") for path in paths)

    def why(self) -> str:
        """The ends of its logs."""
        paths = [*(self.folder / "log").glob("*.err"), self.folder / "spool" / "supervisor.log"]
        ends = [path.read_text(errors="replace")[-1500:].strip() for path in paths if path.exists()]
        return "\n".join(filter(None, ends))
