"""A user's callbacks change rates and weights at the boundaries of epochs: the same bits whatever the engines do."""

from __future__ import annotations

import os
import re
import signal
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from edt_contract.reports import ReportKind
from support.crashes import crashed, crashing, cut_off
from support.training import Both, Elastic, cases, script, with_pytorch_first
from support.waiting import until

Attempt = Callable[..., Elastic]
Undisturbed = Callable[..., str]
HOOKED = ("hooked", "--epochs", 4)
"""5 ticks an epoch: 3 steps, then 2 slices of the validation."""
AN_EPOCH_END, THE_LAST_TICK = 9, 19
"""The first is of the second epoch: before the third, the rate is halved."""


@pytest.fixture
def digest(undisturbed: Undisturbed) -> str:
    return undisturbed(*HOOKED)


def hooks_of(training: Elastic, engine: int) -> list[str]:
    """What the first callback of an engine has said."""
    output = (training.log_dir / f"engine-{engine}.out").read_text()
    return re.findall(r"hook (\w+ \d+)", output)


def test_the_hooks_of_each_boundary_run_once_and_in_order(attempt: Attempt) -> None:
    with attempt("hooked", "--epochs", 3) as training:
        training.settle([1])
        training.finish()
        output = (training.log_dir / "engine-1.out").read_text()
        driver = (training.log_dir / "driver.out").read_text()
    order = "begin 0, end 0, begin 1, end 1, begin 2, end 2"
    assert hooks_of(training, 1) == order.split(", ")
    assert re.findall(r"saves (\w+) last (\w+)", output) == [("False", "False"), ("True", "False"), ("True", "True")]
    assert "hook" not in driver


@pytest.mark.parametrize(
    ("framework", "names"),
    [
        ("pytorch", ["EveryOther", "Scheduled", "BestOfAll"]),
        pytest.param("tensorflow", ["ReduceLROnPlateau"], marks=pytest.mark.extended),
    ],
    indirect=["framework"],
)
def test_what_each_callback_does_is_part_of_the_result(attempt: Attempt, digest: str, names: list[str]) -> None:
    """Else equal digests would say nothing."""
    found = {digest}
    for name in names:
        with attempt(*HOOKED, "--without", name, folder=name) as training:
            training.settle([1])
            found.add(training.finish()["digest"])
    assert len(found) == 1 + len(names)


def test_four_engines_give_the_bits_of_one(attempt: Attempt, digest: str) -> None:
    with attempt(*HOOKED) as training:
        training.settle([1, 2, 3, 4])
        assert training.finish()["digest"] == digest
        assert not training.kinds(ReportKind.GUARANTEE_ENDED)


@with_pytorch_first
def test_a_joining_engine_in_mid_epoch_is_told_what_the_callbacks_remember_and_runs_no_hook_twice(
    attempt: Attempt, digest: str
) -> None:
    """1, then 1 2 3 from the second epoch on, then 3 alone for the last: all that went before it knows from others."""
    with attempt(*HOOKED) as training:
        training.settle([1])
        training.gate.allow(4)
        training.gate.close()
        training.settle([1, 2, 3])
        training.settle([3])
        assert training.finish()["digest"] == digest
        resizes = training.kinds(ReportKind.RESIZED)
    joined = next(resize["step"] for resize in resizes if 3 in resize["joined"])
    assert joined > 3 and "begin 0" not in hooks_of(training, 3)
    for engine in (1, 3):
        assert len(set(hooks_of(training, engine))) == len(hooks_of(training, engine))
    assert hooks_of(training, 3)[-2:] == ["begin 3", "end 3"] and "end 3" not in hooks_of(training, 1)


@cases(
    "engines, place",
    [
        Both(2, f"engine.applied@{AN_EPOCH_END}#1"),  # the first one, before it has run the hooks
        (3, f"engine.committed@{AN_EPOCH_END}#2"),  # after them
        (2, f"engine.applied@{THE_LAST_TICK}#1"),
    ],
)
def test_an_engine_dies_at_the_end_of_an_epoch(
    attempt: Attempt, tmp_path: Path, digest: str, engines: int, place: str
) -> None:
    with attempt(*HOOKED, environ=crashing(tmp_path, place)) as training:
        training.settle(range(1, engines + 1))
        end = training.finish()
        assert crashed(training)
    assert end["digest"] == digest


