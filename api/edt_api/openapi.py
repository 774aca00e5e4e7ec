"""The OpenAPI document, from which typed clients are generated. Pure.

The framework describes parameters and shapes. This module adds what the framework cannot know: short, stable operation
ids (``jobs_listing`` is ``listing`` in jobs.py), the errors of both surfaces, the credentials, and the shapes that only
the stream sends. ``python -m edt_api --openapi`` writes the document, and the dashboard's client is generated from it.
"""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema

from edt_api.access.rules import Audience, audience_of
from edt_api.dependencies import for_users
from edt_api.http import is_wmla
from edt_api.schemas import cluster

router = APIRouter(include_in_schema=False)

_REFERENCE = "#/components/schemas/{model}"
_SENT_ELSEWHERE = (cluster.Problem, cluster.JobsChanged, cluster.NodesChanged, cluster.TimelineChanged, cluster.Beat)
"""Shapes that no route declares as its response."""
_PROBLEM = {
    "description": "Refused or failed; `code` is for programs, `detail` for people.",
    "content": {"application/problem+json": {"schema": {"$ref": _REFERENCE.format(model="Problem")}}},
}
_PLAIN = {
    "description": "Refused or failed: `Error <status>: <sentence>`, as WMLA writes it.",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}
_CREDENTIALS = {
    "password": {"type": "http", "scheme": "basic"},
    "token": {"type": "http", "scheme": "bearer"},
    "tokenHeader": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"},
    "session": {"type": "apiKey", "in": "cookie", "name": "edt_session"},
}


@router.get("/api/v1/openapi.json", dependencies=[for_users])
async def described(request: Request) -> JSONResponse:
    """The document, for clients that are made out of it."""
    return JSONResponse(request.app.openapi())


def text(app: FastAPI) -> str:
    """Return the document as the text of a file. The same routes give the same text on every machine."""
    return json.dumps(app.openapi(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of the application. Gives its routes their operation ids."""
    for route in app.routes:
        if isinstance(route, APIRoute):
            _name(route)
    written = get_openapi(title=app.title, version="1", description=app.description, routes=list(app.routes))
    for path, operations in written["paths"].items():
        for method, operation in operations.items():
            _complete(operation, audience_of(method.upper(), path)[0], _PLAIN if is_wmla(path) else _PROBLEM)
    components = written.setdefault("components", {})
    _, sent = models_json_schema([(model, "serialization") for model in _SENT_ELSEWHERE], ref_template=_REFERENCE)
    shapes = components.setdefault("schemas", {}) | sent.get("$defs", {})
    components["schemas"] = {name: shape for name, shape in shapes.items() if not name.endswith("ValidationError")}
    components["securitySchemes"] = _CREDENTIALS
    return written


def _name(route: APIRoute) -> None:
    module = route.endpoint.__module__.rpartition(".")[2]
    route.operation_id = f"{module}_{route.endpoint.__name__}"
    if route.path.endswith("/"):  # a second path of the same route, for clients that add the slash
        route.include_in_schema = False


def _complete(operation: dict[str, Any], audience: Audience, error: dict[str, Any]) -> None:
    """Add to an operation its credentials and the form of its errors. Wrong parameters are errors of the same form."""
    responses = operation["responses"]
    responses.pop("422", None)
    responses["default"] = error
    operation["security"] = [] if audience is Audience.ANYONE else [{name: []} for name in _CREDENTIALS]
