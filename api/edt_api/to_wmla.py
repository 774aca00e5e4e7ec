"""Turns jobs with their processes into WMLA's applications, job records and Kubernetes objects. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

from edt_api.errors import NoSuchObject, RequestInvalid
from edt_api.schemas import wmla
from edt_api.submissions.scheduling import PLAN, plan_path, queue_path
from edt_api.to_wire import CLUSTER, iso
from edt_contract.reports import ExitKind
from edt_scheduler.model.queues import belongs_to
from edt_scheduler.model.states import JobState
from edt_scheduler.operations.queue_views import QueueTree
from edt_scheduler.plan.queues import Sharing, parent
from edt_scheduler.views import EngineView, JobView, ProcessesView

_ROOT = "root"
"""Id of what is above the plan PLAN in the tree of plans."""
_POLICIES = {
    Sharing.EFFICIENT: "each slot goes to the job to which it is worth most",
    Sharing.FAIRSHARE: "all jobs get alike",
    Sharing.PRIORITY: "jobs of a higher priority come first, then older ones",
    Sharing.FIFO: "older jobs come first",
}
_TRAINING = "Training"
_STATES = {
    ExitKind.FINISHED: wmla.ProcessState.FINISHED,
    ExitKind.LEFT: wmla.ProcessState.FINISHED,
    ExitKind.STOPPED: wmla.ProcessState.KILLED,
}
"""How an engine ended; all other ways are ERROR."""
_MB = 1 << 20
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kmgt]?)i?b?", re.IGNORECASE)


def application(job: JobView, processes: ProcessesView, api_url: str, now: float) -> wmla.Application:
    """Return a job as an application.

    Args:
        job: the job.
        processes: its processes.
        api_url: URL of this server, as the client names it.
        now: seconds since the epoch.
    """
    end = job.finished_at if job.finished_at is not None else now
    present = processes.present
    cores, memory = _cores(job, processes), _memory(present)
    return wmla.Application(
        applicationid=job.exec_id,
        applicationname=job.app_name,
        sparkinstancegroupid=CLUSTER,
        sigName=CLUSTER,
        type=_TRAINING,
        dltype=job.framework,
        state=job.state.wire,
        uiport="",
        driver=_driver(job, processes, end),
        executors=[_executor(job, engine, end) for engine in processes.engines],
        task0=_task0(job, processes),
        task12n=[_task(job, engine) for engine in processes.engines],
        slots=job.slots,
        demandslots=_demand(job),
        hosts=len({engine.held.node for engine in present}),
        coresused=cores,
        memused=memory,
        gpuslots=job.slots,
        gpumemused=wmla.Total(total=memory),
        gpudevutil=wmla.Total(total=round(100 * sum((each.use.utilisation or 0.0) for each in present if each.use), 1)),
        username=job.owner,
        driverexecutionuser=job.owner,
        executorexecutionuser=job.owner,
        timestamp=_milliseconds(end),
        submittedtime=_milliseconds(job.created_at),
        endtime=_milliseconds(job.finished_at),
        apprunduration=round(max(0.0, end - job.started_at) / 60, 3) if job.started_at is not None else 0.0,
        masterUrl=api_url,
        masterSeqNo=0,
        masterService="",
        historyServerUrl="",
        scheduleName=PLAN,
        issharedapp="false",
        model=job.folder or job.script,
        dataset="",
        tunningname="",
    )


def record(job: JobView, processes: ProcessesView, queues: Collection[str]) -> wmla.JobRecord:
    """Return a job as the scheduler's own list shows it. ``queues``: paths of the queues that there are."""
    return wmla.JobRecord(
        id=job.exec_id,
        name=job.app_name,
        state=job.state.wire,
        type=_TRAINING,
        priority=job.priority,
        consumer=plan_path(belongs_to(job.queue, queues)),
        submit_user=job.owner,
        tag="",
        submit_time=_seconds(job.created_at),
        start_time=_seconds(job.started_at),
        end_time=_seconds(job.finished_at),
        used_gpu=job.slots,
        used_mem=_memory(processes.present),
        used_cpu=_cores(job, processes),
        task0_resreq=_request(0, _option(job, "--driverMemory"), 1),
        task12n_resreq=_request(
            job.worker_device_num, _option(job, "--workerMemory"), job.threads * job.worker_device_num
        ),
        task12n_num=job.num_worker,
        task12n=[_task(job, engine) for engine in processes.engines],
        kernels=[],
        is_packing=False,
        pack_id=_option(job, "--msd-pack-id"),
    )


