"""What the demo saw, and the exit status that follows from it."""

from __future__ import annotations

import dataclasses

import pytest

from edt_demo.checks import Crash, Seen, exit_code, promises
from edt_demo.exits import ExitCode
from edt_demo.samples import Count, Gap

WHOLE = Count(trained=300, expected=300, gaps=(), repeated=0)
GOOD = Seen(
    counts={"job A": WHOLE, "job B": WHOLE},
    sizes={"job A": (1, 4, 2, 4, 3, 4), "job B": (1, 2)},
    attempts=1,
    accuracy=0.99,
    digest="a" * 64,
    static_digest="a" * 64,
    static_sizes=(1,),
    crash=Crash(engines=1, step=900, pause_seconds=0.04),
    inexact=None,
)


def test_everything_observed_is_exit_status_0() -> None:
    assert exit_code(promises(GOOD)) == 0


LOST = dataclasses.replace(WHOLE, gaps=(Gap(epoch=18, steps=(401,), samples=(45, 226)),))


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        ({"counts": {"job A": LOST, "job B": WHOLE}}, ExitCode.SAMPLES),
        ({"counts": {"job A": dataclasses.replace(WHOLE, repeated=1), "job B": WHOLE}}, ExitCode.SAMPLES),
        ({"static_digest": "b" * 64}, ExitCode.DIGEST),
        ({"digest": None, "static_digest": None}, ExitCode.DIGEST),
        ({"static_sizes": (1, 2)}, ExitCode.DIGEST),
        ({"accuracy": 0.94}, ExitCode.ACCURACY),
        ({"attempts": 2}, ExitCode.RESIZES),
        ({"crash": None}, ExitCode.CRASH),
        ({"crash": Crash(engines=3, step=900, pause_seconds=0.04)}, ExitCode.CRASH),
        ({"sizes": {"job A": (1, 4, 2), "job B": (1, 2)}}, ExitCode.RESIZES),
        ({"sizes": {"job A": (1, 4, 3, 4), "job B": (1,)}}, ExitCode.RESIZES),
        ({"sizes": {"job A": (1, 4, 2, 4), "job B": (1,)}}, ExitCode.RESIZES),
    ],
)
def test_each_broken_promise_has_its_own_exit_status(seen: dict[str, object], code: ExitCode) -> None:
    assert exit_code(promises(dataclasses.replace(GOOD, **seen))) == code  # type: ignore[arg-type]


def test_growing_in_several_decisions_is_as_good() -> None:
    seen = dataclasses.replace(GOOD, sizes={"job A": (1, 2, 4, 3, 2, 3, 4), "job B": (1, 2)})
    assert exit_code(promises(seen)) == ExitCode.OBSERVED


def test_lost_samples_are_graver_than_what_follows_from_them() -> None:
    seen = dataclasses.replace(
        GOOD, counts={"job A": LOST, "job B": WHOLE}, static_digest="b" * 64, accuracy=0.1, attempts=3
    )
    checks = promises(seen)
    assert exit_code(checks) == 3
    assert "step 401: samples 45, 226 were lost" in checks[0].seen


def test_without_a_static_run_there_is_no_word_of_it() -> None:
    seen = dataclasses.replace(GOOD, static_digest=None, static_sizes=None)
    assert ExitCode.DIGEST not in {check.code for check in promises(seen)}
