"""What only containers have: walls, limits, images, GPUs, and a daemon that may go away. Against a real daemon."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from edt_agent.docker_settings import DockerSettings
from edt_agent.errors import StartFailed
from edt_agent.launchers.docker.container import LABEL_JOB, LABEL_NODE, LABEL_TAG, Node, container_spec
from edt_agent.launchers.docker.daemon import DockerDaemon
from edt_agent.slots import Slot
from edt_contract.attempt import DesiredSlot, DesiredState
from support.places import IMAGE, TRAINING, Place, docker
from support.registry import Registry
from support.waiting import until
from support.wire import Wire

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

MIB = 1 << 20
LOOK_AROUND = """
import ctypes, json, os, time
from pathlib import Path

def writes(path):
    try:
        Path(path, "probe").write_text("x")
    except OSError as error:
        return error.strerror
    return "yes"

reading, writing = os.pipe()
if os.fork() == 0:  # an orphan, which process 1 must reap
    if os.fork() == 0:
        os.write(writing, str(os.getpid()).encode())
        os._exit(0)
    os._exit(0)
os.wait()
orphan, deadline = Path("/proc", os.read(reading, 20).decode()), time.monotonic() + 20
while orphan.exists() and time.monotonic() < deadline:
    time.sleep(0.05)