@pytest.mark.parametrize(
    ("cut", "dead"),
    [
        ((2, 3), ""),  # one is past the hooks; the others take the reduced vector and run them
        ((1, 3), f"engine.applied@{AN_EPOCH_END}#2"),  # the only one that might have run them dies
    ],
)
def test_an_engine_is_behind_the_hooks_of_the_others(
    attempt: Attempt, tmp_path: Path, digest: str, framework: str, cut: tuple[int, ...], dead: str
) -> None:
    main = cut_off(tmp_path, framework, AN_EPOCH_END, *cut, name="hooked")
    with attempt(main, *HOOKED[1:], environ=crashing(tmp_path, *filter(None, [dead]))) as training:
        training.settle([1, 2, 3])
        end = training.finish()
        assert not dead or crashed(training)
    assert end["digest"] == digest


def test_an_engine_that_is_behind_the_hooks_may_be_given_the_whole_state(
    attempt: Attempt, tmp_path: Path, framework: str, undisturbed: Undisturbed
) -> None:
    """Where the optimizer writes into the gradients: nobody holds any more what was reduced."""
    arguments = (*HOOKED[1:], "--validation", 0, "--writes")
    expected = undisturbed("hooked", *arguments)
    main = cut_off(tmp_path, framework, 8, 3, name="hooked")
    with attempt(main, *arguments) as training:
        training.settle([1, 2, 3])
        assert training.finish()["digest"] == expected
    assert (tmp_path / "once-3").exists()
    assert "end 2" in hooks_of(training, 1) and "end 2" not in hooks_of(training, 3)
    assert "end 3" in hooks_of(training, 3)


def test_nobody_goes_on_from_half_a_state(attempt: Attempt, tmp_path: Path, undisturbed: Undisturbed) -> None:
    """The only engine that has the newest one dies while it gives it; the next attempt begins at the checkpoint."""
    arguments = (*HOOKED[1:], "--validation", 0, "--writes")
    expected = undisturbed("hooked", *arguments)
    main = cut_off(tmp_path, "pytorch", 5, 2, name="hooked")
    dies = """
    start, pieces = group.Group.send_state, state_transfer._pieces
    def send_state(*given, **named):
        if context.page.engine != "1" or not (folder / "once-2").exists() or not once("half"):
            return start(*given, **named)
        state_transfer._pieces = lambda tensors: (found := pieces(tensors))[: len(found) // 2]
        start(*given, **named)()
        os.kill(os.getpid(), signal.SIGKILL)
    group.Group.send_state = send_state
    """
    patched = "exchange.TreeExchange.result = result\n"
    main.write_text(main.read_text().replace(patched, patched + textwrap.dedent(dies)))
    with attempt(main, *arguments) as training:
        training.settle([1, 2])
        assert training.finish()["kind"] == "lost"
        assert (tmp_path / "once-half").exists()
    with attempt(main, *arguments, fence=2) as training:
        training.settle([3])
        assert training.finish()["digest"] == expected


@cases("all_die", [Both(False), (True,)])
def test_a_training_goes_on_from_a_checkpoint_with_what_the_callbacks_remembered(
    attempt: Attempt, digest: str, all_die: bool
) -> None:
    """From one in mid-epoch; from the one at an epoch's end."""
    with attempt(*HOOKED) as training:
        training.settle([1, 2])
        for step in (3, 6):  # one after the other, or the second may have to wait for the first, and come later
            training.gate.allow(max(step + 1, training.gate.allowed))
            until(lambda at=step: training.happened(ReportKind.CHECKPOINTED, step=at), 60)
        training.gate.close()
        if all_die:
            for started in training.kinds(ReportKind.ENGINE_STARTED):
                os.kill(started["pid"], signal.SIGKILL)
        else:
            training.hold([])
            training.gate.until(training.over, sparing=True)
        training.finish()
    with attempt(*HOOKED, fence=2) as training:
        training.settle([4, 5])
        assert training.finish()["digest"] == digest
    assert "begin 1" not in hooks_of(training, 4)


def test_a_checkpoint_of_other_callbacks_is_not_taken(attempt: Attempt, tmp_path: Path) -> None:
    with attempt(*HOOKED) as training:
        training.settle([1])
        training.hold([])
        training.gate.until(training.over, sparing=True)
    main = tmp_path / "main.py"
    main.write_text(script("hooked").read_text().replace("EveryOther", "Another"))
    with attempt(main, *HOOKED[1:], fence=2) as training:
        training.settle([2])
        assert training.finish()["kind"] == "finished"
        log = (training.log_dir / "driver.err").read_text()
    assert "user_callback was ['EveryOther', 'Scheduled', 'BestOfAll'], is ['Another'" in log


