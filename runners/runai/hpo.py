"""``runai.hpo`` is not part of OpenEDT; the import raises an error that names alternatives."""

raise ImportError(
    "runai.hpo is not part of OpenEDT's runai. Instead: submit one job for each set of parameters "
    "(edt submit main.py --learning-rate 0.1), or let Optuna or Ray Tune choose them",
    name="runai.hpo",
)
