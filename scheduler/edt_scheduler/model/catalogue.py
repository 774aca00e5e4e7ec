"""The framework catalogue: what a job may name as its framework, and what the platform starts for it. Pure, except that
it reads the built-in entries, which are files of this package.

An entry is a table of TOML or JSON. docs/frameworks.md describes its keys for the people who write one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import resources
from typing import Any

from edt_contract.encoding import dumps
from edt_contract.frameworks import FRAMEWORKS
from edt_contract.gang import MAIN, PYTHON, GangCommand, Processes, Rendezvous
from edt_scheduler.errors import FrameworkInvalid
from edt_scheduler.model.images import is_name
from edt_scheduler.model.jobs import DefaultLog

MOST_WORKERS = 10_000
RESERVED_VARIABLES = frozenset({"EDT_TAG", "EDT_NODE", "EDT_LIFE"})
"""Variables by which an agent finds its processes again after its own restart. Neither a job nor an entry sets them."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_LIKE_MAIN = re.compile(r"\{[a-z_]+\}")
_A_COMMAND = f'a list of words such as ["{PYTHON}", "-u", "{MAIN}"], or [] if each job brings its own by --user-cmd'
_MEMORY = re.compile(r"[0-9]{1,6}[MG]")
_LONGEST_TEXT, _LONGEST_WORD = 500, 4096
_MOST_WORDS, _MOST_VARIABLES = 100, 100
_MOST_CHARACTERS = 16 * 1024
"""Of a whole entry, as JSON. The catalogue is read and shown whole."""
_OF_GANGS = ("command", "processes", "rendezvous", "max_workers", "python_home")
"""Keys that elastic jobs have no use for."""


