"""The demo from beginning to end.

The real platform is started, real trainings are submitted over REST and resized by its scheduler while they train.
Then it is looked at whether anything was lost by that. Exit statuses: ``exits``.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from types import FrameType

from rich.console import Console

from edt_demo import accuracy, checks, figure, history, samples, settings
from edt_demo.checks import Crash, Seen, exit_code, promises
from edt_demo.client import Client
from edt_demo.exits import Budget, DemoFailed, ExitCode
from edt_demo.history import History
from edt_demo.platform import Platform
from edt_demo.scenario import EPOCHS, A, B, C, Scenario
from edt_demo.settings import MICRO_BATCHES, Settings
from edt_demo.watch import ProgressTable, Watch

_LIMIT_SECONDS = 600.0
"""Of the whole. On two idle cores it takes about two minutes; past this something hangs."""
_START_SECONDS = 90.0


def main() -> int:
    """Run the demo; returns the exit status."""
    signal.signal(signal.SIGTERM, _as_interrupt)
    console = Console()
    try:
        return _run(settings.from_environment(os.environ, Path.cwd()), console)
    except DemoFailed as failure:
        console.print(f"[red]{failure.code.name.lower()} ({failure.code.value})[/red]", end=": ")
        console.print(failure.message, highlight=False, markup=False)
        return failure.code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED


def _run(chosen: Settings, console: Console) -> ExitCode:
    budget = Budget(_LIMIT_SECONDS)
    _forget(chosen.output)
    fault = {"EDT_FAULT": f"drop:{settings.FAULT_STEP}"} if chosen.fault else {}
    with (
        Platform(chosen.framework, chosen.devices, chosen.output / "edt-up.log") as platform,
        Client(platform.url, "admin", platform.password) as client,
    ):
        with ProgressTable(console) as table:
            _wait_for(platform, client, budget, table)
            scenario = Scenario(chosen.framework, client, Watch(client, budget, table), table, platform.home, fault)
            scenario.share()
            counts = {name: _count(scenario, name) for name in (A, B)}
            if all(count.exact for count in counts.values()):  # else there is nothing to compare
                scenario.compare()
            for name, exec_id in scenario.ids.items():
                client.download(exec_id, chosen.framework.model, _weights(chosen, name))
            happened = _history(scenario)
        checked = promises(_seen(scenario, counts, _weights(chosen, A)))
        paths = figure.draw(happened, chosen.output)
        checks.show_resizes(console, happened.resizes)
        checks.show_checks(console, checked)
        console.print(
            f"\n{budget.used:.0f} s on {platform.url}. The figure: {paths[0]}. The models: {chosen.output}. "
            "`edt up` starts a platform that stays.",
            highlight=False,
            soft_wrap=True,
        )
    return exit_code(checked)


def _forget(output: Path) -> None:
    """What an earlier run left must not pass for this one's."""
    for stale in (*output.glob("timeline.*"), *output.glob("job-*.pth"), *output.glob("job-*.keras")):
        stale.unlink()


def _wait_for(platform: Platform, client: Client, budget: Budget, table: ProgressTable) -> None:
    wait = budget.waiting("the platform to start", _START_SECONDS)
    while not client.serves():
        if platform.ended:
            raise DemoFailed(ExitCode.PLATFORM, f"edt up ended:\n{platform.last_words}")
        wait.check()
        table.pause(0.2)
    slots = Counter(
        "CPU slot" if slot.device == "cpu" else slot.label for node in client.timeline().nodes for slot in node.slots
    )
    table.say(f"OpenEDT is at {platform.url} with {', '.join(f'{n} × {kind}' for kind, n in slots.items())}")


def _weights(chosen: Settings, name: str) -> Path:
    return chosen.output / f"{name.replace(' ', '-')}{Path(chosen.framework.model).suffix}"


def _count(scenario: Scenario, name: str) -> samples.Count:
    return samples.count(
        scenario.record(name),
        samples=accuracy.training_samples(scenario.framework),
        epochs=EPOCHS[name],
        micro_batches=MICRO_BATCHES,
    )


def _history(scenario: Scenario) -> History:
    shared = {name: scenario.ids[name] for name in (A, B)}
    assert scenario.timeline is not None
    return history.history_of(
        "A training makes room for another, takes its slots back, and loses an engine",
        f"{scenario.framework.subject} on {settings.SLOTS} slots, E = {MICRO_BATCHES} · a label: engines, "
        "and for how long the training stood still",
        jobs=shared,
        timeline=scenario.timeline,
        resizes={name: scenario.resizes(name) for name in shared},
        steps={name: scenario.steps(name) for name in shared},
    )


def _seen(scenario: Scenario, counts: dict[str, samples.Count], weights: Path) -> Seen:
    a, c = scenario.finished[A], scenario.finished.get(C)
    return Seen(
        counts=counts,
        accuracy=accuracy.held_out(scenario.framework, weights),
        digest=a.digest,
        static_digest=c.digest if c else None,
        static_sizes=tuple(resize.to_slots for resize in scenario.resizes(C) if resize.to_slots) if c else None,
        sizes={name: tuple(resize.to_slots for resize in scenario.resizes(name) if resize.to_slots) for name in (A, B)},
        crash=_crash(scenario),
        attempts=a.attempts,
        inexact=a.exactness.reason if a.exactness.verdict == "not-exact" else None,
    )


def _crash(scenario: Scenario) -> Crash | None:
    """What the killed engine cost."""
    lost = [resize for resize in scenario.resizes(A) if resize.cause == "engine-lost"]
    return Crash(len(lost), lost[0].step, lost[0].pause_seconds) if lost else None


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
