"""Room: runners, agent. What the agent says to the API, and what it hears. Touches HTTP, nothing else.

All of it may be asked again at any time: registering anew is a new incarnation of the node, assignments are a level,
and reports carry numbers.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from edt_agent.decide import Desired
from edt_agent.errors import ApiRefused, ApiUnreachable, BadSetting, NotKnownHere
from edt_agent.ledger import Key
from edt_agent.settings import AgentSettings
from edt_agent.slots import Slot, cores
from edt_runner.contract import Assignment, ContractError

log = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class Registration:
    """What the API answers to a node that registers."""

    queue: str
    """Celery queue on which this node is rung."""
    broker_url: str | None
    """None: nobody rings, ask by long poll."""


@dataclass(frozen=True)
class Answer:
    """Assignments, and the version to ask on from."""

    version: int
    desired: Desired
    images: tuple[str, ...] = ()
    """Images that this node should have ready before a job needs them."""


class Api:
    """The API as one node sees it. ``register`` first; after NotKnownHere again."""

    def __init__(self, settings: AgentSettings, slots: Sequence[Slot]) -> None:
        self._settings = settings
        self._slots = slots
        self._node = f"/api/v1/nodes/{quote(settings.name, safe='')}"
        self._token = ""
        # One per life of this agent: the API tells a restarted agent from a late message by it.
        self._incarnation = uuid.uuid4().hex
        self._http = httpx.AsyncClient(base_url=settings.api, timeout=_TIMEOUT_SECONDS, trust_env=False)

    async def close(self) -> None:
        await self._http.aclose()

    async def register(self) -> Registration:
        """Show the join token; from then on the node speaks with a token of its own, kept in memory only."""
        body = {
            "name": self._settings.name,
            "host": self._settings.reached_at,
            "cores": cores(),
            "boot_id": _boot_id(),
            "incarnation": self._incarnation,
            "launcher": self._settings.runs_in,
            "alone": self._settings.alone,
            "slots": [slot.to_json_object() for slot in self._slots],
        }
        join_token = _read_token(self._settings.token_file)
        data = await self._ask("to register", "POST", "/api/v1/nodes", token=join_token, json=body)
        self._token = str(data["token"])
        return Registration(str(data["queue"]), data.get("broker_url"))

    async def assignments(self, after: int | None, wait: float, woken_by: str) -> Answer:
        """What should run here. With ``wait`` the API answers when it differs from version ``after``, or then."""
        params: dict[str, Any] = {"woken_by": woken_by}
        if after is not None:
            params |= {"after": after, "wait": wait}
        data = await self._ask(
            "assignments",
            "GET",
            f"{self._node}/assignments",
            params=params,
            timeout=httpx.Timeout(_TIMEOUT_SECONDS, read=wait + _TIMEOUT_SECONDS),
        )
        images = tuple(str(image) for image in data.get("images", ()))
        return Answer(int(data["version"]), _desired(data["assignments"]), images)

    async def report(self, reports: Sequence[Mapping[str, Any]]) -> Mapping[str, int]:
        """Hand in reports. Answers how many of each attempt (``edt-7/2``) the API has now."""
        data = await self._ask("reports", "POST", f"{self._node}/reports", json=list(reports))
        return {str(key): int(seq) for key, seq in data["acked"].items()}

    async def usage(self, slots: Sequence[Mapping[str, Any]]) -> None:
        """Say how busy slots are."""
        await self._ask("usage", "POST", f"{self._node}/usage", json={"slots": list(slots)})

    async def pulled(self, image: str, error: str) -> None:
        """Say that an image is here; ``error``: or why it cannot be."""
        await self._ask("images", "POST", f"{self._node}/images", json={"image": image, "error": error[:4096]})

    async def _ask(self, what: str, method: str, path: str, *, token: str = "", **request: Any) -> dict[str, Any]:
        if not (token or self._token):
            raise ApiUnreachable(f"{what}: the node is not registered yet")
        headers = {"Authorization": f"Bearer {token or self._token}"}
        try:
            response = await self._http.request(method, path, headers=headers, **request)
        except httpx.HTTPError as error:
            raise ApiUnreachable(f"no answer from {self._settings.api}: {error or type(error).__name__}") from error
        if response.status_code >= 500:
            raise ApiUnreachable(f"{self._settings.api} answered {response.status_code} to {what}")
        if response.status_code in {401, 404} and not token:
            raise NotKnownHere(what, response.status_code, _detail(response))
        if not response.is_success:
            raise ApiRefused(what, response.status_code, _detail(response))
        if response.status_code == httpx.codes.NO_CONTENT:
            return {}
        try:
            data = response.json()
        except ValueError:
            data = None
        if not isinstance(data, dict):
            raise ApiUnreachable(f"{self._settings.api} is no OpenEDT API: its answer to {what} is no JSON object")
        return data


def _read_token(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        raise BadSetting(f"--token-file: {path}: {error.strerror}") from error


def _boot_id() -> str:
    """Tells one life of this machine from the next."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _desired(items: Sequence[Mapping[str, Any]]) -> Desired:
    assignments: dict[Key, Assignment] = {}
    unreadable: set[Key] = set()
    for item in items:
        try:
            assignment = Assignment.from_json_object(item)
        except (ContractError, KeyError, TypeError) as error:
            letter = item.get("letter") or {}
            log.error("an assignment of %s cannot be read and is left as it is: %s", letter.get("job"), error)
            unreadable.add(Key(str(letter.get("job")), int(letter.get("fence", 0))))
        else:
            assignments[Key(assignment.letter.job, assignment.letter.fence)] = assignment
    return Desired(assignments, frozenset(unreadable))


def _detail(response: httpx.Response) -> str:
    """The sentence in a problem document, or the beginning of whatever came."""
    try:
        data = response.json()
    except ValueError:
        data = None
    if isinstance(data, dict) and isinstance(data.get("detail"), str):
        return str(data["detail"])
    return response.text[:200].strip()
