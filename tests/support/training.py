"""Trainings for tests: a spec for a script, a supervisor that is forked, a gate, a schedule of engines."""

from __future__ import annotations

import io
import itertools
import os
import zipfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
import torch

from edt_contract.attempt import AttemptSpec
from edt_contract.reports import ReportKind
from edt_runner.launch.supervisor_client import Process, SupervisorClient
from support.gate import GateKeeper
from support.waiting import until

_ALL_SCRIPTS = Path(__file__).parent / "scripts"
SCRIPTS = _ALL_SCRIPTS / "pytorch"
on_both_frameworks = pytest.mark.parametrize("framework", ["pytorch", "tensorflow"], indirect=True)
"""For tests whose ``attempt`` shall train with PyTorch and with TensorFlow, each with its own script of the name."""
with_pytorch_first = pytest.mark.parametrize(
    "framework", ["pytorch", pytest.param("tensorflow", marks=pytest.mark.extended)], indirect=True
)
"""The same, with TensorFlow in the second tier only."""


class Both(tuple[Any, ...]):
    """A case for both frameworks, with TensorFlow in the second tier; a plain tuple is one for PyTorch alone."""

    def __new__(cls, *case: Any) -> Both:
        return super().__new__(cls, case)


class BothAtOnce(Both):
    """A case for both frameworks in the first tier."""


class Later(tuple[Any, ...]):
    """A case for PyTorch alone, in the second tier."""

    def __new__(cls, *case: Any) -> Later:
        return super().__new__(cls, case)


def cases(names: str, found: Iterable[tuple[Any, ...] | str]) -> pytest.MarkDecorator:
    """As ``parametrize``: with PyTorch all cases, with TensorFlow those that are for ``Both``."""
    known = [case if isinstance(case, tuple) else (case,) for case in found]
    rows = [pytest.param("pytorch", *case, marks=_marks(isinstance(case, Later))) for case in known]
    rows += [
        pytest.param("tensorflow", *case, marks=_marks(not isinstance(case, BothAtOnce)))
        for case in known
        if isinstance(case, Both)
    ]
    return pytest.mark.parametrize(["framework", *names.replace(" ", "").split(",")], rows, indirect=["framework"])


def _marks(extended: bool) -> list[pytest.MarkDecorator]:
    return [pytest.mark.extended] if extended else []


_numbers = itertools.count()


def script(name: str, framework: str = "pytorch") -> Path:
    """The users' main of this name."""
    return _ALL_SCRIPTS / framework / f"{name}.py"


def spec_for(folder: Path, name: str | Path, *arguments: object, **changes: Any) -> AttemptSpec:
    """An attempt of a script (its name or path) that keeps everything below ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    main = name if isinstance(name, Path) else script(name, changes.get("framework", "pytorch"))
    spec = AttemptSpec(
        job="edt-1",
        fence=1,
        node="here",
        framework="pytorch",
        main=str(main),
        arguments=tuple(map(str, arguments)),
        work_dir=str(folder),
        result_dir=str(folder),
        log_dir=str(folder / "log"),
        checkpoint_dir=str(folder / "checkpoint"),
        spool_dir=str(folder / "spool"),
        socket=f"/tmp/edt-test-{os.getpid()}-{next(_numbers)}.sock",
        environ={"TEST_GATE": str(folder / "gate"), "EDT_SAMPLE_RECORD": str(folder / "samples")},
        seed=7,
        max_engines=8,
        threads=1,
        cores=16,
        grace_seconds=30.0,
        token="a token for tests",
    )
    environ = {**spec.environ, **changes.pop("environ", {})}
    return replace(spec, environ=environ, **changes)


class Elastic:
    """One attempt under a test's hand. Used as a context manager; nothing is left behind."""

    def __init__(self, spec: AttemptSpec, start: Callable[[AttemptSpec], Process]) -> None:
        self.spec, self._start = spec, start
        self.gate = GateKeeper(Path(spec.environ["TEST_GATE"]))
        self._stack = ExitStack()
        self.device = "cpu"
        """What the engines of later wishes compute on."""
        self.may_differ = False
        """Engines may be found to hold different states: the test is about that."""

    def __enter__(self) -> Elastic:
        self.supervisor = self._stack.enter_context(SupervisorClient(self.spec, self._start))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        Path(self.spec.socket).unlink(missing_ok=True)

    @property
    def log_dir(self) -> Path:
        return Path(self.spec.log_dir)

    @property
    def sample_record(self) -> Path:
        return Path(self.spec.environ["EDT_SAMPLE_RECORD"])

    def hold(self, engines: Iterable[int]) -> None:
        self.supervisor.hold(list(engines), device=self.device)

    def happened(self, kind: ReportKind, **body: Any) -> bool:
        self.supervisor.poll()
        return any(
            report.kind is kind and all(report.body.get(key) == value for key, value in body.items())
            for report in self.supervisor.reports
        )

    def settle(self, engines: Iterable[int], seconds: float = 60.0) -> None:
        """DesiredState for exactly these engines and let steps through until they train and no other does."""
        wanted = set(engines)
        self.hold(wanted)
        self.await_ready(wanted, seconds)
        self.gate.until(lambda: self.training() == wanted or self.over(), seconds, sparing=True)
        assert not self.over(), self.supervisor.reports[-1]

    def await_ready(self, engines: Iterable[int], seconds: float = 60.0) -> None:
        """Wait until these have warmed up, which takes time and no step. What they need then is steps."""
        wanted = set(engines)
        until(lambda: all(map(self.gate.is_ready, wanted)) or self.over(), seconds, f"{wanted} are ready")

    def training(self) -> set[int]:
        """Engines that have the weights and are not gone."""
        self.supervisor.poll()
        joined, gone = set(), set()
        for report in self.supervisor.reports:
            if report.kind is ReportKind.ENGINE_JOINED:
                joined.add(report.body["allocation"])
            elif report.kind is ReportKind.ENGINE_GONE:
                gone.add(report.body["allocation"])
        return joined - gone

    def over(self) -> bool:
        return self.happened(ReportKind.ATTEMPT_ENDED)

    def finish(self, seconds: float = 60.0) -> dict[str, Any]:
        """Open the gate and wait for the end."""
        self.gate.open()
        end = self.supervisor.ended(seconds)
        differed = [found for found in self.kinds(ReportKind.REPLICAS_COMPARED) if not found["equal"]]
        assert self.may_differ or not differed, self.kinds(ReportKind.GUARANTEE_ENDED)
        return end

    def kinds(self, kind: ReportKind) -> list[dict[str, Any]]:
        self.supervisor.poll()
        return [dict(report.body) for report in self.supervisor.reports if report.kind is kind]


def counted(training: Elastic) -> list[float]:
    """The weights that the script ``counting`` has left to its user."""
    folder = Path(training.spec.result_dir) / "model/train"
    if training.spec.framework == "pytorch":
        state = torch.load(folder / "model_epoch_final.pth", weights_only=True)
        return [float(weight) for weight in state["weight"]]
    import h5py

    with zipfile.ZipFile(folder / "model_epoch_final.keras") as model, model.open("model.weights.h5") as file:
        weights = h5py.File(io.BytesIO(file.read()))["vars/0"]
    return [float(weight) for weight in weights]
