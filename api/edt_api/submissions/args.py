"""The grammar of ``args``: separates the platform's options from the words of the user's script. Pure.

A platform option may stand anywhere, as ``--option value`` or ``--option=value``. The platform takes its options out
and passes all other words to the script in their order. After a bare ``--`` all words go to the script. If an option is
given twice, the last one counts. Options of WMLA that have no effect here are accepted in the form that WMLA's clients
send. Next: submission.py, which reads the form beside the args and finds the main script.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edt_api.errors import ArgumentsInvalid
from edt_api.submissions.frameworks import RUN_NOW, runnable
from edt_scheduler.model.images import is_name
from edt_scheduler.model.jobs import JobSpec

LONGEST = 64 * 1024
"""The most characters of ``args``. A request line cannot hold more either."""
MOST_WORKERS = 10_000
MOST_RESTARTS = 1_000

_TAKES: Mapping[str, str] = {
    "--exec-start": f"the name of a framework, {RUN_NOW}",
    "--model-main": "the path of the main script inside the upload",
    "--model-dir": "the name of a folder inside the upload",
    "--appName": "a name",
    "--numWorker": f"a whole number from 1 to {MOST_WORKERS}",
    "--workerDeviceNum": f"a whole number from 1 to {MOST_WORKERS}",
    "--gpuPerWorker": f"a whole number from 1 to {MOST_WORKERS}",
    "--maxRestarts": f"a whole number from 0 to {MOST_RESTARTS}",
    "--edt-options": f"maxWorkers=N, N a whole number from 1 to {MOST_WORKERS}",
    "--msd-env": "NAME=VALUE, a name of letters, digits and _",
    "--cs-datastore-meta": "type=fs[,data_path=FOLDER], a folder below the data file system",
    "--data-source": "a JSON list as of WMLA",
    "--msd-image-name": "a container image, REGISTRY/NAME:TAG or NAME@DIGEST",
    "--user-cmd": "nothing in this release, which runs a --model-main",
    "--pbmodel-name": "nothing in this release, which runs a --model-main",
}
"""The options that have an effect, and what each takes."""

_NO_EFFECT = frozenset({
    "--ig", "--consumer", "--submit-user", "--pbmodel-cmd", "--debug-level",
    "--workerDeviceType", "--workerMemory", "--workerCPULimit", "--workerGPULimit", "--workerMemoryLimit",
    "--numDriver", "--driverDeviceType", "--driverDeviceNum", "--driverMemory", "--driverCPULimit",
    "--driverGPULimit", "--driverMemoryLimit", "--numPs",
    "--conda-env-name", "--conda-home", "--conda-env-yaml", "--conda-package", "--python-version",
    "--msd-attr", "--msd-label", "--msd-image-pull-secret", "--msd-image-pull-policy",
    "--msd-priority", "--msd-pending-timeout", "--msd-pack-id", "--msd-task0-node-selector",
    "--msd-task12n-node-selector", "--msd-podaffinity-rule", "--msd-podaffinity-topology-key",
    "--lsf-gpu-syntax", "--cs-rmq-meta", "--cs-url-meta", "--cs-url-bearer",
    "--sc-runasuser", "--sc-runasgroup", "--sc-fsgroup",
})  # fmt: skip
"""WMLA's options that take a value and have no effect yet."""

_SECRET = frozenset({"--cs-url-bearer", "--cs-rmq-meta"})
"""Options whose whole value is masked where args are shown. Of ``--msd-env`` only the part after the name is masked."""
MASK = "****"

_RESERVED = frozenset({"EDT_TAG", "EDT_NODE", "EDT_LIFE"})
"""Variables by which an agent finds its processes again after its own restart. A job cannot set them."""

