"""What is said when an image is not there. The daemon is played, in words that dockerd 20.10 was heard to say."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from edt_agent.docker_settings import DockerSettings
from edt_agent.errors import BadSetting, ImageMissing, StartFailed
from edt_agent.launchers.docker.daemon import check_host
from edt_agent.launchers.docker.launcher import DockerLauncher
from edt_agent.settings import AgentSettings
from edt_agent.supervisor_records import SupervisorRecords
from edt_contract.attempt import AttemptSpec

NOT_FOUND = "pull access denied for my/own, repository does not exist or may require 'docker login'"
NO_WAY = "Get https://registry-1.docker.io/v2/: dial tcp: lookup registry-1.docker.io: no such host"


class Daemon:
    """Has no image, and says this when it is asked to pull one."""

    def __init__(self, error: str) -> None:
        self.error, self.pulled = error, ""

    async def has_image(self, image: str) -> bool:
        return False

    async def pull(self, image: str, seconds: float, most: int) -> str:
        self.pulled = image
        return self.error


def fetch(tmp_path: Path, node, image: str, error: str, *, pull: Literal["missing", "never"] = "missing") -> Daemon:
    settings = AgentSettings(home=tmp_path).model_copy(update={"runtime_dir": tmp_path})
    docker = DockerSettings(data=tmp_path, pull=pull)
    spec: AttemptSpec = replace(node.assignment().spec, image=image)

    async def ask() -> Daemon:
        launcher = DockerLauncher(settings, docker, SupervisorRecords(tmp_path / "ledger"), ())
        daemon = Daemon(error)
        launcher._daemon = daemon  # type: ignore[assignment]
        await launcher._ensure_image_of(spec)
        return daemon

    return asyncio.run(ask())


def test_one_that_can_be_pulled_is_pulled(tmp_path, node):
    assert fetch(tmp_path, node, "my/own:1", "").pulled == "my/own:1"
    assert fetch(tmp_path, node, "", "").pulled == "openedt/runner-torch:latest"


def test_one_of_the_jobs_own_that_does_not_exist_is_the_jobs_fault(tmp_path, node):
    with pytest.raises(ImageMissing, match=r"image my/own:1 \(--msd-image-name\) is not on node n1, .*does not exist"):
        fetch(tmp_path, node, "my/own:1", NOT_FOUND)


def test_a_registry_that_does_not_answer_is_nobodys(tmp_path, node):
    with pytest.raises(StartFailed, match="no such host") as error:
        fetch(tmp_path, node, "my/own:1", NO_WAY)
    assert not isinstance(error.value, ImageMissing)


def test_the_nodes_own_is_named_with_the_setting_that_names_it_and_with_what_would_do(tmp_path, node):
    words = (
        r"image openedt/runner-torch:latest \(EDT_DOCKER_IMAGE_PYTORCH\) .* EDT_DOCKER_PULL is never; build it or load"
    )
    with pytest.raises(StartFailed, match=words) as error:
        fetch(tmp_path, node, "", "", pull="never")
    assert not isinstance(error.value, ImageMissing)


def test_a_daemons_address_that_is_none_is_named():
    check_host({"DOCKER_HOST": "unix:///var/run/docker.sock"})
    check_host({})
    with pytest.raises(BadSetting, match="DOCKER_HOST: 'localhost'"):
        check_host({"DOCKER_HOST": "localhost"})
