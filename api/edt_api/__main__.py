"""``python -m edt_api``: the API as a process.

    python -m edt_api                  serve at EDT_HOST and EDT_PORT
    python -m edt_api --ensure-admin   make the first administrator and the join token, and exit; a random password
                                       is printed this once
    python -m edt_api --set-password USER
                                       ask for a password or read it from standard input, set it, and exit; this
                                       helps if the last administrator has lost the password; a person who can
                                       run it controls the server anyway
    python -m edt_api --openapi [PATH] write the OpenAPI document to the screen or to a file, and exit; needs no home

If the API cannot start (a taken port, a home that cannot be written, a database newer than the code, a certificate
that cannot be used), it prints one sentence and exits with status 2. After SIGTERM and Ctrl-C running requests may
finish, and held polls are answered at once.
"""

from __future__ import annotations

import argparse
import gc
import getpass
import signal
import socket
import sys
from contextlib import closing
from pathlib import Path
from types import FrameType

import uvicorn
from pydantic import ValidationError

from edt_api import concurrency
from edt_api.access.passwords import Passwords
from edt_api.main import create_app, ensure_join_token, first_admin
from edt_api.openapi import text
from edt_api.protocol import MOST_HEAD_BYTES, Protocol
from edt_api.schemas.cluster import LEAST_PASSWORD, MOST_PASSWORD
from edt_api.settings import Settings
from edt_contract import tls
from edt_migrations import DatabaseTooNew
from edt_scheduler.errors import HomeUnusable, NoSuchUser, Unavailable
from edt_scheduler.operations import accounts
from edt_scheduler.platform import open_platform
from edt_scheduler.settings import complaint

CANNOT_START = 2
_SWITCH_SECONDS = 0.001
"""A computing thread gives way to the event loop after this time. Each answer waits for that a few times."""
_GRACE_SECONDS = 3
"""How long a request may continue after the server was asked to stop; `edt up` waits for 5 seconds."""


def main(words: list[str] | None = None) -> int:
    """Run the command line.

    Returns:
        Exit status: 0 after SIGTERM or Ctrl-C, and after an action that is done at once; 2 if the API could not start
            or that action failed.
    """
    parser = argparse.ArgumentParser(prog="python -m edt_api", description="The API of OpenEDT.")
    parser.add_argument("--ensure-admin", action="store_true", help="make the first administrator, and end")
    parser.add_argument("--set-password", metavar="USER", help="set a user's password, asked for here, and end")
    parser.add_argument("--forwarded-allow-ips", default=None, metavar="ADDRESSES", help="proxies to be believed")
    parser.add_argument("--openapi", nargs="?", const="-", metavar="PATH", help="write the OpenAPI document, and end")
    given = parser.parse_args(words)
    if given.openapi is not None:
        return _describe(given.openapi)
    try:
        settings = Settings()
        if given.forwarded_allow_ips is not None:
            settings = settings.model_copy(update={"forwarded_allow_ips": given.forwarded_allow_ips})
        if given.set_password is not None:
            return _set_password(settings, given.set_password)
        return _ensure_admin(settings) if given.ensure_admin else _serve(settings)
    except ValidationError as error:
        return _cannot(complaint(error))
    except (HomeUnusable, DatabaseTooNew, Unavailable, NoSuchUser, tls.BadCertificateFile) as error:
        return _cannot(str(error))


class Server(uvicorn.Server):
    """A server that answers waiting requests at once when it is asked to stop."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.config.app.state.stopping.set()  # type: ignore[union-attr]  # config.app is a FastAPI
        super().handle_exit(sig, frame)


def _serve(settings: Settings) -> int:
    sys.setswitchinterval(_SWITCH_SECONDS)
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is not None and key is not None:
        tls.serving(certificate, key)  # uvicorn reads them later; a fault is printed here as one sentence
    # Opened here once, so that a fault is printed as one sentence and not as a traceback of the lifespan.
    open_platform(settings).close()
    try:
        listening = _listen(settings.host, settings.port)
    except OSError as error:
        return _cannot(f"{settings.host} port {settings.port} cannot be listened on: {error.strerror or error}")
    host, port = listening.getsockname()[:2]
    scheme = "http" if certificate is None else "https"
    print(f"listening on {scheme}://{f'[{host}]' if ':' in host else host}:{port}", file=sys.stderr, flush=True)  # noqa: T201
    config = uvicorn.Config(
        create_app(settings),
        access_log=False,
        server_header=False,
        proxy_headers=False,  # http.py reads these headers, and X-Forwarded-Host besides
        timeout_graceful_shutdown=_GRACE_SECONDS,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        ws="none",
        http=Protocol,
        h11_max_incomplete_event_size=MOST_HEAD_BYTES,
        log_level="warning",
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _go)  # uvicorn replaces these handlers, and raises the signal again at its end
    gc.collect()
    gc.freeze()  # these objects stay for good, so the collector need not scan them while requests wait
    try:
        with listening:
            Server(config).run(sockets=[listening])
    finally:
        concurrency.end()
    return 0


def _go(_: int, __: FrameType | None) -> None:
    raise SystemExit(0)


def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(1024)
    except OSError:
        listening.close()
        raise
    return listening


def _ensure_admin(settings: Settings) -> int:
    with closing(open_platform(settings)) as platform:
        ensure_join_token(settings)
        word = first_admin(platform, Passwords(), settings.admin_password)
    if word is not None and settings.admin_password is None:
        print(word)  # noqa: T201 - only this line ever shows the password
    return 0


def _set_password(settings: Settings, name: str) -> int:
    with closing(open_platform(settings)) as platform:
        accounts.user(platform, name)  # raises for an unknown user before it asks for a password
        try:
            password = _typed_password(name)
        except (EOFError, KeyboardInterrupt):
            return _cannot("no password was given; nothing is changed")
        if not LEAST_PASSWORD <= len(password) <= MOST_PASSWORD:
            return _cannot(f"a password has {LEAST_PASSWORD} to {MOST_PASSWORD} characters, not {len(password)}")
        stored = Passwords().hash_now(password)
        accounts.set_password(platform, accounts.user(platform, name), stored)
    print(f"{name} has a new password; every login of {name} has ended", file=sys.stderr)  # noqa: T201
    return 0


def _typed_password(name: str) -> str:
    """Return the first line of standard input; at a terminal ask, without echo, until both entries are the same."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    while True:
        password = getpass.getpass(f"New password of {name}: ")
        if password == getpass.getpass("Again: "):
            return password
        print("these were not the same", file=sys.stderr)  # noqa: T201


def _describe(where: str) -> int:
    described = text(create_app(Settings.model_construct()))  # the document depends on no setting
    if where == "-":
        sys.stdout.write(described)
        return 0
    try:
        Path(where).write_text(described)
    except OSError as error:
        return _cannot(f"{where} cannot be written: {error.strerror or error}")
    return 0


def _cannot(sentence: str) -> int:
    print(sentence, file=sys.stderr)  # noqa: T201
    return CANNOT_START


if __name__ == "__main__":
    sys.exit(main())
