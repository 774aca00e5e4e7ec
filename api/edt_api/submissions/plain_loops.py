"""Recognizes code that cannot train elastically, since no file of it uses a library that can. Reads files, and runs
nothing of them.

Such a script works: it runs on one slot. Its user is told, who may have expected more workers to help.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from edt_scheduler.model.jobs import JobSpec

_LIBRARIES = ("openedt", "fabric_model", "pyedt", "edt_runner", "runai")
"""Modules through which a script trains elastically. Of ``runai`` only ``runai.elastic`` does."""
_NAMES = tuple(name.encode() for name in _LIBRARIES)
_OTHER_CODE = frozenset({".so", ".pyc", ".pyx", ".zip", ".egg", ".whl"})
"""Files that may hold code which is not read here."""
_MOST_FILES, _MOST_BYTES = 500, 16 << 20
"""Of a whole upload. A larger one counts as elastic."""
_PARSED_BYTES = 128 * 1024
"""A longer file is not parsed: 128 KiB of one expression take many seconds."""
_INSTEAD = {"pytorch": "distPyTorch", "tensorflow": "disttensorflow"}


def could_be_plain(spec: JobSpec, *, own_python: bool) -> bool:
    """Whether the job asks for several slots of an elastic framework, and runs nothing but what was submitted.

    Args:
        spec: the job.
        own_python: whether it runs in an image of its own, which may hold more of its code.
    """
    return spec.gang is None and spec.max_engines > 1 and not own_python


def with_remark(spec: JobSpec) -> JobSpec:
    """Return the job with a remark that says what its plain loop means."""
    ways = "FabricModel(…).train or openedt.loader" if spec.backend == "pytorch" else "FabricModel(…).train"
    said = (
        "this job is not elastic, since no file of it imports fabric_model or another library for that: it will hold "
        f"one slot of the {spec.max_engines} it asks for. To use more, train with {ways}, or submit the script with "
        f"--exec-start {_INSTEAD[spec.backend]}, which starts all its processes at once"
    )
    return replace(spec, remark="; ".join(filter(None, (spec.remark, said))))


def is_plain(code: Path) -> bool:
    """Whether no file in a folder uses an elastic library. What cannot be read or is too large may use one.

    Args:
        code: the folder of an unpacked upload.
    """
    left = _MOST_BYTES
    for count, path in enumerate(_files(code)):
        if count >= _MOST_FILES or path.suffix in _OTHER_CODE:
            return False
        try:
            with path.open("rb") as file:
                source = file.read(left + 1)
        except OSError:
            return False
        left -= len(source)
        if left < 0 or (any(name in source for name in _NAMES) and _may_be_elastic(source)):
            return False
        if b"import_module" in source or b"__import__" in source or b"runpy" in source:
            return False  # what such a file imports is known only when it runs
    return True


def _files(code: Path) -> Iterator[Path]:
    for path in code.rglob("*"):
        if path.suffix in {".py", ".ipynb", ".sh"} | _OTHER_CODE and path.is_file():
            yield path


def _may_be_elastic(source: bytes) -> bool:
    """Whether a file that mentions a library also imports it, or names it in a text."""
    if len(source) > _PARSED_BYTES:
        return True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    return any(_elastic(name) for name in _named(tree))


def _named(tree: ast.Module) -> Iterator[str]:
    """Yield the modules that a file imports, and its texts, which may be commands or code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from (word for word in _LIBRARIES[:-1] if word in node.value)
            if "runai.elastic" in node.value:
                yield "runai.elastic"


def _elastic(module: str) -> bool:
    root, _, rest = module.partition(".")
    if root == "runai":
        return rest.partition(".")[0] in {"", "*", "elastic"}
    return root in _LIBRARIES
