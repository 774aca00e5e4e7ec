"""Shapes of WMLA's calls besides ``/execs``: applications, job records, plans, instances. The names are WMLA's.

Times named ``…_time`` are whole seconds since the epoch, and times of the older shapes (``timestamp``,
``submittedtime``, ``endtime``) are milliseconds. A time that is not known yet is 0, because clients compute with it.
Memory is in MB. A slot stands for a GPU, also where it is a CPU stand-in.
"""

from __future__ import annotations

import enum

from edt_api.schemas.jobs import Output


class LogName(enum.StrEnum):
    """The logs of a process."""

    STDOUT = "stdout"  # what it printed
    STDERR = "stderr"
    LAUNCHER = "launcherlog"  # what the platform did with it


class ProcessState(enum.StrEnum):
    """The state of an engine's process."""

    RUNNING = "RUNNING"
    FINISHED = "FINISHED"  # the training ended, or the engine left in order
    KILLED = "KILLED"  # a user stopped the job
    ERROR = "ERROR"  # the process failed or was lost


class Task(Output):
    """One process of a job: ``task0`` is the driver, each ``task12n`` an engine."""

    id: str
    name: str
    state: str
    node: str
    host: str
    start_time: int
    end_time: int


class Driver(Output):
    """The driver of an application."""

    id: str
    containerid: str
    state: str
    host: str
    coresused: float
    memused: float
    timestamp: int
    driverstdout: str
    """Path of the call that returns the log."""
    driverstderr: str


class Executor(Output):
    """An engine of an application. Its ``id`` is its number in the order in which the engines started: 1, 2, …"""

    id: str
    containerid: str
    state: ProcessState
    host: str
    coresused: float
    memused: float
    timestamp: int
    executorstdout: str
    """Path of the call that returns the log."""
    executorstderr: str


class Total(Output):
    """A sum over all slots that an application holds."""

    total: float


class Application(Output):
    """One job as an application: what clients of WMLA 1.2 and of 2.x read, in one shape."""

    applicationid: str
    applicationname: str
    sparkinstancegroupid: str
    sigName: str  # noqa: N815 - WMLA's names, here and below
    type: str
    dltype: str
    state: str
    uiport: str
    driver: Driver
    executors: list[Executor]
    """All engines that the job has or had."""
    task0: Task | None
    """The driver; None: it was never started."""
    task12n: list[Task]
    """The same engines as ``executors``."""
    slots: int
    """How many slots the job holds now."""
    demandslots: int
    """How many more slots it could use."""
    hosts: int
    """On how many hosts it has engines now."""
    coresused: float
    memused: float
    gpuslots: int
    gpumemused: Total
    gpudevutil: Total
    """In percent: two busy slots have 200."""
    username: str
    driverexecutionuser: str
    executorexecutionuser: str
    timestamp: int
    submittedtime: int
    endtime: int
    apprunduration: float
    """Minutes since the first start, up to the end."""
    masterUrl: str  # noqa: N815
    masterSeqNo: int  # noqa: N815
    masterService: str  # noqa: N815
    historyServerUrl: str  # noqa: N815
    scheduleName: str  # noqa: N815
    issharedapp: str
    model: str
    dataset: str
    tunningname: str


class Kernel(Output):
    """A process that serves a model for inference."""

    ip: str


class JobRecord(Output):
    """One job as the scheduler's own list of WMLA 2.x shows it."""

    id: str
    name: str
    state: str
    type: str
    priority: int
    consumer: str
    """Path of the resource plan."""
    submit_user: str
    tag: str
    submit_time: int
    start_time: int
    end_time: int
    used_gpu: int
    used_mem: float
    used_cpu: float
    task0_resreq: str
    """What the driver asks for: ``ngpus=0,mem=0,ncpus=1``."""
    task12n_resreq: str
    """What one worker asks for."""
    task12n_num: int
    """How many workers the job may have."""
    task12n: list[Task]
    kernels: list[Kernel]
    """Always empty: no job serves a model."""
    is_packing: bool
    pack_id: str


class Instance(Output):
    """The one instance group: the whole platform."""

    uuid: str
    name: str
    version: str
    masterUrl: str  # noqa: N815
    executionUser: str  # noqa: N815
    state: str
    historyServerUrl: str  # noqa: N815


class PlanNode(Output):
    """A node of the tree of resource plans."""

    id: str
    pid: str
    """Id of the parent; empty at the root."""
    childTreeDto: list[PlanNode]  # noqa: N815


class Plan(Output):
    """A resource plan: a queue. The fields after ``description`` are not WMLA's."""

    id: str
    pid: str
    name: str
    path: str
    """As in ``consumer`` of a job's record."""
    slots: int
    """How many slots the plan has of its own, its quota; the plan above all has those of all nodes that take work."""
    used_slots: int
    """How many slots its jobs hold now, those of plans below it included, as in the fields from ``entitled_slots``."""
    description: str
    share_ratio: float
    """Its share of what is divided beside plans that have the same parent."""
    quota: int
    limit: int | None
    """The most slots that its jobs may hold together; None: no limit."""
    policy: str
    """How its jobs share: ``efficient``, ``fairshare``, ``priority`` or ``fifo``."""
    entitled_slots: int
    """Slots to which its users are entitled with the jobs that they have now."""
    demand_slots: int
    """Slots for which its jobs have use."""
    running_jobs: int
    pending_jobs: int


class Status(Output):
    """How the platform is."""

    status: str
    version: str
    nodes: dict[str, int]
    """Number of nodes by their health."""
    slots: int
    used_slots: int


class FrameworkDetail(Output):
    """A framework, in the form of WMLA 1.2."""

    name: str
    home: str
    backend: str
    accelerator: str
    psNum: str  # noqa: N815
    commIPNetwork: str  # noqa: N815


class Signed(Output):
    """Answer of ``GET /platform/rest/conductor/v1/auth/logon``."""

    accessToken: str  # noqa: N815
    """Clients may send it as ``Authorization: Bearer`` or ``X-Auth-Token`` in place of the password."""
    username: str
    role: str


class InferenceToken(Output):
    """Answer of ``POST /dlim/v1/auth/token``. All three hold the same token, which every call here takes."""

    access_token: str
    service_token: str
    user_token: str
