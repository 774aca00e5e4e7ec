"""Kills for want of memory are told from other kills by the kernel's own count."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from edt_contract.oom import OomCounter
from support.memory_cgroup import memory_cgroup


def process(folder: Path, groups: str, mounts: str) -> Path:
    """A process's folder in /proc, whose cgroups are mounted below ``folder``."""
    place = folder / "proc"
    place.mkdir()
    (place / "cgroup").write_text(groups)
    (place / "mountinfo").write_text(mounts.format(folder=folder))
    return place


def put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


OLD = "35 31 0:32 {root} {{folder}}/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
NEW = "41 31 0:38 {root} {{folder}}/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n"


def test_version_2_counts_in_memory_events(tmp_path: Path) -> None:
    events = tmp_path / "unified/job/memory.events"
    put(events, "low 0\nhigh 0\nmax 4\noom 2\noom_kill 2\noom_group_kill 0\n")
    counter = OomCounter(process(tmp_path, "0::/job\n", NEW.format(root="/")))
    assert counter.count() == 2 and not counter.explains(0.0)
    put(events, "oom 3\noom_kill 3\n")
    assert counter.explains(0.0)
    assert not counter.explains(0.0)


def test_version_1_counts_in_oom_control_even_beside_an_empty_version_2(tmp_path: Path) -> None:
    control = tmp_path / "memory/jobs/edt-1/memory.oom_control"
    put(control, "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")
    put(tmp_path / "unified/cgroup.procs", "")
    groups = "4:memory:/jobs/edt-1\n3:cpuset,cpu:/\n1:name=systemd:/\n0::/\n"
    counter = OomCounter(process(tmp_path, groups, OLD.format(root="/") + NEW.format(root="/")))
    assert counter.count() == 0 and not counter.explains(0.0)
    put(control, "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    assert counter.explains(0.0)


def test_a_container_finds_its_part_at_the_root_of_its_mount(tmp_path: Path) -> None:
    control = tmp_path / "memory/memory.oom_control"
    put(control, "oom_kill 7\n")
    counter = OomCounter(process(tmp_path, "4:memory:/docker/a1b2\n", OLD.format(root="/docker/a1b2")))
    assert counter.count() == 7


@pytest.mark.parametrize("groups", ["", "0::/\n", "3:cpuset:/\n", "4:memory:/gone\n"])
def test_without_a_count_nothing_is_ever_explained(tmp_path: Path, groups: str) -> None:
    nowhere = tmp_path / "vmstat"
    counter = OomCounter(process(tmp_path, groups, OLD.format(root="/") + NEW.format(root="/")), nowhere)
    assert counter.count() is None and not counter.explains(0.0)


def test_a_count_that_goes_away_or_cannot_be_read_is_none(tmp_path: Path) -> None:
    events = tmp_path / "unified/memory.events"
    put(events, "oom_kill 1\n")
    counter = OomCounter(process(tmp_path, "0::/\n", NEW.format(root="/")))
    put(events, "oom_kill\n")
    assert not counter.explains(0.0)
    events.unlink()
    assert not counter.explains(0.0)
    assert not OomCounter(tmp_path / "no such process", tmp_path / "vmstat").explains(0.0)


def test_where_the_cgroup_has_no_count_that_of_the_machine_is_used(tmp_path: Path) -> None:
    vmstat = tmp_path / "vmstat"
    put(vmstat, "nr_free_pages 4711\noom_kill 3\ndrop_pagecache 0\n")
    counter = OomCounter(process(tmp_path, "0::/\n", NEW.format(root="/")), vmstat)
    assert counter.count() == 3 and not counter.explains(0.0)
    put(vmstat, "nr_free_pages 4711\noom_kill 4\ndrop_pagecache 0\n")
    assert counter.explains(0.0)


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """The count of kills in a process's cgroup."""
    file = tmp_path / "unified/job/memory.events"
    put(file, "oom_kill 0\n")
    return file


@pytest.fixture
def counter(tmp_path: Path, events: Path) -> OomCounter:
    return OomCounter(process(tmp_path, "0::/job\n", NEW.format(root="/")))


def test_each_kill_for_memory_explains_one_death(counter: OomCounter, events: Path) -> None:
    put(events, "oom_kill 2\n")
    assert [counter.explains(1.0) for _ in range(3)] == [True, True, False]


def test_a_kill_for_memory_does_not_explain_a_death_long_after_it(counter: OomCounter, events: Path) -> None:
    put(events, "oom_kill 1\n")
    counter.look(10.0)
    assert not counter.explains(20.0)


def test_a_death_that_takes_a_while_is_explained(counter: OomCounter, events: Path) -> None:
    put(events, "oom_kill 1\n")
    counter.look(10.0)
    assert counter.explains(14.0)


_HUNGRY = """
import os, signal
from pathlib import Path
from edt_contract.oom import OomCounter
Path(os.environ["GROUP"], "cgroup.procs").write_text(str(os.getpid()))
counter = OomCounter()
def child(work):
    if not (pid := os.fork()):
        work()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, counter.explains(0.0)
def eat():
    eaten = []
    while True:
        eaten.append(bytearray(b"x") * (1 << 22))
print(child(lambda: os.kill(os.getpid(), signal.SIGKILL)), child(eat), child(lambda: None))
"""


@pytest.mark.memory_cgroup
def test_the_kernel_tells_a_kill_for_memory_from_one_by_somebody() -> None:
    with memory_cgroup(64 << 20) as group:
        environ = {"GROUP": str(group), "PYTHONPATH": ":".join(filter(None, sys.path))}
        done = subprocess.run(
            [sys.executable, "-c", _HUNGRY], env=environ, capture_output=True, text=True, check=False, timeout=60
        )
    assert done.stdout == "(True, False) (True, True) (False, False)\n", done.stderr
