"""Ten trainings under joins, leaves and kills, and the digest of what each has trained.

A training is a function of its script and its seed, whatever its engines do. So the digests that this prints before and
after a change of the platform are equal, byte for byte, or the change has changed a result:

    python benchmarks/digests.py --json before.json
    python benchmarks/digests.py --compare before.json

On one machine: the last bits depend on how many threads an engine has, its cores by the slots. Nothing of ours is
imported: `edt up` is started in a home of its own, jobs go in and results come out through REST, and the scripts use
what users use. A training rests after each of its steps until all that is to happen to it has happened and was seen: a
join, a leave or a kill that comes too late ends this with an error. A digest is SHA-256 of all tensors in the job's
result: weights, buffers, optimizer state. "/state" is what the platform tells of a job's trained state, where it does.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

EXECS = "/platform/rest/deeplearning/v1/execs"
TORCH, KERAS = "edtPyTorch", "edtTensorflow"
OVER = ("FINISHED", "KILLED", "ERROR")
SEED = 11
SLOTS = 3
"""How many threads an engine has follows from it."""
PATIENCE = 150.0
MARK = "DIGESTS_MARK"

# ── what is trained ───────────────────────────────────────────────────────────────────────────────────────────
# Six micro-batches a step: one, two and three engines are each of use, and the scheduler gives no more than are.
_PROLOGUE = '''
    import os, sys, time
    from pathlib import Path
    from callbacks import Callback, LoggerCallback

    FOLDER = Path(os.environ["DIGESTS_FOLDER"])

    class Told(LoggerCallback):
        """Writes down who trains, how far and with how many; an engine rests until all has happened."""

        def __init__(self, part):
            self.part = part

        def log_train_metrics(self, metrics, iteration, epoch, workers):
            draft = FOLDER / f".{self.part}-{os.getpid()}"
            draft.write_text(f"{iteration} {workers}")
            draft.rename(FOLDER / draft.name[1:])
            if self.part == "engine" and not (FOLDER / "go").exists():
                time.sleep(0.1 if iteration < 100 else 0.4)

    def told():
        return {"worker_logger_callback": Told("engine"), "driver_logger_callback": Told("driver")}
'''
_TORCH = (
    _PROLOGUE
    + """
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.utils.data import Dataset

    class Noisy(Dataset):
        def __init__(self, count, shape):
            generator = torch.Generator().manual_seed(count)
            self.shape = shape
            self.inputs = torch.randn(count, *shape, generator=generator)
            self.targets = torch.randint(0, 5, (count,), generator=generator)

        def __len__(self):
            return len(self.targets)

        def __getitem__(self, index):
            return self.inputs[index] + 0.1 * torch.randn(self.shape), self.targets[index]

    def mlp():
        return nn.Sequential(
            nn.Linear(12, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.25), nn.Linear(24, 16), nn.ReLU(),
            nn.Linear(16, 5))

    def conv():
        return nn.Sequential(
            nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Dropout(0.25), nn.Linear(96, 5))
"""
)
_FABRIC = "\n    from fabric_model import FabricModel\n"
TORCH_MLP = (
    _TORCH
    + _FABRIC
    + """
    net = mlp()
    FabricModel(net, lambda: (Noisy(237, (12,)), Noisy(37, (12,))), F.cross_entropy,
                torch.optim.Adam(net.parameters(), 1e-2), **told()).train(20, 3, 6, checkpoint_freq=0)
"""
)
TORCH_CONV = (
    _TORCH
    + _FABRIC
    + """
    net = conv()
    FabricModel(net, lambda: (Noisy(237, (1, 8, 8)), Noisy(37, (1, 8, 8))), F.cross_entropy,
                torch.optim.SGD(net.parameters(), 2e-2, momentum=0.9), **told()).train(20, 3, 6, 1, checkpoint_freq=0)
