"""The API as clients meet it: a real server on a free port, over a real home with SQLite."""

from __future__ import annotations

import asyncio
import io
import socket
import ssl
import tarfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from argon2 import PasswordHasher
from fastapi import FastAPI
from pydantic import SecretStr

from edt_api.access.passwords import Passwords
from edt_api.main import create_app
from edt_api.protocol import MOST_HEAD_BYTES, Protocol
from edt_api.settings import Settings
from edt_contract import tls
from edt_scheduler.model.states import Role
from edt_scheduler.operations import accounts, execs
from edt_scheduler.platform import Platform
from edt_scheduler.views import JobView
from support.credentials import PASSWORD

EXECS = "/platform/rest/deeplearning/v1/execs"
JOIN_TOKEN = "join-me"
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""One for all clients, who never use it: loading the certificates takes longer than most tests."""
ARGS = "--exec-start edtPyTorch --numWorker 4 --model-main main.py"


def cheap_hasher() -> PasswordHasher:
    """argon2 as in production, with costs that a test can pay often."""
    return PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


def cheap_passwords() -> Passwords:
    return Passwords(cheap_hasher())


def tar(files: Mapping[str, str | bytes], mode: str = "w:gz") -> bytes:
    """An archive with these files, as clients make them."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


@dataclass
class ServedApi:
    """The API, served, and the platform behind it for what a test arranges or looks at."""

    url: str
    app: FastAPI
    settings: Settings
    loop: asyncio.AbstractEventLoop
    """The server's own; it runs in another thread."""
    _clients: list[httpx.Client] = field(default_factory=list)

    @property
    def platform(self) -> Platform:
        platform: Platform = self.app.state.platform
        return platform

    def client(self, user: str | None = None, *, token: str | None = None) -> httpx.Client:
        """A client that shows a password, a token, or nothing."""
        auth = (user, PASSWORD) if user else None
        headers = {"Authorization": f"Bearer {token}"} if token else None
        certificate = self.settings.tls_certificate
        plain = httpx.HTTPTransport(verify=tls.by_itself(certificate) if certificate else _NO_TLS)
        client = httpx.Client(base_url=self.url, auth=auth, headers=headers, transport=plain, timeout=20)
        self._clients.append(client)
        return client

    def submit(self, user: str = "ana", args: str = ARGS) -> JobView:
        """A job of this user."""
        response = self.client(user).post(
            EXECS, params={"args": args}, files={"file": ("main.py", b"print('hello')\n")}
        )
        assert response.status_code == 200, response.text
        viewer = accounts.user(self.platform, user)
        return execs.job(self.platform, response.json()["id"], viewer=viewer)

    def register(self, name: str = "node-a", slots: int = 2, offers: Sequence[Mapping[str, Any]] = ()) -> str:
        """A node; its token. ``offers``: its slots, if they are no CPU stand-ins."""
        offer = {
            "name": name,
            "host": "127.0.0.1",
            "cores": 2,
            "boot_id": "boot-1",
            "incarnation": "life-1",
            "slots": list(offers) or [{"slot": str(n), "device": "cpu", "label": "CPU"} for n in range(slots)],
        }
        response = self.client(token=JOIN_TOKEN).post("/api/v1/nodes", json=offer)
        assert response.status_code == 201, response.text
        return str(response.json()["token"])

    def close(self) -> None:
        for client in self._clients:
            client.close()


@contextmanager
def served(home: Path, **settings: Any) -> Iterator[ServedApi]:
    """The API over ``home``, until the block ends."""
    chosen = Settings(home=home, admin_password=SecretStr(PASSWORD), join_token=SecretStr(JOIN_TOKEN), **settings)
    app = create_app(chosen, hasher=cheap_hasher())
    # The protocol is named, or asyncio leaves Nagle's delay on: 40 ms a request.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        ws="none",
        http=Protocol,
        h11_max_incomplete_event_size=MOST_HEAD_BYTES,
        proxy_headers=False,
        timeout_graceful_shutdown=3,
        ssl_certfile=chosen.tls_certificate,
        ssl_keyfile=chosen.tls_key,
    )
    server = uvicorn.Server(config)
    loop = asyncio.new_event_loop()

    def serve() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(server.serve(sockets=[listening]))

    thread = threading.Thread(target=serve)
    thread.start()
    scheme = "https" if chosen.tls_certificate else "http"
    api = ServedApi(f"{scheme}://127.0.0.1:{listening.getsockname()[1]}", app, chosen, loop)
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            thread.join(0.01)
        for name in ("ana", "bob"):
            accounts.add_user(api.platform, name, app.state.passwords.hash_now(PASSWORD), Role.USER)
        yield api
    finally:
        api.close()
        app.state.stopping.set()
        server.should_exit = True
        thread.join(30)
        listening.close()
