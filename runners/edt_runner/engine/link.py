"""An engine's line to the coordinator. Room: runners; sockets and threads, no framework.

A control thread reads while the main thread trains. It builds groups in the background, keeps the one number that the
main thread needs at a step (the newest generation that is committed, to be announced in the reduction), and wakes the
main thread out of the data plane when the coordinator says so. When the line breaks it is taken up again, at whatever
address the supervisor's note names by then; training needs no coordinator, only resizes do.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from edt_runner.channel import Channel, connect
from edt_runner.engine.adapter import Group, Plane
from edt_runner.errors import PeerLost

_RECONNECT_SECONDS = 0.02
_RECONNECT_MOST_SECONDS = 0.5
_SHUT_AGAIN_SECONDS = 0.02
"""Whoever is building a group opens connections all the time: shut until the main thread is out of it."""
_HELD_MESSAGES = 4096
_WORTH_HOLDING = frozenset({"report", "metrics", "note"})


@dataclass
class Pending:
    """A generation that has been published: who is in it, and the group once it is built."""

    number: int
    members: tuple[str, ...]
    stayers: tuple[str, ...]
    newcomers: tuple[str, ...]
    group: Group | None = None


class Link:
    """Connection of engine ``name`` to the coordinator.

    Args:
        address: ``host:port`` at the beginning.
        note: file that names the coordinator's address now; it may be missing.
        token: of the attempt.
        name: of this engine.
        plane: where groups are built, and what is shut when the coordinator says ``wake``.
        computing: what this engine computes with, by name (``edt_runner.computing``).
    """

    def __init__(
        self,
        address: str,
        note: Path,
        token: str,
        name: str,
        plane: Plane,
        computing: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self._address, self._note, self._token, self._plane = address, note, token, plane
        self._computing = dict(computing)
        self.history: Mapping[str, Any] = {}
        """What the coordinator has told of the engines' replicas, for checkpoints; see ``replicas.History``."""
        self.ended_anew = False
        """The guarantee has ended since this engine was first told the history: a checkpoint should hold that soon, or
        the attempt that goes on from an older one knows nothing of it. Whoever writes it takes this back."""
        self.compare_from = 0
        """Epochs that end before this position are not worth a comparison."""
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._inbox: queue.Queue[dict[str, Any]] = queue.Queue()
        self._held: deque[dict[str, Any]] = deque(maxlen=_HELD_MESSAGES)
        self._pending: dict[int, Pending] = {}
        self._old_groups: list[Group] = []
        self._current = self._seen = self._announced = self._settled = 0
        self._woken = self._answered = 0
        """Rounds: the newest that the coordinator has called, and the newest that the main thread has answered."""
        self._request: dict[str, Any] | None = None
        """``ready``, until it has been granted: a coordinator that is new has not heard it."""
        self.renewed = False
        """The line was taken up again; what was told on the one before may be lost. Whoever minds takes it back."""
        self._standing: dict[str, Any] = {"doing": "joining", "generation": 0, "members": []}
        self._channel = Channel(connect(address, role="engine", token=token, name=name))
        self._introduce()
        threading.Thread(target=self._read, name="edt-link", daemon=True).start()

    # ── for the main thread ───────────────────────────────────────────────────────────────────────────────────
    def tell(self, kind: str, **fields: Any) -> None:
        """Send one message to the coordinator. While the line is broken, what others wait for is held."""
        message = {"kind": kind, **fields}
        if kind == "ready":
            self._request = message
        with self._writing:
            if not self._channel.closed:
                self._channel.send(message)
            if self._channel.closed and kind in _WORTH_HOLDING:
                self._held.append(message)

    def report(self, report: str, **body: Any) -> None:
        """Send one report, by way of coordinator, supervisor and agent, to whom it may concern."""
        self.tell("report", report=report, body=body)

    def wait(self, seconds: float | None = None) -> dict[str, Any] | None:
        """The next message that is the main thread's; None after ``seconds``."""
        try:
            return self._inbox.get(timeout=seconds)
        except queue.Empty:
            return None

    def stands(self, doing: str, **fields: Any) -> None:
        """What a coordinator that is new should know of this engine."""
        with self._lock:
            if doing != "joining":
                self._request = None
            self._standing = {"doing": doing, "generation": 0, "members": [], **fields}

    def announce(self) -> int:
        """The newest committed generation. From now on it cannot be taken back by this engine."""
        with self._lock:
            self._announced = max(self._announced, self._seen)
            return self._seen

    def check(self) -> None:
        """Raise PeerLost if the coordinator has called a round that the main thread has not answered."""
        if self.called:
            raise PeerLost("the engines re-form")

    @property
    def called(self) -> bool:
        """Whether there is a round that the main thread has not answered."""
        return self._woken > self._answered

    def answer(self, number: int | None = None) -> int:
        """The main thread is out of the data plane and knows of round ``number`` (None: of all so far), which is
        returned. The plane is renewed, where it was shut: by the same lock as it is shut under, so that what was meant
        for the plane of before never breaks the new one."""
        with self._lock:
            number = self._woken if number is None else number
            if number > self._answered:
                self._plane.renew()
                self._answered = number
            return number

    @property
    def woken(self) -> int:
        """The newest round that the coordinator has called."""
        return self._woken

    def pending(self, number: int) -> Pending:
        """The published generation ``number``. Raises PeerLost where a round has done away with it."""
        with self._lock:
            found = self._pending.get(number)
        if found is None:
            raise PeerLost(f"generation {number} is no more")
        return found

    def enter(self, number: int, old: Group | None) -> None:
        """The main thread works by generation ``number`` from now on; ``old`` is closed when all have switched."""
        with self._lock:
            self._current = number
            self._seen = max(self._seen, number)
            for key in [key for key in self._pending if key <= number]:
                passed_by = self._pending.pop(key)
                if key < number and passed_by.group is not None:
                    _in_thread(passed_by.group.close, "edt-close")
            if old is not None:
                self._old_groups.append(old)

    # ── the control thread ────────────────────────────────────────────────────────────────────────────────────
    def _read(self) -> None:
        while True:
            while not self._channel.closed:
                for message in self._channel.read_blocking():
                    self._handle(message)
            self._reconnect()

    def _reconnect(self) -> None:
        """Take the line up again. What was published and not promised dies with the coordinator that published it."""
        with self._lock:
            for number in [number for number in self._pending if number > self._announced]:
                self._withdraw(number)
        pause = _RECONNECT_SECONDS
        while True:
            try:
                sock = connect(self._where(), role="engine", token=self._token, name=self.name, seconds=5.0)
            except OSError:
                time.sleep(pause)
                pause = min(pause * 1.5, _RECONNECT_MOST_SECONDS)
                continue
            with self._writing:
                self._channel.close()
                self._channel = Channel(sock)
                self._introduce()
                if self._request is not None:
                    self._channel.send(self._request)
                while self._held and not self._channel.closed:
                    self._channel.send(self._held.popleft())
            self.renewed = True
            return

    def _where(self) -> str:
        with contextlib.suppress(OSError):
            self._address = self._note.read_text().strip() or self._address
        return self._address

    def _introduce(self) -> None:
        with self._lock:
            known = {"announced": self._announced, "settled": self._settled, "round": self._woken}
            standing = {**self._standing, **known}
        self._channel.send({"kind": "standing", **standing, "computing": self._computing, "history": self.history})

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
                self._settled = number
                self._close_old_groups()
            case "wake" | "rejoin":
                self._wake(message)
            case "replicas":
                ended = message["history"].get("ended") and not self.history.get("ended")
                self.ended_anew = self.ended_anew or bool(self.history and ended)
                self.history, self.compare_from = message["history"], message["compare_from"]
            case _:
                self._inbox.put(message)

    def _wake(self, message: dict[str, Any]) -> None:
        """Get the main thread out of the data plane; all that was planned is off."""
        with self._lock:
            if message["round"] <= self._woken and message["kind"] == "wake":
                return
            self._woken = max(self._woken, message["round"])
            for number in list(self._pending):
                self._withdraw(number, promised=True)
            self._shut_for(message["round"], message["addresses"])
        self._inbox.put(message)
        threading.Thread(target=self._keep_shut, args=(message["round"], message["addresses"]), daemon=True).start()

    def _keep_shut(self, number: int, addresses: list[str]) -> None:
        while self._answered < number:
            time.sleep(_SHUT_AGAIN_SECONDS)
            with self._lock:
                self._shut_for(number, addresses)

    def _shut_for(self, number: int, addresses: list[str]) -> None:
        """Shut the plane for round ``number``, unless that is answered: then it is another plane. Under the lock."""
        if self._answered < number:
            self._plane.shut(addresses)

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
            _in_thread(lambda: self._build(pending, message["store"]), "edt-build")
        else:
            self.tell("built", generation=pending.number)

    def _build(self, pending: Pending, store: str) -> None:
        try:
            rank, size = pending.members.index(self.name), len(pending.members)
            group = (
                self._plane.build(store, f"generation/{pending.number}", rank, size) if size > 1 else self._plane.solo()
            )
        except PeerLost as error:
            self.tell("build-failed", generation=pending.number, why=str(error))
            return
        with self._lock:
            wanted = self._pending.get(pending.number) is pending
            if wanted:
                pending.group = group
        if wanted:
            self.tell("built", generation=pending.number)
        else:  # it was withdrawn meanwhile
            group.close()

    def _withdraw(self, number: int, *, promised: bool = False) -> None:
        """Forget a generation that is not to come; one that was announced only where all know that (``promised``)."""
        if number <= self._current:
            return
        dropped = self._pending.pop(number, None)
        self._seen = self._current
        if promised:
            self._announced = self._current
        if dropped and dropped.group:
            _in_thread(dropped.group.close, "edt-close")

    def _close_old_groups(self) -> None:
        with self._lock:
            groups, self._old_groups = self._old_groups, []
        for group in groups:  # 10 ms a peer: not on the main thread's time
            _in_thread(group.close, "edt-close")


def _in_thread(work: Callable[[], None], name: str) -> None:
    threading.Thread(target=work, name=name, daemon=True).start()


def leave_process(code: int) -> NoReturn:
    """End an engine: no destructors, no atexit of user code, buffers written."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
