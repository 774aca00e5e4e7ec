"""Makes a job out of a submission: its args, the form's ``data``, and the unpacked code.

``read`` is pure. ``job_spec`` looks for the main script in the unpacked folder.
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
"""The main script if the client named ``--model-dir`` but no ``--model-main``."""
_PATH_BYTES = 4096
_SCRIPT_BYTES = 64 * 1024
"""How many bytes of the main script are checked."""
_PATH_ENDINGS = (".tar", ".gz", ".tgz", ".zip", ".py")


def read(args: str | None, data: str | None) -> Submission:
    """Return the job that the query's ``args`` and the form's ``data`` ask for. Either of the two may hold the args.

    ``hardwareSpec`` and ``dataSource`` of ``data`` override the options with the same meaning.

    Raises:
        ArgumentsInvalid: there are no args, or args or ``data`` hold something that the API cannot take.
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
    """Return the file name for a bare script: the one in ``--model-main``, or else the one that the client sent.

    Raises:
        ArgumentsInvalid: neither of them names a file.
    """
    for path in (submission.model_main, filename):
        name = (path or "").replace("\\", "/").rpartition("/")[2]
        if name:
            return name
    raise ArgumentsInvalid("--model-main", "nothing", "the path of the main script inside the upload")


def refuse_a_path(file: IO[bytes]) -> None:
    """Refuse a body that is the text of a path. WMLA's SDK sends such a body when a caller passes it a string.

    Raises:
        UploadRefused: the file holds one line that ends like the path of a script or an archive.
    """
    file.seek(0)
    text = file.read(_PATH_BYTES + 1)
    file.seek(0)
    if len(text) <= _PATH_BYTES and b"\n" not in text and text.strip().endswith(tuple(map(str.encode, _PATH_ENDINGS))):
        path = text.decode(errors="replace").strip()
        raise UploadRefused(f"file: got the path {path[:100]!r} instead of what is in it; open the file and send that")


def job_spec(submission: Submission, staged: Path) -> JobSpec:
    """Return the job, with its main script found in the folder ``staged``.

    Raises:
        ArgumentsInvalid: the folder has no such script, or the script is a binary file.
    """
    folder, main = _locate(staged, submission.model_dir, submission.model_main or DEFAULT_MAIN)
    _refuse_binary(staged / folder / main, main)
    return replace(submission, model_main=main, model_dir=folder or None)


def _refuse_binary(path: Path, main: str) -> None:
    """Refuse a main script that holds a NUL, because Python cannot read such a file.

    Raises:
        ArgumentsInvalid: the script holds a NUL.
    """
    with path.open("rb") as script:
        if b"\0" in script.read(_SCRIPT_BYTES):
            raise ArgumentsInvalid("--model-main", f"{main!r}, a binary file", "a Python script of the upload")


def _locate(staged: Path, model_dir: str | None, model_main: str) -> tuple[str, str]:
    """Return the folder and the main script.

    Both are looked for as the client named them, and then by the last component of their paths, because ``dlicmd`` cuts
    the paths of what it packs. An archive may hold the folder itself or its content.
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
    """Yield the folders that may hold the code, the most likely first."""
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
    """Return the value under a chain of keys in nested objects; None if a key is missing or a value is no object."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _count(name: str, value: object) -> int | None:
    """Return a number that may be written as a string. None and 0 count as not given."""
    if value is None:
        return None
    text = str(value).strip() if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) > MOST_WORKERS:
        raise ArgumentsInvalid(f"hardwareSpec {name}", repr(value)[:64], f"a whole number up to {MOST_WORKERS}")
    return int(text)


def _source_path(source: object) -> str | None:
    """Return the folder that ``dataSource`` names, relative to the data file system."""
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
