"""Builds AttemptSpecs, which tell a supervisor about an attempt, from database rows. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Row

from edt_contract.attempt import Assignment, AttemptSpec, DesiredSlot, DesiredState
from edt_scheduler.attempts.environment import job_environment
from edt_scheduler.home.secret_key import Keys
from edt_scheduler.model.jobs import exec_id
from edt_scheduler.settings import Settings
from edt_scheduler.store import environs


def spool_directory(directory: Path, fence: int, node: str) -> Path:
    """The folder of one supervisor's spool, inside the job's folder."""
    return directory / "spool" / f"{fence}-{node}"


def assignment(
    settings: Settings, keys: Keys, node: Row[Any], carried: Row[Any], slots: Sequence[Row[Any]]
) -> Assignment:
    """One entry of a node's list of assignments.

    Args:
        settings: the platform's settings.
        keys: the keys that open the job's environment.
        node: the node's row.
        carried: a row of ``attempts.carried_on``.
        slots: rows of ``desired_on``, for this attempt on this node.

    Returns:
        The attempt's spec and its desired state on this node.

    Raises:
        EnvironmentLocked: if the attempt may still start something and no key opens its environment.
    """
    own = {} if _is_over(carried) else environs.opened(carried, keys)
    return Assignment(_spec(settings, node, carried, own), _desired(node, carried, slots))


def _is_over(carried: Row[Any]) -> bool:
    return carried.attempt_kind is not None or carried.stop_requested_at is not None


def _desired(node: Row[Any], carried: Row[Any], slots: Sequence[Row[Any]]) -> DesiredState:
    """The desired state of an attempt on a node. An attempt that is over, or whose job was stopped, gets no slots.

    Two nodes may run a coordinator at once: after a change of the head node, the old coordinator goes on until the new
    one has reported its address. All other nodes use the address that was reported last.
    """
    over = _is_over(carried)
    kept = () if over else tuple(row for row in slots if row.release_asked_at is None)
    return DesiredState(
        fence=carried.attempt_fence,
        slots=tuple(DesiredSlot(row.id, row.slot, row.device, row.ordinal) for row in kept),
        coordinator=None if node.id in {carried.head_node_id, carried.coordinator_node_id} else carried.coordinator,
        stop=over,
        leaving=tuple(row.id for row in slots if row.release_asked_at is not None and row.released_at is None),
    )


def _spec(settings: Settings, node: Row[Any], carried: Row[Any], own: Mapping[str, str]) -> AttemptSpec:
    job = exec_id(carried.id)
    directory = settings.job_directory(job)
    work_dir = directory / carried.work_dir
    spool = spool_directory(directory, carried.attempt_fence, node.name)
    return AttemptSpec(
        job=job,
        fence=carried.attempt_fence,
        node=node.name,
        framework=carried.backend,
        main=carried.model_main,
        arguments=tuple(carried.arguments),
        work_dir=str(work_dir),
        result_dir=str(directory),
        log_dir=str(directory / "log"),
        checkpoint_dir=str(settings.checkpoint_directory(job)),
        spool_dir=str(spool),
        socket=str(settings.socket(spool, job, carried.attempt_fence, node.name)),
        environ=job_environment(settings, carried, own),
        seed=carried.seed,
        max_engines=carried.num_worker * carried.worker_device_num,
        threads=carried.threads,
        cores=node.cores,
        grace_seconds=settings.grace_seconds,
        token=carried.token,
        host=node.host,
        last_report_seq=carried.acked,
        image=carried.image or "",
    )
