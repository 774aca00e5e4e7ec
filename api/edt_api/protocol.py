"""HTTP/1.1 as the API speaks it: uvicorn's protocol on h11, which also answers a request line that is too long.

WMLA's clients put all args into the request line. Left to itself, the server would answer and close at once, while the
client still sends: the client would then find its connection broken, and never see the answer.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_HEAD_BYTES = 1 << 20
"""The most bytes of a request line with its headers. Args of the greatest length fit in, with every letter escaped."""
_READ_ON_SECONDS = 10.0
"""How long the rest of a refused request is read and dropped, so that its client comes to read the answer."""


class Protocol(H11Protocol):
    """One connection. uvicorn makes one for each, if its Config names this class."""

    _refused = False

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, or a head that is too long, which gets the form of WMLA's refusals."""
        if len(self.conn.trailing_data[0]) <= MOST_HEAD_BYTES:
            super().send_400_response(msg)
            return
        self._refused = True
        answer = (
            f"Error 400: the request line with its headers is longer than {MOST_HEAD_BYTES} bytes; "
            "send long args in the form field data\n"
        )
        headers: list[tuple[bytes, bytes]] = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(answer)).encode()),
            (b"connection", b"close"),
        ]
        events: list[Any] = [h11.Response(status_code=400, headers=headers, reason=b"Bad Request")]
        for event in (*events, h11.Data(data=answer.encode()), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        asyncio.get_running_loop().call_later(_READ_ON_SECONDS, self.transport.close)
