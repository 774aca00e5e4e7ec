"""Small helpers that scripts have taken from Run:AI's library.

Hook(module, "name", function)      a function in another's place for a while
Attribute(object, "name", value)    an attribute for a while; ``attribute.rename``
Flock(path)                         a lock file between processes of one machine
gpus.count(), gpus.available()      without a framework, by CUDA_VISIBLE_DEVICES
random.number(), .string(), …       arguments for tests
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
