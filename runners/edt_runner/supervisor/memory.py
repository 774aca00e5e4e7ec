"""Which SIGKILLs were the kernel's own, for want of memory. Room: runners; reads /proc and /sys.

A process that dies of SIGKILL does not say who sent it. The kernel counts its own in the victim's memory cgroup, and
for the whole machine, before the victim is gone. Each that is counted explains one death, and only one that follows
soon: a kill of something else, a tool that the script has started for example, does not make one from outside look like
a kill for memory. That of a neighbour in the same cgroup can, therefore the first is no fault of a script's.
"""

from __future__ import annotations

from pathlib import Path

_COUNTER = "oom_kill"
_EXPLAINS_SECONDS = 5.0
"""So long may a process that has much memory take from its kill to its end."""


class OomCounter:
    """Counts from now on. Where nobody counts nothing is ever explained.

    Args:
        process: the process's folder in /proc; children count with it as long as they stay in its cgroup.
        machine: where the kernel counts for the whole machine; used where the process's cgroup has no count.
    """

    def __init__(self, process: Path = Path("/proc/self"), machine: Path = Path("/proc/vmstat")) -> None:
        places = (_counter_file(process), machine)
        self.file = next((place for place in places if place is not None and _count(place) is not None), None)
        self._last = self.count() or 0
        self._kills: list[float] = []
        """When each was seen that has explained nothing yet."""

    def count(self) -> int | None:
        """Kills so far; None: nobody counts."""
        return None if self.file is None else _count(self.file)

    def look(self, now: float) -> None:
        """Call often: see what was killed by now. ``now``: monotonic seconds."""
        count = self.count()
        if count is not None:
            self._kills += [now] * (count - self._last)
            self._last = count
        self._kills = [then for then in self._kills if now - then <= _EXPLAINS_SECONDS]

    def explains(self, now: float) -> bool:
        """Whether a process that has just ended by SIGKILL was one that the kernel has killed."""
        self.look(now)
        if self._kills:
            self._kills.pop(0)
            return True
        return False


def _count(file: Path) -> int | None:
    try:
        lines = [line.split() for line in file.read_text().splitlines()]
        return next(int(words[1]) for words in lines if words and words[0] == _COUNTER)
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _counter_file(process: Path) -> Path | None:
    """``memory.oom_control`` of cgroup version 1, ``memory.events`` of version 2."""
    try:
        groups = [line.split(":", 2) for line in (process / "cgroup").read_text().splitlines()]
        mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
    except OSError:
        return None
    for _, controllers, path in groups:
        old = "memory" in controllers.split(",")
        if not old and controllers:
            continue
        for mount in mounts:
            root, point, kind, options = mount[3], mount[4], mount[mount.index("-") + 1], mount[-1].split(",")
            if kind == ("cgroup" if old else "cgroup2") and (not old or "memory" in options):
                name = "memory.oom_control" if old else "memory.events"
                inside = path.removeprefix(root) if root != "/" else path  # a container sees only its own part
                for folder in (Path(point) / inside.lstrip("/"), Path(point)):
                    if (folder / name).is_file():
                        return folder / name
    return None
