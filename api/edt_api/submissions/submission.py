"""From what a client sent to a job: args, the form's ``data``, and the unpacked code.

``read`` is pure; ``job_spec`` looks at the unpacked folder for the main script.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import IO, Any

from edt_api.errors import ArgumentsInvalid, UploadRefused
from edt_api.submissions.args import MOST_WORKERS, Submission, below, parse
from edt_api.submissions.frameworks import RUN_NOW
from edt_scheduler.model.jobs import JobSpec

DEFAULT_MAIN = "main.py"
"""The main script where ``--model-dir`` was named and ``--model-main`` was not."""
_PATH_BYTES = 4096
_SCRIPT_BYTES = 64 * 1024
"""So much of the main script is looked at."""
_PATH_ENDINGS = (".tar", ".gz", ".tgz", ".zip", ".py")


def read(args: str | None, data: str | None) -> Submission:
    """What is asked for by the query's ``args`` and the form's ``data``, where either may hold the args.

    ``hardwareSpec`` and ``dataSource`` of ``data`` win over the options that say the same.
    """
    form = _object(data)
    if args is None:
        args = form.get("args")
    if not isinstance(args, str) or not args.strip():
        raise ArgumentsInvalid("args", "nothing", f"a command line that begins with --exec-start {RUN_NOW}")
    submission = parse(args)
    source = form.get("dataSource")
    if source is None and submission.data_source is not None:
        source = _json("--data-source", submission.data_source)
    return replace(
        submission,
        num_worker=_count("num_nodes", _inside(form, "hardwareSpec", "nodes", "num_nodes")) or submission.num_worker,
        worker_device_num=_count("num_gpu", _inside(form, "hardwareSpec", "nodes", "gpu", "num_gpu"))
        or submission.worker_device_num,
        data_path=_source_path(source) or submission.data_path,
    )


def script_name(submission: Submission, filename: str | None) -> str:
    """What a bare script is called: as ``--model-main`` says, else as the client called it."""
    for path in (submission.model_main, filename):
        name = (path or "").replace("\\", "/").rpartition("/")[2]
        if name:
            return name
    raise ArgumentsInvalid("--model-main", "nothing", "the path of the main script inside the upload")


def refuse_a_path(file: IO[bytes]) -> None:
    """Raises UploadRefused for a body that is the text of a path: the SDK sends that when it is given a string."""
    file.seek(0)
    text = file.read(_PATH_BYTES + 1)
    file.seek(0)
    if len(text) <= _PATH_BYTES and b"\n" not in text and text.strip().endswith(tuple(map(str.encode, _PATH_ENDINGS))):
        path = text.decode(errors="replace").strip()
        raise UploadRefused(f"file: got the path {path[:100]!r} instead of what is in it; open the file and send that")


def job_spec(submission: Submission, staged: Path) -> JobSpec:
    """The job, its main script found in ``staged``. Raises ArgumentsInvalid where there is none."""
    folder, main = _locate(staged, submission.model_dir, submission.model_main or DEFAULT_MAIN)
    _refuse_binary(staged / folder / main, main)
    return replace(submission, model_main=main, model_dir=folder or None)


def _refuse_binary(path: Path, main: str) -> None:
    """Raises ArgumentsInvalid for a main script that no Python reads: no source file holds a NUL."""
    with path.open("rb") as script:
        if b"\0" in script.read(_SCRIPT_BYTES):
            raise ArgumentsInvalid("--model-main", f"{main!r}, a binary file", "a Python script of the upload")


def _locate(staged: Path, model_dir: str | None, model_main: str) -> tuple[str, str]:
    """Folder and main script: as named, or by their last component, as ``dlicmd`` cuts what it packs.

    An archive may hold the folder or what is in it.
    """
    mains = [path for path in (below(model_main), PurePosixPath(model_main).name) if path]
    for folder in _folders(staged, model_dir):
        for main in mains:
            if (staged / folder / main).is_file():
                return folder, main
    held = sorted(str(path.relative_to(staged)) for path in staged.rglob("*.py"))
    files = ", ".join(held[:5]) + (" …" if len(held) > 5 else "")
    raise ArgumentsInvalid("--model-main", repr(model_main), f"a file of the upload, which holds {files or 'no .py'}")


def _folders(staged: Path, model_dir: str | None) -> Iterator[str]:
    """Where the code may lie, most likely first."""
    if model_dir is not None:
        for path in (below(model_dir), PurePosixPath(model_dir).name):
            if path and (staged / path).is_dir():
                yield path
    yield ""
    top = list(staged.iterdir())
    if len(top) == 1 and stat.S_ISDIR(top[0].lstat().st_mode):
        yield top[0].name


def _object(data: str | None) -> dict[str, Any]:
    if data is None or not data.strip():
        return {}
    value = _json("data", data)
    if not isinstance(value, dict):
        raise ArgumentsInvalid("data", "another JSON value", "a JSON object")
    return value


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ArgumentsInvalid(name, "what is not JSON", "JSON") from None


def _inside(value: object, *names: str) -> object:
    """What an object holds under the first name, that under the next, and so on; None where one of them is none."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _count(name: str, value: object) -> int | None:
    """A number, perhaps written as a string; none and 0 say nothing."""
    if value is None:
        return None
    text = str(value).strip() if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) > MOST_WORKERS:
        raise ArgumentsInvalid(f"hardwareSpec {name}", repr(value)[:64], f"a whole number up to {MOST_WORKERS}")
    return int(text)


def _source_path(source: object) -> str | None:
    """The folder that ``dataSource`` names below the data file system."""
    if source is None or source == []:
        return None
    try:
        entry = source[0] if isinstance(source, list) and len(source) == 1 else {}
        kind, path = entry["type"], entry["location"]["paths"]
    except (KeyError, TypeError):
        kind, path = None, None
    folder = below(path) if kind == "fs" and isinstance(path, str) else None
    if folder is None:
        takes = 'one folder: [{"type": "fs", "location": {"paths": "mnist"}}]'
        raise ArgumentsInvalid("dataSource", "something else", takes)
    return folder or None
