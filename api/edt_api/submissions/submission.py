"""Makes a job out of a submission: its args, and the form's ``data``.

main_script.py unpacks the code and finds the main script in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from edt_api.errors import ArgumentsInvalid, UploadRefused
from edt_api.submissions import scheduling
from edt_api.submissions.args import Submission, parse
from edt_api.submissions.frameworks import Find, find_built_in
from edt_api.submissions.main_script import DEFAULT_MAIN, Code, below
from edt_api.submissions.options import OPTIONS, Option
from edt_scheduler.model.catalogue import MOST_WORKERS, built_in
from edt_scheduler.model.jobs import JobSpec

_PATH_BYTES = 4096
_MOST_NAMED = 5
_DEEPEST, _MOST_VALUES = 5, 100
_MOST_CHARACTERS = 16 * 1024
"""The most characters of a hardware spec, and of a data source. They are kept with the job and shown in every list."""
_CHECKED_LIKE: Mapping[str, Option] = {
    "hardwareSpec.nodes.num_drivers": OPTIONS["--numDriver"],
    "hardwareSpec.nodes.mem.size": OPTIONS["--workerMemory"],
    "hardwareSpec.nodes.cpu.units": OPTIONS["--workerCPULimit"],
    "hardwareSpec.nodes.drivers.mem.size": OPTIONS["--driverMemory"],
    "hardwareSpec.nodes.drivers.cpu.units": OPTIONS["--driverCPULimit"],
}
"""Values of a hardware spec that have no effect, and the options that take the same."""
_PATH_ENDINGS = (".tar", ".gz", ".tgz", ".zip", ".py")


def read(args: str | None, data: str | None, left_out: Sequence[str] = (), find: Find = find_built_in) -> Submission:
    """Return the job that the query's ``args`` and the form's ``data`` ask for. Either of the two may hold the args.

    ``hardwareSpec`` and ``dataSource`` of ``data`` override the options with the same meaning.

    Args:
        args: the query's args; None: there are none.
        data: the form's ``data``; None: there is none.
        left_out: names of further files that came with the code, which the job's user is told of.
        find: finds an entry of the framework catalogue.

    Raises:
        ArgumentsInvalid: there are no args, or args or ``data`` hold something that the API cannot take.
    """
    form = _object(data)
    if args is None:
        args = form.get("args")
    if not isinstance(args, str) or not args.strip():
        raise ArgumentsInvalid(
            "args",
            "nothing",
            "a command line that begins with --exec-start and the name of a framework, such as edtPyTorch",
        )
    submission = parse(args, find)
    source = form.get("dataSource")
    recorded = [*submission.options, *_hardware(form.get("hardwareSpec"))]
    if source is not None:
        recorded.append(("dataSource", _short("dataSource", json.dumps(source))))
    elif submission.data_source is not None:
        source = _json("--data-source", submission.data_source)
    workers = _count("num_nodes", _inside(form, "hardwareSpec", "nodes", "num_nodes")) or submission.num_worker
    remarks = (submission.remark, _left_out(left_out), _capped(submission, workers))
    devices = _count("num_gpu", _inside(form, "hardwareSpec", "nodes", "gpu", "num_gpu"))
    return _sized(
        replace(
            submission,
            options=tuple(recorded),
            remark="; ".join(filter(None, remarks)) or None,
            num_worker=min(workers, submission.max_workers or workers),
            worker_device_num=devices or submission.worker_device_num,
            data_path=_source_path(source) or submission.data_path,
        )
    )


def _sized(submission: Submission) -> Submission:
    """Return a submission whose number of workers is final with its sizes in slots.

    Raises:
        ArgumentsInvalid: it asks for sizes that it cannot have.
    """
    least, only = submission.min_workers, submission.worker_sizes
    if submission.gang is None:
        slots, sizes = scheduling.in_slots(submission.num_worker, submission.worker_device_num, least, only)
        return replace(submission, min_slots=slots, sizes=sizes)
    whole = f"with {submission.framework}, whose jobs are gangs: they have all of their workers, or none"
    if only and only != (submission.num_worker,):
        raise ArgumentsInvalid("--sizes", ",".join(map(str, only)), f"nothing but {submission.num_worker} {whole}")
    if least not in (None, submission.num_worker):
        raise ArgumentsInvalid("--minWorkers", str(least), f"nothing but {submission.num_worker} {whole}")
    return submission


def _capped(submission: Submission, workers: int) -> str:
    """Return a sentence if the job asks for more workers than its framework takes."""
    most = submission.max_workers
    if not most or workers <= most:
        return ""
    told = f"{submission.framework} takes at most {most} worker{'s' if most > 1 else ''}, so {workers} count as {most}"
    more = f"dist{submission.framework}"
    return f"{told}; --exec-start {more} runs several" if more in built_in() else told


def _left_out(names: Sequence[str]) -> str:
    if not names:
        return ""
    shown = ", ".join(name[:64] for name in names[:_MOST_NAMED]) + (" …" if len(names) > _MOST_NAMED else "")
    return f"only the first file of the upload is the job's code: {shown} not kept, since conda has no effect here"


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


def code(submission: Submission, filename: str | None) -> Code:
    """Return what the client said of its code.

    Raises:
        ArgumentsInvalid: neither ``--model-main`` nor the upload names a file.
    """
    name = submission.model_main or filename
    script = script_name(submission, filename) if name or not submission.has_command else DEFAULT_MAIN
    return Code(
        submission.model_main,
        submission.model_dir,
        script,
        own_python=submission.own_python,
        has_command=submission.has_command,
    )


def job_spec(submission: Submission, folder: str, main: str) -> JobSpec:
    """Return the job, whose main script lies in this folder of its code."""
    return replace(submission, model_main=main, model_dir=folder or None)


def check_data_folder(submission: Submission, data: Path) -> None:
    """Refuse a folder of data that is not below the data file system, if this process can see that file system.

    Raises:
        ArgumentsInvalid: there is no such folder.
    """
    path = submission.data_path
    if path is not None and data.is_dir() and not (data / path).exists():
        by_source = any(name in {"dataSource", "--data-source"} for name, _ in submission.options)
        name = "dataSource" if by_source else "--cs-datastore-meta data_path"
        takes = "a folder below the data file system, which does not hold this one"
        raise ArgumentsInvalid(name, repr(path[:64]), takes)


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


def _short(name: str, text: str) -> str:
    """Return the text. Raises ArgumentsInvalid if it is too long."""
    if len(text) > _MOST_CHARACTERS:
        raise ArgumentsInvalid(name, f"{len(text)} characters", f"at most {_MOST_CHARACTERS}")
    return text


def _hardware(spec: object) -> Iterator[tuple[str, str]]:
    """Yield every value of a hardware spec under the path of its keys, such as ``hardwareSpec.nodes.mem.size``.

    Raises:
        ArgumentsInvalid: it is no object, is too long or nested too deeply, or a known value is not what it has to be.
    """
    if spec is None:
        return
    if not isinstance(spec, dict):
        raise ArgumentsInvalid("hardwareSpec", "another JSON value", "a JSON object")
    _short("hardwareSpec", json.dumps(spec))
    values = list(_flat("hardwareSpec", spec, _DEEPEST))
    if len(values) > _MOST_VALUES:
        raise ArgumentsInvalid("hardwareSpec", f"{len(values)} values", f"at most {_MOST_VALUES}")
    for path, text in values:
        like = _CHECKED_LIKE.get(path)
        if like is not None and text.strip() and not like.accepts(text):
            raise ArgumentsInvalid(path, repr(text[:64]), like.takes)
        yield path, text


def _flat(path: str, value: object, deeper: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        if deeper == 0:
            raise ArgumentsInvalid(
                "hardwareSpec", f"at {path[:64]!r} objects in objects", f"at most {_DEEPEST} levels of them"
            )
        for key, inner in value.items():
            yield from _flat(f"{path}.{key}", inner, deeper - 1)
    elif value is not None:
        yield path, value if isinstance(value, str) else json.dumps(value)


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
