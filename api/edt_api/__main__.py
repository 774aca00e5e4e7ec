"""``python -m edt_api``: the API as a process.

    python -m edt_api                  serve, where EDT_HOST and EDT_PORT say
    python -m edt_api --ensure-admin   make the first administrator and the join token, and end; a password that
                                       was made up is printed, this once
    python -m edt_api --set-password USER
                                       set a password, asked for or read from standard input, and end: the way back
                                       where the last administrator's is lost; who may do this owns the server
    python -m edt_api --openapi [PATH] write the OpenAPI document, to the screen or a file, and end; needs no home

What prevents a start (a taken port, a home that cannot be written, a database newer than the code)
is printed in one sentence, exit status 2. SIGTERM and Ctrl-C let running requests finish, held polls at once.
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
from edt_api.schemas.cluster import LEAST_PASSWORD, MOST_PASSWORD
from edt_api.settings import Settings
from edt_migrations import DatabaseTooNew
from edt_scheduler.errors import HomeUnusable, NoSuchUser, Unavailable
from edt_scheduler.operations import accounts
from edt_scheduler.platform import open_platform
from edt_scheduler.settings import complaint

CANNOT_START = 2
_SWITCH_SECONDS = 0.001
"""A thread that computes lets the event loop go on after this: each answer waits for that a few times."""
_GRACE_SECONDS = 3
"""So long may a request that is being answered go on after the server was asked to go; `edt up` waits for 5."""


def main(words: list[str] | None = None) -> int:
    """Exit status: 0 after SIGTERM or Ctrl-C, 2 where it could not start."""
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
    except (HomeUnusable, DatabaseTooNew, Unavailable, NoSuchUser) as error:
        return _cannot(str(error))


class Server(uvicorn.Server):
    """Has requests that wait answered at once when the server is asked to stop."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.config.app.state.stopping.set()  # type: ignore[union-attr]  # it is the application itself
        super().handle_exit(sig, frame)


def _serve(settings: Settings) -> int:
    sys.setswitchinterval(_SWITCH_SECONDS)
    # Opened here once, so that what is wrong with it becomes a sentence rather than a traceback of the lifespan.
    open_platform(settings).close()
    try:
        listening = _listen(settings.host, settings.port)
    except OSError as error:
        return _cannot(f"{settings.host} port {settings.port} cannot be listened on: {error.strerror or error}")
    host, port = listening.getsockname()[:2]
    print(f"listening on http://{f'[{host}]' if ':' in host else host}:{port}", file=sys.stderr, flush=True)  # noqa: T201
    config = uvicorn.Config(
        create_app(settings),
        access_log=False,
        server_header=False,
        proxy_headers=False,  # http.py knows one more of them
        timeout_graceful_shutdown=_GRACE_SECONDS,
        ws="none",
        log_level="warning",
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _go)  # uvicorn puts its own in their place, and raises the signal anew at its end
    gc.collect()
    gc.freeze()  # what is there now stays: the collector need not look through it again while everybody waits
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
        print(word)  # noqa: T201 - the one place that ever shows it
    return 0


def _set_password(settings: Settings, name: str) -> int:
    with closing(open_platform(settings)) as platform:
        accounts.user(platform, name)  # there is one, or nobody is asked for a password
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
    """Asked for at a terminal, without showing it, until it was typed twice the same; else the first line given."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    while True:
        password = getpass.getpass(f"New password of {name}: ")
        if password == getpass.getpass("Again: "):
            return password
        print("these were not the same", file=sys.stderr)  # noqa: T201


def _describe(where: str) -> int:
    described = text(create_app(Settings.model_construct()))  # no setting shows in the document
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
