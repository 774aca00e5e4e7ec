"""What a proxy in front says of a request, where it is believed: scheme, host, client. Room: api.

Nobody is believed who is not named in EDT_FORWARDED_ALLOW_IPS, since anybody can send these headers. The host
counts because a page's ``Origin`` is compared with it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware


class Forwarded:
    """Middleware around all else: requests of believed proxies look as they did before the proxy."""

    def __init__(self, app: ASGIApp, believed: str) -> None:
        """``believed``: addresses and networks by commas; ``*``: everybody; empty: nobody."""
        self._forwarded = ProxyHeadersMiddleware(app, believed)  # type: ignore[arg-type]  # its own names for the same

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer = scope.get("client")
        if scope["type"] == "http" and peer and peer[0] in self._forwarded.trusted_hosts:
            host = forwarded_host(Headers(scope=scope))
            if host:
                others = [(key, value) for key, value in scope["headers"] if key != b"host"]
                scope = {**scope, "headers": [(b"host", host.encode("latin-1")), *others]}
        await self._forwarded(scope, receive, send)  # type: ignore[arg-type]


def address(scope: Scope) -> str:
    """Where a request comes from, as far as believed proxies say; empty where nothing is known of that."""
    client = scope.get("client")
    return str(client[0]) if client else ""


_FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip")


def on_this_machine(scope: Scope) -> bool:
    """Whether who asks does so here. What a proxy passes on counts as coming from elsewhere, believed or not."""
    try:
        here = ipaddress.ip_address(address(scope)).is_loopback
    except ValueError:
        return False
    return here and not any(name in _FORWARDED for name, _ in scope["headers"])


def forwarded_host(headers: Mapping[str, str]) -> str:
    """The host that the nearest proxy was asked for; each proxy adds its own behind a comma."""
    return headers.get("x-forwarded-host", "").rpartition(",")[2].strip()
