"""What a node offers and what it is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edt_agent.errors import BadSetting
from edt_agent.settings import home_tag, make_private, read_settings
from edt_agent.slots import cores, find_slots
from edt_contract.frameworks import must_be_cold, supervisor_environ


def test_cpu_slots_stand_in_for_gpus_one_a_core_unless_told():
    assert len(find_slots("cpu", None)) == cores()
    assert [slot.slot for slot in find_slots("auto", 3)] == ["0", "1", "2"]
    assert {slot.device for slot in find_slots("auto", 3)} == {"cpu"}


@pytest.mark.parametrize(
    ("given", "environ", "named"),
    [
        ({"api": "localhost:9280"}, {}, "--api: 'localhost:9280'; it is a URL that begins with http:// or https://"),
        ({}, {"EDT_API": "localhost:9280"}, "EDT_API: 'localhost:9280'; it is a URL"),
        ({"name": "a b"}, {}, "--name: 'a b'; it is a node's name: letters, digits"),
        ({"name": "../x"}, {}, "--name"),
        ({}, {"EDT_CPU_SLOTS": "0"}, "EDT_CPU_SLOTS: '0'; it is a whole number from 1 to 1024"),
        ({}, {"EDT_CPU_SLOTS": "many"}, "EDT_CPU_SLOTS"),
        ({}, {"EDT_DEVICES": "tpu"}, "EDT_DEVICES: 'tpu'; it is auto or cpu"),
        ({}, {"EDT_AGENT_TICK_SECONDS": "-1"}, "EDT_AGENT_TICK_SECONDS: '-1'; it is a number of seconds above 0"),
        ({}, {"EDT_USAGE_SECONDS": "nan"}, "EDT_USAGE_SECONDS: 'nan'"),
        ({}, {"EDT_WARM": "1,jax"}, "EDT_WARM: 'jax'; it is 0, 1 or of pytorch, tensorflow"),
        ({}, {"EDT_LAUNCHER": "podman"}, "EDT_LAUNCHER: 'podman'; it is process or docker"),
        ({}, {"EDT_LAUNCHER": "docker", "EDT_DOCKER_SHM": "x"}, "EDT_DOCKER_SHM"),
        (
            {},
            {"EDT_LAUNCHER": "docker", "EDT_DOCKER": "yes", "EDT_DOCKER_SHM": "2g"},
            "EDT_DOCKER: 'yes'; it is no setting",
        ),
        ({}, {"EDT_RUNTIME_DIR": "/run/" + "x" * 50}, "EDT_RUNTIME_DIR"),
        ({}, {"EDT_TEMPORARY": "maybe"}, "EDT_TEMPORARY: 'maybe'; it is true or false"),
        ({}, {"EDT_TEMPORARY": "true", "EDT_LAUNCHER": "docker"}, "EDT_TEMPORARY: 'true'; it is true only with"),
        ({}, {"EDT_LEAVE_SECONDS": "-1"}, "EDT_LEAVE_SECONDS: '-1'; it is a number of seconds from 0"),
        ({}, {"EDT_LEAVE_SECONDS": "inf"}, "EDT_LEAVE_SECONDS: 'inf'"),
        ({}, {"EDT_IDLE_SECONDS": "0"}, "EDT_IDLE_SECONDS: '0'; it is a number of seconds above 0"),
        ({}, {"EDT_ENDS_AT": "3600"}, "EDT_ENDS_AT: '3600'; it is a time in seconds since 1970"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(given, environ, named, environment):
    environment(environ)
    with pytest.raises(BadSetting, match=named):
        read_settings(given)


def test_an_argument_beats_a_variable_and_a_variable_beats_the_default(tmp_path, environment):
    environment({"EDT_NAME": "b", "EDT_HOME": str(tmp_path), "EDT_AGENT_HOST": "10.0.0.1", "EDT_BROKER_URL": ""})
    settings = read_settings({"name": "a", "api": None, "home": ""})
    assert (settings.name, settings.home, settings.agent_host) == ("a", tmp_path, "10.0.0.1")
    assert settings.token_file == tmp_path / "join-token"
    assert settings.broker_url is None, "an empty variable is one that is not set"
    assert len(str(settings.sockets / "edt-123456.99.sock")) < 107


@pytest.mark.parametrize(
    ("environ", "launcher"),
    [
        ({}, "process"),
        ({"EDT_DOCKER_SHM": "x"}, "process"),
        ({"EDT_LAUNCHER": "docker"}, "docker"),
        ({"EDT_LAUNCHER": "docker", "EDT_DOCKER_GPUS": "fixed"}, "docker-fixed"),
    ],
)
def test_a_node_says_in_what_it_runs_jobs(environ, launcher, environment):
    environment(environ)
    assert read_settings({}).runs_in == launcher


def test_the_folder_for_sockets_can_be_one_that_containers_share(tmp_path, environment):
    environment({"EDT_RUNTIME_DIR": "/run/edt", "EDT_HOME": str(tmp_path)})
    assert read_settings({}).sockets.parent == Path("/run/edt")


def test_every_path_to_a_home_gives_it_the_same_mark(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "link").symlink_to("home")
    assert home_tag(tmp_path / "link") == home_tag(tmp_path / "x" / ".." / "home")


def test_a_folder_for_sockets_is_for_nobody_else(tmp_path):
    folder = make_private(tmp_path / "s")
    assert folder.stat().st_mode & 0o777 == 0o700
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "l").symlink_to("elsewhere")
    with pytest.raises(BadSetting, match="belongs to somebody else"):
        make_private(tmp_path / "l")


def test_only_what_is_read_at_import_makes_a_job_start_cold():
    warm = {**os.environ, **supervisor_environ("tensorflow")}
    assert not must_be_cold({"DATA_DIR": "/d", "PYTHONUNBUFFERED": "x", "EDT_SEED": "3"}, warm)
    assert not must_be_cold({"TF_USE_LEGACY_KERAS": "0"}, warm)
    for name in ("OMP_NUM_THREADS", "TORCH_LOGS", "LD_PRELOAD", "PYTHONPATH", "NCCL_DEBUG", "KERAS_HOME"):
        assert must_be_cold({name: "never so"}, warm), name
    assert must_be_cold({"TF_USE_LEGACY_KERAS": "1"}, warm)


@pytest.mark.parametrize("framework", ["pytorch", "tensorflow"])
def test_no_supervisor_of_a_framework_asks_cuda_whether_there_is_a_gpu(framework):
    """A process that has asked CUDA cannot fork engines that use it."""
    assert supervisor_environ(framework)["PYTORCH_NVML_BASED_CUDA_CHECK"] == "1"


def test_what_a_person_has_set_wins_over_what_a_framework_is_given_and_over_nothing_else():
    chosen = {"TF_ENABLE_ONEDNN_OPTS": "0", "PYTHONHASHSEED": "random"}
    given = supervisor_environ("tensorflow", chosen)
    assert (given["TF_ENABLE_ONEDNN_OPTS"], given["PYTHONHASHSEED"], given["KERAS_BACKEND"]) == ("0", "0", "tensorflow")
    assert not [name for name in supervisor_environ("pytorch", chosen) if name.startswith(("TF_", "KERAS_"))]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (None, ("pytorch",)),
        ("1", ("pytorch",)),
        ("0", ()),
        ("tensorflow", ("tensorflow",)),
        ("1, tensorflow", ("pytorch", "tensorflow")),
    ],
)
def test_a_node_is_told_which_frameworks_to_keep_warm(text, kept, environment):
    environment({"EDT_WARM": text} if text else {})
    assert read_settings({}).warm == kept
