"""`edt submit` while the API or its database restarts: tried again under one key, so that it makes one job."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from edt_api.access import tokens
from edt_cli import session
from edt_scheduler.model.jobs import Begin
from edt_scheduler.operations import accounts, execs, lives
from edt_scheduler.store import environs
from support.served_api import ServedApi, served
from support.typed import Done, edt
from support.whole_checkpoints import write_checkpoint

AWAY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Line:
    """A line to the API that fails as told, a connection at a time: ``away`` answers 503 itself, ``cut`` lets the
    request through and the answer not, ``pass`` does what a line should."""

    def __init__(self, target: str, *fates: str) -> None:
        host, _, port = target.removeprefix("http://").partition(":")
        self._target = host, int(port)
        self._fates = list(fates)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(5)

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            with client:
                fate = self._fates.pop(0) if self._fates else "pass"
                if fate == "away":
                    client.settimeout(0.2)
                    with suppress(OSError):  # whoever is slow to ask hears nothing, which is no answer either
                        _drain(client)
                        client.sendall(AWAY)
                else:
                    self._through(client, answers=fate == "pass")

    def _through(self, client: socket.socket, *, answers: bool) -> None:
        with socket.create_connection(self._target) as api:
            forth = threading.Thread(target=_copy, args=(client, api))
            forth.start()
            while data := api.recv(1 << 16):
                if not answers:
                    break  # the API has done it, and nobody will know
                client.sendall(data)
            with suppress(OSError):  # it has hung up itself
                client.shutdown(socket.SHUT_RDWR)
            forth.join(5)


def _copy(here: socket.socket, there: socket.socket) -> None:
    try:
        while data := here.recv(1 << 16):
            there.sendall(data)
        there.shutdown(socket.SHUT_WR)
    except OSError:
        """One of them has hung up."""


def _drain(client: socket.socket) -> None:
    try:
        while client.recv(1 << 16):
            pass
    except TimeoutError:
        """All that came."""


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApi]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("EDT_")]:
            patch.delenv(name)
        with served(tmp_path_factory.mktemp("home")) as api:
            yield api


@contextmanager
def line(api: ServedApi, *fates: str) -> Iterator[Line]:
    opened = Line(api.url, *fates)
    yield opened
    opened.close()


def submit(api: ServedApi, url: str, folder: Path, *options: str, **environ: str) -> Done:
    (folder / "main.py").write_text("print('hello')\n")
    return run(api, url, folder, "submit", "main.py", *options, **environ)


def run(api: ServedApi, url: str, folder: Path, *words: str, **environ: str) -> Done:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EDT_")}
    token = tokens.issue(api.platform, accounts.user(api.platform, "ana"), 600)
    ours = {"EDT_API": url, "EDT_TOKEN": token, "NO_COLOR": "1"}
    return edt([*words], {**kept, **ours, **environ}, folder)


def jobs(api: ServedApi) -> list[str]:
    return [job.exec_id for job in execs.jobs(api.platform, viewer=accounts.user(api.platform, "ana"))]


@pytest.mark.parametrize("fates", [("cut",), ("away",), ("cut", "away", "cut")], ids="+".join)
def test_what_got_no_answer_is_sent_again_and_is_one_job(
    api: ServedApi, tmp_path: Path, fates: tuple[str, ...]
) -> None:
    before = jobs(api)
    with line(api, *fates) as flaky:
        done = submit(api, flaky.url, tmp_path)
    assert done.returncode == 0, done.stderr
    assert jobs(api) == [*before, done.stdout.strip()]
    assert done.stderr.count("\n") == 1
    assert "trying for 30 s" in done.stderr


def test_where_nobody_answers_it_gives_up_in_time(
    api: ServedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "PATIENCE_SECONDS", 1.2)
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    done = submit(api, url, tmp_path)
    assert done.returncode == 1
    assert "no answer from" in done.stderr


def test_an_answer_may_take_longer_where_a_checkpoint_is_copied_first(
    api: ServedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = submit(api, api.url, tmp_path).stdout.strip()
    write_checkpoint(api.settings.checkpoint_directory(source), 40)
    monkeypatch.setattr(session, "ANSWER_SECONDS", 0.4)
    monkeypatch.setattr(session, "PATIENCE_SECONDS", 0.4)
    copy = lives.stage_checkpoint

    def slow(*of: Any, **more: Any) -> Begin:
        time.sleep(1)
        return copy(*of, **more)

    monkeypatch.setattr(lives, "stage_checkpoint", slow)
    done = submit(api, api.url, tmp_path, "--resume-from", source)
    assert done.returncode == 0, done.stderr
    assert "trying" not in done.stderr
    execs.stop(api.platform, source, viewer=accounts.user(api.platform, "ana"))
    extended = run(api, api.url, tmp_path, "extend", source, "--epochs", "9")
    assert extended.returncode == 0, extended.stderr
    assert "goes on where" in extended.stdout


def test_a_refusal_is_not_tried_again(api: ServedApi, tmp_path: Path) -> None:
    done = submit(api, api.url, tmp_path, "--framework", "edtCaffe")
    assert done.returncode == 1
    assert "edtCaffe" in done.stderr
    assert "trying" not in done.stderr


def test_a_variable_without_a_value_is_taken_from_the_environment_so_that_nobody_sees_it_typed(
    api: ServedApi, tmp_path: Path
) -> None:
    secret = 'it\'s a "$secret" & = of\ntwo lines'
    done = submit(api, api.url, tmp_path, "-e", "TOKEN", "--env", "EMPTY", "-e", "A=b=c", TOKEN=secret, EMPTY="")
    assert done.returncode == 0, done.stderr
    with api.platform.database.snapshot() as tx:
        number = int(done.stdout.strip().removeprefix("edt-"))
        assert environs.get(tx, number, api.platform.secret_key.keys()).items() >= {
            "TOKEN": secret, "EMPTY": "", "A": "b=c"
        }.items()  # fmt: skip


@pytest.mark.parametrize(
    ("given", "message"), [("NOWHERE", "--env NOWHERE: it is not set here"), ("=x", "it is NAME=VALUE, or NAME")]
)
def test_a_variable_that_is_not_there_is_refused_before_anything_is_sent(
    api: ServedApi, tmp_path: Path, given: str, message: str
) -> None:
    before = jobs(api)
    done = submit(api, api.url, tmp_path, "--env", given)
    assert done.returncode == 2 and message in done.stderr and jobs(api) == before
