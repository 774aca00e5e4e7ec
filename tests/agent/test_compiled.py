"""Where jobs keep compiled models on a node: who shares a folder with whom, and what becomes of it."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edt_agent.compiled import VARIABLE, with_folder
from edt_agent.docker_settings import GIB, DockerSettings
from edt_agent.launchers.docker.container import Node, container_spec
from edt_contract.attempt import AttemptSpec, DesiredState
from edt_contract.gang import Gang, GangCommand

ME = (os.getuid(), os.getgid())


def spec(**changes: Any) -> AttemptSpec:
    job = "/edt/jobs/edt-7"
    made = AttemptSpec(
        job="edt-7",
        fence=1,
        node="n1",
        framework="pytorch",
        main="main.py",
        arguments=(),
        work_dir=job,
        result_dir=job,
        log_dir=f"{job}/log",
        checkpoint_dir=f"{job}/checkpoint",
        spool_dir=f"{job}/spool/1-n1",
        socket="/run/edt/supervisor.sock",
        environ={"USER": "somebody"},
        seed=1,
        max_engines=1,
        threads=1,
        cores=1,
        grace_seconds=1.0,
        token="",
        owner="ada",
    )
    return replace(made, **changes)


def folder_of(root: Path, **changes: Any) -> Path:
    given, folder = with_folder(spec(**changes), root)
    assert folder is not None and given.environ[VARIABLE] == str(folder)
    return folder


def test_jobs_of_one_user_share_a_folder_that_nobody_else_can_read(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "compiled")
    assert folder_of(tmp_path / "compiled", job="edt-8") == folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_other_users_and_other_images_have_other_folders_whatever_a_job_says_of_itself(tmp_path: Path) -> None:
    found = {folder_of(tmp_path), folder_of(tmp_path, owner="bob"), folder_of(tmp_path, image="own:1")}
    assert len(found) == 3
    pretending = folder_of(tmp_path, owner="mallory", environ={"USER": "ada", "DLI_SUBMIT_USERNAME": "ada"})
    assert pretending not in found


@pytest.mark.parametrize(
    "changes",
    [
        {"owner": ""},
        {"environ": {VARIABLE: "/mine"}},
        {"gang": Gang(GangCommand(("python",)), 1, ())},
    ],
    ids=["of nobody known", "with a folder of its own", "a gang"],
)
def test_some_jobs_get_none(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert with_folder(spec(**changes), tmp_path / "compiled") == (spec(**changes), None)
    assert not (tmp_path / "compiled").exists()


def test_a_folder_that_cannot_be_made_stops_no_job(tmp_path: Path) -> None:
    (tmp_path / "compiled").write_text("a file")
    assert with_folder(spec(), tmp_path / "compiled") == (spec(), None)


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "compiled")
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    folder.symlink_to(tmp_path / "elsewhere")
    assert with_folder(spec(), tmp_path / "compiled")[1] is None
    assert stat.S_IMODE((tmp_path / "elsewhere").stat().st_mode) == 0o755


def test_what_nobody_has_used_for_a_month_is_removed(tmp_path: Path) -> None:
    old, used = folder_of(tmp_path, owner="bob"), folder_of(tmp_path)
    (old / "kernel.so").touch()
    for folder in (old, used):
        os.utime(folder, (0, time.time() - 31 * 86400))
    assert folder_of(tmp_path) == used
    assert list(tmp_path.iterdir()) == [used]


def test_a_container_sees_the_folder_of_its_user_alone(tmp_path: Path) -> None:
    given, folder = with_folder(spec(), tmp_path)
    node = Node("n1", "tag", (), GIB, 1)
    settings = DockerSettings(data=Path("/edt/data"))
    made = container_spec(given, DesiredState(1, ()), settings, node, user=ME, compiled=folder, with_data=False)
    mounts = made["host_config"]["mounts"]
    assert {"Type": "bind", "Source": str(folder), "Target": str(folder), "ReadOnly": False} in mounts
    assert str(tmp_path) not in {each["Source"] for each in mounts}
