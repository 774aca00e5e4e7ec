"""Small helpers of Run:AI's library that scripts use.

Hook(module, "name", function)      replace a function temporarily
Attribute(object, "name", value)    set an attribute temporarily; ``attribute.rename`` renames one
Flock(path)                         a lock file between processes of one machine
gpus.count(), gpus.available()      GPUs by CUDA_VISIBLE_DEVICES, counted without a framework
random.number(), .string(), …       random arguments for tests
log                                 the logger ``runai``; the original's writes to stderr as soon as it is imported
"""

from __future__ import annotations

import logging

from runai.utils import attribute, gpus, random
from runai.utils.attribute import Attribute
from runai.utils.flock import Flock
from runai.utils.hook import Hook

log = logging.getLogger("runai")

__all__ = ["Attribute", "Flock", "Hook", "attribute", "gpus", "log", "random"]
