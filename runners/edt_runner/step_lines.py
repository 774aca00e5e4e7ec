"""Lines about the training on standard output of a job's driver and engines, in the form of WMLA 1.2's drivers:

    --------START TRAINING--------
    Timestamp 1614896710223, Iteration 4
    batches :4 0.6931
    Iteration 4: tag train_accuracy, simple_value 0.175
    Iteration 4: tag train_loss, simple_value 0.6931
    Iteration 4: tag test_accuracy, simple_value 0.25
    Iteration 4: tag test_loss, simple_value 0.6532
    --------END TRAINING: completed 4 iterations --------
    --------END TRAINING: completed epoch 1 in time 0.512 --------

In the driver, all numbers of iterations count micro-batches over all engines. In an engine, the first two lines of a
step count the micro-batches that the engine has computed itself.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping

from edt_runner import context
from edt_runner.loggers import accuracy

_ENGINE_SECONDS = 0.02
"""An engine writes about a training step if the newest step that it wrote about is older than this. Values of metrics
are computed for each step that it writes about, which takes some 0.1 ms in TensorFlow."""


_DRIVER_STEPS, _DRIVER_SECONDS = 1000, 0.02
"""The driver writes about so many training steps at its beginning, and then about one in so many seconds. Otherwise a
long training of short steps would fill the log of standard output, and what the script printed would be lost when the
log's oldest file is removed."""


def print_backend() -> None:
    """Print which framework a job trains with. Called when ``fabric_model`` is imported."""
    process = context.current()
    if process is not None:
        write(f"Using {process.spec.framework} backend.\n")


def write(text: str) -> None:
    """Write to standard output. The user's script may have closed it or replaced it."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):
        return


def step_lines(seconds: float, own: int, iteration: int, values: Mapping[str, float]) -> str:
    """The four lines of a training step.

    Args:
        seconds: when the step was committed, in seconds since the epoch.
        own: the number in the first two lines.
        iteration: micro-batches committed over all engines.
        values: loss and metrics, by name.
    """
    return (
        f"Timestamp {int(seconds * 1000)}, Iteration {own}\n"
        f"batches :{own} {float(values['loss'])}\n"
        f"{_tagged('train', iteration, values)}"
    )


def _tagged(phase: str, iteration: int, values: Mapping[str, float]) -> str:
    return (
        f"Iteration {iteration}: tag {phase}_accuracy, simple_value {round(accuracy(values), 5)}\n"
        f"Iteration {iteration}: tag {phase}_loss, simple_value {round(float(values['loss']), 5)}\n"
    )


class Frame:
    """The lines at the beginning and at the end of the training in this process."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, write: Callable[[str], None] = write) -> None:
        self._clock, self._write = clock, write
        self._began = clock()
        self.iterations = 0
        """Completed iterations."""
        self.epochs = 0
        """Completed epochs."""

    def begin(self) -> None:
        """Write that the training begins."""
        self._began = self._clock()
        self._write("--------START TRAINING--------\n")

    def end(self) -> None:
        """Write that the training, or this engine's part of it, has ended."""
        seconds = round(self._clock() - self._began, 3)
        self._write(
            f"--------END TRAINING: completed {self.iterations} iterations --------\n"
            f"--------END TRAINING: completed epoch {self.epochs} in time {seconds} --------\n"
        )


class DriverLines(Frame):
    """The driver's lines. It collects the lines of steps that arrive together."""

    _lines = ""
    _steps = 0
    _newest = float("-inf")
    """When the newest step that has lines was committed."""
    _pending: tuple[float, int, Mapping[str, float]] | None = None
    """The newest step, if it has no lines: when it was committed, its iteration and its values."""

    def train(self, seconds: float, iteration: int, epochs: int, values: Mapping[str, float]) -> None:
        """Add the lines of a training step (``step_lines``), after which ``epochs`` epochs are complete.

        Args:
            seconds: when the step was committed, in seconds since the epoch.
            iteration: micro-batches committed over all engines.
            epochs: number of complete epochs.
            values: loss and metrics, by name.
        """
        self.iterations, self.epochs = iteration, epochs
        self._steps += 1
        self._pending = (seconds, iteration, values)
        if self._steps <= _DRIVER_STEPS or abs(seconds - self._newest) >= _DRIVER_SECONDS:
            self._newest = seconds
            self._add_pending()

    def test(self, iteration: int, values: Mapping[str, float]) -> None:
        """Add the lines of the step before a validation, and of the validation after ``iteration`` micro-batches."""
        self._add_pending()
        self._lines += _tagged("test", iteration, values)

    def flush(self) -> None:
        """Write the lines that were added."""
        if self._lines:
            self._write(self._lines)
            self._lines = ""

    def end(self) -> None:
        """Write the lines of the last step, and that the training has ended."""
        self._add_pending()
        self.flush()
        super().end()

    def _add_pending(self) -> None:
        if self._pending is not None:
            seconds, iteration, values = self._pending
            self._lines += step_lines(seconds, iteration, iteration, values)
            self._pending = None


class EngineLines(Frame):
    """An engine's lines about the training steps in which it has computed micro-batches."""

    _due = float("-inf")
    _pending: Callable[[], str] | None = None

    def committed(
        self,
        own: int,
        iteration: int,
        epochs: int,
        values: Callable[[], Mapping[str, float]],
        reduction: tuple[int, int],
    ) -> None:
        """Note that a training step was committed, and write about it if that is due.

        Args:
            own: number of micro-batches of the step that this engine has computed.
            iteration: micro-batches committed over all engines.
            epochs: number of complete epochs.
            values: computes loss and metrics of the step, over all engines.
            reduction: bytes of the vector that the engines have summed, and number of micro-batches in the sum.
        """
        self.iterations, self.epochs = self.iterations + own, epochs
        count, wall, (size, width) = self.iterations, time.time(), reduction

        def text() -> str:
            return (
                f"{step_lines(wall, count, iteration, values())}allreduce size of data: {size}\n"
                f"allreduce: syncInterval = {width} reduce Alpha = {1 / width:g}\n"
            )

        now = self._clock()
        if now < self._due:
            self._pending = text
            return
        self._due, self._pending = now + _ENGINE_SECONDS, None
        self._write(text())

    def end(self) -> None:
        if self._pending is not None:
            self._write(self._pending())
        super().end()
