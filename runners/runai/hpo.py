"""Not here: ``runai.hpo``. Room: runners."""

from runai._gone import gone

raise gone(
    "runai.hpo",
    "submit one job for each set of parameters (edt submit main.py --learning-rate 0.1), or let Optuna or Ray Tune "
    "choose them",
)
