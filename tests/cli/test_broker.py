"""Which broker `edt up` starts: the one that is named, its own, or none."""

from __future__ import annotations

from edt_cli.up.broker import choose


def test_a_broker_that_is_named_is_used_and_not_started(tmp_path, monkeypatch):
    monkeypatch.setenv("EDT_BROKER_URL", "redis://broker:6379/0")
    broker = choose(tmp_path, tmp_path)
    assert (broker.url, broker.command) == ("redis://broker:6379/0", ())


def test_without_a_name_a_private_server_of_its_own_is_started(tmp_path, monkeypatch):
    monkeypatch.delenv("EDT_BROKER_URL", raising=False)
    broker = choose(tmp_path, tmp_path)
    options = dict(zip(broker.command[1::2], broker.command[2::2], strict=True))
    assert broker.url == f"redis+socket://{tmp_path / 'valkey.sock'}"
    assert (options["--port"], options["--unixsocketperm"]) == ("0", "700")


def test_a_home_with_a_long_path_has_its_socket_elsewhere(tmp_path, monkeypatch):
    monkeypatch.delenv("EDT_BROKER_URL", raising=False)
    broker = choose(tmp_path / ("x" * 100), tmp_path)
    assert broker.socket == tmp_path / "valkey.sock"
