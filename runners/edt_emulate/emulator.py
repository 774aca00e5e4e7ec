"""Runs one emulation: it trains the script several times and writes table, picture and JSON file.

Each training runs the user's script in a process of its own, which reads its task from the file that EDT_EMULATE names.
Each training has its own result folder, so that it does not continue from another training's checkpoint. The process
dies with this process.

The training with the fixed batch comes first. When it has reached ``train()``, the emulator knows whether the script
can be trained with the trace's sizes. If it cannot, the emulation ends there.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edt_contract import processes
from edt_emulate import display, traces
from edt_emulate.display import Bars
from edt_emulate.outcome import LOSS, Outcome, metric_of, metrics_of, outcome
from edt_emulate.traces import Changes
from edt_runner.checkpoints.user_files import draft_of
from edt_runner.errors import RunnerError, UsageError
from edt_runner.lr_scaling import emulation
from edt_runner.lr_scaling.emulation import Reader, Record

FIXED = "fixed batch"
_LOOK_SECONDS = 0.1
_END_SECONDS = 10.0
_TAIL_LINES = 15


class TrialFailed(RunnerError):
    """The script ended before its training was complete."""


def train(
    name: str,
    command: Sequence[str],
    folder: Path,
    task: emulation.Emulation,
    seed: int | None,
    look: Callable[[Record], None],
) -> Record:
    """Run one training to its end.

    Args:
        name: name of the training in table and picture.
        command: the script and its arguments.
        folder: folder for the files of this training.
        task: contents of the file that EDT_EMULATE names, without the path of the record.
        seed: seed of the training; None: the environment's, or 0.
        look: called again and again with the record so far. If it raises an error, the training ends at once.

    Returns:
        The complete record.

    Raises:
        TrialFailed: the script failed, or trained nothing. The message has the last lines of the script's output.
    """
    folder.mkdir(parents=True, exist_ok=True)
    record, task_file, output = folder / "record.jsonl", folder / "emulate.json", folder / "output.txt"
    task_file.write_text(json.dumps({**task.to_json_object(), "record": str(record)}))
    environ = {
        **{name: value for name, value in os.environ.items() if name not in ("LOG_DIR", "SAVED_MODEL_DIR")},
        emulation.VARIABLE: str(task_file),
        "RESULT_DIR": str(folder / "result"),
    }
    if seed is not None:
        environ["EDT_SEED"] = str(seed)
    reader, parent = Reader(record), os.getpid()
    with output.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, *command],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # This process has one thread when it forks, so no other thread can hold a lock.
            preexec_fn=lambda: processes.die_with(parent),  # noqa: PLW1509
        )
    try:
        while process.poll() is None:
            look(reader.read())
            time.sleep(_LOOK_SECONDS)
        found = reader.read()
        look(found)
    finally:
        _end(process)
    if process.returncode:
        raise TrialFailed(f"{name}: {command[0]} ended with status {process.returncode}{_tail(output)}")
    if found.digest is None:
        raise TrialFailed(
            f"{name}: {command[0]} ended without having trained, takes a script that calls "
            f"FabricModel.train(){_tail(output)}"
        )
    return found


@dataclass(frozen=True)
class EmulationRequest:
    """The request of the command line.

    Args:
        trace: file with the trace.
        options: how the trace is read.
        command: the script and its arguments.
        rules: pairs (name shown, rule). The rule None means the script's own rule.
        metric: the metric that is shown beside the loss; None: an accuracy, or else the first metric.
        picture, json: files to write; None: the file is not written.
        keep: folder in which all files of the trainings are kept; None: they are removed.
    """

    trace: Path
    options: traces.Options
    command: tuple[str, ...]
    rules: tuple[tuple[str, str | None], ...]
    metric: str | None
    picture: Path | None
    json: Path | None
    keep: Path | None


@dataclass
class Emulator:
    """Runs one emulation."""

    request: EmulationRequest
    _records: dict[str, Record] = field(default_factory=dict)
    _failed: dict[str, str] = field(default_factory=dict)

    def run(self) -> int:
        """Run the trainings and show the results; returns the exit status.

        Raises:
            UsageError: the trace cannot be used, or not with this script.
            TrialFailed: the training with the fixed batch failed.
        """
        request = self.request
        sizes = traces.read(request.trace, request.options)
        with _folder(request.keep) as folder, Bars(1 + len(request.rules)) as bars:
            changes = self._measure(sizes, folder, bars)
            for number, (name, rule) in enumerate(request.rules, 1):
                task = emulation.Emulation(
                    tuple(changes), rule, keeps_rule=rule is None, threads=_of_job(sizes, "threads")
                )
                own, seed = folder / f"{number}-{_plain(name)}", _of_job(sizes, "seed")
                try:
                    self._records[name] = train(name, request.command, own, task, seed, bars.begin(name))
                except TrialFailed as error:
                    self._failed[name] = str(error)
        return self._show(sizes)

    def _measure(self, sizes: traces.Trace, folder: Path, bars: Bars) -> Changes:
        """Run the training with the fixed batch; returns the widths for the trainings with the trace's sizes."""
        found: list[Changes] = []
        show = bars.begin(FIXED)

        def look(record: Record) -> None:
            if record.shape is not None and not found:
                found.append(sizes.changes(_shape(record)))
            show(record)

        task = emulation.Emulation(None, "constant", threads=_of_job(sizes, "threads"))
        seed = _of_job(sizes, "seed")
        fixed = train(FIXED, self.request.command, folder / "0-fixed", task, seed, look)
        self._records[FIXED] = fixed
        if self.request.metric not in (None, LOSS, *(names := metrics_of(fixed))):
            raise UsageError(f"metric: got {self.request.metric!r}, takes one of {', '.join([LOSS, *names])}")
        return found[0]

    def _show(self, sizes: traces.Trace) -> int:
        request, fixed = self.request, self._records[FIXED]
        metric = None if request.metric == LOSS else request.metric or metric_of(fixed)
        outcomes = [outcome(name, record, metric) for name, record in self._records.items()]
        display.show_table(outcomes, self._failed, metric, bool(fixed.validations))
        for text in [*sizes.notes, *_bits(sizes, outcomes)]:
            print(text, file=sys.stderr)
        if request.json is not None:
            self._write_json(request.json, sizes, outcomes, metric)
        if request.picture is not None:
            self._draw(request.picture, sizes, outcomes, metric)
        for why in self._failed.values():
            print(f"edt emulate: {why}", file=sys.stderr)
        return 1 if self._failed else 0

    def _write_json(self, path: Path, sizes: traces.Trace, outcomes: list[Outcome], metric: str | None) -> None:
        shape = _shape(self._records[FIXED])
        data = {
            "script": list(self.request.command),
            "trace": {"path": str(self.request.trace), "title": sizes.title, **sizes.facts},
            "notes": sizes.notes,
            "batch_size": shape.batch_size,
            "reference_batch": shape.reference,
            "metric": metric,
            "runs": [each.to_json_object(metric) for each in outcomes],
            "failed": self._failed,
        }
        with draft_of(path) as draft:
            draft.write_text(json.dumps(data, indent=1))
        print(f"figures: {path}", file=sys.stderr)

    def _draw(self, path: Path, sizes: traces.Trace, outcomes: list[Outcome], metric: str | None) -> None:
        """Draw the picture. If this fails, print why; the table has already been shown."""
        shape = _shape(self._records[FIXED])
        script = Path(self.request.command[0]).resolve()
        title = f"{script.parent.name}/{script.name} under {sizes.title}"
        under = next(iter(outcomes[1:]), outcomes[0]).curves["batch"].value
        subtitle = (
            f"{min(under):g} to {max(under):g} samples an update, {sum(under) / len(under):.0f} on average; "
            f"the learning rate was chosen for {shape.reference}"
        )
        try:
            display.draw_picture(path, title, subtitle, outcomes, metric, shape.batch_size)
        except ImportError:
            print("no picture: matplotlib is not installed (pip install 'openedt[plot]')", file=sys.stderr)
        except (OSError, ValueError) as error:
            print(f"no picture: {path}: {error}", file=sys.stderr)
        else:
            print(f"picture: {path}", file=sys.stderr)