def plan_tree(queues: Iterable[str]) -> wmla.PlanNode:
    """Return queues as the tree of resource plans: a root, below it the plan PLAN, and below that the queues.

    The id of a plan is the last part of its path, of which WMLA's command line makes the path again.
    """
    top = wmla.PlanNode(id=PLAN, pid=_ROOT, childTreeDto=[])
    nodes = {"": top}
    for path in sorted(queues, key=lambda path: path.split("/")):
        if path:
            above = nodes[belongs_to(parent(path), nodes)]
            nodes[path] = wmla.PlanNode(id=path.rpartition("/")[2], pid=above.id, childTreeDto=[])
            above.childTreeDto.append(nodes[path])
    return wmla.PlanNode(id=_ROOT, pid="", childTreeDto=[top])


def queue_of_plan(name: str, queues: Collection[str]) -> str:
    """Return the path of the queue that a resource plan's name means: its path, with or without the plan above all, or
    the last part of it if no other queue has the same.

    Raises:
        NoSuchObject: there is no such plan.
        RequestInvalid: there are several.
    """
    path = queue_path(name)
    if path is not None and path in {"", *queues}:
        return path
    found = [each for each in queues if each and f"/{each.rpartition('/')[2]}" == path]
    if len(found) > 1:
        paths = ", ".join(plan_path(each) for each in sorted(found))
        raise RequestInvalid(f"plan: {name[:64]!r} is the name of several; it takes one of their paths: {paths}")
    if not found:
        raise NoSuchObject(f"there is no resource plan {name[:64]!r}: `dlicmd.py --rp-get-all` lists them")
    return found[0]


def resource_plan(tree: QueueTree, path: str) -> wmla.Plan:
    """Return a queue of the tree as a resource plan."""
    queue = next(each for each in tree.queues if each.path == path)
    name = path.rpartition("/")[2] or PLAN
    above = parent(path).rpartition("/")[2] or PLAN
    return wmla.Plan(
        id=name,
        pid=above if path else _ROOT,
        name=name,
        path=plan_path(path),
        slots=queue.quota if path else tree.slots,
        used_slots=queue.used,
        description=f"{'a queue' if path else 'the whole cluster'}: {_POLICIES[queue.policy]}",
        share_ratio=queue.weight,
        quota=queue.quota,
        limit=queue.limit,
        policy=queue.policy.value,
        entitled_slots=queue.entitled,
        demand_slots=queue.demand,
        running_jobs=queue.running,
        pending_jobs=queue.waiting,
    )


def parallel_job(job: JobView) -> dict[str, Any]:
    """Return a job in the form of the Kubernetes object that WMLA's clients ask for.

    ``jobStartTime`` is left out before the first start.
    """
    created = iso(job.created_at)
    status: dict[str, Any] = {
        "jobStatus": job.state.wire,
        "jobPendingReason": job.waiting.reason if job.waiting is not None else "",
        "creationTimestamp": created,
    }
    if job.started_at is not None:
        status["jobStartTime"] = iso(job.started_at)
    groups = [] if job.gang is not None else [_task_group("task0", 1, gpus=0, cores=1)]
    groups.append(_task_group("task12n", job.num_worker, job.worker_device_num, job.threads * job.worker_device_num))
    return {
        "kind": "ParallelJob",
        "metadata": {"name": job.exec_id, "namespace": CLUSTER, "creationTimestamp": created},
        "spec": {"taskGroups": groups},
        "status": status,
    }


def pods(job: JobView, processes: ProcessesView) -> list[dict[str, Any]]:
    """Return the processes that a job has now, each in the form of a Kubernetes pod."""
    driver = _task0(job, processes)
    found = [] if driver is None or job.state.terminal else [_pod(job, driver, gpus=0, cores=1)]
    tasks = [(_task(job, engine), engine.slots) for engine in processes.present]
    return found + [_pod(job, task, gpus=slots, cores=slots * job.threads) for task, slots in tasks]


def engine_history(engine: EngineView) -> list[str]:
    """Return what the platform did for one engine, or for one process of a gang, one line for each step."""
    held = engine.held
    where = f"slot{'' if not engine.others else 's'} {', '.join((held.slot, *engine.others))} of {held.node}"
    whose = "the engine's process" if engine.rank is None else f"the process of rank {engine.rank}"
    steps = (
        (held.decided_at, f"attempt {held.fence} was given {where}"),
        (held.started_at, f"{whose} was started"),
        (held.joined_at, "the engine had the weights and joined the training"),
        (held.counted_at, "its first micro-batch was part of a step"),
        (held.release_asked_at, f"the scheduler asked for {where} back"),
        (held.released_at, f"{whose} was seen gone: {held.kind or 'unknown'}"),
    )
    return [line(time, said) for time, said in steps if time is not None]


def line(time: float, said: str) -> str:
    """Return one line of a launcher's log; ``time`` is in seconds since the epoch."""
    return f"[{iso(time)}] {' '.join(said.splitlines())}\n"


