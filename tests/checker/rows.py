"""The rules on one picture of the database. Each yields what is wrong in it; nothing is remembered."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator

from checker.database import Picture, Row
from checker.home_files import Reports
from checker.violation import Invariant, Violation

TERMINAL = {"FINISHED", "KILLED", "ERROR"}
RELEASE_SECONDS = 60.0
"""I6: from the end of a job until it holds nothing."""
OUTBOX_SECONDS = 60.0
START_SECONDS = 30.0
"""I10: from the moment there is a slot for a job until it has an attempt."""
BYPASSES = 3
"""I11: so many later jobs may start before one that has never run."""


def judge(picture: Picture, reports: Reports) -> Iterator[Violation]:
    """Everything that this picture says by itself."""
    yield from _orphans(picture)
    yield from _slots(picture)
    yield from _sizes(picture)
    yield from _gangs(picture)
    yield from _over(picture)
    yield from _given_and_back(picture)
    yield from _fences(picture)
    yield from _waiting(picture)
    yield from _passed(picture)
    yield from _counters(picture, reports)
    yield from _outbox(picture)
    yield from _running(picture)


def _orphans(picture: Picture) -> Iterator[Violation]:
    """A job goes whole, or not at all."""
    for table in ("job_events", "attempts", "supervisors", "resizes", "allocations"):
        for job in {row["job_id"] for row in picture[table]} - picture.jobs.keys():
            yield Violation(Invariant.I5, (table, job), f"edt-{job} is no more, and has rows in {table}")


def _slots(picture: Picture) -> Iterator[Violation]:
    held: dict[tuple[int, str], list[int]] = defaultdict(list)
    for row in picture.open:
        held[row["node_id"], row["slot"]].append(row["id"])
    for (node, slot), ids in held.items():
        if len(ids) > 1:
            name = picture.nodes[node]["name"]
            yield Violation(Invariant.I1, (node, slot), f"slot {slot} of {name} is held by allocations {ids}")


def _sizes(picture: Picture) -> Iterator[Violation]:
    there = {(row["node_id"], row["slot"]) for row in picture["slots"]}
    kept: Counter[int] = Counter()
    for row in picture.open:
        if (row["node_id"], row["slot"]) not in there:
            yield Violation(Invariant.I2, row["id"], f"allocation {row['id']} holds slot {row['slot']}, which is none")
        kept[row["job_id"]] += row["release_asked_at"] is None and not row["until_joined"]
    for job, number in kept.items():
        if (row := picture.jobs.get(job)) is None:
            continue
        most = max(row["num_worker"] * row["worker_device_num"], row["max_slots"] or 0)
        if number > most:
            yield Violation(Invariant.I2, job, f"edt-{job} holds {number} slots and asked for at most {most}")


def _gangs(picture: Picture) -> Iterator[Violation]:
    """A gang's attempt was given all its slots at once, whole workers on each node. While the attempt goes on, it keeps
    those whose processes have not finished."""
    given: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in picture["allocations"]:
        given[row["job_id"], row["fence"]].append(row)
    for attempt in picture["attempts"]:
        job, key = picture.jobs.get(attempt["job_id"]), (attempt["job_id"], attempt["fence"])
        if job is None or job["gang"] is None:
            continue
        size, name = job["num_worker"] * job["worker_device_num"], f"attempt {key[1]} of edt-{key[0]}"
        if len(given[key]) != size:
            yield Violation(
                Invariant.I2, ("gang", key), f"{name} was given {len(given[key])} slots of a gang of {size}"
            )
        for node, number in Counter(row["node_id"] for row in given[key]).items():
            if number % job["worker_device_num"]:
                text = f"{name} was given {number} slots of {picture.nodes[node]['name']}, which are no whole workers"
                yield Violation(Invariant.I2, ("workers", key, node), text)
        goes_on = attempt["kind"] is None and all(row["release_asked_at"] is None for row in given[key])
        gone = [row["id"] for row in given[key] if row["released_at"] is not None and row["kind"] != "finished"]
        if goes_on and gone:
            yield Violation(Invariant.I2, ("part", key), f"{name}, a gang, goes on without its allocations {gone}")


def _over(picture: Picture) -> Iterator[Violation]:
    for row in picture.open:
        job, node = picture.jobs.get(row["job_id"]), picture.nodes[row["node_id"]]
        if job is not None and job["state"] in TERMINAL and node["lost_at"] is None:
            text = f"edt-{job['id']} is {job['state']} and holds slot {row['slot']} of {node['name']}"
            yield Violation(Invariant.I6, row["id"], f"{text} (allocation {row['id']})", RELEASE_SECONDS)


def _given_and_back(picture: Picture) -> Iterator[Violation]:
    given: Counter[int] = Counter(row["grown_by"] for row in picture["allocations"])
    for resize in picture["resizes"]:
        grown = max(0, resize["to_slots"] - resize["from_slots"])
        if given[resize["id"]] != grown:
            text = f"resize {resize['id']} of edt-{resize['job_id']} gave {given[resize['id']]} slots, it says {grown}"
            yield Violation(Invariant.I8, ("given", resize["id"]), text)
    for row in picture["allocations"]:
        if row["released_at"] is not None and row["kind"] is None:
            yield Violation(Invariant.I8, row["id"], f"allocation {row['id']} came back and nobody says how it ended")


def _fences(picture: Picture) -> Iterator[Violation]:
    for job, row in picture.jobs.items():
        numbers = [attempt["fence"] for attempt in picture.attempts.get(job, ())]
        if numbers != list(range(1, row["fence"] + 1)):
            yield Violation(Invariant.I9, job, f"edt-{job} has fence {row['fence']} and attempts {numbers}")
        live = [attempt["fence"] for attempt in picture.attempts.get(job, ()) if attempt["ended_at"] is None]
        if live not in ([], [row["fence"]]):
            yield Violation(Invariant.I4, (job, "rows"), f"edt-{job}, fence {row['fence']}: attempts {live} are open")
        fences = [event["fence"] for event in picture.events.get(job, ())]
        if fences != sorted(fences) or (fences and fences[-1] > row["fence"]):
            yield Violation(Invariant.I9, (job, "events"), f"the history of edt-{job} has fences {_runs(fences)}")
    newest: dict[int, int] = {}
    for row in picture["allocations"]:
        if row["fence"] < newest.get(row["job_id"], 0):
            text = f"allocation {row['id']} of edt-{row['job_id']} was given under the old fence {row['fence']}"
            yield Violation(Invariant.I9, ("allocation", row["id"]), text)
        newest[row["job_id"]] = max(row["fence"], newest.get(row["job_id"], 0))


def _runs(fences: list[int]) -> list[int]:
    return [fence for at, fence in enumerate(fences) if at == 0 or fences[at - 1] != fence]


def _waiting(picture: Picture) -> Iterator[Violation]:
    held = {(row["node_id"], row["slot"]) for row in picture.open}
    open_nodes = {node for node, row in picture.nodes.items() if row["intent"] == "open" and row["lost_at"] is None}
    free = [
        row
        for row in picture["slots"]
        if row["present"] and row["node_id"] in open_nodes and (row["node_id"], row["slot"]) not in held
    ]
    for job, row in picture.jobs.items():
        runs = any(attempt["ended_at"] is None for attempt in picture.attempts.get(job, ()))
        waits = row["state"] in {"SUBMITTED", "PENDING"} and not runs and row["stop_requested_at"] is None
        room = Counter(slot["node_id"] for slot in free)
        if row["gang"] is not None:
            waits = waits and _fits(picture, row, room)
        if waits and free and (row["not_before"] is None or row["not_before"] <= time.time()):
            text = f"edt-{job} is {row['state']} and is not started, while {len(free)} slots are free"
            yield Violation(Invariant.I10, job, text, START_SECONDS)


def _fits(picture: Picture, gang: Row, room: Counter[int]) -> bool:
    """Whether a gang has room in these free slots, by node: on nodes that reach each other, or on one that is alone."""
    workers = {node: number // gang["worker_device_num"] for node, number in room.items()}
    alone = [number for node, number in workers.items() if picture.nodes[node]["alone"]]
    return max([sum(workers.values()) - sum(alone), *alone]) >= int(gang["num_worker"])


def _passed(picture: Picture) -> Iterator[Violation]:
    first = {job: attempts[0]["created_at"] for job, attempts in picture.attempts.items()}
    for job, row in picture.jobs.items():
        if row["gang"] is not None:
            continue  # jobs that need less may pass a gang that has no room
        if job not in first and row["state"] in {"SUBMITTED", "PENDING"} and row["stop_requested_at"] is None:
            passed_by = [later for later, at in first.items() if later > job and at > row["created_at"]]
            if len(passed_by) > BYPASSES:
                yield Violation(Invariant.I11, job, f"edt-{job} has never run; later jobs {passed_by} have")


def _counters(picture: Picture, reports: Reports) -> Iterator[Violation]:
    for job, row in picture.jobs.items():
        history = picture.events.get(job, ())
        if row["events"] != len(history):
            yield Violation(Invariant.I12, job, f"edt-{job} counts {row['events']} events and has {len(history)}")
        lost = sum(attempt["kind"] == "lost" for attempt in picture.attempts.get(job, ()))
        if row["losses"] > lost:
            text = f"edt-{job} counts {row['losses']} losses in a row and has {lost} lost attempts"
            yield Violation(Invariant.I12, (job, "losses"), text)
    for row in picture["supervisors"]:
        name = picture.nodes[row["node_id"]]["name"]
        key = (f"edt-{row['job_id']}", row["fence"]), name
        written = next((n for (attempt, node), n in reports.lines.items() if (tuple(attempt), node) == key), None)
        if written is not None and row["acked"] > written:
            text = f"of edt-{row['job_id']}/{row['fence']} on {name} {row['acked']} reports are taken"
            yield Violation(Invariant.I12, ("acked", key), f"{text} and {written} were written")


def _outbox(picture: Picture) -> Iterator[Violation]:
    for row in picture["outbox"]:
        text = f"notification {row['id']} for {row['queue']} is still in the outbox"
        yield Violation(Invariant.I13, row["id"], text, OUTBOX_SECONDS)


def _running(picture: Picture) -> Iterator[Violation]:
    for job, row in picture.jobs.items():
        if row["state"] == "RUNNING" and not has_started(picture, row):
            yield Violation(Invariant.I15, job, f"edt-{job} is RUNNING and no event or attempt of it has started")


def has_started(picture: Picture, job: Row) -> bool:
    """Whether the job's history says that it ran, and an attempt of it that it has started."""
    moved = any(_after(event) == "RUNNING" for event in picture.events.get(job["id"], ()))
    return moved and any(attempt["started_at"] is not None for attempt in picture.attempts.get(job["id"], ()))


def _after(event: Row) -> str | None:
    return event["data"].get("after") if event["kind"] == "state" else None
