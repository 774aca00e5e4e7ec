"""Counts the processes that the kernel killed because memory ran out, so that such a death is told from others. Agents
and supervisors use it."""

from __future__ import annotations

from pathlib import Path

_OOM_KILLS = "oom_kill"
_EXPLAINS_SECONDS = 5.0
"""Seconds that a process with much memory may need from its kill to its end."""


class OomCounter:
    """Counts, from its creation on, the processes that the kernel kills because memory runs out.

    When a process dies of SIGKILL, its wait status does not show who sent the signal. The kernel counts its own kills
    in the victim's memory cgroup, and for the whole machine, before the victim is gone. Each counted kill explains one
    death, and only a death that follows within five seconds. So if the kernel kills something else earlier, for example
    a tool that the script has started, a later kill from outside is not taken for a kill by the kernel. A kill of
    another process in the same cgroup can still be mistaken for a kill of an engine. Therefore the first such kill is
    not blamed on the script. If neither file has a count, no death is explained.

    Args:
        process: the process's folder in /proc. Its children count too, as long as they stay in its cgroup.
        machine: the file with the count of the whole machine; used where the process's cgroup has no count.
    """

    def __init__(self, process: Path = Path("/proc/self"), machine: Path = Path("/proc/vmstat")) -> None:
        files = (_counter_file(process), machine)
        self.file = next((file for file in files if file is not None and _count(file) is not None), None)
        self._last = self.count() or 0
        self._kills: list[float] = []
        """Monotonic seconds at which each kill was seen that has not yet explained a death."""

    def count(self) -> int | None:
        """Number of kills so far; None: there is no count."""
        return None if self.file is None else _count(self.file)

    def look(self, now: float) -> None:
        """Note the kills since the last call. Call this often. ``now``: monotonic seconds."""
        count = self.count()
        if count is not None:
            self._kills += [now] * (count - self._last)
            self._last = count
        self._kills = [then for then in self._kills if now - then <= _EXPLAINS_SECONDS]

    def explains(self, now: float) -> bool:
        """Whether the kernel killed a process that has just ended by SIGKILL. If so, the kill is used up. ``now``:
        monotonic seconds."""
        self.look(now)
        if self._kills:
            self._kills.pop(0)
            return True
        return False


def _count(file: Path) -> int | None:
    try:
        lines = [line.split() for line in file.read_text().splitlines()]
        return next(int(words[1]) for words in lines if words and words[0] == _OOM_KILLS)
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _counter_file(process: Path) -> Path | None:
    """The file in which the process's cgroup counts: ``memory.oom_control`` in cgroup version 1, ``memory.events`` in
    version 2."""
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