def _demand(job: JobView) -> int:
    """Return how many more slots a job could use. A gang that has started gets none."""
    if job.state.terminal or (job.gang is not None and job.slots):
        return 0
    return max(0, job.num_worker * job.worker_device_num - job.slots)


def _driver(job: JobView, processes: ProcessesView, time: float) -> wmla.Driver:
    logs = _log_path(job, "driver")
    return wmla.Driver(
        id=job.exec_id,
        containerid="",
        state=job.state.wire,
        host=processes.head_host or "",
        coresused=1.0 if job.state is JobState.RUNNING and job.gang is None else 0.0,
        memused=0.0,
        timestamp=_milliseconds(time),
        driverstdout=f"{logs}/stdout",
        driverstderr=f"{logs}/stderr",
    )


def _executor(job: JobView, engine: EngineView, time: float) -> wmla.Executor:
    logs, held = _log_path(job, f"executor/{engine.number}"), engine.held
    return wmla.Executor(
        id=str(engine.number),
        containerid=str(held.allocation),
        state=_state(engine),
        host=engine.host,
        coresused=0.0 if engine.gone else float(engine.slots * job.threads),
        memused=_memory((engine,)),
        timestamp=_milliseconds(time if held.released_at is None else held.released_at),
        executorstdout=f"{logs}/stdout",
        executorstderr=f"{logs}/stderr",
    )


def _task0(job: JobView, processes: ProcessesView) -> wmla.Task | None:
    if processes.head is None or job.gang is not None:  # a gang has no driver
        return None
    return wmla.Task(
        id=f"{job.exec_id}-task0",
        name="task0",
        state=job.state.wire,
        node=processes.head,
        host=processes.head_host or "",
        start_time=_seconds(job.started_at),
        end_time=_seconds(job.finished_at),
    )


def _task(job: JobView, engine: EngineView) -> wmla.Task:
    name = f"task12n-{engine.number}"
    return wmla.Task(
        id=f"{job.exec_id}-{name}",
        name=name,
        state=_state(engine),
        node=engine.held.node,
        host=engine.host,
        start_time=_seconds(engine.held.started_at),
        end_time=_seconds(engine.held.released_at),
    )


def _state(engine: EngineView) -> wmla.ProcessState:
    if not engine.gone or engine.held.kind is None:
        return wmla.ProcessState.RUNNING
    return _STATES.get(engine.held.kind, wmla.ProcessState.ERROR)


def _task_group(name: str, replicas: int, gpus: int, cores: int) -> dict[str, Any]:
    containers = [{"name": name, "resources": _resources(gpus, cores)}]
    template = {"spec": {"containers": containers}}
    return {"metadata": {"name": name}, "spec": {"replica": replicas, "template": template}}


def _pod(job: JobView, task: wmla.Task, gpus: int, cores: int) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"name": task.id, "namespace": CLUSTER, "labels": {"jobname": job.exec_id, "task": task.name}},
        "spec": {"nodeName": task.node, "containers": [{"name": task.name, "resources": _resources(gpus, cores)}]},
        "status": {"phase": "Running", "hostIP": task.host, "podIP": task.host},
    }


def _resources(gpus: int, cores: int) -> dict[str, Any]:
    amounts = {"nvidia.com/gpu": str(gpus), "cpu": str(cores)} if gpus else {"cpu": str(cores)}
    return {"limits": amounts, "requests": amounts}


def _option(job: JobView, name: str) -> str:
    """Return the value with which the user gave an option, the last one if there are several; empty if none did."""
    return next((value for option, value in reversed(job.options) if option == name), "")


def _request(gpus: int, memory: str, cores: int) -> str:
    """Return the text in which WMLA writes a request. ``memory`` is what the user asked for, in the option's words."""
    return f"ngpus={gpus},mem={_megabytes(memory)},ncpus={cores}"


def _megabytes(size: str) -> int:
    """Return a size such as ``8g``, ``4096M`` or ``16Gi`` in MB; 0 for anything else. A bare number is in bytes."""
    found = _SIZE.fullmatch(size.strip())
    return int(float(found[1]) * 1024 ** " kmgt".index(found[2].lower() or " ") / _MB) if found else 0


def _log_path(job: JobView, process: str) -> str:
    return f"/platform/rest/deeplearning/v1/scheduler/applications/{job.exec_id}/{process}/logs"


def _cores(job: JobView, processes: ProcessesView) -> float:
    return float(sum(engine.slots for engine in processes.present) * job.threads)


def _memory(engines: tuple[EngineView, ...]) -> float:
    """Return the memory in MB that the slots of these engines use, as last measured."""
    return round(sum(each.use.memory_bytes or 0 for each in engines if each.use) / _MB, 1)


def _seconds(time: float | None) -> int:
    return int(time) if time is not None else 0


def _milliseconds(time: float | None) -> int:
    return int(time * 1000) if time is not None else 0
