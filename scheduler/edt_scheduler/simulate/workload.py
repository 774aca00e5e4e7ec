"""Who submits what and when: the workloads of a trace, read from their CSV files."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Submission:
    """One job of a workload."""

    name: str
    at: int
    """Seconds from the start of the workload."""
    application: str
    gpus: int
    """The number of GPUs that its user has tuned it for."""
    batch: int
    """The global batch size, in samples, that its user has tuned it for."""


class BadWorkload(ValueError):
    """A file of a workload cannot be used. The text names the file, the line and what is wrong."""


def read_workload(path: Path) -> list[Submission]:
    """The submissions of a workload, in the order of the file.

    Args:
        path: CSV file with the columns name, time, application, num_replicas and batch_size.

    Raises:
        BadWorkload: if the file is not there, lacks a column, holds something else than a number or a number out of
            range, or two jobs of one name.
    """
    found: dict[str, Submission] = {}
    for line, row in enumerate(read_rows(path), 2):
        try:
            name = row["name"]
            if name in found:
                raise ValueError(f"there is a job {name} already")
            found[name] = Submission(
                name,
                _whole(row, "time", 0),
                row["application"],
                _whole(row, "num_replicas", 1),
                _whole(row, "batch_size", 1),
            )
        except KeyError as error:
            raise BadWorkload(f"{path}: the column {error.args[0]} is missing") from None
        except (ValueError, TypeError) as error:
            raise BadWorkload(f"{path}, line {line}: {error}") from None
    if not found:
        raise BadWorkload(f"{path} holds no job")
    return list(found.values())


def _whole(row: Mapping[str, str], column: str, least: int) -> int:
    value = int(row[column])
    if value < least:
        raise ValueError(f"{column} is {value}, and takes a number from {least}")
    return value


def read_rows(path: Path) -> Iterator[Mapping[str, str]]:
    """The lines of a CSV file with a header, each as column to text.

    Raises:
        BadWorkload: if the file cannot be read.
    """
    try:
        with path.open(newline="") as file:
            yield from csv.DictReader(file)
    except OSError as error:
        raise BadWorkload(f"{path}: {error.strerror}") from None
