"""Slurm as a provisioner's cluster manager: each node is a job of one machine, several are an array.

``cluster`` is the pool; ``commands`` and ``rest`` ask Slurm; ``batches`` has the pool's own files; ``script`` and
``states`` are pure. docs/slurm.md says how Slurm is set up for it.
"""

from __future__ import annotations

from edt_provisioner.settings import read_settings
from edt_provisioner.slurm.cluster import SlurmCluster
from edt_provisioner.slurm.commands import Commands, Slurm
from edt_provisioner.slurm.settings import SlurmSettings

__all__ = ["SlurmCluster", "SlurmSettings", "cluster", "connect"]


def connect(settings: SlurmSettings) -> Slurm:
    """How Slurm is asked under these settings."""
    if settings.slurm_as_user == "jwt":
        from edt_provisioner.slurm.rest import Rest

        return Rest(settings)
    return Commands(settings)


def cluster(arguments: dict[str, str | None]) -> tuple[SlurmSettings, SlurmCluster]:
    """The settings and the cluster manager, for the command.

    Raises:
        BadSetting: a setting cannot be used.
        OSError: the pool's folder cannot be made.
    """
    settings = read_settings(SlurmSettings, arguments)
    return settings, SlurmCluster(settings, connect(settings))