status = dict(line.split(":\\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\\t" in line)
print(json.dumps({
    "uid": os.getuid(), "first": Path("/proc/1/comm").read_text().strip(),
    "capabilities": [status[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
    "no_new_privileges": status["NoNewPrivs"].strip(),
    "writes": {path: writes(path) for path in ("/", "/etc", "/usr", "/tmp", "/data", os.getcwd())},
    "home": os.listdir(os.environ["AROUND"]), "shm": os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize,
    "orphan": orphan.exists(),
}))
"""


def test_inside_nobody_is_root_and_only_the_jobs_folder_and_tmp_can_be_written(docker_place: Place) -> None:
    place = docker_place
    jobs = place.folder("edt-1").parent
    (jobs / "edt-99").mkdir(parents=True)
    place.job("edt-1", LOOK_AROUND, environ={"AROUND": str(jobs)})
    assert place.ends("edt-1")["kind"] == "finished"
    seen = json.loads((place.folder("edt-1") / "log/driver.out").read_text())
    assert seen["uid"] == 10002
    inheritable, permitted, effective, bounding, ambient = seen["capabilities"]
    assert {inheritable, permitted, effective, ambient} == {"0000000000000000"}
    assert bounding == "00000000000000e0", "KILL, SETGID and SETUID, which nothing new can get"
    assert seen["no_new_privileges"] == "1"
    assert seen["writes"].pop("/tmp") == seen["writes"].pop(str(place.folder("edt-1"))) == "yes"
    assert set(seen["writes"].values()) <= {"Read-only file system", "No such file or directory"}
    assert seen["first"] == "edt-supervisor"
    assert seen["home"] == ["edt-1"], "no other job's folder is there"
    assert seen["orphan"] is False
    assert (place.folder("edt-1") / "log").stat().st_uid == 10001
    assert (place.folder("edt-1") / "log/driver.out").stat().st_gid == 10001


ATTACK = """
import ctypes, glob, json, os, signal
from pathlib import Path

def tried(what):
    try:
        return repr(what())
    except OSError as error:
        return error.strerror

mine = Path(os.environ["JOB_STATE_DIR"])
spool = next((mine / "spool").iterdir())
reports = spool / "reports.jsonl"
descriptors = [os.readlink(path) for path in glob.glob("/proc/self/fd/*") if os.path.lexists(path)]
[sockets] = [line.split()[4] for line in open("/proc/self/mountinfo") if "/edt-1" in line and ".1 " in line]
libc = ctypes.CDLL(None, use_errno=True)

def trace():
    if libc.ptrace(16, 1, 0, 0) != 0:  # PTRACE_ATTACH
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

def link():
    os.link(reports, mine / "linked")

seen = {
    "write": tried(lambda: reports.open("ab").write(b"forged")),
    "add": tried(lambda: (spool / "new").write_text("x")),
    "remove": tried(reports.unlink),
    "rename": tried(lambda: (mine / "spool").rename(mine / "elsewhere")),
    "rename its own": tried(lambda: spool.rename(mine / "elsewhere")),
    "read": tried(lambda: reports.read_bytes()),
    "link": tried(link),
    "who": tried(lambda: (spool / "attempt.json").write_text("{}")),
    "socket": tried(lambda: os.listdir(sockets)),
    "kill": tried(lambda: os.kill(1, signal.SIGKILL)),
    "trace": tried(trace),
    **{name: tried(lambda: Path("/proc/1", name).read_bytes()[:1]) for name in ("environ", "mem", "maps")},
    "fd": tried(lambda: os.listdir("/proc/1/fd")),
    "root": tried(lambda: os.setuid(0)),
    "supervisor": tried(lambda: os.setuid(10001)),
    "held": [name for name in descriptors if str(mine / "spool") in name],
}
Path(mine, "seen.json").write_text(json.dumps(seen))
if not (mine / "_kept").exists():
    tried((mine / "_kept").mkdir)
    tried(lambda: (mine / "_kept" / "private").write_text("x"))
    tried(lambda: os.chmod(mine / "_kept" / "private", 0o600))
    tried(lambda: os.chmod(mine / "_kept", 0o700))
    # What the supervisor prints for us must not land where it alone may write.
    tried(lambda: (mine / "log" / "engine-101.out").symlink_to(reports))
print('{"job": "edt-1"}', flush=True)
"""


def test_a_jobs_code_cannot_write_what_its_supervisor_says_nor_touch_it(docker_place: Place) -> None:
    place, folder = docker_place, docker_place.folder("edt-11")
    environ = {"JOB_STATE_DIR": str(folder)}
    place.job("edt-11", ATTACK + TRAINING, environ={**environ, "EPOCHS": "1000"})
    place.reaches("edt-11", "engine-counted")
    place.job("edt-11", slots=2)
    place.reaches("edt-11", "engine-counted", times=2)
    place.job("edt-11", slots=1)
    place.reaches("edt-11", "engine-gone")
    place.job("edt-11", slots=1, stop=True)
    assert place.ends("edt-11")["kind"] == "stopped"
    seen = json.loads((folder / "seen.json").read_text())
    no = {"Permission denied", "Operation not permitted", "Invalid cross-device link"}
    assert seen.pop("held") == []
    assert seen.pop("rename") == "Device or resource busy"
    assert {name: answer for name, answer in seen.items() if answer not in no} == {}
    assert "reports-left-out" not in place.api.kinds("edt-11/1")
    reports = next((folder / "spool").iterdir()) / "reports.jsonl"
    assert (reports.stat().st_uid, reports.stat().st_mode & 0o777) == (10001, 0o600)


def test_what_a_job_wrote_can_be_read_and_removed_by_the_platforms_user(docker_place: Place) -> None:
    place, folder = docker_place, docker_place.folder("edt-12")
    place.job("edt-12", ATTACK, environ={"JOB_STATE_DIR": str(folder)})
    assert place.ends("edt-12")["kind"] == "finished"
    assert (folder / "_kept/private").stat().st_uid == 10002
    for parent in folder.parents:
        if parent.stat().st_mode & 0o001 == 0:
            parent.chmod(parent.stat().st_mode | 0o011)
    command = ["sh", "-euc", "cat _kept/private log/driver.out >/dev/null; rm -r _kept log checkpoint model; ls"]
    done = subprocess.run(
        command, cwd=folder, check=False, user=10001, group=10001, extra_groups=[], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "_kept" not in done.stdout


def test_where_one_user_is_asked_for_nothing_begins_as_root(own_docker_place: Place) -> None:
    own_docker_place.start(EDT_DOCKER_SCRIPT_USER="same")
    own_docker_place.job("edt-1", LOOK_AROUND, environ={"AROUND": "/"})
    assert own_docker_place.ends("edt-1")["kind"] == "finished"
    seen = json.loads((own_docker_place.folder("edt-1") / "log/driver.out").read_text())
    assert (seen["uid"], set(seen["capabilities"])) == (10001, {"0000000000000000"})


def test_memory_and_processor_time_follow_the_engines(docker_place: Place) -> None:
    place = docker_place

    def allowed() -> tuple[int, float]:
        [container] = place.containers("edt-2")
        host = container["HostConfig"]
        assert host["MemorySwap"] == host["Memory"]
        return host["Memory"] // MIB, host["CpuQuota"] / host["CpuPeriod"]

    cores = len(os.sched_getaffinity(0))
    place.job("edt-2")
    place.reaches("edt-2", "engine-counted")
    assert allowed() == (900, min(cores, 1 + cores / 2))
    place.job("edt-2", slots=2)
    place.reaches("edt-2", "engine-started", times=2)
    assert allowed()[0] == 1200
    place.job("edt-2", slots=1)
    place.reaches("edt-2", "engine-gone")
    until(lambda: allowed()[0] == 900, what="what the second engine had is taken back")
    place.job("edt-2", slots=1, stop=True)
    place.ends("edt-2")


def test_docker_stop_means_leave_with_a_checkpoint(docker_place: Place) -> None:
    place = docker_place
    place.job("edt-3")
    place.reaches("edt-3", "engine-counted")
    [container] = place.containers("edt-3")
    docker("stop", container["Id"])
    assert place.ends("edt-3")["kind"] == "left"
    assert "checkpointed" in place.api.kinds("edt-3/1")


def test_an_image_of_the_jobs_own_that_is_not_there_ends_the_job_with_its_name(docker_place: Place) -> None:
    place = docker_place
    assignment = place.node.assignment(job="edt-4")
    place.api.want(replace(assignment, spec=replace(assignment.spec, image="no/such-image:1")))
    end = place.ends("edt-4")
    assert end["kind"] == "script-error"
    assert end["message"].startswith("image no/such-image:1 (--msd-image-name) is not on node n1")


def test_an_image_without_a_runner_tells_what_it_lacks(docker_place: Place) -> None:
    place = docker_place
    assignment = place.node.assignment(job="edt-5")
    place.api.want(replace(assignment, spec=replace(assignment.spec, image="openedt-test/base")))
    until(lambda: "edt-5/1 was not started: its container could not be started" in place.node.log)
    assert '"python": executable file not found' in place.node.log
    place.api.drop("edt-5/1")


def test_what_an_earlier_agent_left_is_swept_and_what_others_have_is_not(own_docker_place: Place) -> None:
    place = own_docker_place
    marks = {LABEL_TAG: place.node.tag, LABEL_NODE: "n1", LABEL_JOB: "edt-9"}

    def make(**changes: str) -> str:
        labels = {**marks, **changes}
        words = [word for name, value in labels.items() for word in ("--label", f"{name}={value}")]
        return docker("create", *words, IMAGE).strip()

    ours, of_another_node = make(), make(**{LABEL_NODE: "n2"})
    place.start()
    until(lambda: [each["Id"] for each in place.containers()] == [of_another_node], what="ours is gone")
    assert ours


def test_a_daemon_that_goes_away_ends_nothing_and_starts_nothing_twice(own_docker_place: Place, tmp_path: Path) -> None:
    place = own_docker_place
    with Wire(tmp_path / "docker.sock", "/var/run/docker.sock") as wire:
        place.start(DOCKER_HOST=f"unix://{wire.path}")
        place.job("edt-1")
        place.reaches("edt-1", "engine-counted")
        wire.cut()
        place.job("edt-2", "print('ran')")
        until(lambda: "edt-2/1 waits" in place.node.log, what="the second job waits")
        time.sleep(2)
        assert "attempt-ended" not in place.api.kinds("edt-1/1")
        os.kill(place.supervisor("edt-1"), signal.SIGKILL)
        time.sleep(0.5)
        assert "attempt-ended" not in place.api.kinds("edt-1/1"), "nobody has told that it is gone"
        wire.mend()
        assert place.ends("edt-1")["message"] == "its supervisor was ended by signal 9"
        assert place.ends("edt-2")["kind"] == "finished"
        assert (place.folder("edt-2") / "log/driver.out").read_text() == "ran\n"
        assert place.api.kinds("edt-2/1").count("attempt-started") == 1


def test_the_gpus_of_the_node_are_asked_for_by_name(own_docker_place: Place) -> None:
    """On the real call that makes a container. It is not started: there is no GPU here to give it."""
    slots = tuple(Slot(str(n), f"GPU-{n}", "a GPU") for n in range(2))
    node = Node("n1", own_docker_place.node.tag, slots, 8 << 30, 2)
    spec = own_docker_place.node.assignment().spec
    settings = DockerSettings(data=Path("/nowhere"), image={"pytorch": IMAGE})

    async def made(gpus: Literal["all", "fixed"]) -> None:
        desired = DesiredState(1, (DesiredSlot(1, "1", "GPU-1"),))
        given = replace(settings, gpus=gpus)
        config = container_spec(spec, desired, given, node, user=(10001, 10001), with_data=False)
        config["host_config"]["mounts"] = []
        daemon = DockerDaemon()
        container = await daemon.create(config)
        with pytest.raises(StartFailed, match="could not select device driver"):
            await daemon.start(container)

    offered: dict[Literal["all", "fixed"], list[str]] = {"all": ["GPU-0", "GPU-1"], "fixed": ["GPU-1"]}
    for gpus, expected in offered.items():
        asyncio.run(made(gpus))
        [container] = own_docker_place.containers()
        assert container["HostConfig"]["DeviceRequests"][0]["DeviceIDs"] == expected
        docker("rm", container["Id"])


def printed(place: Place, job: str) -> list[str]:
    """What a script printed with this mark, among the training's own lines."""
    lines = (place.folder(job) / "log/driver.out").read_text().splitlines()
    return [line.removeprefix("of this script: ") for line in lines if line.startswith("of this script: ")]


LARGE_BATCHES = """
import os, torch
from torch import nn
from torch.utils.data import Dataset
from fabric_model import FabricModel

class Large(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.full((12 << 20,), 1.0 + index), index  # 48 MB

class Mean(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, images):
        return images[:, :2].mean(1) * self.weight

shm = os.statvfs("/dev/shm")
print("of this script:", shm.f_blocks * shm.f_frsize >> 20, flush=True)
model = Mean()
FabricModel(
    model, lambda: (Large(), None), lambda out, target: -out.mean(), torch.optim.SGD(model.parameters(), lr=1.0),
).train(1, 2, 2, num_dataloader_threads=1, checkpoint_freq=0)
print("of this script:", model.weight.item(), flush=True)
"""


@pytest.mark.parametrize("megabytes", [64, pytest.param(1, marks=pytest.mark.extended)])
def test_batches_larger_than_dev_shm_come_from_loader_processes(own_docker_place: Place, megabytes: int) -> None:
    own_docker_place.start(EDT_DOCKER_SHM=f"{megabytes}m")
    own_docker_place.job("edt-1", LARGE_BATCHES)
    end = own_docker_place.ends("edt-1")
    assert (end["kind"], end["message"]) == ("finished", "")
    shm, weight = printed(own_docker_place, "edt-1")
    assert (int(shm), float(weight)) == (megabytes, 9.0), "every sample counted once"


KERAS = """
import os
import numpy as np
import tensorflow as tf
from fabric_model import FabricModel

class Points:
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return np.float32([index, 1]), np.float32(index)

slow = {"lr": 1e-3} if os.environ.get("TF_USE_LEGACY_KERAS") == "1" else {"learning_rate": 1e-3}
model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
FabricModel(model, lambda: (Points(), Points()), "mse", tf.keras.optimizers.SGD(**slow)).train(2, 4, 2)
saved = os.listdir(os.environ["RESULT_DIR"] + "/model/train")
print("of this script:", type(model).__module__.partition(".")[0], os.getuid(), sorted(saved))
"""


@pytest.mark.extended  # with PyTorch: the other tests here
def test_the_image_for_tensorflow_trains_with_keras_3_and_with_keras_2(own_docker_place: Place) -> None:
    place = own_docker_place
    place.start()
    wanted: dict[str, dict[str, str]] = {"edt-1": {}, "edt-2": {"TF_USE_LEGACY_KERAS": "1"}}
    for job, environ in wanted.items():
        place.job(job, KERAS, framework="tensorflow", environ={**environ, "RESULT_DIR": str(place.folder(job))})
    outputs = []
    for job in wanted:
        end = place.ends(job)
        assert (end["kind"], end["message"]) == ("finished", "")
        outputs += [line.split(maxsplit=2) for line in printed(place, job)]
    assert [keras for keras, _, _ in outputs] == ["keras", "tf_keras"]
    assert {user for _, user, _ in outputs} == {"10002"}
    assert all("model_epoch_final.keras" in files for _, _, files in outputs)


def test_an_image_that_is_to_be_ready_is_fetched_before_a_job_comes_and_what_is_too_large_is_not(
    own_docker_place: Place,
) -> None:
    place = own_docker_place
    with Registry(size=1 * MIB) as small, Registry(size=3 * MIB) as large:
        place.api.images = [small.image, large.image, IMAGE]
        place.start(EDT_DOCKER_PULL="missing", EDT_DOCKER_PULL_BYTES="2m")
        try:
            until(lambda: len(place.api.pulled) == 3, 60, what=f"the node has answered: {place.node.log}")
            assert place.api.pulled[small.image] == place.api.pulled[IMAGE] == ""
            assert docker("image", "inspect", small.image)
            assert "more than EDT_DOCKER_PULL_BYTES, 2097152" in place.api.pulled[large.image]
            assert not docker("image", "ls", "-q", large.image, check=False)
        finally:
            docker("rmi", "-f", small.image, large.image, check=False)


def test_a_pull_of_which_nothing_more_comes_is_given_up() -> None:
    with Registry(size=1 * MIB, stalls=True) as registry:
        error = asyncio.run(DockerDaemon().pull(registry.image, seconds=2.0, most=1 << 40))
    assert error == "it took longer than EDT_DOCKER_PULL_SECONDS, 2"


def test_without_a_word_a_container_has_a_network_of_its_own(own_docker_place: Place) -> None:
    place = own_docker_place
    place.start()
    place.job("edt-1", slots=2)
    place.reaches("edt-1", "engine-joined", times=2)
    [container] = place.containers("edt-1")
    assert container["HostConfig"]["NetworkMode"] == "bridge"
    [offer] = place.api.registrations
    assert (offer["alone"], offer["host"]) == (True, "127.0.0.1")
