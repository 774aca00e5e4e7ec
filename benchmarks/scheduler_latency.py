"""How long the scheduler takes to decide: the plan alone, and a whole pass with the database, by size of the cluster.

  plan       ``plan(state)`` alone: 1 job for each 8 GPUs, nodes of 8, in a state that goes on: between two plans 1 job
             in 100 ends and as many are submitted, and what the last plan has given out is held
  first      a whole pass of a scheduler that has read nothing yet: it reads, plans, and writes why jobs wait
  still      a whole pass that has nothing to do: it reads what has changed, plans, and writes nothing. The GPUs are all
             held, 8 by each job, and 10,000 jobs more are queued
  start      the same pass when one job has just ended: it starts another one, and writes that down
  after it   all passes after that until one writes nothing, together: what is told of the jobs that wait has changed

Each is milliseconds: p50 is the median, p99 the 99th percentile. Where the machine does other things meanwhile, the
processor time of the plan tells what a quiet one would need. Nothing trains: the rows are made by SQL. PostgreSQL
is one server on this machine, as the tests start it.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests", "scheduler", "runners", "migrations")]

import _report  # noqa: E402
from sqlalchemy import func, select, update  # noqa: E402

from edt_migrations import migrate  # noqa: E402
from edt_scheduler.decide.reconcile import Scheduler  # noqa: E402
from edt_scheduler.model.states import Health, Role  # noqa: E402
from edt_scheduler.notify.notifier import Notifier  # noqa: E402
from edt_scheduler.operations import accounts  # noqa: E402
from edt_scheduler.plan.curves import Point  # noqa: E402
from edt_scheduler.plan.policy import plan  # noqa: E402
from edt_scheduler.plan.state import Job, Node, Phase, Plan, State  # noqa: E402
from edt_scheduler.platform import Platform  # noqa: E402
from edt_scheduler.settings import Settings  # noqa: E402
from edt_scheduler.store.database import Database  # noqa: E402
from edt_scheduler.store.tables import allocations, attempts, jobs, supervisors  # noqa: E402
from support.seeded import Past, seed  # noqa: E402

PER_NODE = 8
PLANS = {1_000: 100, 10_000: 50, 100_000: 20}
"""GPUs to the number of plans that are measured."""
PASSES = {1_000: 10, 10_000: 5, 100_000: 3}
"""The same of passes of each kind."""
QUICK = {1_000: 3}
PLAN_TARGETS = {1_000: 10.0, 10_000: 100.0, 100_000: 1000.0}
PASS_TARGETS = {1_000: 150.0, 10_000: 300.0, 100_000: 2000.0}
"""Milliseconds, of the 99th percentile."""
QUEUED = 10_000
_CHURN = 100
"""One in so many jobs ends between two plans."""
OWNERS = ("ana", "bob")
_USERS, _QUEUES = 50, 10
_MINUTE = 60.0


def p99(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(0.99 * len(values)))]


class Cluster:
    """Nodes and jobs that go on from one plan to the next, as the state's slots are named."""

    def __init__(self, gpus: int) -> None:
        self._chance = random.Random(gpus)  # noqa: S311 - of a benchmark
        self._names = tuple(str(slot) for slot in range(PER_NODE))
        self._nodes = [f"node-{number:05d}" for number in range(gpus // PER_NODE)]
        self._numbers = 0
        self._jobs: dict[str, Job] = {}
        self.now = 0.0
        for _ in range(gpus // PER_NODE):
            self._submit()

    def state(self) -> State:
        """The state as it is now."""
        taken: dict[str, set[str]] = {}
        for job in self._jobs.values():
            for node, slots in job.slots.items():
                taken.setdefault(node, set()).update(slots)
        nodes = []
        for name in self._nodes:
            free = tuple(slot for slot in self._names if slot not in taken.get(name, ()))
            nodes.append(Node(name, PER_NODE, len(free), Health.UP, free_slots=free))
        return State(self.now, tuple(nodes), tuple(self._jobs.values()))

    def carry_out(self, decided: Plan) -> None:
        """What the plan has decided holds a minute later. One in a hundred jobs has ended, and others are there."""
        for name, job in list(self._jobs.items()):
            alloc = decided.alloc[name]
            slots = {node: list(held) for node, held in job.slots.items()}
            for node, names in decided.takes.get(name, {}).items():
                slots[node] = [slot for slot in slots[node] if slot not in names]
            for node, names in decided.gives.get(name, {}).items():
                slots.setdefault(node, []).extend(names)
            kept = {node: held[len(held) - alloc.get(node, 0) :] for node, held in slots.items()}  # without ``over``
            named = {node: tuple(held) for node, held in kept.items() if held}
            assert {node: len(held) for node, held in named.items()} == {node: n for node, n in alloc.items() if n}, (
                name
            )
            steps = (job.steps_left or 0) - _MINUTE / job.points[0].seconds * sum(alloc.values()) ** 0.8
            self._jobs[name] = replace(
                job,
                alloc=dict(alloc),
                slots=named,
                phase=Phase.RUNNING if alloc else Phase.WAITING,
                head_node=decided.head_nodes.get(name),
                steps_left=max(100.0, steps),
                attained=job.attained + _MINUTE * sum(alloc.values()),
            )
        self.now += _MINUTE
        running = [name for name, job in self._jobs.items() if job.alloc]
        for name in self._chance.sample(running, max(1, len(running) // _CHURN)):
            del self._jobs[name]
            self._submit()

    def _submit(self) -> None:
        number, self._numbers = self._numbers, self._numbers + 1
        chance = self._chance
        step = chance.uniform(0.1, 10.0)
        self._jobs[f"edt-{number}"] = Job(
            id=f"edt-{number}",
            submit=number,
            max=64,
            phase=Phase.WAITING,
            engines=chance.choice([8, 16, 32, 64, 128]),
            points=(Point(1, 1, step), Point(4, 1, step / chance.uniform(2.5, 3.9))),
            steps_left=10 ** chance.uniform(1, 5),
            user=f"user-{number % _USERS}",
            queue=f"/team-{number % _QUEUES}",
            submitted=self.now,
            pause=0.5,
        )


def plans(gpus: int, number: int) -> tuple[list[float], list[float]]:
    """Milliseconds of plans one after the other, and of the processor in them, without the first few, which fill an
    empty cluster.
    """
    cluster = Cluster(gpus)
    found, computed = [], []
    for turn in range(number + 3):
        state = cluster.state()
        begun, used = time.perf_counter(), time.process_time()
        decided = plan(state)
        spent, computing = time.perf_counter() - begun, time.process_time() - used
        if turn >= 3:
            found.append(1000 * spent)
            computed.append(1000 * computing)
        cluster.carry_out(decided)
    return found, computed


@contextmanager
def platforms(url: str, gpus: int) -> Iterator[Platform]:
    """A platform whose GPUs are all held by jobs that run, 8 by each, while QUEUED jobs wait for as many."""
    with tempfile.TemporaryDirectory(prefix="edt-bench-") as name:
        home = Path(name)
        settings = Settings(home=home, database_url=url or f"sqlite:///{home / 'edt.db'}", broker_url="")
        for folder in (settings.jobs, settings.staged, settings.home / "run"):
            folder.mkdir(parents=True, exist_ok=True)
        migrate(settings.database_url)
        database = Database(settings.database_url)
        platform = Platform(database, Notifier(database), settings)
        try:
            platform.secret_key.keys()
            for user in OWNERS:
                accounts.add_user(platform, user, "hash", Role.USER)
            running = gpus // PER_NODE
            past = Past(
                jobs=running + QUEUED,
                nodes=running,
                slots=PER_NODE,
                spells=PER_NODE,
                hours=1.0,
                running=running,
                waiting=QUEUED,
                points=0,
                usage_minutes=0.0,
                owners=OWNERS,
            )
            seed(database, platform.clock(), past)
            with database.transaction() as tx:
                tx.execute(update(jobs).values(num_worker=PER_NODE, min_slots=PER_NODE))
            yield platform
        finally:
            platform.close()


def passes(url: str, gpus: int, number: int) -> Mapping[str, list[float]]:
    """Milliseconds of a scheduler's passes, by what they do."""
    with platforms(url, gpus) as platform:
        scheduler = Scheduler(platform)
        found: dict[str, list[float]] = {"first": [], "still": [], "start": [], "after it": []}

        def one(what: str, *, writes: bool) -> None:
            begun = time.perf_counter()
            wrote = scheduler.look()
            spent = 1000 * (time.perf_counter() - begun)
            assert wrote == writes, f"a pass that should {'' if writes else 'not '}write"
            found[what].append(spent)

        begun = time.perf_counter()
        scheduler.look()
        found["first"].append(1000 * (time.perf_counter() - begun))
        _settle(scheduler)
        for _ in range(number):
            one("still", writes=False)
        for turn in range(number):
            _end(platform, 1 + turn)
            one("start", writes=True)
            begun = time.perf_counter()
            _settle(scheduler)
            found["after it"].append(1000 * (time.perf_counter() - begun))
        with platform.database.snapshot() as tx:
            started = tx.execute(select(func.count()).where(attempts.c.job_id > gpus // PER_NODE)).scalar_one()
        assert started == number, f"{started} jobs were started, not {number}"
        return found


def _settle(scheduler: Scheduler) -> None:
    """Passes until nothing is left to write: reasons of jobs that wait are written a few at a time."""
    for _ in range(1000):
        if not scheduler.look():
            return
    raise AssertionError("the scheduler writes for ever")


def _end(platform: Platform, number: int) -> None:
    """The job has finished: its slots are free, by the rows that the reports of its engines would write."""
    now = platform.clock()
    with platform.database.transaction() as tx:
        mine = allocations.c.job_id == number
        tx.execute(update(allocations).where(mine).values(released_at=now, kind="finished"))
        ended = {"ended_at": now, "kind": "finished"}
        tx.execute(update(supervisors).where(supervisors.c.job_id == number).values(**ended, reports_complete_at=now))
        tx.execute(update(attempts).where(attempts.c.job_id == number).values(**ended, message=""))
        tx.execute(update(jobs).where(jobs.c.id == number).values(state="FINISHED", finished_at=now))


@contextmanager
def servers(kinds: Sequence[str]) -> Iterator[Mapping[str, Callable[[str], str]]]:
    """Database to what makes the URL of a new one; an empty URL is that of a file in the platform's home."""
    with ExitStack() as stack:
        found: dict[str, Callable[[str], str]] = {}
        if "SQLite" in kinds:
            found["SQLite"] = lambda _: ""
        if "PostgreSQL" in kinds:
            from support.postgres import Postgres

            found["PostgreSQL"] = stack.enter_context(Postgres()).create
        yield found


def main() -> None:
    parser = _report.arguments(__doc__)
    parser.add_argument("--gpus", type=int, nargs="+", metavar="N", help="of the cluster (1000 10000 100000)")
    parser.add_argument("--only", choices=["plan", "pass"], help="the plan alone, or the passes alone")
    parser.add_argument("--databases", nargs="+", choices=["SQLite", "PostgreSQL"], default=["SQLite", "PostgreSQL"])
    given = parser.parse_args()
    sizes = given.gpus or list(QUICK if given.quick else PLANS)
    rows: list[_report.Row] = []
    targets: list[_report.Target] = []

    def add(case: str, who: str, runs: Sequence[float], most: float | None) -> None:
        rows.append(_report.Row(f"{case}, p50", who, statistics.median(runs), "ms", tuple(runs)))
        if len(runs) > 1:
            rows.append(_report.Row(f"{case}, p99", who, p99(runs), "ms", tuple(runs)))
        print(
            f"{case}, {who}: p50 {statistics.median(runs):.1f} ms, p99 {p99(runs):.1f} ms", file=sys.stderr, flush=True
        )
        if most is not None:
            targets.append(_report.Target(f"{case}, {who}, p99", most, p99(runs), "ms", p99(runs) <= most))

    if given.only != "pass":
        for gpus in sizes:
            found, computed = plans(gpus, PLANS.get(gpus, 20))
            add(f"plan, {gpus} GPUs", "plan(state)", found, PLAN_TARGETS.get(gpus))
            add(f"plan, {gpus} GPUs", "its processor time", computed, None)
    if given.only != "plan":
        with servers(given.databases) as created:
            for gpus in sizes:
                for kind, create in created.items():
                    number = (QUICK if given.quick else PASSES).get(gpus, 5)
                    figures = passes(create(f"latency_{gpus}"), gpus, number)
                    for what, runs in figures.items():
                        case = f"pass, {what}, {gpus} GPUs, {QUEUED} queued"
                        add(case, kind, runs, PASS_TARGETS.get(gpus) if what in {"still", "start"} else None)
    _report.finish("scheduler_latency", rows, targets, given.json)


if __name__ == "__main__":
    main()
