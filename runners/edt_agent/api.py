"""The agent's requests to the API, over HTTP.

The agent may repeat each request at any time: a second registration replaces the first, assignments describe what
should run now, and reports have numbers.
"""

from __future__ import annotations

import logging
import ssl
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from edt_agent.decide import Assigned
from edt_agent.errors import ApiRefused, ApiUnreachable, BadSetting, NotKnownHere
from edt_agent.lock import boot_id
from edt_agent.settings import AgentSettings
from edt_agent.slots import Slot, cores
from edt_agent.supervisor_records import Key
from edt_contract import tls
from edt_contract.attempt import Assignment
from edt_contract.encoding import ContractError

log = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class Answer:
    """The API's answer to a request for assignments, with the version of the assignments."""

    version: int
    assigned: Assigned
    images: tuple[str, ...] = ()
    """Container images that this node should pull before a job needs them."""


class Api:
    """The API's routes for one node. Call ``register`` first, and again after NotKnownHere.

    Every request may raise ApiUnreachable or ApiRefused.
    """

    def __init__(self, settings: AgentSettings, slots: Sequence[Slot]) -> None:
        self._settings = settings
        self._slots = slots
        self._node = f"/api/v1/nodes/{quote(settings.name, safe='')}"
        self._token = ""
        # Each start of the agent has a new value, so that the API can recognise a late message of an earlier one.
        self._incarnation = uuid.uuid4().hex
        self._http = httpx.AsyncClient(
            base_url=settings.api, timeout=_TIMEOUT_SECONDS, trust_env=False, verify=_accepted(settings)
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def register(self) -> str | None:
        """Register with the join token. The API answers with the node's own token for all other requests. The agent
        keeps this token only in memory.

        Returns:
            The broker's URL; None: there are no notifications, so the agent must use long polls.

        Raises:
            BadSetting: the file with the join token cannot be read.
            ApiUnreachable: the API does not answer.
            ApiRefused: the API refuses the node.
        """
        body = {
            "name": self._settings.name,
            "host": self._settings.reached_at,
            "cores": cores(),
            "boot_id": boot_id(),
            "incarnation": self._incarnation,
            "launcher": self._settings.runs_in,
            "alone": self._settings.alone,
            "slots": [
                {name: value for name, value in asdict(slot).items() if value is not None} for slot in self._slots
            ],
        }
        join_token = _read_token(self._settings.token_file)
        data = await self._ask("to register", "POST", "/api/v1/nodes", token=join_token, json=body)
        self._token = str(data["token"])
        broker_url: str | None = data.get("broker_url")
        return broker_url

    async def assignments(self, after: int | None, wait: float, woken_by: str) -> Answer:
        """Ask what should run on this node.

        Args:
            after: the version of the assignments that the agent has; None: it has none.
            wait: seconds that the API may wait for a newer version before it answers.
            woken_by: the cause of this request: ``start``, ``timer`` or ``notification``.

        Raises:
            NotKnownHere: the API does not accept the node's token.
            ApiUnreachable: the API does not answer, or its answer cannot be read.
            ApiRefused: the API refuses the request.
        """
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
        """Send reports.

        Returns:
            By attempt (``edt-7/2``): the number of the last report up to which the API has all reports.
        """
        data = await self._ask("reports", "POST", f"{self._node}/reports", json=list(reports))
        return {str(key): int(seq) for key, seq in data["acked"].items()}

    async def usage(self, slots: Sequence[Mapping[str, Any]]) -> None:
        """Send how busy the slots are, one ``usage.Sample`` as a JSON object for each."""
        await self._ask("usage", "POST", f"{self._node}/usage", json={"slots": list(slots)})

    async def pulled(self, image: str, error: str) -> None:
        """Report that an image is on this node, or, if ``error`` is not empty, why it is not."""
        await self._ask("images", "POST", f"{self._node}/images", json={"image": image, "error": error[:4096]})

    async def leaving(self, why: str, *, if_idle: bool = False, gone: bool = False) -> bool:
        """Report that this node leaves, or ask whether it may.

        Args:
            why: the reason, in words for people.
            if_idle: ask whether it may leave. Otherwise it leaves in any case: the API has its jobs moved away.
            gone: no process of any job is left on the node, and it ends now.

        Returns:
            Whether the node leaves.
        """
        body = {"why": why[:500], "if_idle": if_idle, "gone": gone}
        data = await self._ask("leaving", "POST", f"{self._node}/leaving", json=body)
        return bool(data.get("leave", not if_idle))

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
        data = _json_object(response)
        if data is None:
            raise ApiUnreachable(f"{self._settings.api} is no OpenEDT API: its answer to {what} is no JSON object")
        return data


def _accepted(settings: AgentSettings) -> ssl.SSLContext | bool:
    """The certificates of the API that the agent accepts; True: what the machine's authorities have signed.

    Raises:
        BadSetting: the file of certificates cannot be used.
    """
    try:
        if settings.api_certificate is not None:
            return tls.by_itself(settings.api_certificate)
        return tls.by_authorities(settings.ca_file) if settings.ca_file is not None else True
    except tls.BadCertificateFile as error:
        variable = "EDT_CA_FILE" if settings.api_certificate is None else "EDT_API_CERTIFICATE"
        raise BadSetting(f"{variable}: {error}") from error


def _read_token(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        raise BadSetting(f"--token-file: {path}: {error.strerror}") from error


def _desired(items: Sequence[Mapping[str, Any]]) -> Assigned:
    """Read the assignments that the API lists. Attempts whose assignments this release cannot read are listed apart.

    Raises:
        ApiUnreachable: an assignment cannot be read and names no attempt. Then nothing is changed on this node.
    """
    assignments: dict[Key, Assignment] = {}
    unreadable: set[Key] = set()
    for item in items:
        try:
            assignment = Assignment.from_json_object(item)
        except (AttributeError, ContractError, KeyError, TypeError) as error:
            spec = item.get("spec") or {}
            if not isinstance(spec.get("job"), str) or not isinstance(spec.get("fence"), int):
                # The attempt is unknown, and the agent would stop an attempt that is not listed.
                raise ApiUnreachable(f"an assignment of another release, of no job that is named: {error}") from None
            log.error("an assignment of %s cannot be read and is left as it is: %s", spec["job"], error)
            unreadable.add(Key(spec["job"], spec["fence"]))
        else:
            assignments[Key.of(assignment.spec)] = assignment
    return Assigned(assignments, frozenset(unreadable))


def _detail(response: httpx.Response) -> str:
    """The ``detail`` of a problem document, or the first 200 characters of any other answer."""
    detail = (_json_object(response) or {}).get("detail")
    return detail if isinstance(detail, str) else response.text[:200].strip()


def _json_object(response: httpx.Response) -> dict[str, Any] | None:
    """The JSON object in the answer; None: the answer is no JSON object."""
    try:
        data = response.json()
    except ValueError:
        return None
    return data if isinstance(data, dict) else None
