"""One emulation from the trace to the picture. Room: runners; starts trainings, writes what it was asked for.

The training with the fixed batch comes first: what the script's training is like is known once it has reached
``train()``, and with that whether it can have the trace's sizes. If not, it ends there.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edt_runner.emulate import picture, table
from edt_runner.emulate import trace as traces
from edt_runner.emulate.outcome import LOSS, Outcome, metric_of, metrics_of, outcome
from edt_runner.emulate.plan import Changes
from edt_runner.emulate.record import Record
from edt_runner.emulate.trial import Trial, TrialFailed
from edt_runner.emulate.watching import Watching
from edt_runner.emulation import Emulation
from edt_runner.errors import UsageError
from edt_runner.user_files import draft_of

FIXED = "fixed batch"


@dataclass(frozen=True)
class Wanted:
    """What was asked for.

    Args:
        trace: file of the sizes; ``options`` say how it is read.
        command: the script and its arguments.
        rules: (name shown, rule); a rule of None is the script's own.
        metric: to be looked at beside the loss; None: an accuracy, or else the first.
        picture, json: files to write; None: none.
        keep: folder in which everything that the trainings leave is kept; None: nothing is.
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
    """Runs it, once."""

    wanted: Wanted
    _records: dict[str, Record] = field(default_factory=dict)
    _failed: dict[str, str] = field(default_factory=dict)

    def run(self) -> int:
        """Answers the exit status.

        Raises:
            UsageError: the trace cannot be used, by itself or with this script.
            TrialFailed: the training with the fixed batch failed.
        """
        wanted = self.wanted
        sizes = traces.read(wanted.trace, wanted.options)
        with _folder(wanted.keep) as folder, Watching(1 + len(wanted.rules)) as watching:
            changes = self._measure(sizes, folder, watching)
            for number, (name, rule) in enumerate(wanted.rules, 1):
                wish = Emulation(tuple(changes), rule, keeps_rule=rule is None, threads=_of_job(sizes, "threads"))
                trial = Trial(name, wanted.command, folder / f"{number}-{_plain(name)}", wish, _of_job(sizes, "seed"))
                try:
                    self._records[name] = trial.run(watching.begin(name))
                except TrialFailed as error:
                    self._failed[name] = str(error)
        return self._tell(sizes)

    def _measure(self, sizes: traces.Trace, folder: Path, watching: Watching) -> Changes:
        """The training with the fixed batch; the widths that those under the trace shall have."""
        found: list[Changes] = []
        show = watching.begin(FIXED)

        def look(record: Record) -> None:
            if record.shape is not None and not found:
                found.append(sizes.changes(_shape(record)))
            show(record)

        wish = Emulation(None, "constant", threads=_of_job(sizes, "threads"))
        trial = Trial(FIXED, self.wanted.command, folder / "0-fixed", wish, _of_job(sizes, "seed"))
        self._records[FIXED] = fixed = trial.run(look)
        if self.wanted.metric not in (None, LOSS, *(names := metrics_of(fixed))):
            raise UsageError(f"metric: got {self.wanted.metric!r}, takes one of {', '.join([LOSS, *names])}")
        return found[0]

    def _tell(self, sizes: traces.Trace) -> int:
        wanted, fixed = self.wanted, self._records[FIXED]
        metric = None if wanted.metric == LOSS else wanted.metric or metric_of(fixed)
        outcomes = [outcome(name, record, metric) for name, record in self._records.items()]
        table.show(outcomes, self._failed, metric, bool(fixed.validations))
        for text in [*sizes.notes, *_bits(sizes, outcomes)]:
            print(text, file=sys.stderr)
        if wanted.json is not None:
            self._write_json(wanted.json, sizes, outcomes, metric)
        if wanted.picture is not None:
            self._draw(wanted.picture, sizes, outcomes, metric)
        for why in self._failed.values():
            print(f"edt emulate: {why}", file=sys.stderr)
        return 1 if self._failed else 0

    def _write_json(self, path: Path, sizes: traces.Trace, outcomes: list[Outcome], metric: str | None) -> None:
        shape = _shape(self._records[FIXED])
        data = {
            "script": list(self.wanted.command),
            "trace": {"path": str(self.wanted.trace), "title": sizes.title, **sizes.facts},
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
        """Whatever goes wrong with it, the table has been shown."""
        shape = _shape(self._records[FIXED])
        script = Path(self.wanted.command[0]).resolve()
        title = f"{script.parent.name}/{script.name} under {sizes.title}"
        under = next(iter(outcomes[1:]), outcomes[0]).curves["batch"].value
        subtitle = (
            f"{min(under):g} to {max(under):g} samples an update, {sum(under) / len(under):.0f} on average; "
            f"the learning rate was chosen for {shape.reference}"
        )
        try:
            picture.draw(path, title, subtitle, outcomes, metric, shape.batch_size)
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
    """``seed`` or ``threads`` of the job whose sizes they are; None: not known, or there is no job."""
    return getattr(sizes.history, name) if isinstance(sizes, traces.OfJob) else None


def _bits(sizes: traces.Trace, outcomes: list[Outcome]) -> Iterator[str]:
    """Which runs ended with the bits of the job whose sizes they had."""
    if not isinstance(sizes, traces.OfJob) or not sizes.history.digest:
        return
    same = [each.name for each in outcomes[1:] if each.digest == sizes.history.digest]
    job = sizes.history.job
    yield f"{', '.join(same)} ended with {job}'s bits" if same else f"no run ended with {job}'s bits"


def _plain(name: str) -> str:
    """Fit for a folder."""
    return "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in name)


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
