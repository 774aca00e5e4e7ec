"""The way to the Docker daemon, which threads share and any of them may find broken."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import docker
import pytest

from edt_agent.launchers.docker.daemon import DockerDaemon


class Forgotten(DockerDaemon):
    """Its client is always just being forgotten by whoever found that the daemon does not answer."""

    _made: Any = property(lambda self: None, lambda self, made: None)


def test_a_client_that_somebody_gives_up_is_still_the_one_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    api = SimpleNamespace(info=lambda: {"MemTotal": 8, "NCPU": 2})
    monkeypatch.setattr(docker, "from_env", lambda **_: SimpleNamespace(api=api))
    assert asyncio.run(Forgotten().node()) == (8, 2)
