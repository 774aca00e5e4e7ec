"""A death costs one regroup: the survivors find together at the first attempt, however long its steps are."""

from __future__ import annotations

import random
import re
import signal
import time
from pathlib import Path

import pytest

from edt_contract.attempt import AttemptSpec
from support import crashes
from support.crashes import CONV, assert_unharmed, gone
from support.nursery import Nursery
from support.training import Elastic, spec_for

W = 4
A_MICRO_BATCH = 0.2
"""Seconds. After a death one engine computes two of them, and the others wait for it."""


def slow_steps(folder: Path) -> Path:
    """The script ``conv``; each micro-batch takes A_MICRO_BATCH as long as ``folder`` has a file ``slow``."""
    (folder / "slow").touch()
    sleep = f"time.sleep({A_MICRO_BATCH})"
    return crashes.troubled(folder, f"if os.path.exists({str(folder / 'slow')!r}): {sleep}")


def regroups(spec: AttemptSpec) -> list[str]:
    """The engines of each regroup that the coordinator has started."""
    log = (Path(spec.spool_dir) / "supervisor.log").read_text()
    return re.findall(r"regroup \d+ of engines (.*)", log)


def recover(training: Elastic, times: int) -> None:
    """So often kill one of four in the middle of a step, and let another join in its place."""
    engines, moments = list(range(1, W + 1)), random.Random(11)
    for joining in range(W + 1, W + 1 + times):
        training.gate.close()
        training.gate.allow(training.gate.allowed + 1)
        time.sleep(moments.uniform(0, 1.5 * A_MICRO_BATCH))
        victim = engines.pop(moments.randrange(W))
        crashes.kill(training, [victim], signal.SIGKILL)
        training.gate.until(lambda victim=victim: victim in gone(training), sparing=True)
        engines.append(joining)
        training.settle(engines)


@pytest.mark.parametrize(
    ("times", "epochs"),
    [(3, 3), pytest.param(150, 60, marks=[pytest.mark.extended, pytest.mark.timeout(1800)])],
)
def test_a_recovery_needs_one_regroup(nursery: Nursery, tmp_path: Path, times: int, epochs: int) -> None:
    arguments = (*CONV[1:-1], epochs)
    with Elastic(spec_for(tmp_path / "undisturbed", "conv", *arguments), nursery.start) as training:
        training.hold([1])
        digest = str(training.finish(300)["digest"])
    spec = spec_for(tmp_path / "job", slow_steps(tmp_path), *arguments)
    with Elastic(spec, nursery.start) as training:
        training.settle(range(1, W + 1))
        recover(training, times)
        called = regroups(spec)
        print(f"{times} deaths, {len(called)} rounds")
        (tmp_path / "slow").unlink()
        end = training.finish(300)
    assert_unharmed(training, end, digest, epochs=epochs)
    assert len(called) == times, called