"""
)
TORCH_CALLBACKS = (
    _TORCH
    + _FABRIC
    + """
    class EveryOther(Callback):
        def on_epoch_begin(self, epoch):
            if epoch and epoch % 2 == 0:
                for group in self.params["optimizer"].param_groups:
                    group["lr"] *= 0.9

    class Remembering(Callback):
        def __init__(self):
            super().__init__()
            self.norms, self.weights = [], None

        def on_train_begin(self):
            self.scheduler = torch.optim.lr_scheduler.StepLR(self.params["optimizer"], 3, 0.8)

        def on_epoch_end(self, epoch):
            self.scheduler.step()
            self.norms.append(sum(float(each.norm()) for each in self.model.parameters()))
            if self.weights is None or self.norms[-1] < min(self.norms[:-1]):
                self.weights = {name: value.clone() for name, value in self.model.state_dict().items()}
            elif epoch % 7 == 0:
                self.model.load_state_dict(self.weights)
            with torch.no_grad():
                for parameter in self.model.parameters():
                    parameter.add_(1e-3 * len(self.norms) * torch.randn_like(parameter))

    net = mlp()
    FabricModel(net, lambda: (Noisy(237, (12,)), Noisy(37, (12,))), F.cross_entropy,
                torch.optim.SGD(net.parameters(), 5e-2, momentum=0.8), user_callback=[EveryOther(), Remembering()],
                **told()).train(20, 3, 6, validation_freq=2, checkpoint_freq=0)
"""
)
TORCH_PER_ENGINE = (
    _TORCH
    + _FABRIC
    + """
    net = mlp()
    FabricModel(net, lambda: (Noisy(60, (12,)), None), F.cross_entropy,
                torch.optim.SGD(net.parameters(), 5e-2, momentum=0.8), **told()).train(
        20, 4, 2, checkpoint_freq=0, recovery_interval=1.0, batch_scaling="per_engine", lr_rule="linear-warmup")
"""
)
TORCH_OWN_LOOP = (
    _TORCH
    + """
    import runai.elastic.torch
    import runai.ga.torch

    net = conv()
    runai.elastic.torch.init(18, 5)
    optimizer = runai.ga.torch.optim.Adam(runai.elastic.steps, net.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 50, gamma=0.8)
    loader = runai.elastic.torch.loader(
        Noisy(237, (1, 8, 8)), net, optimizer, 22, metrics=["accuracy"], lr_scheduler=scheduler,
        lr_scheduler_interval="step", worker_logger_callback=Told("engine"))
    for inputs, targets in loader:
        outputs = net(inputs)
        loss = F.cross_entropy(outputs, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loader.report(loss, accuracy=(outputs.argmax(1) == targets).double().mean())
    result = Path(os.environ["RESULT_DIR"]) / "model"
    result.mkdir(parents=True, exist_ok=True)
    torch.save(net.state_dict(), result / "own.pth")
    torch.save(optimizer.state_dict(), result / "own_optimizer_state.pth")
"""
)
_KERAS = (
    _PROLOGUE
    + _FABRIC
    + """
    import keras
    import numpy as np
    from keras import layers

    class Noisy:
        def __init__(self, count, shape):
            generator = np.random.default_rng(count)
            self.shape = shape
            self.inputs = generator.standard_normal((count, *shape), dtype=np.float32)
            self.targets = generator.integers(0, 5, count)

        def __len__(self):
            return len(self.targets)

        def __getitem__(self, index):
            noise = np.random.standard_normal(self.shape).astype(np.float32)
            return self.inputs[index] + np.float32(0.1) * noise, self.targets[index]

    def train(net, shape, optimizer, **options):
        FabricModel(net, lambda: (Noisy(237, shape), Noisy(37, shape)),
                    keras.losses.SparseCategoricalCrossentropy(from_logits=True), optimizer, metrics=["accuracy"],
                    **told(), **options).train(20, 3, 6, validation_freq=2, checkpoint_freq=0)

    def dense():
        return keras.Sequential([
            keras.Input((12,)), layers.Dense(24), layers.BatchNormalization(), layers.ReLU(), layers.Dropout(0.25),
            layers.Dense(5)])

    def conv():
        return keras.Sequential([
            keras.Input((8, 8, 1)), layers.Conv2D(6, 3, padding="same"), layers.BatchNormalization(), layers.ReLU(),
            layers.MaxPooling2D(), layers.Flatten(), layers.Dropout(0.25), layers.Dense(5)])
"""
)
KERAS_DENSE = _KERAS + "\n    train(dense(), (12,), keras.optimizers.Adam(1e-2))\n"
KERAS_CONV = _KERAS + "\n    train(conv(), (8, 8, 1), keras.optimizers.SGD(2e-2, momentum=0.9))\n"
KERAS_CALLBACKS = (
    _KERAS
    + """
    class EveryOther(Callback):
        def on_epoch_begin(self, epoch):
            if epoch and epoch % 2 == 0:
                self.params["optimizer"].learning_rate = float(self.params["optimizer"].learning_rate) * 0.9

    train(dense(), (12,), keras.optimizers.SGD(5e-2, momentum=0.8), user_callback=[
        EveryOther(), keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.98)])
