"""Uploads that are slow, or many, keep neither other users nor nodes waiting."""

from __future__ import annotations

import asyncio
import base64
import itertools
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import httpx
import pytest

from edt_api.errors import UploadRefused
from edt_api.submissions import uploads
from edt_api.submissions.uploads import receive
from support.credentials import PASSWORD
from support.served_api import ARGS, EXECS, ServedApi, served
from support.waiting import until

SCRIPT = {"file": ("main.py", b"print('hello')\n")}
_BODY = b'--b\r\nContent-Disposition: form-data; name="file"; filename="main.py"\r\n\r\nprint("hello")\n\r\n--b--\r\n'


@pytest.fixture
def tight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedApi]:
    """An API that takes two submissions in at a time, one of a user, and lets others wait for a moment."""
    monkeypatch.setattr(uploads, "WAIT_SECONDS", 0.2)
    with served(tmp_path / "home", uploads_per_user=1, uploads_at_once=2) as api:
        yield api


@contextmanager
def begun(api: ServedApi, user: str, body: bytes) -> Iterator[socket.socket]:
    """A submission of which so much is sent."""
    url = urlsplit(api.url)
    login = base64.b64encode(f"{user}:{PASSWORD}".encode()).decode()
    head = (
        f"POST {EXECS}?{urlencode({'args': ARGS})} HTTP/1.1\r\nHost: {url.netloc}\r\nAuthorization: Basic {login}\r\n"
        f"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {len(_BODY)}\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection((str(url.hostname), url.port or 0), timeout=20) as line:
        line.sendall(head.encode() + body)
        yield line


@contextmanager
def half_sent(api: ServedApi, user: str) -> Iterator[socket.socket]:
    """A submission of which the second half does not come: it has its turn."""
    before = _taken_in(api)
    with begun(api, user, _BODY[:40]) as line:
        until(lambda: _taken_in(api) > before, 10)
        yield line


def _taken_in(api: ServedApi) -> int:
    return int(api.app.state.admission._all.borrowed_tokens)


def _waiting(api: ServedApi) -> int:
    users = api.app.state.admission._of_user.values()
    return sum(each.statistics().tasks_waiting for each in users)


def answer(line: socket.socket) -> bytes:
    return b"".join(iter(lambda: line.recv(65536), b""))


def submit(api: ServedApi, user: str) -> httpx.Response:
    return api.client(user).post(EXECS, params={"args": ARGS}, files=SCRIPT)


def test_who_sends_slowly_keeps_only_himself_waiting(tight: ServedApi) -> None:
    with half_sent(tight, "ana") as line:
        refused = submit(tight, "ana")
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "10")
        assert refused.text == (
            "Error 429: too many submissions at once: the limit is 1 of one user; send it again in 10 seconds\n"
        )
        assert submit(tight, "bob").status_code == 200
        line.sendall(_BODY[40:])
        assert answer(line).startswith(b"HTTP/1.1 200")
    assert submit(tight, "ana").status_code == 200


def test_all_users_together_have_a_limit_too(tight: ServedApi) -> None:
    with half_sent(tight, "ana"), half_sent(tight, "bob"):
        refused = submit(tight, "admin")
        assert refused.status_code == 429 and "the limit is 2 of all users" in refused.text
    until(lambda: _taken_in(tight) == 0, 10)  # those who broke off have given their turns back
    assert submit(tight, "admin").status_code == 200


def test_one_that_comes_beside_others_waits_for_its_turn(tight: ServedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "WAIT_SECONDS", 20.0)
    with half_sent(tight, "ana") as first, begun(tight, "ana", _BODY) as second:
        until(lambda: _waiting(tight) == 1, 10)
        first.sendall(_BODY[40:])
        assert answer(first).startswith(b"HTTP/1.1 200")
        assert answer(second).startswith(b"HTTP/1.1 200")


def test_an_upload_that_stands_still_is_given_up(tight: ServedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    with half_sent(tight, "ana") as line:
        monkeypatch.setattr(uploads, "STALLED_SECONDS", 0.1)
        line.sendall(_BODY[40:50])
        assert b"nothing of the upload came for 0.1 seconds" in answer(line)
    assert submit(tight, "ana").status_code == 200


@pytest.mark.parametrize(
    ("size", "taken", "why"), [(1, 2, "at least 16384 a second"), (16 * 1024 * 59, 10, "is cut short")]
)
def test_an_upload_that_comes_byte_by_byte_is_given_up_and_a_slow_line_is_not(
    size: int, taken: int, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count(0.0, 59.0)
    monkeypatch.setattr(uploads, "current_time", lambda: next(ticks))
    came: list[bytes] = []

    async def chunks() -> AsyncIterator[bytes]:
        for each in (_BODY[:80], *[bytes(size)] * 9):
            came.append(each)
            yield each

    async def take_in() -> None:
        async with receive(chunks(), "multipart/form-data; boundary=b", tmp_path, most=1 << 30):
            pass

    with pytest.raises(UploadRefused, match=why):
        asyncio.run(take_in())
    assert len(came) == taken