@pytest.mark.parametrize("hook", ["begin 0", "begin 2"])
def test_a_mistake_in_a_hook_is_the_scripts_error(attempt: Attempt, hook: str) -> None:
    """In all engines alike: it is told once, with the line."""
    with attempt(*HOOKED, "--trouble", hook) as training:
        training.hold([1, 2])
        end = training.finish()
        log = (training.log_dir / "driver.err").read_text()
    assert end["kind"] == "script-error"
    assert "there is a mistake in this hook" in end["message"]
    assert "in on_epoch_begin" in log and "user_callbacks" not in log


@pytest.mark.extended
@pytest.mark.parametrize("framework", ["tensorflow"], indirect=True)
def test_early_stopping_ends_the_training_in_all_engines_at_once_with_the_best_weights(
    attempt: Attempt, tmp_path: Path
) -> None:
    """After the second of four epochs, 5 ticks each; one engine dies as it is about to learn of it."""
    digests = []
    for folder, engines, environ in (
        ("alone", 1, {}),
        ("crash", 2, crashing(tmp_path, "engine.applied@9#1")),
    ):
        with attempt(*HOOKED, "--stops", folder=folder, environ=environ) as training:
            training.settle(range(1, engines + 1))
            end = training.finish()
            assert hooks_of(training, 2 if folder == "crash" else 1)[-1] == "end 1"
        assert (end["kind"], end["step"]) == ("finished", 6)
        digests.append(end["digest"])
    assert crashed(training)
    assert digests[0] == digests[1]
    assert list((tmp_path / "alone" / "model" / "train").glob("model_epoch_final*"))


def test_hooks_that_end_the_training_in_one_engine_only_are_told_as_the_scripts_error(
    attempt: Attempt, tmp_path: Path
) -> None:
    """By a clock, say: the others would wait for it for ever. Here who makes a folder first stops, the other cannot."""
    main, first = tmp_path / "main.py", tmp_path / "first"
    mistake = "import contextlib, os\n        with contextlib.suppress(FileExistsError):\n"
    mistake += f"            if epoch: os.mkdir({str(first)!r}); self.model.stop_training = True\n        "
    main.write_text(script("hooked").read_text().replace("last = epoch", f"{mistake}last = epoch"))
    with attempt(main, *HOOKED[1:], environ={"EDT_HANG_SECONDS": "2"}) as training:
        training.settle([1, 2])
        end = training.finish()
    assert end["kind"] == "script-error"
    assert "have ended the training" in end["message"]


def test_hooks_that_do_other_things_in_each_engine_end_the_guarantee_by_name(attempt: Attempt, tmp_path: Path) -> None:
    main = tmp_path / "main.py"
    rate = 'import os; self.params["optimizer"].param_groups[0]["lr"] = os.getpid() % 997 / 997\n        '
    main.write_text(script("hooked").read_text().replace("last = epoch", f"{rate}last = epoch"))
    with attempt(main, *HOOKED[1:], "--without", "BestOfAll") as training:
        training.may_differ = True
        training.settle([1, 2])
        assert training.finish()["kind"] == "finished"
        (ended,) = training.kinds(ReportKind.GUARANTEE_ENDED)
        log = (training.log_dir / "driver.err").read_text()
    assert ended["what"] == "user_callback" and "did not do the same" in ended["why"]
    assert "no longer exact because of user_callback" in log


def test_files_of_an_epoch_that_died_with_their_writer_are_written_by_whoever_goes_on_from_its_checkpoint(
    attempt: Attempt, tmp_path: Path
) -> None:
    """The checkpoint is written in the background, and may be the one that is done when all die."""
    with attempt(*HOOKED, environ=crashing(tmp_path, "engine.hand-over#1")) as training:
        training.settle([1])
        training.finish()
        assert crashed(training)
    files = Path(training.spec.result_dir) / "model" / "train"
    written = sorted(path.name for path in files.glob("*final*"))
    for name in written:
        (files / name).unlink()
    with attempt(*HOOKED, fence=2) as training:
        training.hold([2])  # nothing is left to train
        assert training.finish()["kind"] == "finished"
    assert written and sorted(path.name for path in files.glob("*final*")) == written
