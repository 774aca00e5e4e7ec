"""The examples of ``examples/gallery`` learn, before and after the change that they show, and the change is small."""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.nursery import RUNNERS

GALLERY = RUNNERS.parent / "examples" / "gallery"
PLAIN = GALLERY / "plain"
LEARNED = {
    "averaged_weights": ("held-out accuracy", 0.9, 1.0),
    "image_classifier": ("held-out accuracy", 0.9, 1.0),
    "data_sources": ("held-out loss", 0.0, 0.45),
    "two_optimizers": ("distance", 0.0, 0.35),
    "keras_functional": ("held-out accuracy", 0.9, 1.0),
    "keras_own_step": ("held-out error", 0.0, 0.15),
    "language_model": ("held-out loss", 0.0, 3.2),
    "own_loop": ("held-out accuracy", 0.9, 1.0),
    "mixed_precision": ("held-out accuracy", 0.85, 1.0),
    "hugging_face": ("held-out loss", 0.0, 3.5),
}
"""What the last line of each example says, and the least and the most of it."""
FIRST = ("image_classifier", "data_sources")
MOST_CHANGED = 40
"""Lines of an example that may differ."""


def cases() -> list[Any]:
    found = []
    for name in LEARNED:
        for folder in (PLAIN, GALLERY):
            marks = [] if name in FIRST and folder == GALLERY else [pytest.mark.extended]
            marks += [pytest.mark.tensorflow] if name.startswith("keras_functional") else []
            found.append(pytest.param(folder, name, id=f"{folder.name}-{name}", marks=marks))
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("folder", "name"), cases())
def test_an_example_learns(tmp_path: Path, folder: Path, name: str) -> None:
    run = subprocess.run(
        [sys.executable, str(folder / f"{name}.py")],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(RUNNERS),
            "EDT_CPU_SLOTS": "2",
            "EDT_DEVICES": "cpu",
            "GLOO_SOCKET_IFNAME": "lo",
        },
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    words, least, most = LEARNED[name]
    [number] = re.findall(rf"{words} (\d+\.\d+)$", run.stdout.strip().splitlines()[-1])
    assert least <= float(number) <= most


@pytest.mark.parametrize("name", LEARNED)
def test_the_change_of_an_example_is_small(name: str) -> None:
    before, after = ((folder / f"{name}.py").read_text().splitlines() for folder in (PLAIN, GALLERY))
    changed = [line for line in difflib.ndiff(before, after) if line[0] in "+-"]
    assert 0 < len(changed) <= MOST_CHANGED, "\n".join(changed)


def test_every_script_of_the_gallery_is_tried() -> None:
    for folder in (PLAIN, GALLERY):
        assert sorted(script.stem for script in folder.glob("*.py")) == sorted(LEARNED)
