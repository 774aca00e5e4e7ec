"""Trainings in which somebody dies at a named place, and what must be true of them afterwards."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edt_contract import processes
from edt_contract.crash_points import MARKS, VARIABLE
from edt_contract.reports import ReportKind
from edt_demo import sample_record as record
from edt_runner.checkpoints import checkpoint
from support.training import SCRIPTS, Elastic, script

SAMPLES, EPOCHS = 237, 3
CONV: tuple[object, ...] = ("conv", "--epochs", EPOCHS)
"""18 steps an epoch: 15 of training, then 3 slices of the validation."""
A_STEP, A_VALIDATION, AN_EPOCH_END = 22, 34, 35
THE_LAST_STEP, THE_LAST_TICK = 50, 53


def crashing(folder: Path, *entries: str, armed: bool = True, **environ: str) -> dict[str, str]:
    """The environment of a training in which each of ``entries`` (POINT[@TICK][#ENGINE]) happens once; where they are
    not ``armed``, not before ``arm``."""
    marks = folder / "crashes"
    marks.mkdir(parents=True, exist_ok=True)
    if not armed:
        for entry in entries:
            (marks / entry).touch()
    return {VARIABLE: ",".join(entries), MARKS: str(marks), **environ}


def arm(training: Elastic, *entries: str) -> None:
    """From now on these crashes happen, each once (again); without a name all of them."""
    for entry in entries or _entries(training):
        (_marks(training) / entry).unlink(missing_ok=True)


def crashed(training: Elastic, *entries: str) -> bool:
    """All that shall happen has happened, or these."""
    return {path.name for path in _marks(training).iterdir()} >= set(entries or _entries(training))


def _entries(training: Elastic) -> list[str]:
    return training.spec.environ[VARIABLE].split(",")


def _marks(training: Elastic) -> Path:
    return Path(training.spec.environ[MARKS])


@dataclass(frozen=True)
class Loss:
    """What a loss of engines cost, by the report on it."""

    engines: tuple[int, ...]
    workers: int
    recomputed: int
    pause: float | None


def losses(training: Elastic) -> list[Loss]:
    """In the order in which they happened."""
    return [
        Loss(tuple(body["lost"]), body["workers"], body["recomputed"], body["pause_seconds"])
        for body in training.kinds(ReportKind.RESIZED)
        if body["lost"]
    ]


def gone(training: Elastic) -> dict[int, str]:
    """How each engine that is gone ended."""
    return {body["allocation"]: body["kind"] for body in training.kinds(ReportKind.ENGINE_GONE)}


def newest_checkpoint(training: Elastic) -> int:
    """After how many steps of ``CONV`` the newest one on disk was made; its report may have died with its engine."""
    found = checkpoint.newest(Path(training.spec.checkpoint_dir))
    assert found is not None
    epochs, steps = divmod(found.offset, 18)
    return epochs * 15 + min(steps, 15)


def pid_of(training: Elastic, engine: int) -> int:
    return {body["allocation"]: int(body["pid"]) for body in training.kinds(ReportKind.ENGINE_STARTED)}[engine]


def driver_of(training: Elastic) -> int:
    """The pid of the process that runs the script as the driver."""
    below = processes.descendants(training.supervisor.process.pid)
    return next(pid for pid in below if Path(f"/proc/{pid}/comm").read_text().strip() == "edt-driver")


def kill(training: Elastic, engines: Iterable[int], signal_: int) -> None:
    """Send a signal to engines."""
    for engine in engines:
        os.kill(pid_of(training, engine), signal_)


def assert_unharmed(
    training: Elastic, end: dict[str, Any], digest: str, samples: int = SAMPLES, epochs: int = EPOCHS
) -> None:
    """The training has come to its end, with the bits of an undisturbed one, and each sample counted once an epoch."""
    assert end["kind"] == "finished", (end, supervisor_log(training))
    assert end["digest"] == digest
    assert_all_counted_once(training, samples, epochs)


def assert_all_counted_once(training: Elastic, samples: int = SAMPLES, epochs: int = EPOCHS) -> None:
    audits = record.audit(record.read(training.sample_record), samples, epochs)
    assert [(audit.lost, audit.repeated) for audit in audits] == [((), ())] * epochs


def rounds_of(training: Elastic, step: int) -> int:
    """In how many rounds the reduction of ``step`` was tried."""
    lines = [json.loads(line) for path in training.sample_record.iterdir() for line in path.read_text().splitlines()]
    return len({line[3] for line in lines if line[0] == "try" and line[2] == step})


def supervisor_log(training: Elastic) -> str:
    """The last words of the supervisor."""
    return (Path(training.spec.spool_dir) / "supervisor.log").read_text()[-2000:]


# ── scripts with trouble in them ──────────────────────────────────────────────────────────────────────────────
_PREAMBLE = """
    import os, signal, time
    from edt_runner.comm import exchange, group, state_transfer
    from edt_runner import context
    from edt_runner.errors import PeerLost

    def once(name):
        try:
            os.close(os.open(os.environ["EDT_TEST_ONCE"] + "-" + name, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True
"""
_LOSS = """
    def loss(outputs, targets):
        where = context.page.read()
        engine, offset, worker = context.page.engine, where.offset, where.index
        if engine and worker >= 0:
            trouble(engine, offset, worker)
        return F.cross_entropy(outputs, targets)
"""


def troubled(folder: Path, trouble: str) -> Path:
    """The script ``conv`` with ``trouble`` in its loss: statements that see ``engine``, ``offset`` and ``worker``, and
    ``once(name)``, which is true the first time that any process asks."""
    body = "def trouble(engine, offset, worker):\n" + textwrap.indent(textwrap.dedent(trouble).strip(), "    ")
    text = (SCRIPTS / "conv.py").read_text().replace("    F.cross_entropy,\n", "    loss,\n")
    return _write(folder, f"{body}\n{textwrap.dedent(_LOSS)}", text)


def ill(folder: Path, samples: str) -> Path:
    """The script ``conv`` with ``samples`` in its data set's ``__getitem__``: statements that see ``index``."""
    line = "    def __getitem__(self, index):\n"
    added = textwrap.indent(textwrap.dedent(samples).strip(), "        ")
    return _write(folder, "", (SCRIPTS / "conv.py").read_text().replace(line, f"{line}{added}\n"))


def cut_off(folder: Path, framework: str, offset: int, *engines: int, name: str = "conv") -> Path:
    """The script ``name``, of which ``engines`` lose the connection in the very last message of the reduction of
    ``offset``: they have sent everything, and all others have all of it."""
    patch = f"""
    import pathlib
    whole, folder = exchange.TreeExchange.result, pathlib.Path({str(folder)!r})
    def result(self):
        page = context.page
        if page.engine and page.offset == {offset}:
            if page.engine in {[str(engine) for engine in engines]} and once(page.engine):
                patience = time.monotonic() + 20
                while len(list(folder.glob("whole-*"))) < self._size - {len(engines)}:
                    assert time.monotonic() < patience, "the others did not get everything"
                    time.sleep(0.002)
                raise PeerLost("cut off in the last message")
            (folder / f"whole-{{page.engine}}").touch()
        return whole(self)
    exchange.TreeExchange.result = result
    """
    return _write(folder, textwrap.dedent(patch), script(name, framework).read_text())


def _write(folder: Path, preamble: str, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "main.py"
    first = textwrap.dedent(_PREAMBLE).replace('os.environ["EDT_TEST_ONCE"]', repr(str(folder / "once")))
    path.write_text(f"{first}\n{preamble}\n{script}")
    return path
