"""Where recorded workloads are, and what stands in for them where they are not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from edt_scheduler.simulate import small
from edt_scheduler.simulate.applications import Application
from edt_scheduler.simulate.workload import BadWorkload, Submission, read_workload

VARIABLE = "EDT_TRACES"
SMALL = "small"
_BESIDE = Path(__file__).parents[4] / "shared" / "traces"
FORMULAS: Callable[[str], Application] = cache(small.Formula)
"""An application of the small workload by its name."""
_NODES = 16
"""Nodes of the cluster for which Pollux's workloads were made."""


@dataclass(frozen=True)
class Found:
    """A workload, and what belongs to it."""

    title: str
    submissions: Sequence[Submission]
    applications: Callable[[str], Application]
    nodes: int
    """Nodes of the cluster that it is made for."""
    note: str = ""
    """What the reader has to know of it; "": nothing."""


def folder(given: Path | None = None) -> Path:
    """The folder of the traces: as given, or EDT_TRACES, or ``shared/traces`` beside the checkout."""
    return given or Path(os.environ.get(VARIABLE) or _BESIDE)


def find(workload: str, traces: Path) -> Found:
    """A workload by what the user calls it.

    Args:
        workload: ``small``, or LOAD/NUMBER of the traces, such as 1.0/6, or the path of a CSV file.
        traces: the folder of the traces. Where it is not there, the small workload stands in for one of its own.

    Raises:
        BadWorkload: if there is no such workload, or it cannot be read.
    """
    if workload == SMALL:
        return _small("")
    if Path(workload).suffix == ".csv":
        path, title = Path(workload), Path(workload).stem
    else:
        load, slash, number = workload.partition("/")
        if not slash:
            raise BadWorkload(
                f"a workload is {SMALL}, LOAD/NUMBER such as 1.0/6, or the path of a CSV file, not {workload!r}"
            )
        if not (traces / "pollux").is_dir():
            return _small(
                f"There are no traces in {traces} (--traces, or {VARIABLE}, names another folder). A small workload of "
                f"our own stands in for {workload}: no figure below can be compared with a published one."
            )
        path, title = traces / "pollux" / f"workloads-{load}" / f"workload-{number}.csv", workload
        if not path.is_file():
            there = sorted(
                f"{each.parent.name.removeprefix('workloads-')}/{each.stem.removeprefix('workload-')}"
                for each in (traces / "pollux").glob("workloads-*/workload-*.csv")
            )
            raise BadWorkload(f"{traces} has no workload {workload}; it has {', '.join(there) or 'none'}")
    submissions = read_workload(path)
    known = applications(traces)
    for each in submissions:
        application = known(each.application)
        if not application.initial_batch <= each.batch <= application.max_batch:
            batches = f"from {application.initial_batch} to {application.max_batch}"
            raise BadWorkload(f"{each.name}: {application.name} was trained with batches {batches}, not {each.batch}")
    return Found(title, submissions, known, _NODES)


@cache
def applications(traces: Path) -> Callable[[str], Application]:
    """An application by its name: one of the traces, or one of the small workload."""
    profiles = traces / "pollux" / "profiles"

    @cache
    def named(name: str) -> Application:
        if name in small.applications():
            return small.Formula(name)
        if not (profiles / name).is_dir():
            there = sorted(each.name for each in profiles.glob("*") if each.is_dir())
            raise BadWorkload(
                f"there is no application {name}; there are {', '.join([*there, *sorted(small.applications())])}"
            )
        return Application(profiles / name)

    return named


def published(traces: Path) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
    """Published mean completion times in seconds, by policy, load and workload (``workload-1``)."""
    try:
        found: Mapping[str, Mapping[str, Mapping[str, float]]] = json.loads(
            (traces / "pollux" / "published.json").read_text()
        )
    except OSError as error:
        raise BadWorkload(f"{traces / 'pollux' / 'published.json'}: {error.strerror}") from None
    return {policy: loads for policy, loads in found.items() if isinstance(loads, dict)}


def _small(note: str) -> Found:
    return Found("the small workload", small.small_workload(), FORMULAS, small.NODES, note)
