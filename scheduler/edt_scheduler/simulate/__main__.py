"""``python -m edt_scheduler.simulate``: policies beside each other on one workload, on a virtual clock.

    python -m edt_scheduler.simulate small --policy ours fifo bound
    python -m edt_scheduler.simulate 1.0/6 --policy ours ours-unknown tiresias optimus afs bound --json figures.json
    python -m edt_scheduler.simulate my-week.csv --policy ours --gantt week.svg --at-once --pause 0.5

Figures go to standard output, progress to standard error. The exit status is 0, or 2 if the workload or an option
cannot be used; then one sentence says why.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from edt_scheduler.simulate import traces
from edt_scheduler.simulate.bounds import lower_bound
from edt_scheduler.simulate.cluster import Rules, Run, run, trainings
from edt_scheduler.simulate.policies import BOUND, POLICIES
from edt_scheduler.simulate.report import LEGEND, document, draw, table, write_json
from edt_scheduler.simulate.workload import BadWorkload

_DEFAULT = ("ours", "ours-unknown", "tiresias", "optimus", "afs", BOUND)
_SHOW_SECONDS = 0.2


def main(words: list[str] | None = None) -> int:
    """Run a comparison.

    Args:
        words: the command line without the program's name; None: ``sys.argv``.

    Returns:
        The exit status.
    """
    given = _parser().parse_args(words)
    try:
        found = traces.find(given.workload, traces.folder(given.traces))
        rules = _rules(given, found.nodes)
        _writable(given.json, given.gantt)
        if found.note:
            sys.stdout.write(found.note + "\n")
        runs: dict[str, Run] = {}
        bound = None
        for name in dict.fromkeys(given.policy or _DEFAULT):
            show = _Progress(name, len(found.submissions))
            if name == BOUND:
                jobs = trainings(found.submissions, found.applications, rules)
                bound = lower_bound(jobs, rules, show.part)
            else:
                make = POLICIES[name][1]
                runs[name] = run(found.submissions, found.applications, make(rules), rules, show.jobs)
            show.end()
        sys.stdout.write(f"{_title(found, rules)}\n{table(runs, bound)}\n\n{LEGEND}\n")
        if given.json:
            write_json(given.json, document(found, rules, runs, bound))
        for path in draw(given.gantt, found.title, runs) if given.gantt else ():
            sys.stdout.write(f"{path} is drawn\n")
    except (BadWorkload, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    each = "\n".join(f"  {name:22}{what}" for name, (what, _) in POLICIES.items())
    parser = argparse.ArgumentParser(
        prog="python -m edt_scheduler.simulate",
        description="Compare policies on one workload, on a virtual clock.",
        epilog=f"policies:\n{each}\n  {BOUND:22}what no policy can beat, with batches that do not change",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("workload", help="small, LOAD/NUMBER of the traces such as 1.0/6, or the path of a CSV file")
    parser.add_argument(
        "--policy",
        nargs="+",
        action="extend",
        choices=[*POLICIES, BOUND],
        metavar="NAME",
        help=f"one or more of those below; without it: {' '.join(_DEFAULT)}",
    )
    parser.add_argument(
        "--traces",
        type=Path,
        metavar="DIR",
        help=f"where the traces are; without it {traces.VARIABLE}, or shared/traces beside the checkout",
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all figures there, each job's too")
    parser.add_argument("--gantt", type=Path, metavar="PATH", help="draw who held which GPU when, as SVG")
    rules = parser.add_argument_group("rules of the cluster and its clock (defaults: those of Pollux's simulator)")
    rules.add_argument("--nodes", type=_whole(1), metavar="N", help="default: those that the workload is made for")
    rules.add_argument("--gpus", type=_whole(1), default=Rules.gpus, metavar="N", help="of a node (%(default)s)")
    rules.add_argument(
        "--round", type=_number(1), default=Rules.round_seconds, metavar="S", help="seconds between plans (%(default)g)"
    )
    rules.add_argument("--at-once", action="store_true", help="plan at each submission and each end, too")
    rules.add_argument(
        "--pause", type=_number(0), default=Rules.pause, metavar="S", help="seconds that a change costs (%(default)g)"
    )
    rules.add_argument(
        "--noise", type=_number(0, 0.5), default=0.0, metavar="PART", help="deviation of step times, such as 0.1"
    )
    rules.add_argument(
        "--wrong",
        type=_number(1),
        default=1.0,
        metavar="TIMES",
        help="estimates of work are wrong by up to so many times",
    )
    rules.add_argument(
        "--failures", type=_number(0, 1), default=0.0, metavar="PART", help="nodes that fail in an hour, such as 0.01"
    )
    rules.add_argument(
        "--checkpoint",
        type=_number(0),
        default=Rules.checkpoint_seconds,
        metavar="S",
        help="how far a failure throws back at most (%(default)g)",
    )
    rules.add_argument("--seed", type=_whole(0), default=0, metavar="N", help="of noise, failures and wrong estimates")
    return parser


def _rules(given: argparse.Namespace, nodes: int) -> Rules:
    return Rules(
        nodes=given.nodes or nodes,
        gpus=given.gpus,
        round_seconds=given.round,
        at_once=given.at_once,
        pause=given.pause,
        noise=given.noise,
        wrong=given.wrong,
        failures_per_hour=given.failures,
        checkpoint_seconds=given.checkpoint,
        seed=given.seed,
    )


def _title(found: traces.Found, rules: Rules) -> str:
    gpus = f"{rules.nodes} nodes of {rules.gpus} GPUs"
    every = f"a plan every {rules.round_seconds:g} s" + (" and at each submission and end" if rules.at_once else "")
    more = [
        f"noise of {rules.noise:.0%} in step times" if rules.noise else "",
        f"work told wrong by up to {rules.wrong:g} times" if rules.wrong > 1 else "",
        f"{rules.failures_per_hour:.1%} of nodes fail in an hour" if rules.failures_per_hour else "",
    ]
    words = [f"{len(found.submissions)} jobs", gpus, every, f"{rules.pause:g} s a change", *filter(None, more)]
    return f"{found.title}: {', '.join(words)}"


def _writable(*paths: Path | None) -> None:
    """Say before the work, not after it, that a file cannot be written."""
    for path in paths:
        if path is not None and not path.parent.is_dir():
            raise BadWorkload(f"{path} cannot be written: there is no folder {path.parent}")


def _whole(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"takes a whole number from {least}, not {text!r}")
        return int(text)

    return parse


def _number(least: float, most: float = float("inf")) -> Callable[[str], float]:
    def parse(text: str) -> float:
        takes = f"a number from {least:g}" + (f" to {most:g}" if most < float("inf") else "")
        try:
            found = float(text)
        except ValueError:
            found = float("nan")
        if not least <= found <= most or found == float("inf"):
            raise argparse.ArgumentTypeError(f"takes {takes}, not {text!r}")
        return found

    return parse


class _Progress:
    """One line that says how far a policy has come; nothing where nobody looks."""

    def __init__(self, name: str, jobs: int) -> None:
        self._name, self._jobs = name, jobs
        self._begun = self._shown = time.monotonic()
        self._looks = sys.stderr.isatty()

    def jobs(self, now: float, ended: int) -> None:
        """So many jobs have ended at this virtual time."""
        self._show(f"{ended} of {self._jobs} jobs have ended, after {now / 3600:.1f} simulated hours")

    def part(self, done: float) -> None:
        """So much of the work is done, from 0 to 1."""
        self._show(f"{done:.0%}")

    def end(self) -> None:
        """All of it is done."""
        clear = "\r\x1b[K" if self._looks else ""
        sys.stderr.write(f"{clear}{self._name}: {time.monotonic() - self._begun:.1f} s\n")

    def _show(self, text: str) -> None:
        now = time.monotonic()
        if self._looks and now - self._shown > _SHOW_SECONDS:
            self._shown = now
            sys.stderr.write(f"\r\x1b[K{self._name}: {text}")
            sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