@dataclass(frozen=True)
class Framework:
    """One entry of the catalogue."""

    name: str
    """What a job names after ``--exec-start``. Upper and lower case differ."""
    description: str = ""
    app_name: str = ""
    """Name of a job to which its user gives no name."""
    elastic: bool = False
    """Whether its jobs grow and shrink. The other jobs are gangs."""
    backend: str = "pytorch"
    """A name in ``edt_contract.frameworks``: the framework that the runner imports for elastic jobs. For all jobs it
    chooses the container image of nodes that start containers."""
    command: tuple[str, ...] = ()
    """What the processes of a gang run; () if only jobs with ``--user-cmd`` can name this entry."""
    processes: Processes = Processes.WORKER
    rendezvous: tuple[Rendezvous, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    """Variables of its jobs. A job's own variables win."""
    max_workers: int = 0
    """The most workers of a job; 0: any number."""
    worker_memory: str = "4G"
    """The memory of a worker that clients are told. It limits nothing here."""
    image: str = ""
    """The container image of its jobs that name none; "": the node's."""
    python_home: str = ""
    """Folder of a Python environment on the nodes; "": the one in which the runner is installed."""
    default_log: DefaultLog = DefaultLog.OUTPUT
    model_folder: bool = True
    """Whether a job finds a folder ``model`` in its result folder."""

    @property
    def other_python(self) -> bool:
        """Whether its jobs may run with another Python than this one."""
        return bool(self.image or self.python_home)

    @property
    def takes_script(self) -> bool:
        """Whether its jobs run a main script."""
        return self.elastic or not self.command or MAIN in self.command

    def gang(self, words: tuple[str, ...] = ()) -> GangCommand | None:
        """Return what a job of this framework runs; None: the job is elastic.

        Args:
            words: the program that the user wants in place of the entry's command; (): the entry's.
        """
        if self.elastic:
            return None
        processes = self.processes
        if words and processes is Processes.DEVICE:
            processes = Processes.WORKER  # a launcher such as torchrun starts a process for each device itself
        return GangCommand(words or self.command, processes, self.rendezvous, dict(self.environ), self.python_home)


_NOTHING = Framework("nothing")


def read(entry: object) -> Framework:
    """Return the entry that this data describes.

    Raises:
        FrameworkInvalid: A key is unknown or missing, or its value is not accepted. The message names the key and what
            it takes.
    """
    if not isinstance(entry, Mapping):
        raise FrameworkInvalid("entry", "it takes a table with the keys of an entry, such as name and command")
    for key in entry:
        if key not in _READERS:
            shown = str(key)[:64].encode(errors="backslashreplace").decode()
            raise FrameworkInvalid(shown, f"no such key; an entry has {', '.join(_READERS)}")
    if "name" not in entry:
        raise FrameworkInvalid("name", "it is missing; it takes the name that a job puts after --exec-start")
    values = {key: _READERS[key](key, value) for key, value in entry.items()}
    elastic = values.get("elastic", False)
    if elastic:
        values.setdefault("default_log", DefaultLog.STEPS)
        for key in _OF_GANGS:
            if key in values and values[key] != getattr(_NOTHING, key):
                raise FrameworkInvalid(
                    key, "it has no meaning for an elastic framework; remove it, or set elastic = false"
                )
        if "backend" not in values:
            raise FrameworkInvalid("backend", f"an elastic framework needs it; it takes {_or(FRAMEWORKS)}")
    found = Framework(**values)
    if not elastic and "command" not in values:
        raise FrameworkInvalid("command", f"it is missing; it takes {_A_COMMAND}")
    if found.image and found.python_home:
        raise FrameworkInvalid(
            "python_home", "it is a folder of the nodes, which a container does not see; remove image or it"
        )
    if len(dumps(found)) > _MOST_CHARACTERS:
        raise FrameworkInvalid("entry", f"it is too long; it takes at most {_MOST_CHARACTERS} characters as JSON")
    return found if found.app_name else Framework(**values | {"app_name": found.name})


@cache
def built_in() -> Mapping[str, Framework]:
    """Return the entries that every installation has, by their names."""
    files = [file for file in (resources.files("edt_scheduler") / "catalogue").iterdir() if file.name.endswith(".toml")]
    entries = [read(tomllib.loads(file.read_text("utf-8"))) for file in files]
    return {entry.name: entry for entry in sorted(entries, key=lambda entry: (not entry.elastic, entry.name.lower()))}


def _text(key: str, value: object) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT or not value.isprintable():
        raise FrameworkInvalid(key, f"it takes a text of one line, at most {_LONGEST_TEXT} characters")
    return value


def _matching(pattern: re.Pattern[str], takes: str) -> Callable[[str, object], str]:
    def reader(key: str, value: object) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise FrameworkInvalid(key, f"got {str(value)[:64]!r}; it takes {takes}")
        return value

    return reader


def _truth(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise FrameworkInvalid(key, "it takes true or false, without quotes")
    return value


def _number(key: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_WORKERS:
        raise FrameworkInvalid(key, f"it takes a whole number from 0, which means no limit, to {MOST_WORKERS}")
    return value


def _word(key: str, value: object) -> str:
    if not value or not _is_passed_on(value):
        raise FrameworkInvalid(key, f"each word is a text of at most {_LONGEST_WORD} characters, and none is empty")
    return str(value)


def _is_passed_on(value: object) -> bool:
    """Whether a program can be given this as a word or as the value of a variable, and an answer can show it. JSON can
    hold half of a surrogate pair, which UTF-8 cannot write."""
    if not isinstance(value, str) or len(value) > _LONGEST_WORD or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _command(key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or len(value) > _MOST_WORDS:
        raise FrameworkInvalid(key, f"it takes {_A_COMMAND}, at most {_MOST_WORDS} words")
    words = tuple(_word(key, word) for word in value)
    for word in words:
        if word not in (MAIN, PYTHON) and (MAIN in word or PYTHON in word or _LIKE_MAIN.fullmatch(word)):
            raise FrameworkInvalid(
                key, f"in {word[:64]!r} nothing is replaced: {MAIN} and {PYTHON} stand alone as words"
            )
    return words


def _variables(key: str, value: object) -> dict[str, str]:
    takes = 'it takes a table of texts such as { NCCL_DEBUG = "WARN" }'
    if not isinstance(value, Mapping) or len(value) > _MOST_VARIABLES:
        raise FrameworkInvalid(key, takes)
    for name, text in value.items():
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            raise FrameworkInvalid(key, f"{str(name)[:64]!r} is no name of a variable; {takes}")
        if name in RESERVED_VARIABLES:
            raise FrameworkInvalid(key, f"{name} is the platform's own variable; {takes}")
        if not _is_passed_on(text):
            raise FrameworkInvalid(key, f"the value of {name} is no text; {takes}")
    return dict(value)


def _one_of(words: Collection[str], make: Callable[[str], Any]) -> Callable[[str, object], Any]:
    def reader(key: str, value: object) -> Any:
        if not isinstance(value, str) or value not in words:
            raise FrameworkInvalid(key, f"got {str(value)[:64]!r}; it takes {_or(words)}")
        return make(value)

    return reader


def _rendezvous(key: str, value: object) -> tuple[Rendezvous, ...]:
    words = [str(each) for each in Rendezvous]
    if not isinstance(value, list | tuple) or not all(isinstance(word, str) and word in words for word in value):
        raise FrameworkInvalid(key, f"it takes a list of {_or(words)}; [] if the processes need not find each other")
    return tuple(Rendezvous(word) for word in dict.fromkeys(value))


def _image(key: str, value: object) -> str:
    if not isinstance(value, str) or (value and not is_name(value)):
        raise FrameworkInvalid(
            key, f"got {str(value)[:64]!r}; it takes a container image, REGISTRY/NAME:TAG or NAME@DIGEST"
        )
    return value


def _folder(key: str, value: object) -> str:
    text = _text(key, value)
    if text and (not text.startswith("/") or ".." in text.split("/")):
        raise FrameworkInvalid(
            key, f"got {text[:64]!r}; it takes a whole path on the nodes such as /opt/conda/envs/ray"
        )
    return text.rstrip("/") if text != "/" else text


def _or(words: Collection[str]) -> str:
    return " or ".join(words)


_READERS: Mapping[str, Callable[[str, object], Any]] = {
    "name": _matching(_NAME, "a name of letters, digits and _ . - that begins with a letter, at most 64 characters"),
    "description": _text,
    "app_name": _text,
    "elastic": _truth,
    "backend": _one_of(FRAMEWORKS, str),
    "command": _command,
    "processes": _one_of([str(each) for each in Processes], Processes),
    "rendezvous": _rendezvous,
    "environ": _variables,
    "max_workers": _number,
    "worker_memory": _matching(_MEMORY, "a size such as 4G or 512M"),
    "image": _image,
    "python_home": _folder,
    "default_log": _one_of([str(each) for each in DefaultLog], DefaultLog),
    "model_folder": _truth,
}
assert list(_READERS) == [each.name for each in fields(Framework)]
