"""``torch.compile`` for engines: the same kernels in every process, whatever else it has computed."""

from __future__ import annotations

import shutil
from typing import Any

import torch
from torch import nn

from edt_runner.errors import UsageError

_RECOMPILE_LIMIT = 64
"""More shapes than a training has: full micro-batches, those of the last step, and those of validations."""


def check() -> None:
    """Check that a model can be compiled on this machine.

    Raises:
        UsageError: there is no C++ compiler, which kernels for processors need.
    """
    if not torch.cuda.is_available() and not any(map(shutil.which, ("c++", "g++", "clang++"))):
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
    return torch.compile(model, dynamic=False)
