"""What is audited, who is found to compute wrong, and when."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from edt_runner.comm.exchange import MOST_NOTE
from edt_runner.engine import notes
from edt_runner.engine.audit import Audit, Choice, Verdict, choose, judge, told
from edt_runner.engine.auditing import checksum_of
from edt_runner.engine.faults import Faults, flip
from edt_runner.errors import UsageError
from edt_runner.schedule import Schedule, StepKind
from edt_runner.splits import Split
from edt_runner.step_times import PHASES

SPLIT: Split = ((0, 1), (2, 3), ())
MIDDLE = 1 << 40


# ── what is audited ───────────────────────────────────────────────────────────────────────────────────────────
def test_every_micro_batch_is_audited_by_every_other_rank_at_some_time() -> None:
    found = Counter(choose(7, offset, SPLIT, lambda index: True) for offset in range(600))
    assert set(found) == {
        Choice(index, owner, auditor) for index, owner in enumerate((0, 0, 1, 1)) for auditor in {0, 1, 2} - {owner}
    }
    assert min(found.values()) > 600 / len(found) / 2


def test_a_micro_batch_without_samples_is_never_audited() -> None:
    found = {choose(7, offset, SPLIT, lambda index: index == 2).micro_batch for offset in range(20)}
    assert found == {2}


def test_what_is_audited_depends_on_seed_offset_and_split_alone() -> None:
    assert choose(7, 5, SPLIT, bool) == choose(7, 5, SPLIT, bool)
    assert len({choose(seed, 5, SPLIT, lambda index: True) for seed in range(50)}) > 4


# ── who is wrong ──────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("first", "again", "ranks", "certain"),
    [
        ({0: 9, 1: MIDDLE}, [MIDDLE, MIDDLE], (0,), True),  # the owner was wrong once, with two engines
        ({0: MIDDLE, 1: 9}, [MIDDLE, MIDDLE], (1,), True),  # the auditor was
        ({0: 9, 2: MIDDLE}, [9, MIDDLE, MIDDLE], (0,), True),  # always wrong, with three engines
        ({0: 9, 1: MIDDLE}, [8, MIDDLE], (0,), True),  # always wrong, and never twice in the same way
        ({0: 9, 1: MIDDLE}, [MIDDLE, 8], (0, 1), True),  # both were wrong once
        ({0: 9, 1: MIDDLE}, [9, MIDDLE], (0, 1), False),  # always different, with two engines
        ({0: 1, 1: 2}, [3, 4, 5], (), False),  # never the same bits
    ],
)
def test_the_bits_that_are_found_most_often_are_right(
    first: dict[int, int], again: list[int], ranks: tuple[int, ...], certain: bool
) -> None:
    assert judge(first, again) == Verdict(ranks, certain)


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (Verdict((1,), certain=True), "engine 8 computed it with other bits than the others"),
        (Verdict((0, 2), certain=True), "engines 7, 9 computed it with other bits"),
        (Verdict((0, 1), certain=False), "engines 7, 8 do not compute it with the same bits"),
        (Verdict((), certain=False), "never twice with the same bits"),
    ],
)
def test_the_user_is_told_by_name(verdict: Verdict, words: str) -> None:
    assert words in told(verdict, "it", ("7", "8", "9"))


# ── notes ─────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("checksum", [0, 1, (1 << 63) - 1, 0x123456789ABCDEF])
def test_a_checksum_comes_through_the_notes_of_the_ranks_that_have_one(checksum: int) -> None:
    idle = [0.0] * len(PHASES)
    table = [notes.notes(3, idle), notes.notes(3, idle, checksum=checksum)]
    assert notes.checksums(table) == {1: checksum}
    assert notes.unanimous(table) == 3 and all(len(row) == notes.WIDTH for row in table)
    assert max(map(max, table)) <= MOST_NOTE


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_flipped_bit_in_any_place_is_another_checksum(dtype: torch.dtype) -> None:
    local = torch.randn(20_000, dtype=dtype)
    right = checksum_of(local)
    for place in (0, 1, 777, 9_999, 19_998, 19_999):
        number = local[place : place + 1].numpy().view("uint8")
        for bit in range(8 * len(number)):
            number[bit // 8] ^= 1 << bit % 8
            assert checksum_of(local) != right, (place, bit)
            number[bit // 8] ^= 1 << bit % 8
    assert checksum_of(local) == right
    flip(local)
    assert checksum_of(local) != right


# ── when ──────────────────────────────────────────────────────────────────────────────────────────────────────
class Watch:
    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def auditing(interval: int | None, watch: Watch) -> tuple[Audit, Schedule]:
    schedule = Schedule(train_samples=400, test_samples=8, micro_batches=4, batch_size=1, epochs=1)
    request = SimpleNamespace(audit_interval=interval)
    return Audit(cast(Any, SimpleNamespace(schedule=schedule, request=request, seed=7)), watch), schedule


def audited(audit: Audit, schedule: Schedule, watch: Watch, seconds: float) -> list[int]:
    """Do all steps on three engines. Return the training steps that were audited."""
    found = []
    for offset in range(schedule.length):
        step = schedule.at(offset)
        if trains := step.kind is StepKind.TRAIN:
            audit.begin(step, offset, SPLIT)
            if audit.choice is not None:
                found.append(step.training_steps_before)
        watch.seconds += seconds
        table = [notes.notes(0, [0.0] * len(PHASES), audit_next=audit.asks(step, 3)) for _ in SPLIT]
        if trains:
            audit.passed()
        audit.hear(table)
    return found


@pytest.mark.parametrize(
    ("interval", "seconds", "steps"),
    [
        (None, 1.0, [60]),
        (None, 25.0, list(range(3, 100, 3))),
        (0, 60.0, []),
        (1, 0.1, list(range(1, 100))),
        (30, 0.1, [30, 60, 90]),
        (1000, 0.1, []),
    ],
)
def test_steps_are_audited_once_a_minute_or_as_often_as_is_asked_for(
    interval: int | None, seconds: float, steps: list[int]
) -> None:
    watch = Watch()
    assert audited(*auditing(interval, watch), watch, seconds) == steps


def test_one_engine_alone_is_not_audited() -> None:
    audit, schedule = auditing(1, Watch())
    assert audit.asks(schedule.at(4), 2) and not audit.asks(schedule.at(4), 1)


def test_a_training_that_goes_back_to_a_checkpoint_is_audited_soon() -> None:
    audit, schedule = auditing(30, Watch())
    audit.hear([notes.notes(0, [0.0] * len(PHASES), audit_next=True)])
    audit.begin(schedule.at(60), 60, SPLIT)
    audit.passed()
    assert [offset for offset in range(100) if audit.asks(schedule.at(offset), 2)] == [*range(59), *range(89, 100)]


def test_an_audit_that_was_broken_off_is_asked_for_again() -> None:
    audit, schedule = auditing(30, Watch())
    audit.hear([notes.notes(0, [0.0] * len(PHASES), audit_next=True)])
    audit.begin(schedule.at(30), 30, SPLIT)
    assert audit.choice is not None and not audit.asks(schedule.at(30), 3)
    audit.cancel()
    audit.begin(schedule.at(30), 30, SPLIT)
    assert audit.choice is None and audit.asks(schedule.at(30), 3)


def test_a_step_that_is_repeated_is_audited_again_in_the_same_way() -> None:
    audit, schedule = auditing(30, Watch())
    audit.hear([notes.notes(0, [0.0] * len(PHASES), audit_next=True)])
    audit.begin(schedule.at(30), 30, SPLIT)
    before = audit.choice
    audit.repeat(Verdict((0,), certain=True))
    audit.begin(schedule.at(30), 30, SPLIT)
    assert audit.choice == before and audit.verdict == Verdict((0,), certain=True)
    audit.passed(over=True)
    assert not audit.asks(schedule.at(90), 3)


def test_what_the_audits_have_cost_is_the_time_beyond_that_of_usual_steps() -> None:
    watch = Watch()
    audit, schedule = auditing(1, watch)
    assert audit.cost() == ""
    audit.begin(schedule.at(0), 0, SPLIT)
    audit.passed()  # in another membership
    audit.cancel()
    for offset, seconds in ((0, 1.0), (1, 1.0), (2, 1.5)):
        audit.hear([notes.notes(0, [0.0] * len(PHASES), audit_next=offset == 2)])
        audit.begin(schedule.at(offset), offset, SPLIT)
        watch.seconds += seconds
        audit.passed()
    assert "1 micro-batch was computed by a second engine" in audit.cost()
    assert "took 500 ms each, 14 % of the time" in audit.cost()


# ── faults on purpose ─────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("fault", ["flip", "flip:3", "flip:x:1", "flips:3", "drop:3:1", "bend:3", "raise:", "drop:-1"])
def test_a_fault_of_another_form_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    monkeypatch.setenv("EDT_FAULT", fault)
    with pytest.raises(UsageError, match=f"EDT_FAULT: got '{fault}', takes 'drop:STEP'"):
        Faults("1")


def test_bits_flip_in_the_engine_that_is_named_once_or_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDT_FAULT", "flip:3:2")
    assert not Faults("1").flips(3)
    once = Faults("2")
    once.tried(2)
    assert [once.flips(step) for step in (2, 3, 4)] == [False, True, True]  # 4: where no step begins at 3
    once.tried(3)
    assert not once.flips(3) and not once.flips(4)
    monkeypatch.setenv("EDT_FAULT", "flips:3:2")
    always = Faults("2")
    always.tried(3)
    assert [always.flips(step) for step in (2, 3, 4)] == [False, True, True]