"""
)


# ── the platform ──────────────────────────────────────────────────────────────────────────────────────────────
class House:
    """`edt up` with three slots, and what its user says to it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        self._mark = uuid.uuid4().hex
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        password = uuid.uuid4().hex
        self._http = httpx.Client(base_url=self._url, auth=("admin", password), timeout=60, trust_env=False)
        self._environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("EDT_", "OMP_"))},
            MARK: self._mark,
            "EDT_ADMIN_PASSWORD": password,
            "EDT_HOME": str(self.home),
            "EDT_CPU_SLOTS": str(SLOTS),
            "EDT_DEVICES": "cpu",
            "GLOO_SOCKET_IFNAME": "lo",
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_DATA_HOME": str(folder / "data"),
        }
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> House:
        try:
            self._start("up", "--home", str(self.home), "--port", self._url.rpartition(":")[2])
            wait(lambda: self._serves() and bool(self.items("/api/v1/nodes")), "edt up serves and its node is there")
        except BaseException:
            print((self.folder / "up.log").read_text(errors="replace")[-4000:], file=sys.stderr)
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._started):
            process.send_signal(signal.SIGINT)
        for process in self._started:
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
        deadline = time.monotonic() + 30
        while (left := self.processes()) and time.monotonic() < deadline:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)
        for process in self._started:
            process.kill()
            process.wait()
        self._http.close()

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        answer = self._http.request(method, path, **options)
        if not answer.is_success:
            raise AssertionError(f"{method} {path}: {answer.status_code} {answer.text}")
        return answer

    def items(self, path: str) -> list[dict[str, Any]]:
        """A list, page by page."""
        found: list[dict[str, Any]] = []
        params: dict[str, str] = {}
        while True:
            page = self.ask("GET", path, params=params).json()
            if isinstance(page, list):
                return page
            found += page["items"]
            if not page.get("next"):
                return found
            params = {"cursor": str(page["next"])}

    def other(self) -> Job:
        """Somebody else's job, for one slot, that takes its time."""
        return self.submit(f"other-{uuid.uuid4().hex[:8]}", TORCH, TORCH_MLP, 1)

    def submit(self, name: str, framework: str, script: str, engines: int) -> Job:
        folder = self.folder / name
        folder.mkdir()
        text = textwrap.dedent(script).encode()
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            entry = tarfile.TarInfo("main.py")
            entry.size, entry.mode = len(text), 0o644
            archive.addfile(entry, io.BytesIO(text))
        variables = f"--msd-env DIGESTS_FOLDER={folder} --msd-env EDT_SEED={SEED}"
        args = f"--exec-start {framework} --model-main main.py --numWorker {engines} {variables}"
        answer = self.ask("POST", EXECS, params={"args": args}, files={"file": ("x.modelDir.tar", buffer.getvalue())})
        return Job(self, str(answer.json()["id"]), folder)

    def processes(self) -> dict[int, str]:
        """Everything that descends from what was started here: pid to name and command line."""
        parents: dict[int, int] = {}
        names: dict[int, str] = {}
        ours: dict[int, str] = {}
        mark = f"{MARK}={self._mark}".encode()
        for place in Path("/proc").iterdir():
            if not place.name.isdecimal():
                continue
            with suppress(OSError):
                head, _, rest = (place / "stat").read_text(errors="replace").rpartition(")")
                state, parent = rest.split()[:2]
                if state in "ZX":
                    continue
                command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                pid = int(place.name)
                parents[pid] = int(parent)
                names[pid] = f"{head.partition('(')[2]} {command}"
                if mark in (place / "environ").read_bytes():
                    ours[pid] = names[pid]
        grows = True
        while grows:
            heirs = [pid for pid, parent in parents.items() if pid not in ours and parent in ours]
            ours.update((pid, names[pid]) for pid in heirs)
            grows = bool(heirs)
        return ours

    def _start(self, *words: str) -> None:
        with (self.folder / f"{words[0]}.log").open("ab") as output:
            command = [sys.executable, "-m", "edt_cli", *words]
            self._started.append(
                subprocess.Popen(
                    command, env=self._environ, cwd=self.folder, stdout=output, stderr=output, start_new_session=True
                )
            )

    def _serves(self) -> bool:
        if self._started[0].poll() is not None:
            raise AssertionError("edt up has ended")
        with suppress(httpx.HTTPError):
            return self._http.get("/readyz").is_success
        return False


