"""Room: runners, agent. The processes that this agent started itself, and their exit statuses.

Starts processes and reaps them. Supervisors get a session of their own and outlive the agent; the doorbell dies with
it. An adopted supervisor is somebody else's child: it is only watched (``attempt.py``).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from edt_agent.errors import StartFailed
from edt_agent.processes import ProcessId, look

log = logging.getLogger(__name__)


@dataclass
class Child:
    """A process that this agent started."""

    id: ProcessId
    status: int | None = None
    """None while it runs; then its exit code, or minus the signal that ended it."""
    on_exit: list[Callable[[], None]] = field(default_factory=list)


class Children:
    """All of them. ``watch()`` must be called inside a running event loop before the first ``start``."""

    def __init__(self) -> None:
        self._by_pid: dict[int, Child] = {}

    def watch(self) -> None:
        """Reap whenever a child ends, orphans that were handed to this process (as PID 1 of a container) too."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self.reap)

    def start(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        *,
        stdin: int | None = None,
        output: int | None = None,
        keep: Mapping[int, int] | None = None,
        own_session: bool = True,
    ) -> Child:
        """Start a process. ``keep`` maps descriptors of ours to the numbers they shall have there; all others
        close."""
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        wanted = {0: null if stdin is None else stdin}
        if output is not None:
            wanted |= {1: output, 2: output}
        wanted |= {there: here for here, there in (keep or {}).items()}
        # posix_spawn, not fork: the event loop's threads and locks never exist in the child.
        actions = [(os.POSIX_SPAWN_DUP2, here, there) for there, here in wanted.items()]
        try:
            pid = os.posix_spawn(
                command[0],
                list(command),
                dict(environ),
                file_actions=actions,
                setsid=own_session,
                setsigmask=(),
                setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGPIPE),
            )
        except OSError as error:
            raise StartFailed(f"{command[0]} could not be started: {error.strerror}") from error
        finally:
            os.close(null)
        # A child that ended at once is a zombie until we reap it, so it can be named all the same.
        process = look(pid)
        child = self._by_pid[pid] = Child(ProcessId(pid, 0) if process is None else process.id)
        return child

    def reap(self) -> None:
        """Take the exit status of every child that has ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self._by_pid.pop(pid, None)
            if child is not None:
                child.status = os.waitstatus_to_exitcode(status)
                log.debug("process %d ended with %d", pid, child.status)
                for call in child.on_exit:
                    call()
