"""Every route of both surfaces, with what its OpenAPI document allows and with what it does not: no server error."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from pydantic import SecretStr
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error

from edt_api.main import create_app
from edt_api.settings import Settings
from support.credentials import PASSWORD
from support.served_api import JOIN_TOKEN, ServedApi

_APP = create_app(Settings(home=Path(os.devnull), join_token=SecretStr("never used")))
"""Made for its document only: an application touches nothing before it is served."""
SCHEMA = schemathesis.openapi.from_dict(_APP.openapi())
SENT = SCHEMA.exclude(path_regex=r"/stream|/follow|/assignments$")
"""Without the routes that keep a connection open until something happens."""
OPERATIONS = [pytest.param(found.ok(), id=found.ok().label) for found in SENT.get_all_operations()]


NODES_ALONE = {("POST", f"/api/v1/nodes/{{name}}/{what}") for what in ("usage", "images", "reports")}


@pytest.fixture(scope="module")
def node(api: ServedApi) -> str:
    """The token of a node named node-a."""
    return api.register("node-a")


def ask(api: ServedApi, case: Any, node: str, names: Mapping[str, str]) -> None:
    """Send a request as the administrator, or as the node where only nodes may.

    Args:
        api: the server.
        case: the request.
        node: the node's token.
        names: path parameters that name something which exists.
    """
    tokens = {("POST", "/api/v1/nodes"): JOIN_TOKEN} | dict.fromkeys(NODES_ALONE, node)
    token = tokens.get((case.method, case.path))
    for parameter in set(case.path_parameters or ()) & set(names):
        case.path_parameters[parameter] = names[parameter]
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answer = case.call(base_url=api.url, auth=None if token else ("admin", PASSWORD), headers=headers, timeout=20)
    if answer.status_code == 501:
        assert answer.text.startswith("Error 501: "), answer.text
        return
    case.validate_response(answer, checks=[not_a_server_error])


MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)


def try_out(api: ServedApi, operation: Any, node: str, requests: int) -> None:
    """Send requests that the document allows, about a job and a node that exist, and then requests that it does not."""
    there = {"exec_id": api.submit("ana").exec_id, "name": "node-a"} if "{" in operation.path else {}

    def of(mode: GenerationMode) -> None:
        @settings(
            max_examples=requests,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def send(case: Any) -> None:
            ask(api, case, node, there if mode is GenerationMode.POSITIVE else {})

        with suppress(Unsatisfiable):  # nothing can be wrong with a request that has no parameters
            send()

    for mode in MODES:
        of(mode)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_route_fails(api: ServedApi, node: str, operation: Any) -> None:
    try_out(api, operation, node, 2)


@pytest.mark.extended
@pytest.mark.timeout(600)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_route_fails_whatever_comes(api: ServedApi, node: str, operation: Any) -> None:
    try_out(api, operation, node, 60)
