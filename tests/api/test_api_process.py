"""``python -m edt_api``: what stops a start is one sentence, and what stops it later is quick.

Where nothing is served, ``main`` is called in this process: an interpreter takes longer than the test.
"""

from __future__ import annotations

import getpass
import io
import signal
import socket
import sqlite3
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import IO
from urllib.parse import urlsplit

import httpx
import pytest

from edt_api.__main__ import main
from edt_cli.up.certificate import choose
from edt_contract import tls
from edt_migrations import migrate
from support.api_process import serving
from support.served_api import ARGS, EXECS, ServedApi
from support.waiting import until


def test_it_serves_until_sigterm_and_answers_those_who_wait_first(tmp_path: Path) -> None:
    patient = "from edt_api.routes import agents; agents.LONGEST_WAIT_SECONDS = 3600.0"
    secrets = {"EDT_ADMIN_PASSWORD": "hushhush", "EDT_JOIN_TOKEN": "join-me"}
    with serving(tmp_path / "home", patient, **secrets) as (process, url):
        client = httpx.Client(base_url=url, trust_env=False, timeout=60)
        assert client.get("/readyz").json()["ready"] is True
        spoofed = client.post(
            EXECS,
            params={"args": ARGS},
            files={"file": ("main.py", b"1\n")},
            auth=("admin", "hushhush"),
            headers={"X-Forwarded-Proto": "https", "X-Forwarded-For": "10.0.0.1"},
        )
        assert spoofed.json()["schedulerUrl"] == url  # nobody said that a proxy is to be believed
        offer = {"name": "n", "host": "h", "cores": 1, "boot_id": "b", "incarnation": "i", "slots": []}
        token = client.post("/api/v1/nodes", json=offer, headers={"Authorization": "Bearer join-me"}).json()["token"]
        bearer = {"Authorization": f"Bearer {token}"}
        path = "/api/v1/nodes/n/assignments"
        version = client.get(path, headers=bearer).json()["version"]
        with waiting(url, f"{path}?after={version}&wait=3600", token) as answer:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            assert answer.read().startswith(b"HTTP/1.1 200 ")
        client.close()


