"""An engine's line to the coordinator. Room: runners; sockets and threads, no framework.

A control thread reads while the main thread trains. It builds groups in the background and keeps the one number
that the main thread needs at a step: the newest generation that is committed, to be announced in the reduction.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
from dataclasses import dataclass
from typing import Any, NoReturn

from edt_runner.channel import Channel, connect
from edt_runner.engine.adapter import Group, Plane
from edt_runner.errors import PeerLost


@dataclass
class Pending:
    """A generation that has been published: who is in it, and the group once it is built."""

    number: int
    members: tuple[str, ...]
    stayers: tuple[str, ...]
    newcomers: tuple[str, ...]
    group: Group | None = None


class Link:
    """Connection of engine ``name`` to the coordinator at ``address``."""

    def __init__(self, address: str, token: str, name: str, plane: Plane) -> None:
        self.name = name
        self._plane = plane
        self._channel = Channel(connect(address, role="engine", token=token, name=name))
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._inbox: queue.Queue[dict[str, Any]] = queue.Queue()
        self._pending: dict[int, Pending] = {}
        self._old_groups: list[Group] = []
        self._current = 0
        self._seen = 0
        self._announced = 0
        threading.Thread(target=self._read, name="edt-link", daemon=True).start()

    # ── for the main thread ───────────────────────────────────────────────────────────────────────────────────
    def tell(self, kind: str, **fields: Any) -> None:
        """Send one message to the coordinator."""
        with self._writing:
            self._channel.send({"kind": kind, **fields})

    def report(self, report: str, **body: Any) -> None:
        """Send one report, by way of coordinator, supervisor and agent, to whom it may concern."""
        self.tell("report", report=report, body=body)

    def wait(self, seconds: float | None = None) -> dict[str, Any] | None:
        """The next message that is the main thread's; None after ``seconds``."""
        try:
            return self._inbox.get(timeout=seconds)
        except queue.Empty:
            return None

    def announce(self) -> int:
        """The newest committed generation. From now on it cannot be taken back by this engine."""
        with self._lock:
            self._announced = max(self._announced, self._seen)
            return self._seen

    def pending(self, number: int) -> Pending:
        """The published generation ``number``."""
        with self._lock:
            return self._pending[number]

    def enter(self, number: int, old: Group | None) -> None:
        """The main thread works by generation ``number`` from now on; ``old`` is closed when all have switched."""
        with self._lock:
            self._current = number
            self._seen = max(self._seen, number)
            self._pending = {key: value for key, value in self._pending.items() if key > number}
            if old is not None:
                self._old_groups.append(old)

    # ── the control thread ────────────────────────────────────────────────────────────────────────────────────
    def _read(self) -> None:
        while not self._channel.closed:
            for message in self._channel.read_blocking():
                self._handle(message)
        self._inbox.put({"kind": "hung-up"})

    def _handle(self, message: dict[str, Any]) -> None:
        number = int(message.get("generation", 0))
        match message["kind"]:
            case "prepare":
                self._prepare(message)
            case "commit":
                with self._lock:
                    if number in self._pending:
                        self._seen = number
            case "retract":
                with self._lock:
                    promised = self._announced < number
                    if promised:
                        self._withdraw(number)
                self.tell("retracted", generation=number, promised=promised)
            case "cancel":
                with self._lock:
                    self._withdraw(number)
            case "settled":
                self._close_old_groups()
            case _:
                self._inbox.put(message)

    def _prepare(self, message: dict[str, Any]) -> None:
        pending = Pending(
            message["generation"],
            tuple(message["members"]),
            tuple(message["stayers"]),
            tuple(message["newcomers"]),
        )
        with self._lock:
            self._pending[pending.number] = pending
        if self.name in pending.members:
            threading.Thread(
                target=self._build, args=(pending, message["store"]), name="edt-build", daemon=True
            ).start()
        else:
            self.tell("built", generation=pending.number)

    def _build(self, pending: Pending, store: str) -> None:
        try:
            rank, size = pending.members.index(self.name), len(pending.members)
            pending.group = (
                self._plane.build(store, f"generation/{pending.number}", rank, size) if size > 1 else self._plane.solo()
            )
        except PeerLost as error:
            self.tell("build-failed", generation=pending.number, why=str(error))
        else:
            self.tell("built", generation=pending.number)

    def _withdraw(self, number: int) -> None:
        if number <= self._current:
            return
        dropped = self._pending.pop(number, None)
        self._seen = self._current
        if dropped and dropped.group:
            threading.Thread(target=dropped.group.close, daemon=True).start()

    def _close_old_groups(self) -> None:
        with self._lock:
            groups, self._old_groups = self._old_groups, []
        for group in groups:  # 10 ms a peer: not on the main thread's time
            threading.Thread(target=group.close, daemon=True).start()


def leave_process(code: int) -> NoReturn:
    """End an engine: no destructors, no atexit of user code, buffers written."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
