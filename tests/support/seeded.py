"""A home with a past: thousands of jobs, who held which slot, resizes, losses, curves. Made by SQL, in seconds.

No process ever ran for any of it. ``seed`` takes the database of a platform that is stopped; what it makes keeps every
rule of the schema: one holder a slot at a time, histories without a gap, legal moves.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from edt_scheduler.store.database import Database
from edt_scheduler.store.tables import (
    allocations,
    attempts,
    changes,
    job_events,
    jobs,
    metric_points,
    nodes,
    resizes,
    slot_usage,
    slots,
    supervisors,
    users,
    validations,
)

_NAMES = ("resnet", "bert-tiny", "digits", "unet", "vit-small", "wav2vec", "gpt-nano", "lstm-forecast")
_MINUTE = 60.0


@dataclass
class Past:
    """What is to be seeded."""

    jobs: int = 2000
    nodes: int = 16
    slots: int = 8
    """Of each node."""
    spells: int = 10
    """How many slots each job held one after the other or together."""
    hours: float = 24.0
    running: int = 12
    """So many of the newest jobs run now; a few more wait."""
    waiting: int = 6
    points: int = 300
    """Of the curve of each job that runs, and of the newest that are over."""
    usage_minutes: float = 60.0
    owners: tuple[str, ...] = ("ana", "bob")
    """Users that are there already."""


@dataclass
class _Rows:
    """Rows by table, written in the order in which they need each other."""

    found: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, table: str, **values: Any) -> None:
        self.found.setdefault(table, []).append(values)


def seed(database: Database, now: float, past: Past | None = None, *, seed: int = 7) -> None:
    """Fill a migrated database whose users exist and that holds no job and no node yet."""
    past = past or Past()
    assert past.running * past.spells <= past.nodes * past.slots, "a slot has one holder at a time"
    chance = random.Random(seed)
    rows = _Rows()
    with database.transaction() as tx:
        owners = dict(tx.execute(select(users.c.name, users.c.id).where(users.c.name.in_(past.owners))).all())
        assert set(owners) == set(past.owners), f"users {past.owners} are to be there first"
        _nodes(rows, past, now)
        _jobs(rows, past, now, chance, list(owners.values()))
        _usage(rows, past, now, chance)
        tables = (
            nodes,
            slots,
            jobs,
            job_events,
            attempts,
            supervisors,
            resizes,
            allocations,
            metric_points,
            validations,
            slot_usage,
        )
        for table in tables:
            for part in _parts(rows.found.get(table.name, ()), 5000):
                tx.execute(insert(table), part)
        _move(tx, rows)
        if tx.dialect.name == "postgresql":
            for table in (nodes, jobs, resizes, allocations):
                tx.execute(select(func.setval(f"{table.name}_id_seq", select(func.max(table.c.id)).scalar_subquery())))


def _parts(rows: Any, size: int) -> Iterator[list[dict[str, Any]]]:
    rows = list(rows)
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _nodes(rows: _Rows, past: Past, now: float) -> None:
    for number in range(1, past.nodes + 1):
        name = f"node-{number:02d}"
        rows.add(
            "nodes",
            id=number,
            name=name,
            host=f"10.0.0.{number}",
            cores=4 * past.slots,
            boot_id="boot",
            incarnation="life",
            token_sha256=f"token of {name}",
            registered_at=now - 3600 * past.hours,
            seen_at=now,
            usage_at=now,
        )
        for slot in range(past.slots):
            label = f"CPU slot {slot}"
            rows.add("slots", node_id=number, slot=str(slot), position=slot, device="cpu", label=label, present=True)


def _jobs(rows: _Rows, past: Past, now: float, chance: random.Random, owners: list[int]) -> None:
    """Slots are given in turn; a job's spells lie behind what the same slots held before."""
    places = [(node, str(slot)) for node in range(1, past.nodes + 1) for slot in range(past.slots)]
    free_at = dict.fromkeys(places, now - 3600 * past.hours)
    over = past.jobs - past.running - past.waiting
    length = 3600 * past.hours * len(places) / max(1, past.jobs * past.spells) * 1.15
    turn = 0
    for number in range(1, past.jobs + 1):
        runs, waits = over < number <= over + past.running, number > over + past.running
        held = [] if waits else [places[(turn + spell) % len(places)] for spell in range(past.spells)]
        turn += len(held)
        start = min(now - 2 * _MINUTE, max((free_at[place] for place in held), default=now - _MINUTE))
        job = _Job(rows, number, chance, start if held else now - chance.uniform(1, 30) * _MINUTE)
        for index, place in enumerate(held):
            begin = max(free_at[place], start + index * chance.uniform(1, 5))
            end = None if runs else min(now - 1, begin + length * chance.uniform(0.6, 1.0))
            if end is not None and end <= begin:
                end = begin + 0.5
            free_at[place] = now if end is None else end
            job.hold(place, index, begin, end)
        curve = past.points if runs or over - 50 < number <= over else 0
        job.finish(owners[number % len(owners)], len(held) or 4, now, curve, runs=runs, waits=waits)


