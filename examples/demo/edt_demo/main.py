"""The demo from beginning to end. Room: examples.

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

from edt_demo import accuracy, closing, history, picture, samples, settings
from edt_demo.budget import Budget
from edt_demo.client import Client
from edt_demo.exits import DemoFailed, ExitCode
from edt_demo.house import House
from edt_demo.play import EPOCHS, A, B, C, Play
from edt_demo.screen import Screen
from edt_demo.settings import LOGICAL_WORKERS, Settings
from edt_demo.story import Story
from edt_demo.verdict import Crash, Seen, exit_code, promises
from edt_demo.watch import Watch

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
        House(chosen.framework, chosen.devices, chosen.output / "edt-up.log") as house,
        Client(house.url, "admin", house.password) as client,
    ):
        with Screen(console) as screen:
            _wait_for(house, client, budget, screen)
            play = Play(chosen.framework, client, Watch(client, budget, screen), screen, house.home, fault)
            play.share()
            counts = {name: _count(play, name) for name in (A, B)}
            if all(count.exact for count in counts.values()):  # else there is nothing to compare
                play.compare()
            for name, exec_id in play.ids.items():
                client.download(exec_id, chosen.framework.model, _weights(chosen, name))
            story = _story(play)
        kept = promises(_seen(play, counts, _weights(chosen, A)))
        paths = picture.draw(story, chosen.output)
        closing.show_resizes(console, story.resizes)
        closing.show_checks(console, kept)
        console.print(
            f"\n{budget.used:.0f} s on {house.url}. The picture: {paths[0]}. The models: {chosen.output}. "
            "`edt up` starts a platform that stays.",
            highlight=False,
            soft_wrap=True,
        )
    return exit_code(kept)


def _forget(output: Path) -> None:
    """What an earlier run left must not pass for this one's."""
    for stale in (*output.glob("timeline.*"), *output.glob("job-*.pth"), *output.glob("job-*.keras")):
        stale.unlink()


def _wait_for(house: House, client: Client, budget: Budget, screen: Screen) -> None:
    wait = budget.waiting("the platform to start", _START_SECONDS)
    while not client.serves():
        if house.ended:
            raise DemoFailed(ExitCode.PLATFORM, f"edt up ended:\n{house.last_words}")
        wait.check()
        screen.pause(0.2)
    slots = Counter(
        "CPU slot" if slot.device == "cpu" else slot.label for node in client.timeline().nodes for slot in node.slots
    )
    screen.say(f"OpenEDT is at {house.url} with {', '.join(f'{n} × {kind}' for kind, n in slots.items())}")


def _weights(chosen: Settings, name: str) -> Path:
    return chosen.output / f"{name.replace(' ', '-')}{Path(chosen.framework.model).suffix}"


def _count(play: Play, name: str) -> samples.Count:
    return samples.count(
        play.record(name),
        samples=accuracy.training_samples(play.framework),
        epochs=EPOCHS[name],
        logical_workers=LOGICAL_WORKERS,
    )


def _story(play: Play) -> Story:
    shared = {name: play.ids[name] for name in (A, B)}
    assert play.timeline is not None
    return history.story(
        "A training makes room for another, takes its slots back, and loses an engine",
        f"{play.framework.subject} on {settings.SLOTS} slots, E = {LOGICAL_WORKERS} · a label: engines, "
        "and for how long the training stood still",
        jobs=shared,
        timeline=play.timeline,
        resizes={name: play.resizes(name) for name in shared},
        steps={name: play.steps(name) for name in shared},
    )


def _seen(play: Play, counts: dict[str, samples.Count], weights: Path) -> Seen:
    a, c = play.finished[A], play.finished.get(C)
    return Seen(
        counts=counts,
        accuracy=accuracy.held_out(play.framework, weights),
        digest=a.digest,
        static_digest=c.digest if c else None,
        static_sizes=tuple(resize.to_slots for resize in play.resizes(C) if resize.to_slots) if c else None,
        sizes={name: tuple(resize.to_slots for resize in play.resizes(name) if resize.to_slots) for name in (A, B)},
        crash=_crash(play),
        attempts=a.attempts,
        inexact=a.exactness.reason if a.exactness.verdict == "not-exact" else None,
    )


def _crash(play: Play) -> Crash | None:
    """What the killed engine cost."""
    lost = [resize for resize in play.resizes(A) if resize.cause == "engine-lost"]
    return Crash(len(lost), lost[0].step, lost[0].pause_seconds) if lost else None


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
