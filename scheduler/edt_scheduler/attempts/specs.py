"""Builds AttemptSpecs, which tell a supervisor about an attempt, from database rows. Changes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row

from edt_contract.attempt import (
    GANG_PROTOCOL,
    LIFE_PROTOCOL,
    PROTOCOL,
    Assignment,
    AttemptSpec,
    DesiredSlot,
    DesiredState,
)
from edt_contract.encoding import from_json_object
from edt_contract.gang import Gang, GangCommand, GangNode
from edt_scheduler.attempts.environment import job_environment
from edt_scheduler.home.secret_key import Keys
from edt_scheduler.model.jobs import BEGIN, exec_id
from edt_scheduler.settings import Settings
from edt_scheduler.store import allocations, attempts, environs


@dataclass(frozen=True)
class Placed:
    """Where a gang was placed for one attempt, and the ports at which its processes will meet."""

    gang: Gang
    ports: tuple[tuple[int, ...], ...]
    """In the order of ``gang.nodes``. Empty until all supervisors have reported theirs."""


def placed(tx: Connection, node_id: int, carried: Sequence[Row[Any]]) -> dict[tuple[int, int], Placed]:
    """The gangs that have a part on a node, by job number and fence.

    Two queries read all of them; if there is no gang, none does.

    Args:
        tx: the open transaction.
        node_id: number of the node.
        carried: the rows of ``attempts.carried_on`` of this node.
    """
    gangs = {(row.id, row.attempt_fence): row for row in carried if row.gang is not None}
    if not gangs:
        return {}
    parts, slots = defaultdict(list), defaultdict(list)
    for part in attempts.gang_parts(tx, node_id):
        parts[part.job_id, part.fence].append(part)
    for slot in allocations.of_gangs(tx, node_id):
        slots[slot.job_id, slot.fence, slot.node_id].append(slot.id)
    found = {}
    for key, row in gangs.items():
        ordered = sorted(parts[key], key=lambda part: (part.node_id != row.head_node_id, part.name))
        nodes = tuple(GangNode(part.name, part.host, tuple(slots[*key, part.node_id])) for part in ordered)
        ready = all(part.ports is not None for part in ordered)
        found[key] = Placed(
            Gang(from_json_object(GangCommand, row.gang), row.worker_device_num, nodes),
            tuple(tuple(part.ports) for part in ordered) if ready else (),
        )
    return found


def spool_directory(directory: Path, fence: int, node: str) -> Path:
    """The folder of one supervisor's spool, inside the job's folder."""
    return directory / "spool" / f"{fence}-{node}"


def assignment(
    settings: Settings,
    keys: Keys,
    node: Row[Any],
    carried: Row[Any],
    slots: Sequence[Row[Any]],
    gang: Placed | None = None,
) -> Assignment:
    """One entry of a node's list of assignments.

    Args:
        settings: the platform's settings.
        keys: the keys that open the job's environment.
        node: the node's row.
        carried: a row of ``attempts.carried_on``.
        slots: rows of ``desired_on``, for this attempt on this node.
        gang: where the job is placed, if it is a gang.

    Returns:
        The attempt's spec and its desired state on this node.

    Raises:
        EnvironmentLocked: if the attempt may still start something and no key opens its environment.
    """
    own = {} if _is_over(carried) else environs.opened(carried, keys)
    return Assignment(_spec(settings, node, carried, own, gang), _desired(node, carried, slots, gang))


def _is_over(carried: Row[Any]) -> bool:
    return carried.attempt_kind is not None or carried.stop_requested_at is not None


def _desired(node: Row[Any], carried: Row[Any], slots: Sequence[Row[Any]], gang: Placed | None) -> DesiredState:
    """The desired state of an attempt on a node. An attempt that is over, or whose job was stopped, gets no slots. A
    gang leaves with all its processes: if one slot is asked back, it gets none, not even those of finished processes.

    Two nodes may run a coordinator at once: after a change of the head node, the old coordinator goes on until the new
    one has reported its address. All other nodes use the address that was reported last.
    """
    over = _is_over(carried)
    leaves = over or (gang is not None and any(row.release_asked_at is not None for row in slots))
    kept = () if leaves else tuple(row for row in slots if row.release_asked_at is None)
    return DesiredState(
        fence=carried.attempt_fence,
        slots=tuple(DesiredSlot(row.id, row.slot, row.device, row.ordinal) for row in kept),
        coordinator=None if node.id in {carried.head_node_id, carried.coordinator_node_id} else carried.coordinator,
        stop=over,
        leaving=tuple(row.id for row in slots if row.release_asked_at is not None and row.released_at is None),
        ports=gang.ports if gang is not None else (),
    )


def _protocol(carried: Row[Any], gang: Placed | None) -> int:
    if gang is not None:
        return GANG_PROTOCOL
    return PROTOCOL if carried.attempt_epochs is None and carried.resumed_from is None else LIFE_PROTOCOL


def _spec(
    settings: Settings, node: Row[Any], carried: Row[Any], own: Mapping[str, str], gang: Placed | None
) -> AttemptSpec:
    job = exec_id(carried.id)
    directory = settings.job_directory(job)
    work_dir = directory / carried.work_dir
    begins = carried.resumed_from is not None
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
        # A node that is for this job alone was started in the image that the job asks for.
        image="" if node.only_for is not None else carried.image or "",
        gang=gang.gang if gang is not None else None,
        epochs=carried.attempt_epochs or 0,
        begin_from=exec_id(carried.resumed_from) if begins else "",
        begin_dir=str(directory / BEGIN) if begins else "",
        owner=carried.owner,
        protocol=_protocol(carried, gang),
    )
