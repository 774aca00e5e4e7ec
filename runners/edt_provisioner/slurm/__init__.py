"""Slurm as a provisioner's cluster manager: each node is a job of one machine, several are an array.

``cluster`` is the pool; ``commands`` and ``rest`` ask Slurm; ``batches`` has the pool's own files; ``script`` and
``states`` are pure. docs/slurm.md says how Slurm is set up for it.
"""

from __future__ import annotations

from edt_provisioner.settings import read_settings
from edt_provisioner.slurm.cluster import SlurmCluster
from edt_provisioner.slurm.commands import Commands, Slurm
from edt_provisioner.slurm.settings import SlurmSettings


def cluster(arguments: dict[str, str | None]) -> tuple[SlurmSettings, SlurmCluster]:
    """The settings and the cluster manager, for the command.

    Raises:
        BadSetting: a setting cannot be used.
        OSError: the pool's folder cannot be made.
    """
    settings = read_settings(SlurmSettings, arguments)
    slurm: Slurm
    if settings.slurm_as_user == "jwt":
        from edt_provisioner.slurm.rest import Rest

        slurm = Rest(settings)
    else:
        slurm = Commands(settings)
    return settings, SlurmCluster(settings, slurm)
