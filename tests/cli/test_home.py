"""EDT_HOME: one `edt up` at a time, a port that is remembered, sentences where it cannot work."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from edt_cli.errors import CannotStart
from edt_cli.up import home as homes
from edt_cli.up.home import Home, home_tag, remembered_port
from edt_contract.durable import write_whole
from support.ports import free_port


@pytest.fixture
def taken():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_the_port_asked_for_is_remembered(tmp_path):
    port = free_port()
    assert Home(tmp_path).port("127.0.0.1", port) == port
    assert remembered_port(tmp_path) == port
    assert Home(tmp_path).port("127.0.0.1", None) == port


def test_a_taken_port_is_refused_when_it_was_asked_for_or_remembered(tmp_path, taken):
    with pytest.raises(CannotStart, match=rf"port {taken} is taken .* --port"):
        Home(tmp_path).port("127.0.0.1", taken)
    (tmp_path / "port").write_text(str(taken))
    with pytest.raises(CannotStart, match="that this home had before is taken"):
        Home(tmp_path).port("127.0.0.1", None)


def test_at_first_a_free_port_does_when_9280_is_taken(tmp_path, taken, monkeypatch):
    monkeypatch.setattr(homes, "DEFAULT_PORT", taken)
    port = Home(tmp_path).port("127.0.0.1", None)
    assert port not in {None, taken}
    assert remembered_port(tmp_path) == port


def test_a_home_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotStart, match=r"cannot be written .* --home or EDT_HOME"):
        Home(tmp_path / "file" / "home")


def test_a_second_platform_in_one_home_is_refused(tmp_path):
    with Home(tmp_path).locked(), pytest.raises(CannotStart, match="runs already in"), Home(tmp_path).locked():
        pass
    with Home(tmp_path).locked():
        """Free again."""


def test_secrets_are_for_their_owner_only_and_stay(tmp_path):
    path = Home(tmp_path).join_token()
    assert path.stat().st_mode & 0o777 == 0o600
    secret = path.read_text()
    assert len(secret) > 30
    assert Home(tmp_path).join_token().read_text() == secret


def test_a_secret_that_several_agents_write_at_once_is_whole_at_every_moment(tmp_path):
    path = tmp_path / "join-token"
    write_whole(path, "s" * 40 + "\n", mode=0o600)

    def written(number: int) -> str:
        write_whole(path, "s" * 40 + "\n", mode=0o600)
        return path.read_text()

    with ThreadPoolExecutor(8) as several:
        assert set(several.map(written, range(400))) == {"s" * 40 + "\n"}
    assert list(tmp_path.iterdir()) == [path]


def test_agent_and_cli_know_a_home_by_the_same_mark(tmp_path):
    from edt_agent.settings import home_tag as agents_home_tag

    assert home_tag(tmp_path) == agents_home_tag(tmp_path)
