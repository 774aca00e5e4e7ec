"""What crosses the wire, as shapes. Room: api. Touches pydantic alone: the CLI reads it without a server.

``Exec`` and ``Framework`` have WMLA's names and are flat (notebooks do ``DataFrame(body, index=[0])``);
all else is ours, under ``/api/v1``. Times are seconds since the epoch where nothing else is said; None: not yet.
What a person sends must not hold unknown keys; of what an agent of another version sends they are dropped.
"""

from __future__ import annotations

from edt_api.schemas.agents import (
    Acked,
    Assignments,
    NodeOffer,
    PulledIn,
    Registered,
    ReportIn,
    SlotOffer,
    SlotSample,
    UsageIn,
)
from edt_api.schemas.base import Page
from edt_api.schemas.images import Image, ImageOnNode, ImagePage, NewImage
from edt_api.schemas.jobs import (
    Allocation,
    AllocationPage,
    Event,
    EventPage,
    Exactness,
    Job,
    JobPage,
    LogFile,
    LogFilePage,
    Metrics,
    Progress,
    Resize,
    ResizePage,
    ResultState,
    Waiting,
)
from edt_api.schemas.nodes import Node, NodePage, NodeUsage, Slot, SlotUsage
from edt_api.schemas.problems import Problem, Ready
from edt_api.schemas.session import Me, NewSession
from edt_api.schemas.stream import Beat, JobsChanged, NodesChanged, TimelineChanged
from edt_api.schemas.timeline import Timeline, TimelineAllocation, TimelineFailure, TimelineJob, TimelineResize
from edt_api.schemas.usage import SlotTime, SlotTimePage
from edt_api.schemas.users import NewPassword, NewUser, Password, RoleName, User, UserPage
from edt_api.schemas.wmla import Exec, ExecState, Framework, Logon, Message

__all__ = [
    "Acked",
    "Allocation",
    "AllocationPage",
    "Assignments",
    "Beat",
    "Event",
    "EventPage",
    "Exactness",
    "Exec",
    "ExecState",
    "Framework",
    "Image",
    "ImageOnNode",
    "ImagePage",
    "Job",
    "JobPage",
    "JobsChanged",
    "LogFile",
    "LogFilePage",
    "Logon",
    "Me",
    "Message",
    "Metrics",
    "NewImage",
    "NewPassword",
    "NewSession",
    "NewUser",
    "Node",
    "NodeOffer",
    "NodePage",
    "NodeUsage",
    "NodesChanged",
    "Page",
    "Password",
    "Problem",
    "Progress",
    "PulledIn",
    "Ready",
    "Registered",
    "ReportIn",
    "Resize",
    "ResizePage",
    "ResultState",
    "RoleName",
    "Slot",
    "SlotOffer",
    "SlotSample",
    "SlotTime",
    "SlotTimePage",
    "SlotUsage",
    "Timeline",
    "TimelineAllocation",
    "TimelineChanged",
    "TimelineFailure",
    "TimelineJob",
    "TimelineResize",
    "UsageIn",
    "User",
    "UserPage",
    "Waiting",
]
