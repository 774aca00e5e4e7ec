"""Entries of the framework catalogue, in answers of ``/api/v1/frameworks``."""

from __future__ import annotations

import enum

from edt_api.schemas.jobs import Output


class ProcessesOf(enum.StrEnum):
    """For what each process of a job is started that is not elastic."""

    DEVICE = "device"
    WORKER = "worker"
    JOB = "job"


class RendezvousBy(enum.StrEnum):
    """Variables by which the processes of a job find each other."""

    TORCH = "torch"
    TENSORFLOW = "tensorflow"
    MPI = "mpi"


class DefaultLogOf(enum.StrEnum):
    """The log that a client gets who does not say which."""

    STEPS = "steps"
    OUTPUT = "output"


class CatalogueEntry(Output):
    """One entry of the catalogue. docs/frameworks.md describes its keys."""

    name: str
    description: str
    app_name: str
    elastic: bool
    backend: str
    command: list[str]
    processes: ProcessesOf
    rendezvous: list[RendezvousBy]
    environ: dict[str, str]
    max_workers: int
    worker_memory: str
    image: str
    python_home: str
    default_log: DefaultLogOf
    model_folder: bool
    added_by: str | None
    """Name of the admin who added it; None: it is built in."""
    added_at: float | None
    """In seconds since the epoch."""


class Catalogue(Output):
    """The whole catalogue: the built-in entries, then the added ones by name."""

    frameworks: list[CatalogueEntry]
