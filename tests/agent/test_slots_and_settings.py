"""What a node offers and what it is told."""

from __future__ import annotations

import os

import pytest

from edt_agent.errors import BadSetting
from edt_agent.launch import must_be_cold
from edt_agent.settings import from_environment, home_tag, make_private
from edt_agent.slots import Slot, cores, find_slots, narrowed

GPUS = tuple(Slot(str(n), f"GPU-{n}aaa", "H200") for n in range(4))


def test_cpu_slots_stand_in_for_gpus_one_a_core_unless_told():
    assert len(find_slots("cpu", None)) == cores()
    assert [slot.slot for slot in find_slots("auto", 3)] == ["0", "1", "2"]
    assert {slot.device for slot in find_slots("auto", 3)} == {"cpu"}


@pytest.mark.parametrize(
    ("visible", "slots"),
    [(None, "0123"), ("2,0", "20"), ("GPU-1", "1"), ("", ""), ("1,9,2", "1"), ("3,3", "3"), ("-1", "")],
)
def test_only_gpus_that_cuda_would_show_are_offered(visible, slots):
    assert "".join(slot.slot for slot in narrowed(GPUS, visible)) == slots


@pytest.mark.parametrize(
    ("given", "environ", "named"),
    [
        ({"api": "localhost:9280"}, {}, "--api"),
        ({"name": "a b"}, {}, "--name"),
        ({"name": "../x"}, {}, "--name"),
        ({}, {"EDT_CPU_SLOTS": "0"}, "EDT_CPU_SLOTS"),
        ({}, {"EDT_CPU_SLOTS": "many"}, "EDT_CPU_SLOTS"),
        ({}, {"EDT_DEVICES": "tpu"}, "EDT_DEVICES"),
        ({}, {"EDT_AGENT_TICK_SECONDS": "-1"}, "EDT_AGENT_TICK_SECONDS"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(given, environ, named):
    with pytest.raises(BadSetting, match=named):
        from_environment(given, environ)


def test_an_argument_beats_a_variable_and_a_variable_beats_the_default(tmp_path):
    environ = {"EDT_NAME": "b", "EDT_HOME": str(tmp_path), "EDT_AGENT_HOST": "10.0.0.1"}
    settings = from_environment({"name": "a"}, environ)
    assert (settings.name, settings.home, settings.host) == ("a", tmp_path, "10.0.0.1")
    assert settings.token_file == tmp_path / "join-token"
    assert len(str(settings.runtime_dir / "edt-123456.99.sock")) < 107


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
    warm = {**os.environ, "PYTHONUNBUFFERED": "x"}
    assert not must_be_cold({"DATA_DIR": "/d", "PYTHONUNBUFFERED": "x", "EDT_SEED": "3"}, warm)
    for name in ("OMP_NUM_THREADS", "TORCH_LOGS", "LD_PRELOAD", "PYTHONPATH", "NCCL_DEBUG"):
        assert must_be_cold({name: "never so"}, warm), name