# ── a training ────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True)
class Note:
    """What a process of a training wrote down last."""

    pid: int
    time: float
    iteration: int
    engines: int


class Job:
    """A job whose training waits, with short steps between rests, until ``go``."""

    def __init__(self, house: House, name: str, folder: Path) -> None:
        self.id = name
        self._house, self._folder = house, folder
        self.widths: list[int] = []
        """Numbers of engines that were seen to train."""
        self.killed: list[str] = []
        """Names of processes that were."""

    @property
    def state(self) -> str:
        return str(self._house.ask("GET", f"{EXECS}/{self.id}").json()["state"])

    def notes(self, part: str = "engine") -> list[Note]:
        """Of the living, the newest first."""
        found = []
        for path in self._folder.glob(f"{part}-*"):
            with suppress(OSError, ValueError):
                iteration, engines = map(int, path.read_text().split())
                pid = int(path.name.rpartition("-")[2])
                if lives(pid):
                    found.append(Note(pid, path.stat().st_mtime, iteration, engines))
        return sorted(found, key=lambda note: -note.time)

    def until(self, happened: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            if happened():
                return True
            if (state := self.state) in OVER:
                raise AssertionError(f"{self.id} is {state} before {what}\n{self._words()}")
            return False

        wait(look, f"{self.id}: {what}")

    def until_engines(self, number: int) -> None:
        """Until it has taken two steps on so many."""

        def there() -> bool:
            notes = [note for note in self.notes() if note.engines == number]
            return len(notes) >= number and notes[0].time == self.notes()[0].time

        self.until(there, f"it trains on {number}")
        self.widths.append(number)
        self.until_steps(2)

    def until_steps(self, more: int) -> None:
        reached = max((note.iteration for note in self.notes()), default=0)
        self.until(lambda: any(note.iteration >= reached + more for note in self.notes()), f"{more} more steps")

    def kill_engine(self, first: bool) -> None:
        """SIGKILL to one of those that train, and wait until another one trains in its place."""
        before = {note.pid for note in self.notes()}
        victim = min(before) if first else max(before)
        self._kill(victim)
        self.until(lambda: any(note.pid not in before for note in self.notes()), "another engine trains")
        if before - {victim}:
            self.until_engines(len(before))
        else:
            self.until_steps(2)

    def kill_part(self, name: str) -> None:
        """SIGKILL to the job's driver or coordinator, and wait until there is another one and steps go on."""
        self.until(lambda: bool(self._parts(name)), f"there is a {name}")
        before = self._parts(name)
        self._kill(min(before))
        self.until(lambda: bool(self._parts(name) - before), f"there is another {name}")
        self.until_steps(5)

    def go(self) -> None:
        (self._folder / "go").touch()

    def finish(self) -> None:
        assert self.state not in OVER, f"{self.id} has ended before all has happened"
        self.go()
        wait(lambda: self.state in OVER, f"{self.id} ends")
        assert self.state == "FINISHED", f"{self.id} is {self.state}\n{self._words()}"

    def stop(self) -> None:
        if self.state not in OVER:
            self._house.ask("POST", f"{EXECS}/{self.id}/stop")
            wait(lambda: self.state in OVER, f"{self.id} stops")

    def history(self, *lists: str) -> list[dict[str, Any]]:
        """What the platform tells: its ``resizes``, ``allocations``, ``events``."""
        return [each for name in lists for each in self._house.items(f"/api/v1/jobs/{self.id}/{name}")]

    def told(self) -> dict[str, Any]:
        return dict(self._house.ask("GET", f"/api/v1/jobs/{self.id}").json())

    def digest(self) -> str:
        """SHA-256 of every tensor in its result."""
        content = self._house.ask("GET", f"{EXECS}/{self.id}/result").content
        whole, count = hashlib.sha256(), 0
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in sorted(archive.namelist(), key=lambda name: Path(name).name):
                if read := _READERS.get(Path(name).suffix):
                    for line in read(archive.read(name)):
                        whole.update(line)
                        count += 1
        assert count, f"{self.id}: no tensors in {archive.namelist()}"
        return whole.hexdigest()

    def _parts(self, name: str) -> set[int]:
        """By what it wrote itself, or else by its name or its command line."""
        by_name = {pid for pid, words in self._house.processes().items() if name in words}
        return by_name or {note.pid for note in self.notes(name)}

    def _kill(self, pid: int) -> None:
        self.killed.append(Path(f"/proc/{pid}/comm").read_text().strip())
        os.kill(pid, signal.SIGKILL)
        wait(lambda: not lives(pid), f"{pid} is dead")

    def _words(self) -> str:
        told = {key: value for key, value in self.told().items() if key in {"message", "state"}}
        return "\n".join([str(told), *(str(each.get("message", "")) for each in self.history("events")[-20:])])


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait(happened: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.1)


def _torch_file(content: bytes) -> Iterator[bytes]:
    import torch

    yield from _lines("", torch.load(io.BytesIO(content), map_location="cpu", weights_only=True))


def _lines(name: str, value: Any) -> Iterator[bytes]:
    """Each tensor and number under its path, sorted."""
    import torch

    if isinstance(value, dict):
        for key in sorted(value, key=str):
            yield from _lines(f"{name}/{key}", value[key])
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from _lines(f"{name}/{number}", each)
    elif isinstance(value, torch.Tensor):
        bits = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        yield f"{name} {value.dtype} {tuple(value.shape)}\n".encode() + bits
    else:
        yield f"{name} {value!r}\n".encode()


def _keras_file(content: bytes) -> Iterator[bytes]:
    import h5py  # type: ignore[import-untyped]
    import numpy as np

    found: list[tuple[str, Any]] = []
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        weights = io.BytesIO(archive.read("model.weights.h5"))
    with h5py.File(weights) as file:
        file.visititems(
            lambda name, each: found.append((name, np.asarray(each))) if isinstance(each, h5py.Dataset) else None
        )
    for name, array in sorted(found, key=lambda pair: pair[0]):
        yield f"{name} {array.dtype} {array.shape}\n".encode() + array.tobytes()


_READERS: dict[str, Callable[[bytes], Iterator[bytes]]] = {
    ".pth": _torch_file,
    ".pt": _torch_file,
    ".keras": _keras_file,
}


# ── what happens to it ────────────────────────────────────────────────────────────────────────────────────────
def nothing(house: House, begin: Callable[[], Job]) -> Job:
    job = begin()
    job.until_engines(2)
    return job


def joins(house: House, begin: Callable[[], Job]) -> Job:
    """1 → 2 → 3 as others end."""
    others = [house.other(), house.other()]
    job = begin()
    for number, other in enumerate([*others, None], 1):
        job.until_engines(number)
        if other is not None:
            other.stop()
    return job


def leaves(house: House, begin: Callable[[], Job]) -> Job:
    """3 → 2 → 1 as others come."""
    job = begin()
    job.until_engines(3)
    _give_way(house, job, 2)
    return job


def joins_and_leaves(house: House, begin: Callable[[], Job]) -> Job:
    """1 → 2 → 3 → 2."""
    job = joins(house, begin)
    _give_way(house, job, 1)
    return job


def _give_way(house: House, job: Job, times: int) -> None:
    others = []
    for left in range(SLOTS - 1, SLOTS - 1 - times, -1):
        others.append(house.other())
        job.until_engines(left)
    job.finish()
    for other in others:
        other.stop()


def first_engine_dies(house: House, begin: Callable[[], Job]) -> Job:
    job = begin()
    job.until_engines(2)
    job.kill_engine(first=True)
    return job


def last_engine_dies(house: House, begin: Callable[[], Job]) -> Job:
    job = begin()
    job.until_engines(2)
    job.kill_engine(first=False)
    return job


def only_engine_dies(house: House, begin: Callable[[], Job]) -> Job:
    """It goes on from a checkpoint."""
    job = begin()
    job.until_engines(1)
    job.until_steps(20)
    job.kill_engine(first=True)
    return job


def coordinator_dies(house: House, begin: Callable[[], Job]) -> Job:
    job = begin()
    job.until_engines(2)
    job.kill_part("coordinator")
    return job


def driver_dies(house: House, begin: Callable[[], Job]) -> Job:
    job = begin()
    job.until_engines(2)
    job.kill_part("driver")
    return job


def both_die(house: House, begin: Callable[[], Job]) -> Job:
    job = driver_dies(house, begin)
    job.kill_part("coordinator")
    return job


@dataclass(frozen=True)
class Training:
    """One of the ten."""

    name: str
    framework: str
    script: str
    engines: int
    course: Callable[[House, Callable[[], Job]], Job]
    as_well_as: str = ""
    """The one of the same script: their digests are equal."""


TRAININGS = (
    Training("torch-mlp-undisturbed", TORCH, TORCH_MLP, 2, nothing),
    Training("torch-mlp-joins", TORCH, TORCH_MLP, 3, joins, "torch-mlp-undisturbed"),
    Training("torch-conv-leaves", TORCH, TORCH_CONV, 3, leaves),
    Training("torch-conv-engine-killed", TORCH, TORCH_CONV, 2, first_engine_dies, "torch-conv-leaves"),
    Training("torch-callbacks-coordinator-killed", TORCH, TORCH_CALLBACKS, 2, coordinator_dies),
    Training("torch-per-engine-only-one-killed", TORCH, TORCH_PER_ENGINE, 1, only_engine_dies),
    Training("torch-own-loop-driver-killed", TORCH, TORCH_OWN_LOOP, 2, driver_dies),
    Training("keras-dense-joins-and-leaves", KERAS, KERAS_DENSE, 3, joins_and_leaves),
    Training("keras-conv-engine-killed", KERAS, KERAS_CONV, 2, last_engine_dies),
    Training("keras-callbacks-driver-and-coordinator-killed", KERAS, KERAS_CALLBACKS, 2, both_die),
)
KILLED = {first_engine_dies, last_engine_dies, only_engine_dies}


def check(training: Training, job: Job) -> None:
    """That the platform, too, has told of what happened, and of nothing that ends the guarantee."""
    sizes = job.history("resizes")
    changes = sum(before != after for before, after in itertools.pairwise([0, *job.widths]))
    assert len(sizes) >= changes, f"{training.name}: {len(sizes)} resizes are told of, {changes} were seen"
    loss = "lost" in json.dumps(job.history("allocations", "events"))
    assert loss == (training.course in KILLED), f"{training.name}: a loss is {'' if loss else 'not '}told of"
    assert "not-exact" not in json.dumps(job.told()), f"{training.name}: {job.told()}"


def train(house: House, training: Training) -> Job:
    """Until its end."""

    def begin() -> Job:
        return house.submit(training.name, training.framework, training.script, training.engines)

    job = training.course(house, begin)
    if job.state != "FINISHED":
        job.finish()
    check(training, job)
    return job


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the digests there: {name: digest}")
    parser.add_argument("--compare", type=Path, metavar="PATH", help="with those there; exit status 1 if one differs")
    parser.add_argument("--only", metavar="WORD", default="", help="those whose names contain this")
    chosen = parser.parse_args()
    digests: dict[str, str] = {}
    folder = Path(tempfile.mkdtemp(prefix="edt-digests-"))
    began = time.monotonic()
    try:
        with House(folder) as house:
            for training in TRAININGS:
                if chosen.only not in training.name:
                    continue
                since = time.monotonic()
                job = train(house, training)
                digests[training.name] = digest = job.digest()
                if state := job.told().get("digest"):
                    digests[f"{training.name}/state"] = str(state)
                what = ", ".join(["→".join(map(str, job.widths)), *(f"{name} killed" for name in job.killed)])
                print(f"{training.name:46} {digest}  {time.monotonic() - since:5.1f} s  {what}", flush=True)
                same = training.as_well_as
                assert digest == digests.get(same, digest), f"{training.name} and {same} differ: neither is exact"
    except BaseException:
        print(f"what there is of it is kept in {folder}", file=sys.stderr)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    print(f"{time.monotonic() - began:.0f} s in all")
    if chosen.json:
        chosen.json.write_text(json.dumps(digests, indent=1) + "\n")
    if chosen.compare:
        before = {
            name: digest for name, digest in json.loads(chosen.compare.read_text()).items() if chosen.only in name
        }
        for name in sorted(before.keys() | digests.keys()):
            if before.get(name) != digests.get(name):
                print(f"DIFFERS: {name}: {before.get(name)} before, {digests.get(name)} now")
        if before != digests:
            sys.exit(1)
        print(f"equal: {len(before)} digests")


if __name__ == "__main__":
    main()
