"""The grammar of ``args``: separates the platform's options from the words of the user's script. Pure.

A platform option may stand anywhere, as ``--option value`` or ``--option=value``. The platform takes its options out
and passes all other words to the script in their order. After a bare ``--`` all words go to the script. If an option is
given twice, the last one counts, unless all of them do (``--msd-env``, labels, attributes). All words after
``--user-cmd`` are a command that the job runs in place of a script. Which options there are, and what each takes:
options.py. The job keeps all of them as they were given, also those that have no effect here.
Next: submission.py, which reads the form beside the args and finds the main script.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edt_api.errors import ArgumentsInvalid
from edt_api.submissions import scheduling, slips
from edt_api.submissions.frameworks import Find, Prebuilt, find_built_in, framework_of, prebuilt_model
from edt_api.submissions.main_script import below
from edt_api.submissions.options import OPTIONS, USER_CMD, Option, count
from edt_contract.gang import MAIN
from edt_scheduler.model.catalogue import MOST_WORKERS, RESERVED_VARIABLES, Framework, built_in
from edt_scheduler.model.jobs import JobSpec

LONGEST = 256 * 1024
"""The most characters of ``args``."""
MASK = "****"
"""Stands where a secret value was."""

_DASHES = re.compile(r"[-\u2010-\u2015\u2212]{1,3}")
"""What web pages print in place of ``--``: hyphens, en dashes, a minus sign."""
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
    prebuilt: str | None = None
    """The script of the prebuilt model that ``--pbmodel-name`` asks for, in place of an upload."""
    has_command: bool = False
    """Whether the job runs a command in place of a script: that of ``--user-cmd``, or that of its framework, if the
    client named no script and the framework's command has no place for one."""
    max_workers: int = 0
    """The most workers that the job's framework takes; 0: any number."""
    own_python: bool = False
    """Whether the job may run with another Python than this one: in an image or an environment of its own."""
    min_workers: int | None = None
    """The fewest workers; None: the client has not said."""
    worker_sizes: tuple[int, ...] = ()
    """The only numbers of workers; empty: any. ``min_slots`` and ``sizes`` are made of both when the number of workers
    is final."""
    due: str | None = None
    """The value of ``--deadline``, of which ``deadline`` is made when the job is taken."""


