"""A provisioner's requests to the API. Each may be repeated at any time."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import httpx

from edt_contract import tls
from edt_contract.encoding import ContractError, from_json_object, to_json_object
from edt_contract.pools import NodeRequest, NodeState, PoolOffer
from edt_provisioner.errors import ApiRefused, ApiUnreachable, BadSetting, PoolUnknown
from edt_provisioner.settings import Settings, join_token

_TIMEOUT_SECONDS = 10.0


class Api:
    """The routes of one pool. The join token is read for each request, so that it may be changed.

    Raises:
        BadSetting: a file of certificates cannot be used.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool = f"/api/v1/pools/{quote(settings.pool, safe='')}"
        self._http = httpx.Client(
            base_url=settings.api, timeout=_TIMEOUT_SECONDS, trust_env=False, verify=_accepted(settings)
        )

    def close(self) -> None:
        self._http.close()

    def register(self, offer: PoolOffer) -> None:
        """Register the pool, or tell again what it is.

        Raises:
            ApiUnreachable: the API does not answer.
            ApiRefused: the API refuses the pool.
        """
        self._ask("PUT", self._pool, to_json_object(offer))

    def sync(self, nodes: Sequence[NodeState] | None, trouble: str | None) -> list[NodeRequest]:
        """Tell what there is, and learn what is wanted.

        Args:
            nodes: all nodes of the pool; None: the cluster manager does not answer.
            trouble: why it does not; None: it does.

        Raises:
            ApiUnreachable: the API does not answer, or its answer cannot be read.
            PoolUnknown: the API does not know the pool.
            ApiRefused: the API refuses the request.
        """
        listed = None if nodes is None else [to_json_object(node) for node in nodes]
        answer = self._ask("POST", f"{self._pool}/sync", {"nodes": listed, "trouble": trouble})
        try:
            return [from_json_object(NodeRequest, each) for each in answer["requests"]]
        except (ContractError, KeyError, TypeError) as error:
            raise ApiUnreachable(f"the answer of {self._settings.api} cannot be read: {error}") from None

    def _ask(self, method: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {join_token(self._settings)}"}
        try:
            response = self._http.request(method, path, headers=headers, json=body)
        except httpx.HTTPError as error:
            raise ApiUnreachable(f"no answer from {self._settings.api}: {error or type(error).__name__}") from error
        if response.status_code >= 500:
            raise ApiUnreachable(f"{self._settings.api} answered {response.status_code}")
        try:
            data = response.json() if response.content else {}
        except ValueError:
            data = None
        if not response.is_success:
            detail = data.get("detail") if isinstance(data, dict) else None
            known = PoolUnknown if response.status_code == httpx.codes.NOT_FOUND else ApiRefused
            raise known(f"the API refused it: {response.status_code} {detail or response.text[:200].strip()}")
        if not isinstance(data, dict):
            raise ApiUnreachable(f"{self._settings.api} is no OpenEDT API: its answer is no JSON object")
        return data


def _accepted(settings: Settings) -> ssl.SSLContext | bool:
    try:
        if settings.api_certificate is not None:
            return tls.by_itself(settings.api_certificate)
        return tls.by_authorities(settings.ca_file) if settings.ca_file is not None else True
    except tls.BadCertificateFile as error:
        variable = "EDT_CA_FILE" if settings.api_certificate is None else "EDT_API_CERTIFICATE"
        raise BadSetting(f"{variable}: {error}") from error