class _Job:
    """One job's rows in the making."""

    def __init__(self, rows: _Rows, number: int, chance: random.Random, start: float) -> None:
        self.rows, self.number, self.chance, self.start = rows, number, chance, start
        self.end = start
        self.grown = 0
        self.events: list[dict[str, Any]] = []
        self.lost = chance.random() < 0.05
        self._supervised: set[int] = set()

    def event(self, time: float, kind: str, message: str, **data: Any) -> None:
        self.events.append({"time": time, "kind": kind, "message": message, "data": data})

    def _add_history(self) -> None:
        """What happened, in order and numbered."""
        self.events.sort(key=lambda event: event["time"])
        for seq, event in enumerate(self.events, start=1):
            self.rows.add("job_events", job_id=self.number, fence=1, seq=seq, **event)

    def hold(self, place: tuple[int, str], index: int, begin: float, end: float | None) -> None:
        """One slot from the decision on; with a resize that gave it and one that took it."""
        node, slot = place
        if index == 0:
            running = {"before": "PENDING", "after": "RUNNING"}
            self.event(begin + 0.2, "state", f"attempt 1 runs on node-{node:02d}", **running)
            self.rows.add(
                "attempts",
                job_id=self.number,
                fence=1,
                head_node_id=node,
                token="token",
                created_at=begin,
                started_at=begin + 0.2,
                kind=None,
                message=None,
                ended_at=None,
            )
        if node not in self._supervised:
            self._supervised.add(node)
            ends = {"ended_at": None, "kind": None, "reports_complete_at": None}
            self.rows.add("supervisors", job_id=self.number, fence=1, node_id=node, handed_at=begin, **ends)
        if index == 0:
            self.grown = self._resize(begin, "submit", "first attempt", 0, 1)
        elif index == 1 or self.chance.random() < 0.15:
            self.grown = self._resize(begin, "slots-free", "slots came free", index, index + 1)
        lost = self.lost and end is not None and index == 1
        shrunk = None
        if end is not None and (lost or self.chance.random() < 0.1):
            why = ("engine-lost", f"engine {index} on node-{node:02d} was lost by signal 9")
            cause, detail = why if lost else ("room", f"makes room for edt-{self.number + 1}")
            shrunk = self._resize(end - 1, cause, detail, index + 1, index)
        self.rows.add(
            "allocations",
            job_id=self.number,
            fence=1,
            node_id=node,
            slot=slot,
            grown_by=self.grown,
            shrunk_by=shrunk,
            decided_at=begin,
            handed_at=begin,
            started_at=begin + 0.3,
            joined_at=begin + 0.6,
            counted_at=begin + 0.8,
            release_asked_at=end - 1 if shrunk is not None and end is not None and not lost else None,
            released_at=end,
            kind=None if end is None else "lost" if lost else "left" if shrunk is not None else "finished",
        )
        self.end = max(self.end, end or begin)

    def _resize(self, time: float, cause: str, detail: str, before: int, after: int) -> int:
        self.event(
            time, "resize", f"{before} → {after} slots: {detail}", **{"cause": cause, "from": before, "to": after}
        )
        number = len(self.rows.found.get("resizes", ())) + 1
        self.rows.add(
            "resizes",
            id=number,
            job_id=self.number,
            fence=1,
            cause=cause,
            detail=detail,
            from_slots=before,
            to_slots=after,
            decided_at=time,
            notified_at=time,
            woken_by="notification",
            woken_at=time + 0.02,
            first_step_at=time + 0.8,
            step=100 * before,
            workers=after,
            pause_seconds=round(self.chance.uniform(0.005, 0.3), 4),
            recomputed=3 if cause == "engine-lost" else None,
        )
        return number

    def finish(self, owner: int, most: int, now: float, curve: int, *, runs: bool, waits: bool) -> None:
        """The job's own row, as it stands at the end; its state is set afterwards, move by move."""
        steps = 20_000
        step = round(steps * self.chance.uniform(0.2, 0.9)) if runs else 0 if waits else steps
        points = list(_curve(self.chance, curve or 2, step, self.start, now if runs else self.end, most))
        for number, point in enumerate(points if curve else ()):
            self.rows.add("metric_points", job_id=self.number, number=number, fence=1, **point)
        validated = list(_validations(points if curve else ()))
        for number, validation in enumerate(validated):
            self.rows.add("validations", job_id=self.number, number=number, fence=1, **validation)
        newest = {} if waits else {**points[-1], "steps_total": steps, "epochs": 10}
        newest.pop("time", None)
        state = (
            "PENDING" if waits else "RUNNING" if runs else self.chance.choice(["FINISHED"] * 8 + ["KILLED", "ERROR"])
        )
        self.event(self.start - 1, "state", "SUBMITTED", after="SUBMITTED")
        self.event(self.start - 0.5, "state", "waits for slots", before="SUBMITTED", after="PENDING")
        if state not in {"PENDING", "RUNNING"}:
            self.event(self.end, "state", state.lower(), before="RUNNING", after=state)
            self._end_attempt(state)
        self._add_history()
        waiting = {"blocking": "capacity", "reason": "no slot is free", "rank": 1, "need": 1, "free": 0}
        self.rows.add(
            "jobs",
            id=self.number,
            user_id=owner,
            state="SUBMITTED",
            fence=0 if waits else 1,
            events=len(self.events),
            framework="edtPyTorch",
            backend="pytorch",
            app_name=f"{_NAMES[self.number % len(_NAMES)]}-{self.number}",
            args_verbatim=f"--exec-start edtPyTorch --numWorker {most} --model-main main.py -- --epochs 10",
            model_main="main.py",
            work_dir="_submitted_code",
            arguments=["--epochs", "10"],
            environ={},
            num_worker=most,
            worker_device_num=1,
            seed=self.number,
            threads=4,
            engines=None if waits else most,
            steps_total=None if waits else steps,
            epochs=None if waits else 10,
            workers=most if runs else 0,
            progress=newest,
            validation=_shown(validated[-1]) if validated else None,
            best=_best(validated),
            message="ValueError: no such file" if state == "ERROR" else None,
            waiting=waiting if waits else None,
            created_at=self.start - 1,
            started_at=None if waits else self.start + 0.2,
            finished_at=None if waits or runs else self.end,
            stop_requested_at=None,
        )
        self.rows.add("moves", id=self.number, state=state)

    def _end_attempt(self, state: str) -> None:
        kind = {"FINISHED": "finished", "KILLED": "stopped", "ERROR": "script-error"}[state]
        for row in self.rows.found["attempts"][-1:]:
            row |= {
                "kind": kind,
                "message": "ValueError: no such file" if state == "ERROR" else "",
                "ended_at": self.end,
            }
        for row in reversed(self.rows.found["supervisors"]):
            if row["job_id"] != self.number:
                break
            row |= {"ended_at": self.end, "kind": kind, "reports_complete_at": self.end}


