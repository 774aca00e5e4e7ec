"""Recognizes scripts that are written for Keras 2, by what Keras 3 refuses or does badly. Reads files, and runs nothing
of them.

WMLA's TensorFlow of its time had Keras 2, so its clients do not say which Keras a script needs.
"""

from __future__ import annotations

import ast
import os
import stat
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from edt_contract.frameworks import KERAS2_VARIABLE
from edt_contract.keras2 import package_now
from edt_scheduler.model.jobs import JobSpec

_MOST_BYTES = 128 * 1024
"""Of all files of a script together; what is beyond is not parsed. 128 KiB of one expression take many seconds."""
_MOST_FILES = 20
_OPTIMIZERS = "optimizers."
_OLDER_ARGUMENTS = ("lr", "decay")
_GONE = ("optimizers.legacy", "preprocessing.image.ImageDataGenerator", "preprocessing.text")
"""Names of Keras 2 that the package ``keras`` 3 does not have; ``tf.keras`` still has those of ``preprocessing``."""
_STRATEGY = "MultiWorkerMirroredStrategy"
_DONE_BADLY = frozenset({f"tensorflow.distribute.{_STRATEGY}", f"tensorflow.distribute.experimental.{_STRATEGY}"})
"""Names of TensorFlow with which models of Keras 3 do not train well."""


def asks_nobody(spec: JobSpec) -> bool:
    """Whether the job could run with either Keras, and its user has not said with which."""
    return spec.backend == "tensorflow" and KERAS2_VARIABLE not in spec.environ


def with_keras2(spec: JobSpec, why: str) -> JobSpec:
    """Return the job with Keras 2, and ``why`` in its remark."""
    said = f"this job gets Keras 2 ({KERAS2_VARIABLE}=1), since {why}; --msd-env {KERAS2_VARIABLE}=0 gives it Keras 3"
    return replace(
        spec,
        environ={KERAS2_VARIABLE: "1", **spec.environ},
        remark="; ".join(filter(None, (spec.remark, said))),
    )


def keras2_spelling(script: Path, *, gang: bool = False) -> str | None:
    """Return what in a script, or in a file beside it that it imports, only Keras 2 takes; None: nothing.

    Never fails: what cannot be read or parsed has nothing of Keras 2.

    Args:
        script: the main script.
        gang: whether it runs as a gang. Then nothing of the platform stands between it and Keras: the variable decides
            what ``tf.keras`` is, and nothing else.
    """
    waiting, seen = [script], {script}
    left = _MOST_BYTES
    while waiting:
        path = waiting.pop(0)
        source = _read(path, left)
        left -= len(source)
        tree = _parsed(source)
        if tree is None:
            continue
        for line, spelling, name in _spellings(tree):
            if gang and not name.startswith("tensorflow."):
                continue
            return f"{path.name} has {spelling} in line {line}"
        for module in _imported(tree):
            beside = script.parent.joinpath(*module.split(".")).with_suffix(".py")
            if beside not in seen and len(seen) < _MOST_FILES and beside.is_file():
                seen.add(beside)
                waiting.append(beside)
    return None


def _read(path: Path, most: int) -> bytes:
    """Return what is in a file; nothing if it cannot be read, is a link or no file, or has more than ``most`` bytes."""
    try:
        with open(path, "rb", opener=_opened) as file:
            source = file.read(most + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except OSError:
        return b""
    return source if len(source) <= most else b""


def _opened(path: str, flags: int) -> int:
    """Follow no link and wait for no pipe. A job may have left them in code that another job gets a copy of."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _parsed(source: bytes) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level <= 1:
            yield node.module


def _spellings(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield (line, spelling, dotted name) of everything that only Keras 2 takes."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                root = each.name.partition(".")[0]
                names[each.asname or root] = each.name if each.asname else root
                if _is_gone(each.name):
                    yield node.lineno, f"import {each.name}", each.name
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for each in node.names:
                whole = f"{node.module}.{each.name}"
                names[each.asname or each.name] = whole
                if _is_gone(node.module) or _is_gone(whole) or whole in _DONE_BADLY:
                    yield node.lineno, f"from {node.module} import {each.name}", whole
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ((whole := _resolved(node, names)) in _DONE_BADLY or _is_gone(whole)):
            yield node.lineno, whole, whole
        elif isinstance(node, ast.Call):
            whole = _resolved(node.func, names)
            older = [word.arg for word in node.keywords if word.arg in _OLDER_ARGUMENTS]
            if older and _in_keras(whole).startswith(_OPTIMIZERS) and "schedules" not in whole:
                yield node.lineno, f"{whole.rpartition('.')[2]}({older[0]}=…)", whole


def _resolved(node: ast.expr, names: dict[str, str]) -> str:
    """The dotted name that an expression stands for, by the imports of its file; "" if it is no imported name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    root = names.get(node.id) if isinstance(node, ast.Name) else None
    return ".".join([root, *reversed(parts)]) if root is not None else ""


def _is_gone(name: str) -> bool:
    inner = _in_keras(name)
    gone = _GONE[:1] if name.startswith("tensorflow.") else _GONE
    return package_now(inner) is not None or any(inner == each or inner.startswith(f"{each}.") for each in gone)


def _in_keras(name: str) -> str:
    """The name inside Keras, such as ``optimizers.Adam``; "" if it is not of Keras."""
    for root in ("keras.", "tensorflow.keras.", "tensorflow.compat.v2.keras."):
        if name.startswith(root):
            return name.removeprefix(root)
    return ""
