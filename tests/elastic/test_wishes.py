"""The same bits with everything that a training may ask for: digests over joins, leaves and kills."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from edt_contract.reports import ReportKind
from support.training import Elastic

Attempt = Callable[..., Elastic]
Undisturbed = Callable[..., str]

WISHES = {
    "a schedule by the step, and clipping": ("dense", "--with", "schedule,clip"),
    "a schedule that a hook of the optimizer moves": ("dense", "--with", "hook"),
    "half precision whose scale is too large at first": ("dense", "--with", "fp16,schedule,huge"),
    "bfloat16, two optimizers": ("image", "--with", "bf16,two"),
    "an average of the weights that a hook holds": ("dense", "--with", "ema,epochs"),
    "recomputed activations, channels last": ("image", "--with", "recompute,channels,values"),
    "a mean over tokens, tied weights": ("text", "--with", "token,clip"),
    "a sum over samples, a plateau": ("dense", "--with", "sum,plateau,watch"),
    "a step of one's own": ("dense", "--with", "step,schedule"),
    "a model of transformers": ("transformers", "--with", "token,schedule"),
    "a compiled model": ("dense", "--with", "compile,bf16"),
}
FIRST = ("a schedule that a hook of the optimizer moves", "a mean over tokens, tied weights")
ALL = ("text", "--with", "schedule,held,hook,noise,ema,clip,values,fp16,two,recompute,token,huge,watch")


def kill(training: Elastic, engine: int) -> None:
    pids = {report["allocation"]: report["pid"] for report in training.kinds(ReportKind.ENGINE_STARTED)}
    os.kill(pids[engine], signal.SIGKILL)


@pytest.mark.parametrize(
    "wishes",
    [
        pytest.param(arguments, id=name, marks=[] if name in FIRST else [pytest.mark.extended])
        for name, arguments in WISHES.items()
    ],
)
@pytest.mark.timeout(300)
def test_joins_and_leaves_change_nothing(attempt: Attempt, undisturbed: Undisturbed, wishes: tuple[str, ...]) -> None:
    """1 → 3 → 2 (the first member leaves) → 3."""
    with attempt("wishes", *wishes) as training:
        for engines in ([1], [1, 2, 3], [2, 3], [2, 3, 4]):
            training.settle(engines, seconds=120)
        end = training.finish(seconds=120)
        assert not training.kinds(ReportKind.GUARANTEE_ENDED)
    assert end["kind"] == "finished", end
    assert end["digest"] == undisturbed("wishes", *wishes)


@pytest.mark.timeout(300)
def test_all_wishes_at_once_over_joins_leaves_and_a_kill(attempt: Attempt, undisturbed: Undisturbed) -> None:
    """1 → 3 → a kill of the first → 2 → 4."""
    with attempt("wishes", *ALL) as training:
        training.settle([1])
        training.settle([1, 2, 3])
        kill(training, 1)
        training.settle([2, 3])
        training.settle([2, 3, 4, 5])
        end = training.finish(seconds=120)
    assert end["kind"] == "finished", end
    assert end["digest"] == undisturbed("wishes", *ALL)


def test_what_only_a_hook_remembers_is_found_out_within_the_epoch(attempt: Attempt) -> None:
    """1 → 2 at step 4 or later of 12: the second engine's hook begins to count at 0."""
    with attempt("wishes", "dense", "--with", "count", "--epochs", 3) as training:
        training.settle([1])
        training.gate.until(lambda: training.gate.reached() >= 4)
        training.settle([1, 2])
        training.may_differ = True
        training.finish()
        [joined] = [report for report in training.kinds(ReportKind.ENGINE_JOINED) if report["allocation"] == 2]
        ended = training.kinds(ReportKind.GUARANTEE_ENDED)
    assert ended and "optimizer setting lr of group 0" in ended[0]["difference"], ended
    assert ended[0]["step"] <= (joined["step"] // 6 + 1) * 6
