"""``train()``: which part of it this process plays. Room: runners; torch.

The same call is made in every process of a job: by the driver, where it returns the trained weights; by each
engine, where it never returns; and by a plain ``python main.py``, which starts a supervisor of its own.
"""

from __future__ import annotations

from edt_runner import context, engine_role, local
from edt_runner.driver import Driver
from edt_runner.errors import UsageError
from edt_runner.training import Training, TrainRequest, seed_of


def train(request: TrainRequest, name: str = "train()") -> None:
    """Play this process's part. Returns in the driver only; raises TrainingFailed where the training failed.

    ``name``: of the call, as the user knows it.
    """
    claim(name)
    role = context.current()
    if role is None:
        local.train(request)
        return
    training = Training(request, role.letter.max_engines, seed_of(request, role))
    if role.role == "engine":
        engine_role.run(training, role)
    Driver(training, role.letter, role.coordinator).run()


def claim(name: str) -> None:
    """This process's one training begins, by a call that the user knows by ``name``."""
    if context.training:
        raise UsageError(
            f"{name}: called a second time; a script trains once, since its engines run it from the top to {name}. "
            "Put the other training into a script of its own"
        )
    context.begin_training(name)
