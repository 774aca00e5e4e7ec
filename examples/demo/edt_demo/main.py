"""The demo from beginning to end. Room: examples.

Digits are trained while engines come and go (1 → 4 → 2 → 3 → 1 → 4), then again without a resize. Both must end
with the same bits, and every sample must have been trained on once an epoch. Exit statuses: ``exits``.
"""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console

from edt_demo import accuracy, closing, picture, samples, settings
from edt_demo.budget import Budget
from edt_demo.exits import DemoFailed, ExitCode
from edt_demo.rehearsal import Rehearsal, Training
from edt_demo.screen import Screen
from edt_demo.settings import LEAST_ACCURACY, LOGICAL_WORKERS, SLOTS, Settings
from edt_demo.story import Curve, Story
from edt_demo.verdict import Check, exit_code

_SIZES = (1, 4, 2, 3, 1, 4)
_EPOCHS = 60
_LIMIT_SECONDS = 600.0


def main() -> int:
    """Run the demo; returns the exit status."""
    console = Console()
    try:
        return _run(settings.from_environment(os.environ, Path.cwd()), console)
    except DemoFailed as failure:
        console.print(f"[red]{failure.code.name.lower()}[/red]: {failure.message}", highlight=False)
        return failure.code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED


def _run(chosen: Settings, console: Console) -> ExitCode:
    budget = Budget(_LIMIT_SECONDS)
    devices = ["cpu"] * SLOTS
    fault = {"EDT_FAULT": f"drop:{settings.FAULT_STEP}"} if chosen.fault else {}
    with Screen(console) as screen:
        elastic = Rehearsal(
            "elastic",
            chosen.output / "elastic",
            devices=devices,
            epochs=_EPOCHS,
            environ=fault,
            budget=budget,
            screen=screen,
        ).run(_SIZES)
        count = samples.count(
            elastic.samples,
            samples=accuracy.training_samples(),
            epochs=_EPOCHS,
            logical_workers=LOGICAL_WORKERS,
        )
        static = Rehearsal(
            "static",
            chosen.output / "static",
            devices=devices,
            epochs=_EPOCHS,
            environ={},
            budget=budget,
            screen=screen,
        ).run((1,))
    paths = picture.draw(_story(elastic), chosen.output)
    checks = _checks(elastic, static, count)
    closing.show_resizes(console, elastic.resizes)
    closing.show_checks(console, checks)
    console.print(f"\nThe picture: {paths[0]} ({budget.used:.0f} s in all)", highlight=False)
    return exit_code(checks)


def _checks(elastic: Training, static: Training, count: samples.Count) -> list[Check]:
    share = accuracy.held_out(elastic.weights)
    return [
        Check(ExitCode.SAMPLES, "each sample once an epoch", count.in_words(), count.exact),
        Check(
            ExitCode.DIGEST,
            "the bits of the static run",
            f"{elastic.digest[:16]} and {static.digest[:16]}",
            elastic.digest == static.digest,
        ),
        Check(
            ExitCode.ACCURACY,
            f"at least {LEAST_ACCURACY:.0%} of held-out images",
            f"{share:.2%}",
            share >= LEAST_ACCURACY,
        ),
        Check(
            ExitCode.RESIZES,
            f"engines {' → '.join(map(str, _SIZES))}",
            f"{' → '.join(map(str, elastic.sizes))}, in {len(elastic.resizes)} switches",
            elastic.sizes == _SIZES and bool(elastic.resizes),
        ),
    ]


def _story(elastic: Training) -> Story:
    return Story(
        "One training on engines that come and go",
        f"scikit-learn digits, {LOGICAL_WORKERS} logical workers · engines {' → '.join(map(str, _SIZES))}",
        tuple(map(str, range(SLOTS))),
        (elastic.name,),
        elastic.bars,
        elastic.resizes,
        (Curve(elastic.name, tuple((step.time, step.loss) for step in elastic.steps)),),
    )
