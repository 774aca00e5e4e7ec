"""The scheduler's plan on recorded workloads, beside published policies, published figures and a lower bound.

Jobs are simulated (``python -m edt_scheduler.simulate``): the step times are measured ones, the clock is virtual. The
cluster has 16 nodes of 4 GPUs, a plan is made every 60 s, and every change of a job's GPUs costs it 30 s, unless a row
says otherwise. The workloads are Pollux's: 160 jobs in 8 hours at load 1.0, 80 at load 0.5, eight of each.

  mean JCT   seconds from submission to end, the mean of a workload's jobs; the value is the mean of all workloads, and
             in brackets are the smallest and the largest of them
  beside X   our mean JCT divided by that of X, workload by workload
  bound      what no policy with batches that do not change can beat (``simulate.bounds``)
  adaptive   batches follow the GPUs, as in Pollux. Beside it stand Pollux's published results on the same workloads
  rho        the worst finish-time ratio of a workload: a job's time beside that on a fair part of the cluster; the
             value is the worst of all
  at once    a plan is made at each submission and each end, too, as the platform does it
  harder     noise of 10 % in step times; what is told of the work left is wrong by up to 2 times; changes that cost 0.5
             (this engine's), 120 and 250 s; 1 % of the nodes fail in an hour and throw their jobs back by up to 10 min

"unknown" policies are not told how many steps a job has left. One set of parameters serves all rows. They were chosen
on load 0.5 alone, with 60 s rounds and 30 s a change. Where no traces are, a small workload of our own stands in.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("scheduler", "runners")]

import _report  # noqa: E402

from edt_scheduler.plan.worth import Weights  # noqa: E402
from edt_scheduler.simulate import traces  # noqa: E402
from edt_scheduler.simulate.bounds import lower_bound  # noqa: E402
from edt_scheduler.simulate.cluster import Rules, run, trainings  # noqa: E402
from edt_scheduler.simulate.metrics import measure  # noqa: E402
from edt_scheduler.simulate.policies import BOUND, POLICIES  # noqa: E402

KNOWN, UNKNOWN = "ours", "ours-unknown"
ADAPTIVE = {"ours-adaptive": "work known", "ours-adaptive-unknown": "work unknown"}
RIVALS = ("tiresias", "optimus", "afs")
FIXED = (KNOWN, UNKNOWN, *RIVALS)
PLAIN = "as it is"
HARDER: Mapping[str, Rules] = {
    "10 % noise": Rules(noise=0.1),
    "work told wrong by up to 2 times": Rules(wrong=2.0),
    "0.5 s a change": Rules(pause=0.5),
    "120 s a change": Rules(pause=120.0),
    "250 s a change": Rules(pause=250.0),
    "1 % of nodes fail in an hour": Rules(failures_per_hour=0.01),
}
AT_ONCE = "at once"
HARDER_ROWS = "harder"
AT_ONCE_CHEAP = "at once, 0.5 s a change"
RULES: Mapping[str, Rules] = {
    PLAIN: Rules(),
    **HARDER,
    AT_ONCE: Rules(at_once=True),
    AT_ONCE_CHEAP: Rules(at_once=True, pause=0.5),
}
_SHOW_SECONDS = 5.0
"""How often progress is told."""
_COLUMNS: Sequence[tuple[str, str, str, float]] = (
    ("p99 JCT", "p99", "s", 1),
    ("makespan", "makespan", "s", 1),
    ("queue time", "queued", "s", 1),
    ("resizes of a job", "resizes", "", 1),
    ("GPU-seconds lost to resizes", "lost", "%", 100),
    ("worst rho", "unfairness", "", 1),
    ("jobs with rho above 1", "unfair", "%", 100),
    ("GPU-seconds used", "used", "%", 100),
    ("of those useful", "useful", "%", 100),
    ("a decision", "decision_mean", "ms", 1000),
)


@dataclass(frozen=True)
class Task:
    """One run."""

    load: str
    workload: str
    policy: str
    rules: str


def simulated(task: Task, folder: Path) -> Mapping[str, float]:
    """The figures of one run, in a process of its own."""
    found = traces.find(task.workload, folder)
    rules = replace(RULES[task.rules], nodes=found.nodes)
    if task.policy == BOUND:
        return {"mean": lower_bound(trainings(found.submissions, found.applications, rules), rules)}
    policy = POLICIES[task.policy][1](rules)
    return asdict(measure(run(found.submissions, found.applications, policy, rules)))


def tasks(loads: Mapping[str, Sequence[str]], hardest: str, parts: Sequence[str]) -> list[Task]:
    """All runs: each load plainly and with decisions at once, and one of them under harder conditions."""
    found = []
    for load, workloads in loads.items():
        for workload in workloads:
            found += [Task(load, workload, policy, PLAIN) for policy in (*FIXED, *ADAPTIVE, BOUND)]
            if AT_ONCE in parts:
                found += [Task(load, workload, policy, AT_ONCE) for policy in (KNOWN, UNKNOWN, "optimus", "afs")]
                found += [Task(load, workload, policy, AT_ONCE_CHEAP) for policy in (KNOWN, UNKNOWN)]
    for workload in loads[hardest] if HARDER_ROWS in parts else ():
        for harder in HARDER:
            found += [Task(hardest, workload, policy, harder) for policy in (KNOWN, UNKNOWN, "tiresias", "afs")]
    return found


def all_of(wanted: Sequence[Task], folder: Path, processes: int) -> Mapping[Task, Mapping[str, float]]:
    """Run them all, and tell on the way how far that is."""
    found: dict[Task, Mapping[str, float]] = {}
    begun = shown = time.monotonic()
    with ProcessPoolExecutor(processes) as pool:
        coming = {pool.submit(simulated, task, folder): task for task in wanted}
        for done in as_completed(coming):
            found[coming[done]] = done.result()
            now = time.monotonic()
            if now - shown > _SHOW_SECONDS:
                shown = now
                left = (now - begun) / len(found) * (len(wanted) - len(found))
                line = f"{len(found)} of {len(wanted)} runs, about {left / 60:.0f} min left"
                print(f"\r\x1b[K{line}" if sys.stderr.isatty() else line, end="", file=sys.stderr, flush=True)
                print("" if sys.stderr.isatty() else "\n", end="", file=sys.stderr)
    print("\r\x1b[K" if sys.stderr.isatty() else "", end="", file=sys.stderr)
    return found


class Figures:
    """What the runs have come to, as rows."""

    def __init__(self, found: Mapping[Task, Mapping[str, float]], loads: Mapping[str, Sequence[str]]) -> None:
        self._found, self._loads = found, loads
        self.rows: list[_report.Row] = []

    def of(self, load: str, policy: str, figure: str, rules: str = PLAIN) -> list[float]:
        """A figure of each workload."""
        return [self._found[Task(load, each, policy, rules)][figure] for each in self._loads[load]]

    def add(
        self, case: str, who: str, unit: str, runs: Iterable[float], of: Callable[..., float] | None = None
    ) -> float:
        """A row whose value is the mean of all workloads, or what ``of`` makes of them."""
        runs = tuple(runs)
        value = (of or statistics.fmean)(runs)
        self.rows.append(_report.Row(case, who, value, unit, runs))
        return value

    def load(self, load: str, published: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
        """All rows of a load, without those under harder conditions."""
        for policy in (*FIXED, BOUND):
            self.add(f"load {load}, mean JCT", policy, "s", self.of(load, policy, "mean"))
        for ours in (KNOWN, UNKNOWN):
            for other in (*RIVALS, BOUND):
                pairs = zip(self.of(load, ours, "mean"), self.of(load, other, "mean"), strict=True)
                self.add(f"load {load}, {ours} beside", other, "ratio", (a / b for a, b in pairs))
        for policy in FIXED:
            for case, figure, unit, times in _COLUMNS:
                of = max if figure == "unfairness" else None
                self.add(
                    f"load {load}, {case}", policy, unit, (times * each for each in self.of(load, policy, figure)), of
                )
        for rules in (AT_ONCE, AT_ONCE_CHEAP):
            for policy in FIXED:
                if Task(load, self._loads[load][0], policy, rules) in self._found:
                    self.add(f"load {load}, {rules}, mean JCT", policy, "s", self.of(load, policy, "mean", rules))
                    self.add(
                        f"load {load}, {rules}, worst rho", policy, "", self.of(load, policy, "unfairness", rules), max
                    )
                    lost = self.of(load, policy, "lost", rules)
                    self.add(f"load {load}, {rules}, GPU-seconds lost to resizes", policy, "%", (100 * x for x in lost))
        theirs = published.get("pollux", {}).get(load)
        for policy, known in ADAPTIVE.items():
            means = self.of(load, policy, "mean")
            self.add(f"load {load}, adaptive, {known}, mean JCT", KNOWN, "s", means)
            if theirs:
                beside = [theirs[f"workload-{each.partition('/')[2]}"] for each in self._loads[load]]
                self.add(f"load {load}, adaptive, {known}, mean JCT", "Pollux, published", "s", beside)
                ratios = [a / b for a, b in zip(means, beside, strict=True)]
                self.add(f"load {load}, adaptive, {known}, beside", "Pollux, published", "ratio", ratios)

    def harder(self, load: str) -> None:
        """The rows under harder conditions."""
        for rules in (PLAIN, *HARDER):
            for policy in (KNOWN, UNKNOWN, "tiresias", "afs"):
                self.add(f"load {load}, {rules}: mean JCT", policy, "s", self.of(load, policy, "mean", rules))
        for rules in (PLAIN, *HARDER):
            for policy in (KNOWN, UNKNOWN, "tiresias", "afs"):
                lost = [100 * each for each in self.of(load, policy, "lost", rules)]
                self.add(f"load {load}, {rules}: GPU-seconds lost to resizes", policy, "%", lost)

    def targets(self, loads: Iterable[str]) -> list[_report.Target]:
        """What was aimed at, and whether it is reached."""
        found = []

        def aim(what: str, most: float, value: float, unit: str) -> None:
            found.append(_report.Target(what, most, value, unit, value <= most))

        values = {(each.case, each.who): each for each in self.rows}
        for load in loads:
            if load == "1.0":
                aim("load 1.0, mean JCT, work known", 3150, values["load 1.0, mean JCT", KNOWN].value, "s")
                aim("load 1.0, mean JCT, work unknown", 3450, values["load 1.0, mean JCT", UNKNOWN].value, "s")
            for known, mean in (("work known", 0.94), ("work unknown", 1.0)):
                ratios = values.get((f"load {load}, adaptive, {known}, beside", "Pollux, published"))
                if ratios:
                    aim(f"load {load}, adaptive, {known}, beside Pollux, mean", mean, ratios.value, "")
                    if known == "work known":
                        aim(f"load {load}, adaptive, {known}, beside Pollux, worst", 1.0, max(ratios.runs), "")
            for policy in (KNOWN, UNKNOWN):
                lost = values[f"load {load}, GPU-seconds lost to resizes", policy].value
                aim(f"load {load}, {policy}, GPU-seconds lost to resizes of 30 s", 1.0, lost, "%")
                if (f"load {load}, {AT_ONCE}, worst rho", policy) in values:
                    lost = values[f"load {load}, {AT_ONCE_CHEAP}, GPU-seconds lost to resizes", policy].value
                    aim(f"load {load}, {policy}, GPU-seconds lost to resizes of 0.5 s", 0.05, lost, "%")
                    worst = values[f"load {load}, {AT_ONCE}, worst rho", policy].value
                    aim(f"load {load}, {policy}, worst rho, {AT_ONCE}", 1.7, worst, "")
        return found


def main() -> None:
    parser = _report.arguments(__doc__)
    parser.add_argument(
        "--traces", type=Path, metavar="DIR", help=f"where they are; else {traces.VARIABLE} or shared/traces"
    )
    parser.add_argument("--loads", nargs="+", default=["0.5", "1.0"], metavar="LOAD", help="(%(default)s)")
    parser.add_argument("--workloads", nargs="+", metavar="N", help="(1 to 8; --quick: 4 and 6)")
    parser.add_argument(
        "--parts",
        nargs="*",
        choices=[AT_ONCE, HARDER_ROWS],
        default=[AT_ONCE, HARDER_ROWS],
        help="rows beside the plain ones",
    )
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="(%(default)s)")
    given = parser.parse_args()
    folder = traces.folder(given.traces)
    numbers = given.workloads or (["4", "6"] if given.quick else [str(number) for number in range(1, 9)])
    loads = {load: [f"{load}/{number}" for number in numbers] for load in given.loads}
    notes = [f"One set of parameters for all rows, chosen on load 0.5 alone: {Weights()}"]
    published: Mapping[str, Mapping[str, Mapping[str, float]]] = {}
    if (folder / "pollux").is_dir():
        published = traces.published(folder)
    else:
        loads = {traces.SMALL: [traces.SMALL]}
        notes.append(
            f"There are no traces in {folder}: a small workload of our own stands in, and no figure can be compared."
        )
    for note in notes:
        print(note)
    hardest = list(loads)[-1]
    figures = Figures(all_of(tasks(loads, hardest, given.parts), folder, given.processes), loads)
    for load in loads:
        figures.load(load, published)
    if HARDER_ROWS in given.parts:
        figures.harder(hardest)
    _report.finish("scheduler_traces", figures.rows, figures.targets(loads), given.json, notes=notes)


if __name__ == "__main__":
    main()