def _shape(record: Record) -> traces.Shape:
    shape = record.shape
    assert shape is not None
    return traces.Shape(record.schedule, shape["batch_size"], shape["reference"], shape["per_engine"])


def _of_job(sizes: traces.Trace, name: str) -> Any:
    """``seed`` or ``threads`` of the job whose history is the trace. None: unknown, or there is no such job."""
    return getattr(sizes.history, name) if isinstance(sizes, traces.OfJob) else None


def _bits(sizes: traces.Trace, outcomes: list[Outcome]) -> Iterator[str]:
    """Yield a sentence that names the trainings whose trained state has the same bits as the job's. Yield nothing if
    the trace is not the history of a finished job."""
    if not isinstance(sizes, traces.OfJob) or not sizes.history.digest:
        return
    same = [each.name for each in outcomes[1:] if each.digest == sizes.history.digest]
    job = sizes.history.job
    yield f"{', '.join(same)} ended with {job}'s bits" if same else f"no run ended with {job}'s bits"


def _plain(name: str) -> str:
    """The name with only characters that a folder's name may have."""
    return "".join(character if character.isalnum() or character in "-." else "_" for character in name)


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="edt-emulate-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise UsageError(f"keep: got {keep}, takes a folder that is empty or not there")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.resolve()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and all its descendants. Its supervisor has a session of its own and would wait for its driver,
    so a signal to the process group is not enough."""
    below = {pid: processes.start_time(pid) for pid in processes.descendants(process.pid)}
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    until = time.monotonic() + _END_SECONDS
    while living := [pid for pid, begun in below.items() if begun and processes.start_time(pid) == begun]:
        for pid in living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > until:
            return
        time.sleep(_LOOK_SECONDS / 10)


def _tail(path: Path) -> str:
    """The last lines that the script printed, each indented."""
    with path.open(errors="replace") as file:
        lines = [line.rstrip() for line in deque(file, _TAIL_LINES)]
    return "".join(f"\n    {line}" for line in lines if line)
