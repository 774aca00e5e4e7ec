"""What the agent learns of a machine's GPUs from NVML, and how it says what does not work."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pynvml
import pytest

from edt_agent import gpus
from edt_agent.gpu_processes import ForeignProcess, Ours, foreign
from support import nvml


class Machine:
    """A machine with an NVIDIA driver, whose GPUs a test changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = nvml.two_gpus()

    def write(self) -> None:
        self.path.write_text(json.dumps(self.data))

    def board(self, number: int, **values: Any) -> None:
        self.data["boards"][number].update(values)
        self.write()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path / "nvml.json")
    made.write()
    nvml.install(made.path, monkeypatch.setattr)
    return made


def indices(found: tuple[gpus.Gpu, ...]) -> list[str]:
    return [gpu.index for gpu in found]


class TestWhatThereIs:
    def test_a_gpu_is_told_with_its_model_memory_and_compute_capability(self, machine: Machine) -> None:
        whole, *_ = gpus.find()
        assert whole == gpus.Gpu("0", "GPU-aaaa", "NVIDIA H200", 140 << 30, "9.0", None, "GPU-aaaa")

    def test_a_gpu_in_mig_mode_is_told_as_its_devices_by_their_own_uuids(self, machine: Machine) -> None:
        _, first, second = gpus.find()
        assert first == gpus.Gpu("1:0", "MIG-b000", "NVIDIA H200", 16 << 30, "9.0", "1g.18gb", "GPU-bbbb")
        assert (second.index, second.mig_profile, second.label) == ("1:1", "3g.71gb", "NVIDIA H200 MIG 3g.71gb")

    def test_a_gpu_in_mig_mode_without_a_device_is_not_offered_and_the_log_says_why(self, machine, caplog) -> None:
        machine.board(1, mig=[])
        assert indices(gpus.find()) == ["0"]
        assert "GPU 1 is not offered: it is in MIG mode and has no MIG device" in caplog.text

    def test_a_gpu_that_fell_off_the_bus_is_not_offered_and_the_log_says_why(self, machine, caplog) -> None:
        machine.board(0, lost=True)
        assert indices(gpus.find()) == ["1:0", "1:1"]
        assert "GPU 0 is not offered: NVML says 'GPU is lost': it has fallen off the bus" in caplog.text

    def test_a_machine_without_a_driver_has_none_and_nothing_is_wrong_with_that(self, machine, caplog) -> None:
        machine.data["driver"] = False
        machine.write()
        assert gpus.find() == ()
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]

    def test_a_driver_that_does_not_fit_its_library_is_told_of(self, machine, caplog, monkeypatch) -> None:
        def refuses() -> None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)

        monkeypatch.setattr(pynvml, "nvmlInit", refuses)
        assert gpus.find() == ()
        assert "the GPUs of this machine cannot be used" in caplog.text
        assert "the driver was updated; restart the machine" in caplog.text

    def test_nvml_alone_is_loaded_for_it(self) -> None:
        """The machines on which GPUs are tested may have nothing but pynvml."""
        code = (
            "import sys, pynvml; before = set(sys.modules); import edt_agent.gpus;"
            "new = {name.partition('.')[0] for name in set(sys.modules) - before};"
            "print(sorted(new - set(sys.stdlib_module_names)))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "['edt_agent']"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (None, ["0", "1:0", "1:1"]),
        ("0", ["0"]),
        ("1", ["1:0", "1:1"]),
        ("1:1,0", ["1:1", "0"]),
        ("MIG-b1", ["1:1"]),
        ("GPU-b", ["1:0", "1:1"]),
        ("GPU-aaaa,MIG-b000", ["0", "1:0"]),
        ("MIG-b", []),
        ("1:0,1", ["1:0"]),
        ("0,7,1", ["0"]),
        ("0,0", ["0"]),
        ("", []),
        ("-1", []),
    ],
)
def test_cuda_visible_devices_is_understood_with_indices_and_uuids_of_gpus_and_mig_devices(machine, words, shown):
    assert indices(gpus.visible(gpus.find(), words)) == shown


