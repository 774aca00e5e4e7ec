"""The rules from event to event and from picture to picture: histories that replay, words that stand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from checker.database import Picture, Row
from checker.rows import TERMINAL
from checker.violation import Invariant, Violation

LEGAL = {
    None: {"SUBMITTED"},
    "SUBMITTED": {"PENDING", "KILLED"},
    "PENDING": {"RUNNING", "FINISHED", "KILLED", "ERROR"},
    "RUNNING": {"PENDING", "FINISHED", "KILLED", "ERROR"},
}


def replay(picture: Picture) -> Iterator[Violation]:
    """I5: each job's history, played from its first event, must come out at its row."""
    for job, row in picture.jobs.items():
        history = picture.events.get(job, ())
        numbers = [event["seq"] for event in history]
        if numbers != list(range(1, len(numbers) + 1)):
            yield Violation(Invariant.I5, (job, "seq"), f"the history of edt-{job} has a gap: {_gap(numbers)}")
        state: str | None = None
        for event in history:
            if event["kind"] != "state":
                continue
            before, after = event["data"].get("before"), event["data"].get("after")
            if before != state or after not in LEGAL.get(state, set()):
                message = f"event {event['seq']} of edt-{job} goes from {before} to {after}, it was {state}"
                yield Violation(Invariant.I5, (job, event["seq"]), message)
            state = after
        if state != row["state"]:
            yield Violation(Invariant.I5, job, f"edt-{job} is {row['state']}, its history comes out at {state}")
        if (row["finished_at"] is not None) != (row["state"] in TERMINAL):
            yield Violation(Invariant.I5, (job, "end"), f"edt-{job} is {row['state']} with end {row['finished_at']}")


def _gap(numbers: list[int]) -> str:
    at = next((n for n, number in enumerate(numbers, 1) if n != number), len(numbers))
    return f"event {at} has number {numbers[at - 1]}"


@dataclass
class Memory:
    """What was seen, so that a later picture may not take it back."""

    _jobs: dict[int, Row] = field(default_factory=dict)
    _events: dict[tuple[int, int], tuple[Any, ...]] = field(default_factory=dict)
    _released: dict[int, tuple[float, str]] = field(default_factory=dict)
    _allocations: dict[int, int] = field(default_factory=dict)
    """Allocation to its job; the same for resizes."""
    _resizes: dict[int, int] = field(default_factory=dict)
    purged: set[int] = field(default_factory=set)
    """Jobs that were deleted and over, and whose rows are gone."""
    _acked: dict[tuple[int, int, int], int] = field(default_factory=dict)
    _closed_nodes: dict[int, Row] = field(default_factory=dict)

    def compare(self, picture: Picture) -> Iterator[Violation]:
        """What this picture says otherwise than an earlier one; remembers it."""
        yield from self._compare_jobs(picture)
        yield from self._compare_events(picture)
        yield from self._compare_allocations(picture)
        yield from self._compare_nodes(picture)

    def _compare_jobs(self, picture: Picture) -> Iterator[Violation]:
        for job, was in self._jobs.items():
            row = picture.jobs.get(job)
            if row is None:
                if was["state"] in TERMINAL and was["deleted_at"] is not None:
                    self.purged.add(job)
                else:
                    yield Violation(Invariant.I3, (job, "gone"), f"edt-{job} was there and is no more")
                continue
            if was["state"] in TERMINAL and row["state"] != was["state"]:
                yield Violation(Invariant.I5, (job, "terminal"), f"edt-{job} was {was['state']}, now {row['state']}")
            if row["fence"] < was["fence"]:
                yield Violation(
                    Invariant.I9, (job, "down"), f"edt-{job} went from fence {was['fence']} to {row['fence']}"
                )
        self._jobs = dict(picture.jobs)
        for row in picture["supervisors"]:
            key = row["job_id"], row["fence"], row["node_id"]
            if row["acked"] < self._acked.get(key, 0):
                yield Violation(Invariant.I12, (key, "acked"), f"report cursor {key} went back to {row['acked']}")
            self._acked[key] = row["acked"]

    def _compare_events(self, picture: Picture) -> Iterator[Violation]:
        for row in picture["job_events"]:
            key = row["job_id"], row["seq"]
            event = row["time"], row["kind"], row["fence"], row["message"]
            if self._events.setdefault(key, event) != event:
                yield Violation(Invariant.I5, (key, "rewritten"), f"event {key} said {self._events[key]}, now {event}")

    def _compare_allocations(self, picture: Picture) -> Iterator[Violation]:
        for row in picture["allocations"]:
            back = row["released_at"], row["kind"]
            known = self._released.get(row["id"])
            if known is not None and known != back:
                message = f"allocation {row['id']} came back at {known}, and again at {back}"
                yield Violation(Invariant.I8, (row["id"], "again"), message)
            if row["released_at"] is not None:
                self._released[row["id"]] = back
        for table, known in (("allocations", self._allocations), ("resizes", self._resizes)):
            there = {row["id"] for row in picture[table]}
            gone = sorted(each for each, job in known.items() if each not in there and job not in self.purged)
            if gone:
                yield Violation(Invariant.I8, (table, *gone), f"{table} {gone} are no more")

    def _compare_nodes(self, picture: Picture) -> Iterator[Violation]:
        """I2: a node that took no work in the last picture, and takes none now, was given none between them."""
        for row in picture["allocations"]:
            was = self._closed_nodes.get(row["node_id"])
            now = picture.nodes[row["node_id"]]
            if row["id"] not in self._allocations and was is not None and _closed(now) == _closed(was):
                message = f"allocation {row['id']} was given on {now['name']}, which is {_closed(now)}"
                yield Violation(Invariant.I2, ("closed", row["id"]), message)
        self._allocations |= {row["id"]: row["job_id"] for row in picture["allocations"]}
        self._resizes |= {row["id"]: row["job_id"] for row in picture["resizes"]}
        self._closed_nodes = {node: row for node, row in picture.nodes.items() if _closed(row)}


def _closed(node: Row) -> str:
    if node["lost_at"] is not None:
        return f"lost since {node['lost_at']}"
    return "" if node["intent"] == "open" else str(node["intent"])
