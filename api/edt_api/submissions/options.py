"""The platform's options: what each takes, whether it has an effect, how often it may be given. Pure.

docs/wmla.md has the same table for people. args.py reads a command line with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from edt_api.submissions import scheduling
from edt_api.submissions.frameworks import RUN_NOW
from edt_scheduler.model.catalogue import MOST_WORKERS
from edt_scheduler.model.images import is_name
from edt_scheduler.model.jobs import job_number

MOST_RESTARTS = 1_000
_MOST_OF_32_BITS = 2**32 - 2
"""The highest number of a user or a group of Linux."""

_NUMBER = re.compile(r"[0-9]{1,10}")
_PART = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?m?")
_MEMORY = re.compile(r"[0-9]{1,12}(\.[0-9]{1,3})?([kmgt]i?)?b?", re.IGNORECASE)
_PYTHON = re.compile(r"[0-9]{1,2}(\.[0-9]{1,3}){0,2}")
_PAIR = re.compile(r"[^=\s][^=]*=.*", re.DOTALL)


@dataclass(frozen=True)
class Option:
    """One option of the platform."""

    takes: str
    """What it takes, in words that end the sentence ``it takes …``."""
    accepts: Callable[[str], bool]
    """Whether a value is what it takes. Some values are looked at again where they are used."""
    effect: bool = False
    """Whether it does something. An option that does not is checked and recorded all the same."""
    repeatable: bool = False
    """Whether all its values count. Of the others the last one counts."""
    secret: bool = False
    """Whether its whole value is masked where it is shown. Of ``--msd-env`` only the part after the name is masked."""
    variable: str = ""
    """The variable in which the script finds its value, if that is all that it does."""


def count(text: str, least: int, most: int) -> int | None:
    """Return the whole number that ``text`` is; None if it is none from ``least`` to ``most``."""
    return int(text) if _NUMBER.fullmatch(text) and least <= int(text) <= most else None


def _whole(least: int, most: int, *, effect: bool = False) -> Option:
    return Option(f"a whole number from {least} to {most}", lambda text: count(text, least, most) is not None, effect)


def _text(
    takes: str, *, effect: bool = False, repeatable: bool = False, secret: bool = False, variable: str = ""
) -> Option:
    return Option(takes, lambda text: bool(text.strip()), effect, repeatable, secret, variable)


def _one_of(*words: str, effect: bool = False, variable: str = "") -> Option:
    known = {word.lower() for word in words}
    return Option(" or ".join(words), lambda text: text.lower() in known, effect, variable=variable)


def _matching(takes: str, pattern: re.Pattern[str], *, repeatable: bool = False) -> Option:
    return Option(takes, lambda text: bool(pattern.fullmatch(text)), repeatable=repeatable)


def _read_by(read: Callable[[str], object], takes: str) -> Option:
    """An option of effect that ``read`` reads: it returns None for what the option does not take."""
    return Option(takes, lambda text: bool(text.strip()) and read(text) is not None, effect=True)


def _anything(takes: str, *, repeatable: bool = False) -> Option:
    """An option of effect whose value is read where it is used."""
    return Option(takes, lambda _: True, True, repeatable)


_MEMORIES = _matching("a size of memory such as 8g, 4096M or 16Gi", _MEMORY)
_PARTS = _matching("a number such as 2, 0.5 or 500m", _PART)

OPTIONS: Mapping[str, Option] = {
    # what is run
    "--exec-start": _anything(f"the name of a framework: {RUN_NOW} or an added one"),
    "--model-main": _text("the path of the main script inside the upload", effect=True),
    "--model-dir": _text("the name of a folder inside the upload", effect=True),
    "--pbmodel-name": _text("the name of a prebuilt model", effect=True),
    "--pbmodel-cmd": _one_of("train", effect=True),
    "--appName": _text("a name", effect=True),
    # with how much
    "--numWorker": _whole(1, MOST_WORKERS, effect=True),
    "--minWorkers": _whole(1, MOST_WORKERS, effect=True),
    "--sizes": _read_by(scheduling.sizes, scheduling.TAKES_SIZES),
    "--workerDeviceNum": _whole(1, MOST_WORKERS, effect=True),
    "--gpuPerWorker": _whole(1, MOST_WORKERS, effect=True),
    "--maxRestarts": _whole(0, MOST_RESTARTS, effect=True),
    "--edt-options": _anything(f"maxWorkers=N, N a whole number from 1 to {MOST_WORKERS}"),
    "--workerDeviceType": _one_of("cpu", "gpu", effect=True),
    "--gpu-model": _read_by(scheduling.models, scheduling.TAKES_MODELS),
    "--workerMemory": _MEMORIES,
    "--workerCPULimit": _PARTS,
    "--workerGPULimit": _PARTS,
    "--workerMemoryLimit": _MEMORIES,
    "--numDriver": _whole(0, MOST_WORKERS),
    "--driverDeviceType": _one_of("cpu", "gpu"),
    "--driverDeviceNum": _whole(0, MOST_WORKERS),
    "--driverMemory": _MEMORIES,
    "--driverCPULimit": _PARTS,
    "--driverGPULimit": _PARTS,
    "--driverMemoryLimit": _MEMORIES,
    "--numPs": _whole(0, MOST_WORKERS),
    "--resume-from": Option("the id of a job, such as edt-7", lambda text: job_number(text) is not None, effect=True),
    # on which data, in which environment
    "--cs-datastore-meta": _anything("type=fs[,data_path=FOLDER], a folder below the data file system"),
    "--data-source": _anything("a JSON list as of WMLA"),
    "--msd-env": _anything("NAME=VALUE, a name of letters, digits and _", repeatable=True),
    "--msd-image-name": Option("a container image, REGISTRY/NAME:TAG or NAME@DIGEST", is_name, effect=True),
    "--msd-image-pull-secret": _text("the name of a secret"),
    "--msd-image-pull-policy": _one_of("Always", "Never", "IfNotPresent"),
    "--conda-env-name": _text("the name of a conda environment", variable="DLI_CONDA_ENV_NAME"),
    "--conda-home": _text("the path of a conda installation", variable="DLI_CONDA_HOME"),
    "--conda-env-yaml": _text("the path of a YAML file"),
    "--conda-package": _text("the path of a packed conda environment"),
    "--python-version": _matching("a version such as 3.11", _PYTHON),
    # whose it is, where it goes, when
    "--ig": _text("the name of an instance group"),
    "--consumer": _read_by(scheduling.queue_path, scheduling.TAKES_QUEUE),
    "--queue": _read_by(scheduling.queue_path, scheduling.TAKES_QUEUE),
    "--after": _read_by(scheduling.jobs, scheduling.TAKES_JOBS),
    "--deadline": _read_by(partial(scheduling.deadline, now=0.0), scheduling.TAKES_DEADLINE),
    "--time-limit": _read_by(scheduling.duration, scheduling.TAKES_DURATION),
    "--submit-user": _text("the name of a user"),
    "--msd-attr": _matching("NAME=VALUE", _PAIR, repeatable=True),
    "--msd-label": _text("a label, NAME=VALUE or NAME", repeatable=True),
    "--msd-priority": _whole(1, 2**31 - 1, effect=True),
    "--msd-pending-timeout": _whole(1, 2**31 - 1, effect=True),
    "--msd-pack-id": _text("an id"),
    "--msd-task0-node-selector": _text("a node selector"),
    "--msd-task12n-node-selector": _text("a node selector"),
    "--msd-podaffinity-rule": _one_of("preferred", "required"),
    "--msd-podaffinity-topology-key": _text("a topology key"),
    "--lsf-gpu-syntax": _text("a GPU requirement as of LSF"),
    "--sc-runasuser": _whole(0, _MOST_OF_32_BITS),
    "--sc-runasgroup": _whole(0, _MOST_OF_32_BITS),
    "--sc-fsgroup": _whole(0, _MOST_OF_32_BITS),
    # what is told of it
    "--cs-rmq-meta": _text("settings of RabbitMQ", secret=True),
    "--cs-url-meta": _text("the URL that metrics go to"),
    "--cs-url-bearer": _text("a bearer token", secret=True),
    "--debug-level": _one_of("debug", "info", "warn", "error", variable="DLI_LOGGER_LEVEL"),
}
"""All options that take one value. Not among them: ``--user-cmd``, which takes all words behind it."""

USER_CMD = "--user-cmd"

FORM_EFFECT = frozenset({"hardwareSpec.nodes.num_nodes", "hardwareSpec.nodes.gpu.num_gpu", "dataSource"})
"""What has an effect of the form field ``data``. All else of its hardware spec is recorded without effect."""


def has_effect(name: str) -> bool:
    """Whether a recorded option does something: one of ``args``, or a key of the form's ``data``."""
    return OPTIONS[name].effect if name in OPTIONS else name in FORM_EFFECT
