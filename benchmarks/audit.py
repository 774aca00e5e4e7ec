"""What it costs a training on two engines that a second engine computes a micro-batch, too, to find wrong bits.

Three trainings live beside each other and compute in turn: one without audits, a second one without, and one in which
each step is audited. Counted is

  ms a step   of each of them
  an audit    by how much longer an audited step takes than one without, in ms and in micro-batches
  share       of the time of a training that is audited once a minute, the default

"no audits, again" says how much of it is the machine.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import _bound
import _report
from _participants import HERE, RUNNERS, Ours, Side, Task, compare

MICRO_BATCHES, WORKERS = 4, 2
TURNS = {"conv-1M": 20, "linear-25M": 5, "transformer-10M": 5}
"""Steps of a turn."""
QUICK = ("conv-1M",)
ROUNDS, QUICK_ROUNDS = 15, _bound.FEWEST
MINUTE = 60.0
MOST_SHARE = 1.0
NONE, AGAIN, EACH = "no audits", "no audits, again", "each step audited"
_WORDS = {NONE: 0, AGAIN: 0, EACH: 1}


def measured(task: Task, rounds: int) -> tuple[list[_report.Row], list[_report.Target]]:
    """The rows of one case, and its target."""
    words = ["exact", task.network, str(task.micro_batches), str(task.workers), str(task.turn), "--audit"]

    def start(who: str) -> Callable[[], Side]:
        return lambda: Ours(who, task, [*words, str(_WORDS[who])])

    found = compare([start(who) for who in _WORDS], rounds)
    rows = [_report.row(task.case, who, "ms a step", [1e3 * each for each in one.steps]) for who, one in found.items()]
    usual = found[NONE].steps
    micro_batch = statistics.median(usual) * task.workers / task.micro_batches
    for who in (AGAIN, EACH):
        longer = [other - one for other, one in zip(found[who].steps, usual, strict=True)]
        rows.append(_report.row(f"{task.case}: an audit", who, "ms", [1e3 * each for each in longer]))
        rows.append(
            _report.row(f"{task.case}: an audit", who, "micro-batches", [each / micro_batch for each in longer])
        )
    shares = [100 * max(0.0, each - one) / MINUTE for each, one in zip(found[EACH].steps, usual, strict=True)]
    rows.append(_report.row(f"{task.case}: share", EACH, "%", shares))
    bound = _bound.of_median(shares)
    what = f"{task.case}: share of a training audited once a minute, 95 % bound of the median"
    return rows, [_report.Target(what, MOST_SHARE, bound, "%", bound <= MOST_SHARE)]


def main() -> None:
    options = _report.arguments(__doc__).parse_args()
    os.environ["PYTHONPATH"] = f"{RUNNERS}:{HERE}"
    rows: list[_report.Row] = []
    targets: list[_report.Target] = []
    with tempfile.TemporaryDirectory(prefix="edt-audit-", ignore_cleanup_errors=True) as place:
        for network in QUICK if options.quick else TURNS:
            task = Task(Path(place), "pytorch", network, MICRO_BATCHES, WORKERS, 1, TURNS[network])
            print(f"{task.case} …", file=sys.stderr, flush=True)
            found, held = measured(task, QUICK_ROUNDS if options.quick else ROUNDS)
            rows += found
            targets += held
    _report.finish("audit", rows, targets, options.json)


if __name__ == "__main__":
    main()
