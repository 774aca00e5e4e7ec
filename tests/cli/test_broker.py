"""Which broker `edt up` starts: the one that is named, its own, or none."""

from __future__ import annotations

from edt_cli.up.home import Home
from edt_cli.up.platform import Plan, choose_broker


def test_a_broker_that_is_named_is_used_and_not_started(tmp_path, monkeypatch):
    monkeypatch.setenv("EDT_BROKER_URL", "redis://broker:6379/0")
    broker = choose_broker(tmp_path, tmp_path)
    assert (broker.url, broker.command) == ("redis://broker:6379/0", ())


def test_without_a_name_a_private_server_of_its_own_is_started(tmp_path, monkeypatch):
    monkeypatch.delenv("EDT_BROKER_URL", raising=False)
    broker = choose_broker(tmp_path, tmp_path)
    options = dict(zip(broker.command[1::2], broker.command[2::2], strict=True))
    assert broker.url == f"redis+socket://{tmp_path / 'valkey.sock'}"
    assert (options["--port"], options["--unixsocketperm"]) == ("0", "700")


def test_a_home_with_a_long_path_has_its_socket_elsewhere(tmp_path, monkeypatch):
    monkeypatch.delenv("EDT_BROKER_URL", raising=False)
    broker = choose_broker(tmp_path / ("x" * 100), tmp_path)
    assert broker.url == f"redis+socket://{tmp_path / 'valkey.sock'}"


def test_the_agent_hears_of_a_named_broker_from_the_api_which_knows_its_password(tmp_path, monkeypatch):
    monkeypatch.setenv("EDT_BROKER_URL", "redis://broker:6379/0")
    environ = {"EDT_BROKER_URL": "redis://broker:6379/0", "EDT_BROKER_PASSWORD_FILE": "/run/password", "PATH": "/bin"}
    plan = Plan(
        Home(tmp_path), "127.0.0.1", 9280, None, choose_broker(tmp_path, tmp_path), tmp_path / "token", environ, {}
    )
    assert plan.environ == environ
    assert plan.environ_of_the_agent == {"PATH": "/bin"}


def test_the_agent_hears_our_own_broker_before_the_api_is_there(tmp_path, monkeypatch):
    monkeypatch.delenv("EDT_BROKER_URL", raising=False)
    broker = choose_broker(tmp_path, tmp_path)
    environ = {"EDT_BROKER_URL": broker.url}
    plan = Plan(Home(tmp_path), "127.0.0.1", 9280, None, broker, tmp_path / "token", environ, {})
    assert plan.environ_of_the_agent == environ