@dataclass(frozen=True)
class Word:
    """One word of a command line without its quotes. ``line[start:end]`` is the text that the client sent."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class _Given:
    """One platform option as it was given: its name, its value, and the word of ``args`` that held the value."""

    name: str
    value: str
    word: Word

    @property
    def option(self) -> Option:
        return OPTIONS[self.name]

    @property
    def shown(self) -> str:
        """The value without what is secret in it."""
        if self.name == "--msd-env":
            return self.value.partition("=")[0] + "=" + MASK
        return MASK if self.option.secret else self.value

    def wrong(self, got: str | None = None) -> ArgumentsInvalid:
        if got is None:
            got = f"{self.value[:64]!r}" if self.value.strip() else "nothing"
        return ArgumentsInvalid(self.name, got, self.option.takes)


def parse(args: str, find: Find = find_built_in) -> Submission:
    """Return the job that ``args`` ask for.

    Args:
        args: the command line.
        find: finds an entry of the framework catalogue.

    Raises:
        ArgumentsInvalid: ``args`` cannot be taken; the error names the option, what it got and what it takes.
    """
    _check_text(args)
    options, own, behind, command = _sort(split(args))
    last = {option.name: option for option in options}
    if "--exec-start" not in last:
        raise ArgumentsInvalid("--exec-start", "nothing", OPTIONS["--exec-start"].takes)
    counting = [option for option in options if option.option.repeatable or last[option.name] is option]
    for option in counting:
        if not option.option.accepts(option.value):
            raise option.wrong()
    devices = last.get("--workerDeviceNum") or last.get("--gpuPerWorker")
    timeout = last.get("--msd-pending-timeout")
    framework = framework_of(last["--exec-start"].value, find)
    prebuilt = _prebuilt(last, framework.name)
    if command is not None:
        _check_command(command, framework, prebuilt)
    elif not framework.elastic and not framework.command:
        raise ArgumentsInvalid(USER_CMD, "nothing", f"the command to run, since {framework.name} has none of its own")
    if not framework.elastic and "--resume-from" in last:
        given = last["--resume-from"]
        raise given.wrong(
            f"{given.value[:64]!r} with {framework.name}, whose jobs are gangs and have no checkpoint here"
        )
    image = _text(last.get("--msd-image-name"))
    sizes = scheduling.sizes(last["--sizes"].value) or () if "--sizes" in last else ()
    return Submission(
        framework=framework.name,
        backend=framework.backend,
        gang=framework.gang(command[:1] if command else ()),
        default_log=framework.default_log,
        model_folder=framework.model_folder,
        has_command=command is not None
        or not (framework.takes_script or prebuilt is not None or "--model-main" in last),
        max_workers=framework.max_workers,
        own_python=image is not None or framework.other_python,
        args_verbatim=_masked(args, options),
        model_main=(prebuilt.script if prebuilt else _text(last.get("--model-main"))) or "",
        model_dir=_text(last.get("--model-dir")),
        app_name=_text(last.get("--appName")) or framework.app_name,
        num_worker=_num_worker(last.get("--numWorker"), last.get("--edt-options"), sizes),
        min_workers=int(last["--minWorkers"].value) if "--minWorkers" in last else None,
        worker_sizes=sizes,
        worker_device_num=int(devices.value) if devices else 1,
        device=last["--workerDeviceType"].value.lower() if "--workerDeviceType" in last else None,
        gpu_models=_models(last),
        queue=_queue(last),
        priority=int(last["--msd-priority"].value) if "--msd-priority" in last else 1,
        after=scheduling.jobs(last["--after"].value) or () if "--after" in last else (),
        due=_text(last.get("--deadline")),
        time_limit=scheduling.duration(last["--time-limit"].value) if "--time-limit" in last else None,
        max_restarts=int(last["--maxRestarts"].value) if "--maxRestarts" in last else 0,
        pending_timeout=int(timeout.value) if timeout else None,
        resume_from=_text(last.get("--resume-from")),
        environ=_environ((option for option in options if option.name == "--msd-env"), framework),
        data_path=_data_path(last.get("--cs-datastore-meta")),
        data_source=_text(last.get("--data-source")),
        image=image or framework.image or None,
        arguments=(command[1:] if command else ()) + (prebuilt.arguments if prebuilt else ()) + own + behind,
        options=tuple((option.name, option.shown) for option in counting),
        remark=slips.sentences(own, [name for name in OPTIONS if name not in last]) or None,
        prebuilt=prebuilt.script if prebuilt else None,
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


def _check_text(args: str) -> None:
    if len(args) > LONGEST:
        raise ArgumentsInvalid("args", f"{len(args)} characters", f"at most {LONGEST}")
    if "\0" in args:
        raise ArgumentsInvalid("args", "a NUL character", "text, since no program can be given one")
    try:
        args.encode()
    except UnicodeEncodeError:
        raise ArgumentsInvalid("args", "half of a surrogate pair", "text that UTF-8 can write") from None


def _sort(words: tuple[Word, ...]) -> tuple[list[_Given], tuple[str, ...], tuple[str, ...], tuple[str, ...] | None]:
    """Return the platform's options, the words of the user's script between them, the words after a bare ``--``, and
    the command of ``--user-cmd``; None: there is none.
    """
    options: list[_Given] = []
    own: list[str] = []
    rest = iter(words)
    for word in rest:
        if word.text == "--":
            break
        spelt, equals, value = word.text.partition("=")
        name = _platform_name(spelt)
        if name == USER_CMD:
            return options, tuple(own), (), _command(value, [word.text for word in rest])
        if name is None:
            own.append(word.text)
        elif equals:
            options.append(_Given(name, value, word))
        else:
            following = next(rest, None)
            if following is None or _ends_a_value(following.text):
                got = "nothing" if following is None else f"nothing before {following.text.split('=')[0]}"
                raise ArgumentsInvalid(name, got, OPTIONS[name].takes)
            options.append(_Given(name, following.text, following))
    return options, tuple(own), tuple(word.text for word in rest), None


def _platform_name(spelt: str) -> str | None:
    """Return the platform option that this spelling means; None if it means none."""
    if spelt in OPTIONS or spelt == USER_CMD:
        return spelt
    dashes = _DASHES.match(spelt)
    if dashes is None or dashes.group().strip("-") == "":
        return None  # with plain hyphens only the exact names count, which were compared above
    name = "--" + spelt[dashes.end() :]
    return name if name in OPTIONS or name == USER_CMD else None


def _command(value: str, rest: list[str]) -> tuple[str, ...]:
    """Return the words of a command.

    Args:
        value: the text behind ``--user-cmd=``: a word, or a whole command line in quotes.
        rest: the words behind. A single one may hold a whole command line, too.
    """
    words = [word.text for word in split(value)] + rest
    if words[:1] == ["--"]:
        words = words[1:]
    if len(words) == 1:
        words = [word.text for word in split(words[0])]
    if not words or not words[0].strip():
        raise ArgumentsInvalid(USER_CMD, "nothing", "a command, such as --user-cmd -- bash run.sh")
    return tuple(words)


def _check_command(command: tuple[str, ...], framework: Framework, prebuilt: Prebuilt | None) -> None:
    if framework.elastic:
        others = ", ".join(name for name, each in built_in().items() if not each.elastic)
        takes = f"no command with {framework.name}, whose jobs are elastic; these frameworks take one: {others}"
        raise ArgumentsInvalid(USER_CMD, repr(" ".join(command)[:64]), takes)
    if prebuilt is not None:
        raise ArgumentsInvalid(USER_CMD, repr(" ".join(command)[:64]), "no command beside --pbmodel-name")
    if command[0] == MAIN:
        raise ArgumentsInvalid(USER_CMD, repr(MAIN), "a program; a job that runs a command has no main script")


def _prebuilt(given: Mapping[str, _Given], framework: str) -> Prebuilt | None:
    """Return the prebuilt model that was asked for; None if none was."""
    option = given.get("--pbmodel-name")
    if option is None:
        return None
    for other in ("--model-main", "--model-dir"):
        if other in given:
            raise option.wrong(f"{option.value[:64]!r} beside {other}")
    return prebuilt_model(framework, option.value)


def _ends_a_value(text: str) -> bool:
    return text == "--" or _platform_name(text.partition("=")[0]) is not None


def _text(option: _Given | None) -> str | None:
    return option.value if option is not None else None


def _num_worker(workers: _Given | None, edt: _Given | None, sizes: tuple[int, ...]) -> int:
    """Return the value of ``--numWorker``, limited by ``--edt-options maxWorkers=N``, which may also be given alone.
    Without both, it is the largest of ``--sizes``.
    """
    asked = int(workers.value) if workers else None
    if edt is None:
        return asked or (sizes[-1] if sizes else 1)
    settings = dict(item.strip().partition("=")[::2] for item in edt.value.split(","))
    most = count(settings.get("maxWorkers", ""), 1, MOST_WORKERS)
    if most is None:
        raise edt.wrong()
    return most if asked is None else min(asked, most)


def _queue(given: Mapping[str, _Given]) -> str:
    """Return the path of the queue that ``--queue`` or ``--consumer`` names; "": none or the root."""
    paths = {
        name: scheduling.queue_path(given[name].value) or "" for name in ("--queue", "--consumer") if name in given
    }
    if len(set(paths.values())) > 1:
        option = given["--queue"]
        raise option.wrong(f"{option.value[:64]!r} beside --consumer {given['--consumer'].value[:64]!r}")
    return next(iter(paths.values()), "")


def _models(given: Mapping[str, _Given]) -> tuple[str, ...]:
    option = given.get("--gpu-model")
    if option is None:
        return ()
    if "--workerDeviceType" in given and given["--workerDeviceType"].value.lower() == "cpu":
        raise option.wrong(f"{option.value[:64]!r} beside --workerDeviceType cpu")
    return scheduling.models(option.value) or ()


def _environ(options: Iterable[_Given], framework: Framework) -> dict[str, str]:
    """Return the job's own variables. An elastic job has those of its framework, too; a gang's command has them."""
    environ: dict[str, str] = dict(framework.environ) if framework.elastic else {}
    for option in options:
        name, equals, value = option.value.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise option.wrong("something else")  # the value is not shown, because it may be a secret
        if name in RESERVED_VARIABLES:
            raise option.wrong(f"{name}, which is the platform's own")
        environ[name] = value
    return environ


def _data_path(option: _Given | None) -> str | None:
    if option is None:
        return None
    settings = dict(item.strip().partition("=")[::2] for item in option.value.split(",") if item.strip())
    kind = settings.get("type", "fs")
    unknown = [name for name in settings if name not in ("type", "data_path")]
    if kind.lower() != "fs" or unknown:  # of other kinds the other settings are not shown: they may hold a secret
        raise option.wrong(f"type={kind[:64]}" if kind.lower() != "fs" else f"{unknown[0][:64]}=")
    folder = below(settings.get("data_path", ""))
    if folder is None or not settings:
        raise option.wrong()
    return folder or None


def _masked(args: str, options: list[_Given]) -> str:
    """Return ``args`` with every secret value masked and all other text unchanged."""
    parts: list[str] = []
    at = 0
    for option in options:
        if option.name != "--msd-env" and not option.option.secret:
            continue
        typed = option.word.text.removesuffix(option.value)  # "--msd-env=" or nothing
        parts += [args[at : option.word.start], typed + option.shown]
        at = option.word.end
    return "".join([*parts, args[at:]])
