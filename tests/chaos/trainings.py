"""The jobs that a storm keeps going: submitted as a careful client does, and judged when they are over."""

from __future__ import annotations

import enum
import itertools
import json
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import torch

from support.baselines import Baselines
from support.gangs import COUNTING, packed
from support.journey import SEED
from support.nursery import Nursery
from support.running_platform import EXECS, Platform
from support.training import SCRIPTS


@dataclass(frozen=True)
class Script:
    """A training and what must come of it."""

    name: str
    arguments: str
    samples: int
    epochs: int
    digest: str = ""
    """Of the same training, undisturbed."""
    ranks: int = 0
    """Of a gang: how many processes it has, always. 0: it is elastic."""

    @property
    def file(self) -> Path:
        return COUNTING if self.ranks else SCRIPTS / f"{self.name}.py"

    @property
    def rounds(self) -> int:
        """Of a gang: how far its ranks count together."""
        return 8 * self.epochs


@dataclass(frozen=True)
class Size:
    """How long the trainings of a storm are."""

    epochs: int
    pace: float
    """Seconds of rest after a step."""


class Fate(enum.StrEnum):
    """Where a submission stands."""

    UNSENT = "unsent"  # nobody has answered yet
    GOING = "going"
    FINISHED = "finished"
    KILLED = "killed"  # on our word
    WRONG = "wrong"


def scripts(nursery: Nursery, folder: Path, size: Size) -> list[Script]:
    """The trainings, each with the digest that it ends with when nothing happens to it, and a gang."""
    found = []
    folder.mkdir(parents=True, exist_ok=True)
    baselines = Baselines(nursery, lambda: Path(tempfile.mkdtemp(dir=folder)))
    for name, samples in (("counting", 64), ("conv", 237)):
        arguments = f"--samples {samples} --epochs {size.epochs}"
        digest = baselines.digest(name, *arguments.split(), seed=SEED)
        found.append(Script(name, arguments, samples, size.epochs, digest))
    gang = Script("gang", f"--rounds {8 * size.epochs} --pace {size.pace}", 0, size.epochs, ranks=3)
    return [found[0], gang, found[1]]


@dataclass
class Training:
    """One submission, sent until it is answered."""

    platform: Platform
    script: Script
    record: Path
    args: str
    upload: bytes
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    id: str = ""
    fate: Fate = Fate.UNSENT
    stop_asked: bool = False
    wrong: str = ""
    attempts: int = 0

    def send(self, client: httpx.Client) -> bool:
        """POST with the key, once; True: it was answered. What has been answered may be sent again."""
        answer = client.post(
            EXECS,
            params={"args": self.args},
            files={"file": ("x.modelDir.tar", self.upload)},
            headers={"Idempotency-Key": self.key},
        )
        if answer.status_code in {409, 503, 504, 507} or answer.status_code >= 500:
            return False
        answer.raise_for_status()
        given = str(answer.json()["id"])
        if self.id and given != self.id:
            self._fail(f"the key that was {self.id} is {given} now")
        elif not self.id:
            self.id, self.fate = given, Fate.GOING
            self.platform.checker.acknowledge(given, self.record.name)
            if not self.script.ranks:
                self.platform.checker.keeps(given, self.record)
                self.platform.checker.expect(given, self.script.samples, self.script.epochs)
        return True

    def judge(self, job: dict[str, Any]) -> None:
        """Look at the job as the platform shows it."""
        self.platform.checker.saw(self.id, job["state"])
        self.attempts = int(job.get("attempts") or 0)
        match job["state"]:
            case "FINISHED":
                self.fate = Fate.FINISHED
                self._compare(job)
            case "KILLED" if self.stop_asked:
                self.fate = Fate.KILLED
            case "KILLED" | "ERROR":
                self._fail(f"{self.id} ({self.script.name}) is {job['state']}: {job.get('message')}")

    def _compare(self, job: dict[str, Any]) -> None:
        if self.script.ranks:
            place = self.platform.home / "jobs" / self.id / "model" / "rounds.json"
            counted = json.loads(place.read_text())
            least, most = self.script.rounds, self.script.rounds + self.attempts  # it may die after its last round
            if counted["world"] != self.script.ranks or not least <= counted["rounds"] <= most:
                self._fail(f"{self.id}: the gang of {self.script.ranks} came to {counted} in {self.attempts} attempts")
        elif job.get("digest") != self.script.digest:
            self._fail(f"{self.id} ({self.script.name}) has other weights than the undisturbed training")
        elif self.script.name == "counting":
            place = self.platform.home / "jobs" / self.id / "model/train/model_epoch_final.pth"
            weight = torch.load(place, weights_only=True)["weight"]
            if not bool((weight == self.script.epochs / 8).all()):  # each sample, in steps of 8
                self._fail(f"{self.id}: the counting model has counted {weight.tolist()}")

    def _fail(self, why: str) -> None:
        self.fate, self.wrong = Fate.WRONG, why


def endless(platform: Platform, those: list[Script], size: Size) -> Iterator[Training]:
    """One training after the other, each to be sent."""
    for number in itertools.count():
        script = those[number % len(those)]
        record = platform.folder / f"samples-{number}"
        env = f"--msd-env TEST_PACE={size.pace} --msd-env EDT_SAMPLE_RECORD={record} --msd-env EDT_SEED={SEED}"
        gang = f"distPyTorch --numWorker {script.ranks} --maxRestarts 1000"
        kind = gang if script.ranks else "edtPyTorch --numWorker 4"
        args = f"--exec-start {kind} --model-main {script.file.name} --appName {record.name} {env} {script.arguments}"
        yield Training(platform, script, record, args, packed(script.file))
