"""What WMLA's lists of jobs have in common: the names of states, the order, and an answer that is streamed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import Annotated, Any, TypeVar

from fastapi import Query, Request
from fastapi.responses import StreamingResponse
from pydantic import TypeAdapter

from edt_api import concurrency
from edt_api.errors import RequestInvalid
from edt_scheduler.model.jobs import JobKey, JobOrder
from edt_scheduler.model.states import JobState

_Item = TypeVar("_Item")

MOST = 100_000
WRITTEN_AT_ONCE = 200
"""How many items of a list are in memory at a time."""
Start = Annotated[
    int, Query(ge=0, le=2**31 - 1, description="How many items at the head of the list to leave out. 416: all.")
]
Length = Annotated[int | None, Query(ge=1, le=MOST, description="The most items to return.")]
LastLines = Annotated[int | None, Query(ge=1, le=2**31 - 1, description="Only so many lines of each file's end.")]

_STATES = {state.wire: state for state in JobState}
_NEVER = frozenset({"NEW", "PENDING_JOB_SCHEDULER", "LAUNCHING", "RECOVERING", "UNKNOWN"})
"""States of WMLA in which no job here ever is. Clients name them beside the others."""


def states_named(texts: Iterable[str] | None) -> set[JobState] | None:
    """Return the states that a query names, in one text separated by commas or in several; None: it names none.

    Raises:
        RequestInvalid: a name is no state.
    """
    wanted = [name for names in texts or () for name in names.split(",") if name]
    unknown = [name for name in wanted if name not in _STATES and name not in _NEVER]
    if unknown:
        raise RequestInvalid(f"state: got {unknown[0][:64]!r}; it takes {', '.join(_STATES)}")
    return {_STATES[name] for name in wanted if name in _STATES} if wanted else None


def order_of(parameter: str, text: str, field: str, keys: Mapping[str, JobKey], direction: str) -> JobOrder:
    """Return the order that a query asks for.

    Args:
        parameter: name of the query's parameter, for the sentence of a refusal.
        text: what the parameter holds.
        field: the field in it.
        keys: the fields by which a client may sort.
        direction: ``asc``, ``desc``, or empty for ``asc``.

    Raises:
        RequestInvalid: the field or the direction is unknown.
    """
    if field not in keys or direction not in {"", "asc", "desc"}:
        takes = f"one of {', '.join(keys)}, and asc or desc"
        raise RequestInvalid(f"{parameter}: got {text[:64]!r}; it takes {takes}")
    return JobOrder(keys[field], descending=direction == "desc")


def batches(found: Iterator[_Item]) -> Generator[list[_Item], None, None]:
    """Yield the items in lists of at most WRITTEN_AT_ONCE."""
    while some := list(islice(found, WRITTEN_AT_ONCE)):
        yield some


async def streamed(shape: TypeAdapter[Any], some: Iterator[list[Any]]) -> StreamingResponse:
    """Return lists of one shape as the items of one JSON array, written while they are read.

    An exception before the first item is raised here, so that it still can be answered with its own status.
    """
    written = concurrency.files.pieces(_as_json(shape, some))
    first = await anext(written)
    return StreamingResponse(_chained(first, written), media_type="application/json")


def _as_json(shape: TypeAdapter[Any], lists: Iterator[list[Any]]) -> Generator[bytes, None, None]:
    """Yield one JSON array in pieces, at least one."""
    before = b"["
    for some in lists:
        yield before + shape.dump_json(some)[1:-1]
        before = b","
    yield b"[]" if before == b"[" else b"]"


async def _chained(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        yield piece


def api_url(request: Request) -> str:
    """Return the URL of this server, as the client names it."""
    return str(request.base_url).rstrip("/")