def _curve(
    chance: random.Random, number: int, last_step: int, start: float, end: float, workers: int
) -> Iterator[dict[str, Any]]:
    """A loss that falls and an accuracy that rises, with noise."""
    for index in range(number):
        done = (index + 1) / number
        loss = 0.1 + 2.2 * math.exp(-4 * done) + chance.uniform(-0.05, 0.05)
        yield {
            "step": max(index, round(last_step * done)),
            "time": start + (end - start) * done,
            "epoch": 1 + min(9, int(10 * done)),
            "workers": max(1, round(workers * min(1.0, 0.3 + done))),
            "loss": round(loss, 5),
            "samples_per_second": round(400 * workers * chance.uniform(0.9, 1.1), 1),
            "metrics": {"loss": round(loss, 5), "accuracy": round(1 - loss / 3, 5)},
        }


def _validations(points: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One behind the last point of each epoch that has ended. The loss rises again in the end."""
    for point, after in pairwise(points):
        if after["epoch"] > point["epoch"]:
            loss = round(point["loss"] + 0.02 * point["epoch"], 5)
            named = {"val_loss": loss, "val_accuracy": round(1 - loss / 3, 5)}
            yield {**{key: point[key] for key in ("step", "time", "epoch", "workers")}, "loss": loss, "metrics": named}


def _shown(validation: dict[str, Any]) -> dict[str, Any]:
    """A validation as its job's row has it."""
    return {key: value for key, value in validation.items() if key != "loss"} | {"samples": 10_000, "seconds": 1.5}


def _best(validated: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if not validated:
        return {}
    best = min(validated, key=lambda each: each["loss"])
    return {
        name: {"value": value, "epoch": best["epoch"], "step": best["step"]} for name, value in best["metrics"].items()
    }


def _usage(rows: _Rows, past: Past, now: float, chance: random.Random) -> None:
    busy = {(row["node_id"], row["slot"]) for row in rows.found.get("allocations", ()) if row["released_at"] is None}
    for sample in range(int(past.usage_minutes * 4)):
        for node in range(1, past.nodes + 1):
            for slot in range(past.slots):
                used = (node, str(slot)) in busy
                rows.add(
                    "slot_usage",
                    node_id=node,
                    slot=str(slot),
                    time=now - 15 * sample,
                    utilisation=chance.uniform(0.7, 1.0) if used else 0.0,
                    memory_bytes=chance.randint(1 << 29, 1 << 31) if used else 0,
                )


def _move(tx: Connection, rows: _Rows) -> None:
    """Each job to where it stands, by legal moves; and a feed that nobody has to read."""
    wanted = {row["id"]: row["state"] for row in rows.found.get("moves", ())}
    for after, among in (("PENDING", set(wanted.values())), ("RUNNING", set(wanted.values()) - {"PENDING"})):
        ids = [number for number, state in wanted.items() if state in among]
        for part in range(0, len(ids), 5000):
            tx.execute(update(jobs).where(jobs.c.id.in_(ids[part : part + 5000])).values(state=after))
    for state in set(wanted.values()) - {"PENDING", "RUNNING"}:
        ids = [number for number, each in wanted.items() if each == state]
        for part in range(0, len(ids), 5000):
            tx.execute(update(jobs).where(jobs.c.id.in_(ids[part : part + 5000])).values(state=state))
    tx.execute(changes.delete().where(changes.c.id < select(func.max(changes.c.id)).scalar_subquery()))


def crowd(database: Database, now: float, owner: str, number: int, *, waiting: int = 0) -> None:
    """So many jobs of a user in a migrated database, all over but the newest ``waiting``. By a handful of statements,
    whatever the number: nothing but their rows is there. Names and times come again, so that many are alike."""
    names = [f"{name}-{index % 50}" for index, name in enumerate(_NAMES * 50)]
    with database.transaction() as tx:
        user = tx.execute(select(users.c.id).where(users.c.name == owner)).scalar_one()
        before = tx.execute(select(func.coalesce(func.max(jobs.c.id), 0))).scalar_one()
        for start in range(0, number, 5000):
            rows = [
                {
                    "id": before + index + 1,
                    "user_id": user,
                    "state": "SUBMITTED",
                    "framework": "edtPyTorch",
                    "backend": "pytorch",
                    "app_name": names[index * 7919 % len(names)],
                    "args_verbatim": "--exec-start edtPyTorch --numWorker 4 --model-main main.py",
                    "model_main": "main.py",
                    "work_dir": "code",
                    "arguments": [],
                    "num_worker": 4,
                    "worker_device_num": 1,
                    "seed": index,
                    "threads": 1,
                    "progress": {},
                    "created_at": now - (number - index) // 10,
                }
                for index in range(start, min(number, start + 5000))
            ]
            tx.execute(insert(jobs), rows)
        over = jobs.c.id.between(before + 1, before + number - waiting)
        for state in ("PENDING", "RUNNING", "FINISHED"):
            tx.execute(update(jobs).where(over).values(state=state))
        if tx.dialect.name == "postgresql":
            tx.execute(select(func.setval("jobs_id_seq", before + number)))
        tx.execute(changes.delete().where(changes.c.id < select(func.max(changes.c.id)).scalar_subquery()))