_DASHES = re.compile(r"[-\u2010-\u2015\u2212]{1,3}")
"""What web pages print in place of ``--``: hyphens, en dashes, a minus sign."""
_NUMBER = re.compile(r"[0-9]{1,9}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GAP = re.compile(r"(?:\s|\\\r?\n)*")
"""The gap between words. A backslash at the end of a line joins two lines, here and in _PIECE."""
_PIECE = re.compile(
    r"""\\\r?\n|\\(?P<escaped>.)|'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|(?P<plain>[^\s\\'"]+)""", re.DOTALL
)
"""A piece of a word."""
_ESCAPE_IN_DOUBLE_QUOTES = re.compile(r"""\\(?:\r?\n|(["\\$`]))""")


@dataclass(frozen=True)
class Submission(JobSpec):
    """The job that a client asks for.

    ``model_main`` holds the main script that the client named ("" if none) until the script is found in the unpacked
    code.
    """

    data_source: str | None = None
    """The value of ``--data-source``: JSON that is not parsed yet."""


@dataclass(frozen=True)
class Word:
    """One word of a command line without its quotes. ``line[start:end]`` is the text that the client sent."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class _Option:
    """One platform option: its name, its value, and the word of ``args`` that held the value."""

    name: str
    value: str
    word: Word

    def wrong(self, got: str | None = None) -> ArgumentsInvalid:
        shown = f"{self.value[:64]!r}" if got is None else got
        return ArgumentsInvalid(self.name, shown, _TAKES[self.name])


def parse(args: str) -> Submission:
    """Return the job that ``args`` ask for.

    Raises:
        ArgumentsInvalid: ``args`` cannot be taken; the error names the option, what it got and what it takes.
    """
    _check_text(args)
    options, own, behind = _sort(split(args))
    last = {option.name: option for option in options}
    for refused in ("--user-cmd", "--pbmodel-name"):
        if refused in last:
            raise last[refused].wrong()
    if "--exec-start" not in last:
        raise ArgumentsInvalid("--exec-start", "nothing", _TAKES["--exec-start"])
    devices = last.get("--workerDeviceNum") or last.get("--gpuPerWorker")
    restarts = last.get("--maxRestarts")
    framework = runnable(last["--exec-start"].value)
    return Submission(
        framework=framework.wmla_name,
        backend=framework.name,
        args_verbatim=_masked(args, options),
        model_main=_text(last.get("--model-main")) or "",
        model_dir=_text(last.get("--model-dir")),
        app_name=_text(last.get("--appName")) or framework.app_name,
        num_worker=_num_worker(last.get("--numWorker"), last.get("--edt-options")),
        worker_device_num=_count(devices) if devices else 1,
        max_restarts=_count(restarts, least=0, most=MOST_RESTARTS) if restarts else 0,
        environ=_environ(option for option in options if option.name == "--msd-env"),
        data_path=_data_path(last.get("--cs-datastore-meta")),
        data_source=_text(last.get("--data-source")),
        image=_image(last.get("--msd-image-name")),
        arguments=own + behind,
        remark=_slips(own, last),
    )


def split(line: str) -> tuple[Word, ...]:
    """Return the words of ``line``. Any number of blanks separates them; quotes and backslashes work as in a shell.

    Nothing is expanded.

    Raises:
        ArgumentsInvalid: a quote is never closed, or a backslash escapes nothing.
    """
    words: list[Word] = []
    start = _end_of_gap(line, 0)
    while start < len(line):
        text, end = _word(line, start)
        words.append(Word(text, start, end))
        start = _end_of_gap(line, end)
    return tuple(words)


def _end_of_gap(line: str, at: int) -> int:
    gap = _GAP.match(line, at)
    return gap.end() if gap else at


def _word(line: str, start: int) -> tuple[str, int]:
    """Return the word that begins at ``start``, and the position where it ends."""
    parts: list[str] = []
    at = start
    while piece := _PIECE.match(line, at):
        unquoted = _ESCAPE_IN_DOUBLE_QUOTES.sub(r"\1", piece["double"] or "")
        parts.append(piece["escaped"] or piece["single"] or piece["plain"] or unquoted)
        at = piece.end()
    if line[at : at + 1] == "\\":
        raise ArgumentsInvalid("args", "a backslash at its very end", "something after a backslash")
    if line[at : at + 1] in {"'", '"'}:
        got = f"a {line[at]} at character {at + 1} that is never closed"
        raise ArgumentsInvalid("args", got, "quotes in pairs, or \\' for one alone")
    return "".join(parts), at


def _slips(own: Iterable[str], given: Mapping[str, _Option]) -> str:
    """Return sentences about words that look like misspelt platform options, but went to the script; "" if there are
    none.

    Such a word differs from an option only in case, in dashes or in a plural ``s``. The script gets the word, because
    WMLA's clients rely on that. An option that is also given correctly is not reported.
    """
    meant = {_bare(name): name for name in _TAKES if name not in given}
    words = (word.partition("=")[0] for word in own if word.startswith("--"))
    slips = {
        word: name for word in words if (name := meant.get(_bare(word)) or meant.get(_bare(word).removesuffix("s")))
    }
    return "; ".join(f"{word[:64]} went to the script, since the platform's option is {slips[word]}" for word in slips)


def _bare(word: str) -> str:
    return word.replace("-", "").replace("_", "").lower()


def below(path: str) -> str | None:
    """Return ``path`` as a folder below a root, without a leading ``/`` and without ``.``; None if it has a ``..``."""
    parts = [part for part in path.split("/") if part not in {"", "."}]
    return None if ".." in parts else "/".join(parts)


def _check_text(args: str) -> None:
    if len(args) > LONGEST:
        raise ArgumentsInvalid("args", f"{len(args)} characters", f"at most {LONGEST}")
    if "\0" in args:
        raise ArgumentsInvalid("args", "a NUL character", "text, since no program can be given one")
    try:
        args.encode()
    except UnicodeEncodeError:
        raise ArgumentsInvalid("args", "half of a surrogate pair", "text that UTF-8 can write") from None


def _sort(words: tuple[Word, ...]) -> tuple[list[_Option], tuple[str, ...], tuple[str, ...]]:
    """Return the platform's options, the words of the user's script between them, and the words after a bare ``--``."""
    options: list[_Option] = []
    own: list[str] = []
    rest = iter(words)
    for word in rest:
        if word.text == "--":
            break
        spelt, equals, value = word.text.partition("=")
        name = _platform_name(spelt)
        if name is None:
            own.append(word.text)
        elif equals:
            options.append(_Option(name, value, word))
        else:
            following = next(rest, None)
            if following is None or _ends_a_value(following.text):
                got = "nothing" if following is None else f"nothing before {following.text.split('=')[0]}"
                raise ArgumentsInvalid(name, got, _TAKES.get(name, "a value"))
            options.append(_Option(name, following.text, following))
    return options, tuple(own), tuple(word.text for word in rest)


def _platform_name(spelt: str) -> str | None:
    """Return the platform option that this spelling means; None if it means none."""
    if spelt in _TAKES or spelt in _NO_EFFECT:
        return spelt
    dashes = _DASHES.match(spelt)
    if dashes is None or dashes.group().strip("-") == "":
        return None  # with plain hyphens only the exact names count, which were compared above
    name = "--" + spelt[dashes.end() :]
    return name if name in _TAKES or name in _NO_EFFECT else None


def _ends_a_value(text: str) -> bool:
    return text == "--" or _platform_name(text.partition("=")[0]) is not None


def _text(option: _Option | None) -> str | None:
    if option is None:
        return None
    if not option.value.strip():
        raise option.wrong("nothing")
    return option.value


def _count(option: _Option, text: str | None = None, *, least: int = 1, most: int = MOST_WORKERS) -> int:
    text = option.value if text is None else text
    if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
        raise option.wrong()
    return int(text)


def _num_worker(workers: _Option | None, edt: _Option | None) -> int:
    """Return the value of ``--numWorker``, limited by ``--edt-options maxWorkers=N``, which may also be given alone."""
    asked = _count(workers) if workers else None
    if edt is None:
        return asked or 1
    settings = dict(item.strip().partition("=")[::2] for item in edt.value.split(","))
    if "maxWorkers" not in settings:
        raise edt.wrong()
    most = _count(edt, settings["maxWorkers"])
    return most if asked is None else min(asked, most)


def _environ(options: Iterable[_Option]) -> dict[str, str]:
    environ: dict[str, str] = {}
    for option in options:
        name, equals, value = option.value.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise option.wrong("something else")  # the value is not shown, because it may be a secret
        if name in _RESERVED:
            raise option.wrong(f"{name}, which is the platform's own")
        environ[name] = value
    return environ


def _image(option: _Option | None) -> str | None:
    if option is None:
        return None
    if not is_name(option.value):
        raise option.wrong()
    return option.value


def _data_path(option: _Option | None) -> str | None:
    if option is None:
        return None
    settings = dict(item.strip().partition("=")[::2] for item in option.value.split(","))
    folder = below(settings.get("data_path", ""))
    if folder is None:
        raise option.wrong()
    return folder or None


def _masked(args: str, options: list[_Option]) -> str:
    """Return ``args`` with every secret value masked and all other text unchanged."""
    parts: list[str] = []
    at = 0
    for option in options:
        if option.name != "--msd-env" and option.name not in _SECRET:
            continue
        typed = option.word.text.removesuffix(option.value)  # "--msd-env=" or nothing
        kept = option.value.partition("=")[0] + "=" if option.name == "--msd-env" else ""
        parts += [args[at : option.word.start], typed + kept + MASK]
        at = option.word.end
    return "".join([*parts, args[at:]])
