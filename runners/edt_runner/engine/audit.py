"""The audit: now and then two engines compute the same micro-batch, and their bits are compared.

A processor or a memory that computes wrong says nothing of it. So the first engine in rank order decides, by its clock
or by the number of steps, that the next training step is audited, and says so in its notes. Which micro-batch is
audited, and by which other engine, follows from the seed and the offset; so all engines know it. The checksums of both
locals are in the notes of the same step. So all engines know whether they differ before any of them applies the step.

If they differ, all engines compute the micro-batch once more. The bits that were found most often count as right, and
each engine that has had others is named. Nobody applies the step: all drop their sums and compute it again from the
beginning, and it is audited again. If the bits differ then, too, the guarantee of exactness ends.

An audit is cancelled when the membership changes. The first engine asks for it again.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from edt_runner.engine import notes
from edt_runner.schedule import Step
from edt_runner.seeds import audit_key
from edt_runner.splits import Split
from edt_runner.training import Training

NEVER = 0
"""The value of ``audit_interval`` that turns audits off."""
_SECONDS = 60.0
"""Seconds from one audit to the next by default."""
_USUAL_STEPS = 16
"""The usual time of a step is the median of so many steps without an audit."""


@dataclass(frozen=True)
class Choice:
    """What is audited in a step."""

    micro_batch: int
    owner: int
    """The rank whose micro-batch it is."""
    auditor: int
    """The other rank that computes it, too."""


@dataclass(frozen=True)
class Verdict:
    """Which ranks have computed other bits than the others."""

    ranks: tuple[int, ...]
    """In ascending order. Empty: no bits were found twice, so the computation itself is not reproducible."""
    certain: bool
    """Whether there are bits that were found more often than any other, so that only ``ranks`` are wrong. If not, one
    of ``ranks`` or several are wrong."""


def choose(seed: int, offset: int, split: Split, has_samples: Callable[[int], bool]) -> Choice:
    """Return what is audited in the step at ``offset``. It is random, and the same in all engines.

    Args:
        seed: seed of the training.
        offset: offset of the step.
        split: split of the step, over at least two ranks.
        has_samples: whether a micro-batch of the step has samples; at least one has.
    """
    owners = {index: rank for rank, part in enumerate(split) for index in part}
    key = audit_key(seed, offset)
    first, number = key % len(owners), len(owners)
    micro_batch = next(index for turn in range(number) if has_samples(index := (first + turn) % number))
    owner = owners[micro_batch]
    return Choice(micro_batch, owner, (owner + 1 + (key >> 32) % (len(split) - 1)) % len(split))


def judge(first: Mapping[int, int], again: Sequence[int]) -> Verdict:
    """Return who has computed other bits than the others.

    Args:
        first: the checksums that differed, by rank.
        again: the checksum of each rank when all have computed the same micro-batch once more.
    """
    found = Counter([*first.values(), *again])
    (usual, times), *others = found.most_common(2)
    if times == 1:
        return Verdict((), certain=False)
    if others and others[0][1] == times:
        return Verdict(tuple(range(len(again))), certain=False)
    wrong = {rank for rank, checksum in [*first.items(), *enumerate(again)] if checksum != usual}
    return Verdict(tuple(sorted(wrong)), certain=True)


class Audit:
    """When this training is audited, what is audited in the step that is tried now, and what that has cost. Only the
    thread that trains uses it.

    Args:
        training: the training.
        clock: returns monotonic seconds.
    """

    def __init__(self, training: Training, clock: Callable[[], float] = time.monotonic) -> None:
        self._training, self._clock = training, clock
        self.choice: Choice | None = None
        """What is audited in the step that is tried now; None: nothing."""
        self.checksum: int | None = None
        """The checksum of that micro-batch, if this engine has computed it in this step."""
        self.verdict: Verdict | None = None
        """The verdict on the try before of the coming step; None: there was none, or nothing differed in it."""
        self._asked = self._over = False
        self._began = self._made = clock()
        self._newest = self._newest_before = (self._made, 0)
        """When the newest audit began, and how many training steps were committed then. The other is that of the audit
        before, which counts if the newest is cancelled."""
        self._usual: deque[float] = deque(maxlen=_USUAL_STEPS)
        """Seconds of the newest steps without an audit in this membership."""
        self._audits = 0
        self._longer: deque[float] = deque(maxlen=_USUAL_STEPS)
        """By how many seconds the newest steps with an audit were longer."""

    def asks(self, step: Step, engines: int) -> bool:
        """Return whether the first engine asks for an audit of the next training step.

        Args:
            step: the step that is reduced now.
            engines: number of engines of the membership.
        """
        interval, (since, steps) = self._training.request.audit_interval, self._newest
        if interval == NEVER or self._over or engines < 2:
            return False
        if interval is None:
            return self._clock() - since >= _SECONDS
        return not 0 <= step.training_steps_after - steps < interval  # below 0 after a return to a checkpoint

    def hear(self, table: Sequence[Sequence[int]]) -> None:
        """Learn from the notes of a committed step whether the next training step is audited."""
        self._asked = self._asked or bool(table[0][notes.Column.AUDIT_NEXT])

    def begin(self, step: Step, offset: int, split: Split) -> None:
        """A try of a training step begins: choose what is audited in it, if all have been asked for it."""
        self._began, self.checksum, self.choice = self._clock(), None, None
        asked, self._asked = self._asked, False
        if not asked or self._over:
            return
        seed, schedule = self._training.seed, self._training.schedule
        self.choice = choose(seed, offset, split, lambda index: bool(len(schedule.samples(seed, step, index))))
        self._newest_before, self._newest = self._newest, (self._began, step.training_steps_before)

    def cancel(self) -> None:
        """Forget a coming audit, or one that was broken off, because the membership has changed."""
        if self.choice is not None:
            self._newest = self._newest_before
        self.choice = self.verdict = None
        self._asked = self._over = False
        self._usual.clear()

    def repeat(self, verdict: Verdict) -> None:
        """Let the next try of the same step be audited, too, because of ``verdict``."""
        self.verdict, self._asked = verdict, True

    def passed(self, *, over: bool = False) -> None:
        """The training step that is tried now will be committed. ``over``: there are no more audits in this
        membership."""
        seconds = self._clock() - self._began
        if self.choice is None:
            self._usual.append(seconds)
        else:
            self._audits += 1
            if self._usual:
                self._longer.append(max(0.0, seconds - median(self._usual)))
        self.choice = self.verdict = None
        self._over = self._over or over

    def cost(self) -> str:
        """Return a sentence about the audits of this training and what they have cost; empty: there were none."""
        if not self._audits:
            return ""
        what = "1 micro-batch was" if self._audits == 1 else f"{self._audits} micro-batches were"
        sentence = f"{what} computed by a second engine, too, to find wrong bits (audit_interval)."
        if not self._longer:  # there was no step without an audit
            return sentence
        each = median(self._longer)
        share = each * self._audits / max(1e-9, self._clock() - self._made)
        return f"{sentence} That took {1e3 * each:.3g} ms each, {100 * share:.2g} % of the time."


def told(verdict: Verdict, what: str, members: Sequence[str]) -> str:
    """Return a sentence without its end about the engines that have computed ``what`` with other bits.

    Args:
        verdict: which ranks they are.
        what: the micro-batch and its step.
        members: names of the engines, in rank order.
    """
    if not verdict.ranks:
        return (
            f"{what} was computed again and again, and never twice with the same bits: something in it is drawn from "
            "no seeded generator, or follows a clock"
        )
    names = ", ".join(members[rank] for rank in verdict.ranks)
    if not verdict.certain:
        return f"engines {names} do not compute {what} with the same bits, and one of them may be wrong"
    which = "engine" if len(verdict.ranks) == 1 else "engines"
    return f"{which} {names} computed {what} with other bits than the others"
