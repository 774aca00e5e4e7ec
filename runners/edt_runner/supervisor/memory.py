"""How often the kernel has killed for want of memory in this process's cgroup. Room: runners; reads /proc and /sys.

A process that dies of SIGKILL does not say who sent it. The kernel counts its own in the victim's memory cgroup,
before the victim is gone: if that number rose, it was the memory.
"""

from __future__ import annotations

from pathlib import Path

_COUNTER = "oom_kill"


class OomCounter:
    """Counts from now on. Where there is no memory cgroup nothing is ever counted.

    Args:
        process: the process's folder in /proc; children count with it as long as they stay in its cgroup.
    """

    def __init__(self, process: Path = Path("/proc/self")) -> None:
        self._file = _counter_file(process)
        self._last = self.count()

    def count(self) -> int | None:
        """Kills so far; None: nobody counts."""
        if self._file is None:
            return None
        try:
            lines = [line.split() for line in self._file.read_text().splitlines()]
            return next(int(words[1]) for words in lines if words[0] == _COUNTER)
        except (OSError, ValueError, IndexError, StopIteration):
            return None

    def rose(self) -> bool:
        """Whether there were any since the last call, or since the beginning."""
        before, self._last = self._last, self.count()
        return self._last is not None and self._last > (before or 0)


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