class TestHowTheyAre:
    def test_a_gpu_tells_its_use_memory_power_temperature_and_errors_of_memory(self, machine: Machine) -> None:
        machine.board(0, ecc=3)
        found = gpus.Watch(("GPU-aaaa",)).conditions()["GPU-aaaa"]
        assert found == gpus.Condition(0.75, 1 << 30, 140 << 30, 250.5, 61.0, 3)

    def test_what_a_gpu_does_not_tell_is_unknown(self, machine: Machine) -> None:
        machine.board(0, ecc=None, milliwatts=None, degrees=None, busy=None, memory=None, processes=None)
        assert gpus.Watch(("GPU-aaaa",)).conditions() == {"GPU-aaaa": gpus.Condition()}
        assert gpus.find()[0].memory_total_bytes is None

    def test_a_mig_device_has_memory_and_processes_of_its_own_and_the_rest_of_its_gpu(self, machine: Machine) -> None:
        machine.data["boards"][1]["mig"][1]["processes"] = {"17": "/usr/bin/game"}
        machine.board(1, ecc=1)
        found = gpus.Watch(("MIG-b000", "MIG-b111")).conditions()
        assert found["MIG-b000"] == gpus.Condition(None, 1 << 20, 16 << 30, 90.0, 40.0, 1)
        assert found["MIG-b111"].processes == {17: "/usr/bin/game"}

    def test_a_gpu_that_is_lost_in_the_middle_says_so_once_in_the_log_and_the_others_go_on(
        self, machine, caplog
    ) -> None:
        caplog.set_level(logging.INFO)
        watch = gpus.Watch(("GPU-aaaa", "MIG-b000"))
        assert watch.conditions()["GPU-aaaa"].problem is None
        machine.board(0, lost=True)
        for _ in range(2):
            found = watch.conditions()
            assert (
                found["GPU-aaaa"].problem == "NVML says 'GPU is lost': " + gpus._ADVICE[pynvml.NVML_ERROR_GPU_IS_LOST]
            )
            assert found["MIG-b000"].problem is None
        assert caplog.text.count("GPU GPU-aaaa does not answer") == 1
        machine.board(0, lost=False)
        assert watch.conditions()["GPU-aaaa"].utilisation == 0.75
        assert "GPU GPU-aaaa answers again" in caplog.text

    def test_nvml_is_opened_again_when_no_gpu_answers(self, machine: Machine) -> None:
        watch = gpus.Watch(("GPU-aaaa",))
        machine.board(0, lost=True)
        assert watch.conditions()["GPU-aaaa"].problem
        machine.data["driver"] = False
        machine.board(0, lost=False)
        assert "Driver Not Loaded" in str(watch.conditions()["GPU-aaaa"].problem)
        machine.data["driver"] = True
        machine.write()
        assert watch.conditions()["GPU-aaaa"].problem is None

    def test_a_node_without_gpus_asks_no_driver(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(pynvml, "nvmlInit")
        assert gpus.Watch(()).conditions() == {}


class Proc:
    """A folder like /proc, with processes that a test writes down."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, pid: int, *, parent: int = 1, environ: bytes = b"", cgroup: str = "0::/\n", gpu: bool = True) -> None:
        folder = self.root / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "stat").write_text(f"{pid} (a (b) c) S {parent} 1 1")
        (folder / "environ").write_bytes(environ)
        (folder / "cgroup").write_text(cgroup)
        (folder / "comm").write_text("python\n")
        (folder / "fd" / "0").symlink_to("/dev/nvidia0" if gpu else "/dev/null")


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path / "proc")


class TestWhoElseIsThere:
    def test_a_process_that_is_not_ours_is_named(self, proc: Proc) -> None:
        proc.add(7)
        proc.add(8)
        found = foreign({8: "", 7: "/usr/local/bin/game"}, Ours(), proc.root)
        assert found == (ForeignProcess(7, "game"), ForeignProcess(8, "python"))

    def test_ours_are_a_supervisors_descendants_who_bears_our_mark_and_who_is_in_our_container(
        self, proc: Proc
    ) -> None:
        proc.add(10, gpu=False)
        proc.add(11, parent=10, gpu=False)
        proc.add(12, parent=11)
        proc.add(20, environ=b"A=1\0EDT_TAG=home\0")
        proc.add(21, environ=b"EDT_TAG=home-of-another\0")
        proc.add(30, cgroup="0::/system.slice/docker-cafe01.scope\n")
        ours = Ours({10}, b"EDT_TAG=home", {"cafe01"})
        found = foreign(dict.fromkeys((12, 20, 21, 30), "x"), ours, proc.root)
        assert [each.pid for each in found] == [21]

    def test_of_a_pid_that_is_not_seen_here_nothing_is_said(self, proc: Proc) -> None:
        """In a container NVML may tell pids of the machine outside, which mean other processes here, or none."""
        proc.add(40, gpu=False)
        assert foreign({40: "x", 41: "y"}, Ours(), proc.root) == ()

    def test_no_more_are_named_than_the_api_takes(self, proc: Proc) -> None:
        """It would refuse the samples of all slots."""
        for pid in range(100, 400):
            proc.add(pid)
        found = foreign(dict.fromkeys(range(100, 400), "game"), Ours(), proc.root)
        assert [each.pid for each in found] == list(range(100, 356))

    def test_a_real_process_that_uses_no_gpu_is_never_named(self) -> None:
        assert foreign({os.getpid(): "python", os.getppid(): "shell"}, Ours()) == ()
