"""Points of a training's metrics, from its PROGRESS reports, and of its validations, from its VALIDATED reports. The
number of points of each kind per job is limited.

Reports of a kind are numbered 0, 1, 2 … over all attempts. Every ``stride``-th report is kept, and always the newest
one. The stride doubles when there are too many points.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Row, Table, delete, func, insert, select, update

from edt_scheduler.model.progress import MOST_METRICS, MetricPoint
from edt_scheduler.store.tables import metric_points, validations

MOST = 4096
"""A job has at most this many points of each kind, and the newest one in addition."""
_OF_A_VALIDATION = ("step", "time", "epoch", "workers", "loss", "metrics")


def stride(number: int) -> int:
    """N, when one report of every N is kept and report ``number`` exists. N is the smallest power of two that leaves at
    most MOST points.
    """
    return 1 << (number // MOST).bit_length()


def add(tx: Connection, job_id: int, fence: int, time: float, report: Mapping[str, Any]) -> None:
    """Store a point for this PROGRESS report, if the report has a step.

    Args:
        tx: The open transaction.
        job_id: Number of the job.
        fence: Number of the attempt that reported.
        time: When the report was written, in seconds since the epoch.
        report: Body of the report.
    """
    step = _whole(report.get("step"))
    if step is None:
        return
    metrics = report.get("metrics")
    values = {
        "fence": fence,
        "step": step,
        "time": time,
        "epoch": _whole(report.get("epoch")),
        "workers": _whole(report.get("workers")),
        "loss": _number(report.get("loss")),
        "samples_per_second": _number(report.get("samples_per_second")),
        "metrics": _named(metrics) if isinstance(metrics, Mapping) else {},
    }
    number = _next_number(tx, metric_points, job_id)
    tx.execute(insert(metric_points).values(job_id=job_id, number=number, **values))


def add_validation(tx: Connection, job_id: int, fence: int, point: MetricPoint) -> bool:
    """Store the point of a validation. A new first engine may report the newest validation again; it then replaces
    itself.

    Args:
        tx: The open transaction.
        job_id: Number of the job.
        fence: Number of the attempt that reported.
        point: The validation.

    Returns:
        Whether it replaced itself.
    """
    values = {name: getattr(point, name) for name in _OF_A_VALIDATION} | {"metrics": _named(point.metrics)}
    this = validations.c.job_id == job_id
    newest = select(*validations.c["number", "fence", "step"]).where(this).order_by(validations.c.number.desc())
    row = tx.execute(newest.limit(1)).one_or_none()
    if row is not None and (row.fence, row.step) == (fence, point.step):
        tx.execute(update(validations).where(this, validations.c.number == row.number).values(**values))
        return True
    number = _next_number(tx, validations, job_id)
    tx.execute(insert(validations).values(job_id=job_id, number=number, fence=fence, **values))
    return False


def _next_number(tx: Connection, table: Table, job_id: int) -> int:
    """The number of a job's next point. Points that it makes superfluous are deleted."""
    this = table.c.job_id == job_id
    newest = tx.execute(select(func.max(table.c.number)).where(this)).scalar_one()
    number = 0 if newest is None else int(newest) + 1
    every = stride(number)
    if newest is not None and every > stride(newest):
        tx.execute(delete(table).where(this, table.c.number % every != 0))
    elif newest is not None and newest % every:
        tx.execute(delete(table).where(this, table.c.number == newest))
    return number


def of_job(tx: Connection, job_id: int) -> list[Row[Any]]:
    """All points of a job that are kept, oldest first."""
    return _of_job(tx, metric_points, job_id)


def validations_of(tx: Connection, job_id: int) -> list[Row[Any]]:
    """All validations of a job that are kept, oldest first."""
    return _of_job(tx, validations, job_id)


def _of_job(tx: Connection, table: Table, job_id: int) -> list[Row[Any]]:
    return list(tx.execute(select(table).where(table.c.job_id == job_id).order_by(table.c.number)))


def rates(tx: Connection, job_id: int) -> list[float]:
    """The samples per second of a job's points, without points that have no rate."""
    rate = metric_points.c.samples_per_second
    return list(tx.execute(select(rate).where(metric_points.c.job_id == job_id, rate.is_not(None))).scalars())


def _named(metrics: Mapping[str, Any]) -> dict[str, float | None]:
    return {name: _number(value) for name, value in islice(metrics.items(), MOST_METRICS)}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31 else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