@contextmanager
def waiting(url: str, path: str, token: str) -> Iterator[IO[bytes]]:
    """Ask for it, and what the server answers. It has begun with that when the block does: on this connection it was
    asked for something else before, and has answered that."""
    where = urlsplit(url)
    with socket.create_connection((where.hostname, where.port), 30) as connection, connection.makefile("rb") as answer:
        host = f"Host: {where.netloc}\r\n"
        asked = f"GET /livez HTTP/1.1\r\n{host}\r\nGET {path} HTTP/1.1\r\n{host}Authorization: Bearer {token}\r\n\r\n"
        connection.sendall(asked.encode())
        length = 0
        while (line := answer.readline()) != b"\r\n":
            length = int(line.split(b":")[1]) if line.lower().startswith(b"content-length") else length
        answer.read(length)
        yield answer


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Start it with these settings, and answer the one sentence that it says instead."""

    def start(home: Path, **more: str) -> str:
        for name, value in {"EDT_HOME": str(home), "EDT_PORT": "0", **more}.items():
            monkeypatch.setenv(name, value)
        assert main([]) == 2
        output = capsys.readouterr()
        assert output.out == ""
        assert output.err.count("\n") == 1
        return output.err

    return start


def test_a_taken_port_is_one_sentence_and_status_2(tmp_path: Path, refused: Callable[..., str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = refused(tmp_path / "home", EDT_PORT=str(port))
    assert message == f"127.0.0.1 port {port} cannot be listened on: Address already in use\n"


@pytest.mark.parametrize(("name", "value"), [("EDT_PORT", "70000"), ("EDT_TOKEN_HOURS", "never")])
def test_a_wrong_setting_is_told_by_name(tmp_path: Path, refused: Callable[..., str], name: str, value: str) -> None:
    assert refused(tmp_path / "home", **{name: value}).startswith(f"{name}: ")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_with_a_certificate_it_speaks_tls_1_2_and_newer_and_nothing_else(tmp_path: Path) -> None:
    shown = choose(tmp_path, "127.0.0.1", True, (None, None))
    assert shown is not None
    files = {"EDT_TLS_CERTIFICATE": str(shown.certificate), "EDT_TLS_KEY": str(shown.key)}
    with serving(tmp_path / "home", **files) as (_, url):
        where = urlsplit(url)
        assert where.scheme == "https"
        with httpx.Client(base_url=url, trust_env=False, verify=tls.by_authorities(shown.certificate)) as client:
            assert client.get("/readyz").json()["ready"] is True
            assert client.get("/livez", headers={"Host": "edt.example"}).is_success
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://{where.netloc}/livez", trust_env=False)
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.set_ciphers("ALL:@SECLEVEL=0")
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with socket.create_connection(("127.0.0.1", where.port or 0)) as plain, pytest.raises(ssl.SSLError):
            old.wrap_socket(plain)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"EDT_TLS_CERTIFICATE": "/nowhere.pem"}, "EDT_TLS_KEY: a certificate and its key go together"),
        ({"EDT_TLS_KEY": "/nowhere.pem"}, "EDT_TLS_KEY: a certificate and its key go together"),
        ({"EDT_TLS_CERTIFICATE": "/no.pem", "EDT_TLS_KEY": "/no.pem"}, "/no.pem cannot be read: No such file"),
        ({"EDT_TLS_CERTIFICATE": "c", "EDT_TLS_KEY": "-----BEGIN\nsecret"}, "EDT_TLS_KEY: it takes the path of a file"),
    ],
)
def test_a_certificate_that_cannot_be_shown_is_one_sentence(
    tmp_path: Path, refused: Callable[..., str], files: dict[str, str], said: str
) -> None:
    message = refused(tmp_path / "home", **files)
    assert message.startswith(said)
    assert "secret" not in message


def test_a_home_that_cannot_be_written_is_one_sentence(tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot be used" in refused(tmp_path / "file" / "home")


def test_a_database_newer_than_the_code_is_one_sentence(tmp_path: Path, refused: Callable[..., str]) -> None:
    migrate(f"sqlite:///{tmp_path / 'edt.db'}")
    with closing(sqlite3.connect(tmp_path / "edt.db")) as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
        database.commit()
    assert "9999" in refused(tmp_path)


def test_the_first_administrator_is_made_once_and_the_password_kept_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("EDT_HOME", str(home))
    assert main(["--ensure-admin"]) == 0
    output = capsys.readouterr()
    password = output.out.strip()
    assert len(password) >= 16
    assert output.err == ""
    assert main(["--ensure-admin"]) == 0
    assert capsys.readouterr().out == ""
    assert (home / "join-token").stat().st_mode & 0o777 == 0o600
    assert len((home / "join-token").read_text().strip()) >= 40
    for path in home.rglob("*"):
        if path.is_file():
            assert password.encode() not in path.read_bytes(), path
    with serving(home) as (_, url):
        assert httpx.get(f"{url}{EXECS}", auth=("admin", password), trust_env=False, timeout=60).status_code == 200


def test_a_given_password_is_not_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EDT_ADMIN_PASSWORD", "hushhush")
    assert main(["--ensure-admin"]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("password", ["", "x", "seven77", "x" * 1025])
@pytest.mark.parametrize("action", ["serve", "--ensure-admin"])
def test_a_password_that_nobody_could_be_given_stops_the_start(
    password: str, action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EDT_ADMIN_PASSWORD", password)
    assert main([action] if action != "serve" else []) == 2
    message = capsys.readouterr().err
    assert message == (
        f"EDT_ADMIN_PASSWORD: a password has 8 to 1024 characters, this one has {len(password)}: set a longer one, "
        "or leave the variable out and the first start makes one up and shows it\n"
    )
    assert not (tmp_path / "home").exists()


def test_a_password_file_is_held_to_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EDT_ADMIN_PASSWORD_FILE", str(tmp_path / "password"))
    for content, why in (("short\n", "this one has 5"), ("\n", "is empty")):
        (tmp_path / "password").write_text(content)
        assert main(["--ensure-admin"]) == 2
        message = capsys.readouterr().err
        assert message.startswith("EDT_ADMIN_PASSWORD: ") and why in message and message.count("\n") == 1


class TestALostPassword:
    def test_it_is_set_on_the_server_while_the_api_serves(
        self, fresh_api: ServedApi, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        token = fresh_api.client("admin").get("/auth/v1/logon").json()["accessToken"]
        monkeypatch.setenv("EDT_HOME", str(fresh_api.settings.home))
        monkeypatch.setattr(sys, "stdin", io.StringIO("a new beginning\n"))
        assert main(["--set-password", "admin"]) == 0
        output = capsys.readouterr()
        assert (output.out, output.err) == ("", "admin has a new password; every login of admin has ended\n")
        assert fresh_api.client().get(EXECS, auth=("admin", "a new beginning")).status_code == 200
        assert fresh_api.client("admin").get(EXECS).status_code == 401, "the old one"
        assert fresh_api.client(token=token).get(EXECS).status_code == 401

    @pytest.mark.parametrize(
        ("name", "typed", "why"), [("admin", "short\n", "8 to 1024"), ("nobody", "long enough\n", "nobody")]
    )
    def test_what_cannot_be_is_told_in_a_sentence(
        self,
        name: str,
        typed: str,
        why: str,
        fresh_api: ServedApi,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("EDT_HOME", str(fresh_api.settings.home))
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        assert main(["--set-password", name]) == 2
        message = capsys.readouterr().err
        assert why in message and message.count("\n") == 1

    @pytest.mark.parametrize("key", [EOFError, KeyboardInterrupt])
    def test_who_thinks_better_of_it_changes_nothing(
        self,
        key: type[BaseException],
        fresh_api: ServedApi,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def broken_off(_prompt: str) -> str:
            raise key

        monkeypatch.setenv("EDT_HOME", str(fresh_api.settings.home))
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
        monkeypatch.setattr(getpass, "getpass", broken_off)
        assert main(["--set-password", "admin"]) == 2
        assert capsys.readouterr().err.strip() == "no password was given; nothing is changed"
        assert fresh_api.client("admin").get(EXECS).status_code == 200


def test_while_it_serves_the_scheduler_can_see_that(tmp_path: Path) -> None:
    def beats() -> int:
        with closing(sqlite3.connect(tmp_path / "home" / "edt.db")) as database:
            row = database.execute("SELECT counter FROM api_heartbeat").fetchone()
        return row[0] if row else 0

    with serving(tmp_path / "home"):
        until(lambda: beats() >= 2)
