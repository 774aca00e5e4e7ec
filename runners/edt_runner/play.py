"""``train()``: which part of it this process plays. Room: runners; torch.

The same call is made in every process of a job: by the driver, where it returns the trained weights; by each
engine, where it never returns; and by a plain ``python main.py``, which starts a supervisor of its own.
"""

from __future__ import annotations

from edt_runner import context, engine_role, local
from edt_runner.driver import Driver
from edt_runner.errors import UsageError
from edt_runner.training import Training, TrainRequest, seed_of

_called: list[bool] = []


def train(request: TrainRequest) -> None:
    """Play this process's part. Returns in the driver only; raises TrainingFailed where the training failed."""
    if _called:
        raise UsageError(
            "train(): called a second time; a script trains once, since its engines run it from the top to train(). "
            "Put the other training into a script of its own"
        )
    _called.append(True)
    role = context.current()
    if role is None:
        local.train(request)
        return
    training = Training(request, role.letter.max_engines, seed_of(request, role))
    if role.role == "engine":
        engine_role.run(training, role)
    Driver(training, role.letter, role.coordinator).run()
