"""``torch.compile`` for engines: the same kernels in every process, whatever else it has computed.

What has been compiled lies in a folder of the node, so an engine that joins traces the model and loads kernels. On a
platform the agent names the folder, which jobs of one user share. What lies there is code that this process loads, so
a folder that others may write is not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from edt_runner.errors import UsageError

_RECOMPILE_LIMIT = 64
"""More shapes than a training has: full micro-batches, those of the last step, and those of validations."""
_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
"""torch's own variable for the folder of compiled models."""
_COMPILERS = ("c++", "g++", "clang++")


def check() -> None:
    """Check that a model can be compiled on this machine.

    Raises:
        UsageError: there is no C++ compiler, which kernels for processors need.
    """
    if not torch.cuda.is_available() and not any(map(shutil.which, _COMPILERS)):
        raise UsageError("compile: got True, but there is no C++ compiler (g++) on this node; takes False without one")


def compiled(model: nn.Module) -> Any:
    """Compile a model, with one set of kernels for each shape.

    Kernels for any shape, or those that torch chooses by measuring them, could have other bits in another process. So
    could a model that is no longer compiled because it has had too many shapes, which is an error here instead. Where
    kernels were compiled before on this node, they come from torch's cache there.
    """
    from torch._dynamo import config as dynamo  # private: only here can the limits be set
    from torch._inductor import config as inductor

    dynamo.recompile_limit = _RECOMPILE_LIMIT
    dynamo.fail_on_recompile_limit_hit = True
    inductor.compile_threads = 1  # else it starts processes, which an engine would have to look after
    inductor.max_autotune = False
    folder = use_private_folder()
    if not torch.cuda.is_available():
        _check_instruction_sets_once(folder)
    return torch.compile(model, dynamic=False)


def use_private_folder() -> Path:
    """Choose the folder for what is compiled, and name it in the environment for torch and its child processes.

    Returns:
        The folder that the environment names already, or else one below the folder for temporary files. If others may
        write that one, it is a new folder, which no other process uses.
    """
    named = os.environ.get(_FOLDER)
    if named:
        return Path(named)
    folder = Path(tempfile.gettempdir()) / f"edt-compiled-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    is_private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
    if not is_private:
        folder = Path(tempfile.mkdtemp(prefix="edt-compiled-"))
    os.environ[_FOLDER] = str(folder)
    return folder


def _check_instruction_sets_once(folder: Path) -> None:
    """Let torch skip its test of the processor's instruction sets, if they have passed it before.

    In the test torch compiles a program for each set, and in each process it starts an interpreter that loads them,
    which takes a second. A file in ``folder`` says that this processor's sets passed with this compiler and torch.
    """
    from torch._inductor import config as inductor
    from torch._inductor import cpu_vec_isa  # private: there is no other way to ask

    passed = folder / f"instruction-sets-{_fingerprint()}"
    if not passed.exists():
        cpu_vec_isa.valid_vec_isa_list.cache_clear()
        tested = [str(each) for each in cpu_vec_isa.valid_vec_isa_list() if each]
        inductor.cpp.vec_isa_ok = True
        cpu_vec_isa.valid_vec_isa_list.cache_clear()
        if tested != [str(each) for each in cpu_vec_isa.valid_vec_isa_list()]:
            inductor.cpp.vec_isa_ok = None  # the compiler lacks some: torch has to test in each process
            cpu_vec_isa.valid_vec_isa_list.cache_clear()
            return
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            passed.touch()
    inductor.cpp.vec_isa_ok = True


def _fingerprint() -> str:
    """What the test's result depends on, as 16 hexadecimal digits."""
    sets = getattr(torch.cpu, "get_capabilities", torch.backends.cpu.get_cpu_capability)()  # younger than torch 2.10
    facts = [torch.__version__, str(sets), os.environ.get("CXX", "")]
    for name in filter(None, map(shutil.which, _COMPILERS)):
        path = Path(name).resolve()
        status = path.stat()
        facts.append(f"{path} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
