"""What a job's container is made of, and what EDT_DOCKER_* may say. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest
from docker.types import HostConfig

from edt_agent.docker_settings import GIB, MIB, DockerSettings, Mount
from edt_agent.errors import BadSetting
from edt_agent.launchers.docker.container import (
    Limits,
    Node,
    container_name,
    container_spec,
    device_requests,
    image_of,
    outermost,
)
from edt_agent.settings import read_settings
from edt_agent.slots import Slot
from edt_contract.attempt import AttemptSpec, DesiredSlot, DesiredState
from edt_contract.gang import Gang, GangCommand, GangNode

SetVariables = Callable[[Mapping[str, str]], None]
SETTINGS = DockerSettings(data=Path("/edt/data"))
CPUS = tuple(Slot(str(n), "cpu", f"CPU stand-in {n}") for n in range(4))
GPUS = tuple(Slot(str(n), f"GPU-{n}", "H200") for n in range(4))
GANG = Gang(GangCommand(("python", "main.py")), 2, (GangNode("n1", "127.0.0.1", (100, 101)),))
NODE = Node("n1", "a-tag", CPUS, 64 * GIB, 16)


def spec(**changes: Any) -> AttemptSpec:
    job = "/edt/jobs/edt-7"
    return replace(
        AttemptSpec(
            job="edt-7",
            fence=2,
            node="n1",
            framework="pytorch",
            main="main.py",
            arguments=("--key", "a secret argument"),
            work_dir=f"{job}/code",
            result_dir=job,
            log_dir=f"{job}/log",
            checkpoint_dir=f"{job}/checkpoint",
            spool_dir=f"{job}/spool/2-n1",
            socket="/run/edt/edt-7.2/supervisor.sock",
            environ={"KEY": "a secret variable", "DLI_DATA_FS": "/etc"},
            seed=1,
            max_engines=4,
            threads=1,
            cores=16,
            grace_seconds=30.0,
            token="a secret token",
        ),
        **changes,
    )


def desired(*slots: Slot) -> DesiredState:
    return DesiredState(2, tuple(DesiredSlot(100 + n, slot.slot, slot.device) for n, slot in enumerate(slots)))


def config(settings: DockerSettings = SETTINGS, node: Node = NODE, slots: int = 2, **changes: Any) -> dict[str, Any]:
    return container_spec(spec(**changes), desired(*node.slots[:slots]), settings, node, user=(1234, 1235))


class TestTheContainer:
    def test_it_may_do_as_little_as_its_supervisor_can_live_with(self) -> None:
        host = config()["host_config"]
        assert config()["user"] == "1234:1235"
        assert host["read_only"] is True
        assert host["cap_drop"] == ["ALL"]
        assert host["security_opt"] == ["no-new-privileges"]
        assert host["privileged"] is False
        assert host["pids_limit"] == 4096
        assert host["tmpfs"] == {"/tmp": f"rw,exec,nosuid,nodev,size={GIB},mode=1777"}
        assert host["shm_size"] == GIB
        assert host["restart_policy"] == {"Name": "no"}
        assert host["auto_remove"] is False, "how it ended must be seen first"

    def test_its_first_process_is_the_supervisor_with_its_log_in_the_spool(self) -> None:
        words = [*config()["entrypoint"], *config()["command"]]
        assert words[:4] == ["python", "-P", "-m", "edt_runner.supervisor"]
        assert words[4:] == ["--framework", "pytorch", "--cold", "--log", "/edt/jobs/edt-7/spool/2-n1/supervisor.log"]
        assert config(replace(SETTINGS, python="/opt/bin/python3"))["entrypoint"] == ["/opt/bin/python3"]

    def test_a_gangs_supervisor_imports_nothing_and_its_programs_choose_their_own_threads_and_seeds(self) -> None:
        made = config(framework="tensorflow", gang=GANG)
        assert made["command"][3:6] == ["--framework", "none", "--cold"]
        assert made["image"] == "openedt/runner-tensorflow:latest"
        assert set(made["environment"]) == {"HOME", "USER", "LOGNAME", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"}
        assert {**made, "command": [], "environment": {}} == {
            **config(framework="tensorflow"),
            "command": [],
            "environment": {},
        }

    def test_it_takes_one_spec_and_is_given_its_grace_when_it_is_stopped(self) -> None:
        assert config()["stdin_open"] is True
        assert (config()["stop_signal"], config()["stop_timeout"]) == ("SIGTERM", 35)

    def test_nothing_in_it_tells_what_the_spec_keeps(self) -> None:
        assert "secret" not in repr(config())

    def test_it_sees_the_jobs_folder_its_socket_and_the_data_and_nothing_a_job_could_name(self) -> None:
        seen = {(each["Source"], each["Target"], each["ReadOnly"]) for each in config()["host_config"]["mounts"]}
        assert seen == {
            ("/edt/jobs/edt-7", "/edt/jobs/edt-7", False),
            ("/run/edt/edt-7.2", "/run/edt/edt-7.2", False),
            ("/edt/data", "/edt/data", True),
        }
        assert {each["Type"] for each in config()["host_config"]["mounts"]} == {"bind"}

    def test_a_checkpoint_folder_elsewhere_is_seen_too_and_data_that_are_not_there_are_not(self) -> None:
        made = container_spec(
            spec(checkpoint_dir="/fast/edt-7"), desired(), SETTINGS, NODE, user=(1, 1), with_data=False
        )
        targets = [each["Target"] for each in made["host_config"]["mounts"]]
        assert targets == ["/edt/jobs/edt-7", "/fast/edt-7", "/run/edt/edt-7.2"]

    def test_where_the_jobs_code_is_another_user_it_begins_as_root_with_three_capabilities(
        self,
    ) -> None:
        made = container_spec(spec(), desired(), SETTINGS, NODE, user=(7, 8), script_user=9, with_data=False)
        host = made["host_config"]
        assert (made["user"], host["cap_drop"], host["cap_add"]) == ("0:0", ["ALL"], ["KILL", "SETGID", "SETUID"])
        assert " ".join(made["command"]).find("--user 7:8 --script-user 9:8") > 0
        assert host["security_opt"] == ["no-new-privileges"]
        targets = [each["Target"] for each in host["mounts"]]
        assert targets == ["/edt/jobs/edt-7", "/run/edt/edt-7.2", "/edt/jobs/edt-7/spool"]

    def test_an_administrators_mounts_come_first(self) -> None:
        made = config(replace(SETTINGS, mounts=(Mount("/datasets", "/data", read_only=False),)))
        assert made["host_config"]["mounts"][0] == {
            "Type": "bind",
            "Source": "/datasets",
            "Target": "/data",
            "ReadOnly": False,
        }

    def test_labels_say_whose_it_is_and_its_name_is_one_for_each_attempt_of_a_node(self) -> None:
        assert config()["labels"] == {"edt.tag": "a-tag", "edt.node": "n1", "edt.job": "edt-7", "edt.fence": "2"}
        names = {
            container_name(spec(), NODE),
            container_name(spec(fence=3), NODE),
            container_name(spec(job="edt-8"), NODE),
            container_name(spec(), replace(NODE, name="n2")),
            container_name(spec(), replace(NODE, tag="another home")),
        }
        assert len(names) == 5
        assert container_name(spec(), NODE) == container_name(spec(), NODE)

    def test_a_jobs_own_image_wins_over_the_nodes_for_its_framework(self) -> None:
        assert image_of(spec(), SETTINGS) == "openedt/runner-torch:latest"
        assert image_of(spec(framework="tensorflow"), SETTINGS) == "openedt/runner-tensorflow:latest"
        assert image_of(spec(image="my/own:1"), SETTINGS) == "my/own:1"
        assert config(image="my/own:1")["image"] == "my/own:1"

    @pytest.mark.parametrize("network", ["host", "none", "edt-net"])
    def test_its_network_is_the_settings(self, network: str) -> None:
        assert config(replace(SETTINGS, network=network))["host_config"]["network_mode"] == network

    def test_dockers_own_library_takes_all_of_it(self) -> None:
        made = config(node=replace(NODE, slots=GPUS))
        words = HostConfig("1.41", **made["host_config"])
        assert words["ReadonlyRootfs"] is True
        assert words["DeviceRequests"][0]["DeviceIDs"] == [slot.device for slot in GPUS]

    def test_folders_inside_others_are_not_named_twice(self) -> None:
        assert outermost(["/a/b", "/a", "/ab", "/a/b/c", "/a"]) == ["/a", "/ab"]


class TestGpus:
    """The list that is asked of the daemon. Asked, not run: no GPU was there to run it on."""

    def test_a_container_gets_all_of_its_nodes_since_none_can_be_added_later(self) -> None:
        [asked] = device_requests(desired(GPUS[1]), SETTINGS, GPUS)
        assert asked["device_ids"] == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
        assert asked["capabilities"] == [["gpu", "compute", "utility"]]

    def test_fixed_it_gets_those_it_starts_with(self) -> None:
        fixed = replace(SETTINGS, gpus="fixed")
        [asked] = device_requests(desired(GPUS[2], GPUS[1]), fixed, GPUS)
        assert asked["device_ids"] == ["GPU-1", "GPU-2"]
        assert device_requests(desired(), fixed, GPUS) == []

    @pytest.mark.parametrize("gpus", ["all", "fixed"])
    def test_where_slots_are_cpu_stand_ins_none_is_asked_for(self, gpus: Literal["all", "fixed"]) -> None:
        assert device_requests(desired(*CPUS), replace(SETTINGS, gpus=gpus), CPUS) == []


def limits(settings: DockerSettings, engines: int, slots: int, memory: int, cores: int) -> Limits:
    return replace(NODE, slots=CPUS[:1] * slots, memory=memory, cores=cores).limits(settings, engines)


class TestLimits:
    def test_without_a_word_a_node_whose_slots_all_work_is_used_and_not_promised_twice(self) -> None:
        each = [limits(SETTINGS, n, 4, 64 * GIB, 16) for n in range(5)]
        assert [limit.cpus for limit in each] == [1.0, 5.0, 9.0, 13.0, 16.0]
        assert each[0].memory == 2 * GIB
        steps = {after.memory - before.memory for before, after in pairwise(each)}
        assert len(steps) == 1
        assert each[4].memory <= 64 * GIB * 9 // 10

    def test_what_is_set_counts_up_to_what_the_node_has(self) -> None:
        settings = replace(SETTINGS, memory_base=GIB, memory_per_slot=3 * GIB, cpus_base=0.5, cpus_per_slot=2.0)
        assert limits(settings, 2, 4, 64 * GIB, 16) == Limits(7 * GIB, 4.5)
        assert limits(settings, 9, 9, 8 * GIB, 2) == Limits(8 * GIB, 2.0)

    def test_a_tiny_node_still_starts_something(self) -> None:
        assert limits(SETTINGS, 0, 8, 128 * MIB, 1).memory == 64 * MIB

    def test_memory_is_memory_and_swap_and_processor_time_a_quota(self) -> None:
        host = config(slots=2)["host_config"]
        allowed = limits(SETTINGS, 2, 4, 64 * GIB, 16)
        assert host["mem_limit"] == host["memswap_limit"] == allowed.memory
        assert (host["cpu_quota"], host["cpu_period"]) == (900_000, 100_000)


class TestSettings:
    def test_every_variable_is_read(self, environment: SetVariables) -> None:
        environment(
            {
                "EDT_LAUNCHER": "docker",
                "EDT_DATA_FS": "/data",
                "EDT_DOCKER_IMAGE_PYTORCH": "a/b:1",
                "EDT_DOCKER_IMAGE_TENSORFLOW": "c/d:2",
                "EDT_DOCKER_IMAGE": "of no framework: means nothing",
                "EDT_DOCKER_PYTHON": "python3",
                "EDT_DOCKER_PULL": "never",
                "EDT_DOCKER_NETWORK": "none",
                "EDT_DOCKER_USER": "500:600",
                "EDT_DOCKER_SCRIPT_USER": "same",
                "EDT_DOCKER_MEMORY_BASE": "512m",
                "EDT_DOCKER_MEMORY_PER_SLOT": "8G",
                "EDT_DOCKER_CPUS_BASE": "0.5",
                "EDT_DOCKER_CPUS_PER_SLOT": "4",
                "EDT_DOCKER_PIDS": "256",
                "EDT_DOCKER_SHM": "64m",
                "EDT_DOCKER_TMP": "2g",
                "EDT_DOCKER_GPUS": "fixed",
                "EDT_DOCKER_MOUNTS": "/a,/b:/c,/d:rw,/e:/f:ro",
            }
        )
        assert read_settings({}).docker == DockerSettings(
            data=Path("/data"),
            image={"pytorch": "a/b:1", "tensorflow": "c/d:2"},
            python="python3",
            pull="never",
            network="none",
            user=(500, 600),
            script_user=None,
            memory_base=512 * MIB,
            memory_per_slot=8 * GIB,
            cpus_base=0.5,
            cpus_per_slot=4.0,
            pids=256,
            shm=64 * MIB,
            tmp=2 * GIB,
            gpus="fixed",
            mounts=(Mount("/a", "/a"), Mount("/b", "/c"), Mount("/d", "/d", read_only=False), Mount("/e", "/f")),
        )

    def test_without_any_there_are_defaults(self, environment: SetVariables) -> None:
        environment({"EDT_LAUNCHER": "docker", "EDT_HOME": "/home", "EDT_DOCKER_SHM": ""})
        assert read_settings({}).docker == DockerSettings(data=Path("/home/data"))

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("IMAGE_PYTORCH", "no image"),
            ("PULL", "always"),
            ("NETWORK", "a b"),
            ("USER", "root"),
            ("USER", "0:0"),
            ("USER", "5:"),
            ("SCRIPT_USER", "0"),
            ("MEMORY_BASE", "1k"),
            ("MEMORY_PER_SLOT", "much"),
            ("CPUS_BASE", "0"),
            ("CPUS_PER_SLOT", "two"),
            ("PIDS", "3"),
            ("SHM", "-1"),
            ("TMP", "1x"),
            ("GPUS", "some"),
            ("MOUNTS", "relative:/a"),
            ("MOUNTS", "/a:/b:/c"),
        ],
    )
    def test_what_cannot_be_used_is_told_by_name(self, name: str, value: str, environment: SetVariables) -> None:
        environment({"EDT_LAUNCHER": "docker", f"EDT_DOCKER_{name}": value})
        with pytest.raises(BadSetting, match=f"EDT_DOCKER_{name}: .*{value[:3]}.*; it is "):
            read_settings({})
