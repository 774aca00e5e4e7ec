"""How much of a request's body is taken before anybody looks into it. Room: api.

FastAPI reads a body whole and parses it in the event loop, so a long one would take memory and keep everybody waiting.
A submission and a node's reports are read piece by piece by their routes, which have caps of their own.
"""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edt_api.access import Door, door
from edt_api.answers import refuse
from edt_api.errors import TooLarge

MOST_BYTES = 1 << 20
MOST_BYTES_OF_ANYONE = 16 << 10
"""Of who is not signed in yet: a name and a password."""
_READ_BY_THEIR_ROUTES = re.compile(r"/platform/rest/deeplearning/v1/execs/?|/api/v1/nodes/[^/]+/reports")


class Bodies:
    """Middleware behind the guard: reads a request's body whole, or refuses it. One without a body passes at once."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _comes_with_one(scope) or _READ_BY_THEIR_ROUTES.fullmatch(scope["path"]):
            return await self._app(scope, receive, send)
        whose, _ = door(scope["method"], scope["path"])
        most = MOST_BYTES_OF_ANYONE if whose is Door.ANYONE else MOST_BYTES
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return None  # who sent it is gone
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > most:
                refused = refuse(Request(scope), TooLarge(f"the body is larger than {most} bytes"))
                return await refused(scope, receive, send)
        whole: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def again() -> Message:
            return whole.pop() if whole else await receive()

        return await self._app(scope, again, send)


def _comes_with_one(scope: Scope) -> bool:
    return any(name in {b"content-length", b"transfer-encoding"} and value != b"0" for name, value in scope["headers"])
