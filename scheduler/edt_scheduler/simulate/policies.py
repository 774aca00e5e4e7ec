"""The policies by the names that the command line gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edt_scheduler.simulate.adaptive import Adaptive
from edt_scheduler.simulate.cluster import Policy, Rules
from edt_scheduler.simulate.platform import Platform
from edt_scheduler.simulate.rivals import AfsL, Fifo, Optimus, Tiresias

BOUND = "bound"
"""The name of the lower bound, which is no policy but stands in the same table."""

POLICIES: Mapping[str, tuple[str, Callable[[Rules], Policy]]] = {
    "ours": ("the platform's plan, told how many steps are left", lambda rules: Platform(rules.pause)),
    "ours-unknown": ("the same, not told that", lambda rules: Platform(rules.pause, known=False)),
    "ours-adaptive": ("the same plan where batches follow the GPUs", lambda rules: Adaptive(rules.pause)),
    "ours-adaptive-unknown": (
        "the same, not told how much is left",
        lambda rules: Adaptive(rules.pause, known=False),
    ),
    "fifo": ("in the order of submission", lambda _: Fifo()),
    "fifo-skip": (
        "in the order of submission, later ones first where earlier ones do not fit",
        lambda _: Fifo(skips=True),
    ),
    "tiresias": ("least attained service first (NSDI 2019)", lambda _: Tiresias()),
    "optimus": ("shortest remaining time by one GPU more, with true step times (EuroSys 2018)", lambda _: Optimus()),
    "afs": ("AFS-L, with true step times and work left (NSDI 2021)", lambda _: AfsL()),
}
"""Name to what it is, and what makes one for a run under some rules."""
