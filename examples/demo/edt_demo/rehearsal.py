"""One training on the bench, without the platform, while a hand on the supervisor's socket makes its engines come
and go. Room: examples; starts supervisors.

Each change waits for what is reported, never for time alone: the next one comes when all wanted engines count,
all others are gone, and some steps have been trained that way.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edt_demo import elog
from edt_demo.budget import Budget
from edt_demo.exits import DemoFailed, ExitCode
from edt_demo.screen import JobNow, Screen, SlotNow, Snapshot
from edt_demo.settings import DIGITS, LOGICAL_WORKERS, SEED, SLOTS
from edt_demo.story import Bar, Resize
from edt_runner.bench import Bench
from edt_runner.contract import ExitKind, Letter, Report, ReportKind, SlotWish, Wish
from edt_runner.environment import usable_cores
from edt_runner.errors import RunnerError

_STEPS_AT_EACH_SIZE = 150
_WAIT_SECONDS = 120.0


@dataclass(frozen=True)
class Training:
    """What a training left behind."""

    name: str
    digest: str
    weights: Path
    samples: Path
    bars: tuple[Bar, ...]
    resizes: tuple[Resize, ...]
    steps: tuple[elog.Step, ...]
    sizes: tuple[int, ...]
    """Numbers of engines that were wished for and reached, in order."""


class Rehearsal:
    """Runs one training through ``sizes`` and to its end."""

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        devices: Sequence[str],
        epochs: int,
        environ: dict[str, str],
        budget: Budget,
        screen: Screen,
    ) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        self._name, self._folder, self._devices = name, folder, devices
        self._budget, self._screen = budget, screen
        self._run_dir = tempfile.TemporaryDirectory(prefix="edt-demo-")
        self._letter = _letter(name, folder, Path(self._run_dir.name), epochs, environ)
        self._allocations: dict[int, SlotWish] = {}
        self._held: list[SlotWish] = []
        self._doing = "the first engine starts"
        self._counted: dict[int, Report] = {}
        self._gone: dict[int, Report] = {}
        self._started: dict[int, Report] = {}
        self._progress: Report | None = None
        self._ended: Report | None = None

    def run(self, sizes: Sequence[int]) -> Training:
        """Train; raises DemoFailed where a size is not reached or the training does not finish."""
        with self._run_dir, Bench(self._letter) as self._bench:
            try:
                for index, size in enumerate(sizes):
                    self._resize(size)
                    if index < len(sizes) - 1:
                        self._train_on()
                self._doing = "training to the end"
                self._watch("the end of the training", lambda: self._ended is not None)
                self._bench.process.wait(10)
            except RunnerError as error:
                raise DemoFailed(ExitCode.TRAINING, f"{self._name}: {error}") from None
            return self._account(sizes)

    # ── driving ───────────────────────────────────────────────────────────────────────────────────────────────
    def _resize(self, size: int) -> None:
        """Wish for ``size`` engines and wait until exactly these train."""
        before = len(self._held)
        self._held = self._held[-size:] if size < before else [*self._held, *self._new(size - before)]
        self._doing = f"{before} → {size} engines" if before else self._doing
        self._bench.wish(Wish(self._letter.fence, tuple(self._held)))
        wanted = {slot.allocation for slot in self._held}
        self._watch(
            f"{size} engines",
            lambda: wanted <= set(self._counted) and set(self._started) - set(self._gone) <= wanted,
        )
        if self._ended is not None:
            raise DemoFailed(ExitCode.RESIZES, f"{self._name}: the training was over before it had {size} engines")
        self._screen.say(f"{self._name}: {size} engine{'' if size == 1 else 's'}")

    def _new(self, number: int) -> list[SlotWish]:
        taken = {slot.slot for slot in self._held}
        free = [str(slot) for slot in range(SLOTS) if str(slot) not in taken]
        new = [
            SlotWish(len(self._allocations) + index + 1, slot, self._devices[int(slot)])
            for index, slot in enumerate(free[:number])
        ]
        self._allocations.update({slot.allocation: slot for slot in new})
        return new

    def _train_on(self) -> None:
        """Let the training go on for some steps as it is."""
        goal = max([int(report.body["step"]) for report in self._counted.values()] + [self._step()])
        goal += _STEPS_AT_EACH_SIZE
        self._doing = f"training with {len(self._held)}"
        self._watch(f"step {goal}", lambda: self._step() >= goal)

    def _watch(self, what: str, true: object) -> None:
        assert callable(true)
        wait = self._budget.waiting(f"{what} of {self._name}", _WAIT_SECONDS)
        while not true() and self._ended is None:
            over = self._bench.process.poll() is not None
            for report in self._bench.poll():
                self._take(report)
            if over and self._ended is None:
                raise DemoFailed(ExitCode.TRAINING, f"{self._name}: its supervisor is gone")
            wait.check()
            self._screen.show(self._snapshot())
            time.sleep(0.02)

    def _take(self, report: Report) -> None:
        match report.kind:
            case ReportKind.ENGINE_STARTED:
                self._started[report.body["allocation"]] = report
            case ReportKind.ENGINE_COUNTED:
                self._counted[report.body["allocation"]] = report
            case ReportKind.ENGINE_GONE:
                self._gone[report.body["allocation"]] = report
            case ReportKind.PROGRESS:
                self._progress = report
            case ReportKind.ATTEMPT_ENDED:
                self._ended = report

    def _step(self) -> int:
        return int(self._progress.body["step"]) if self._progress else 0

    # ── telling ───────────────────────────────────────────────────────────────────────────────────────────────
    def _snapshot(self) -> Snapshot:
        running = {number: self._allocations[number].slot for number in self._started if number not in self._gone}
        on = {slot: number for number, slot in running.items()}
        body = self._progress.body if self._progress else {}
        return Snapshot(
            tuple(
                SlotNow(slot, self._name if slot in on else None, on.get(slot) in self._counted)
                for slot in map(str, range(SLOTS))
            ),
            (
                JobNow(
                    self._name,
                    "RUNNING" if body else "STARTING",
                    sum(number in self._counted for number in running),
                    self._step(),
                    body.get("steps_total", 0),
                    body.get("loss"),
                    body.get("samples_per_second"),
                ),
            ),
            self._doing,
        )

    def _account(self, sizes: Sequence[int]) -> Training:
        assert self._ended is not None
        ended = self._ended.body
        if ended["kind"] != ExitKind.FINISHED.value:
            log = Path(self._letter.log_dir) / "driver.err"
            raise DemoFailed(
                ExitCode.TRAINING, f"{self._name} ended as {ended['kind']}: {ended['message']} (see {log})"
            )
        steps = elog.steps((Path(self._letter.log_dir) / "stdout").read_text())
        return Training(
            self._name,
            ended["digest"],
            self._folder / "model" / "train" / "model_epoch_final.pth",
            self._folder / "samples",
            tuple(self._bar(number) for number in self._started),
            tuple(self._resizes(steps)),
            steps,
            tuple(sizes),
        )

    def _bar(self, number: int) -> Bar:
        assert self._ended is not None
        counted, gone = self._counted.get(number), self._gone.get(number, self._ended)
        return Bar(
            self._allocations[number].slot,
            self._name,
            self._started[number].time,
            counted.time if counted else None,
            gone.time,
        )

    def _resizes(self, steps: Sequence[elog.Step]) -> list[Resize]:
        times = {step.step: step.time for step in steps}
        found, workers = [], 1
        for report in self._bench.reports:
            if report.kind is ReportKind.RESIZED:
                body = report.body
                when = times.get(int(body["step"]) + 1, report.time)
                after, pause = int(body["workers"]), body["pause_seconds"]
                found.append(Resize(self._name, when, workers, after, int(body["step"]), "wished", pause))
                workers = after
        return found


def _letter(name: str, folder: Path, run_dir: Path, epochs: int, environ: dict[str, str]) -> Letter:
    cores = usable_cores()
    return Letter(
        job=name,
        fence=1,
        node="demo",
        framework="pytorch",
        main="main.py",
        arguments=("--epochs", str(epochs)),
        work_dir=str(DIGITS),
        result_dir=str(folder),
        log_dir=str(folder / "log"),
        checkpoint_dir=str(folder / "checkpoint"),
        spool_dir=str(folder / "spool"),
        socket=str(run_dir / "supervisor.sock"),
        environ={**environ, "EDT_SAMPLE_RECORD": str(folder / "samples")},
        seed=SEED,
        max_engines=LOGICAL_WORKERS,
        threads=max(1, cores // SLOTS),
        cores=cores,
        grace_seconds=30.0,
        token=secrets.token_hex(16),
    )
