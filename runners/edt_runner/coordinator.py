"""The coordinator's hands: sockets around ``membership``. Room: runners.

A child of the supervisor at the job's home; runs no user code. Hosts the TCPStore over which groups find each other
(a group does not need its store once it is built). It may be killed at any time: its supervisor, which owns the
listening socket, forks another, and everybody takes up the line again. All time is its own monotonic clock.
"""

from __future__ import annotations

import hmac
import logging
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from edt_runner.channel import Channel, keep_alive
from edt_runner.crash_points import CrashPoint, crash_point
from edt_runner.generations import Send
from edt_runner.membership import Membership

_log = logging.getLogger(__name__)
_TICK_SECONDS = 0.1
_HELLO_SECONDS = 10.0
_MOST_BACKLOG = 16 * 1024 * 1024
"""Metrics that wait for a driver which does not read (stopped, or its logger hangs); more are dropped."""
_MOST_UNLOGGED = 100_000
"""Bundles of metrics that are kept until a driver says that they are logged."""
_ORPHAN_SECONDS = 1.0
"""A supervisor whose line breaks may take it up again; its engines count as gone only after this, or once their own
lines have broken too."""
_UNKNOWN_SECONDS = 5.0
"""An engine whose line ends, and of which no supervisor has said anything, counts as gone after this."""


class Coordinator:
    """Serves one attempt until its leading supervisor hangs up.

    Args:
        listener: where everybody connects; it outlives this process.
        token: what everybody must show in the first line.
        recovering: there was a coordinator before this one.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        listener: socket.socket,
        token: str,
        *,
        recovering: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._token = token
        self._clock = clock
        self._mind = Membership(recovering=recovering, now=clock())
        self._selector = selectors.DefaultSelector()
        self._listener = listener
        self._store = _serve_store(listener.getsockname()[0])
        self._strangers: dict[Channel, float] = {}
        self._engines: dict[str, Channel] = {}
        self._driver: Channel | None = None
        self._waiting_for_driver: list[dict[str, Any]] = []
        self._unlogged: deque[dict[str, Any]] = deque(maxlen=_MOST_UNLOGGED)
        self._bundles = 0
        self._newest_round = 0
        """The newest round of which the log tells."""
        self._newest_resize = 0
        """The newest generation of which a first engine has told how it came about."""
        self._told_lost: set[int] = set()
        """Engines that have been told as lost in such a change."""
        self._supervisors: list[Channel] = []
        self._leader: Channel | None = None
        self._children: dict[Channel, set[str]] = {}
        """Engines of each supervisor that are not gone."""
        self._orphans: dict[str, float] = {}
        """Engines whose supervisor's line has broken, or was never heard, and until when it is waited for."""
        self._buried: set[str] = set()
        """Engines that their supervisor has said are gone. They may have called while there was no coordinator, and are
        heard only now."""
        self._done = False
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def serve(self, leader: socket.socket) -> None:
        """Run until the leading supervisor's socket ends."""
        crash_point(CrashPoint.COORDINATOR_START)
        self._leader = Channel(leader)
        self._add_supervisor(self._leader)
        while not self._done:
            for key, _ in self._selector.select(_TICK_SECONDS):
                key.data()
            now = self._clock()
            for stranger, since in list(self._strangers.items()):
                if now - since > _HELLO_SECONDS:
                    self._drop(stranger)
            for name in [name for name, by in self._orphans.items() if now > by]:
                self._lose_orphan(name)
            self._mind.tick(now)
            if self._driver is not None:
                self._driver.pump()
            self._flush()

    # ── who speaks ────────────────────────────────────────────────────────────────────────────────────────────
    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:  # whoever knocked has gone again
            return
        sock.setblocking(True)
        keep_alive(sock)
        channel = Channel(sock)
        self._strangers[channel] = self._clock()
        self._selector.register(channel, selectors.EVENT_READ, lambda: self._greet(channel))

    def _greet(self, channel: Channel) -> None:
        messages = channel.read()
        if channel.closed:
            self._drop(channel)
            return
        if not messages:
            return
        hello, *rest = messages
        token = str(hello.get("token", ""))
        if hello["kind"] != "hello" or not hmac.compare_digest(token.encode(), self._token.encode()):
            self._drop(channel)
            return
        del self._strangers[channel]
        self._selector.unregister(channel)
        role, name = hello.get("role"), str(hello.get("name", ""))
        if role == "engine":
            self._engines[name] = channel
            if not self._has_supervisor(name):
                self._orphans.pop(name, None)
            self._listen(
                channel, lambda message: self._hear_engine(name, message), lambda: self._engine_closed(name, channel)
            )
        elif role == "driver":
            self._driver = channel
            self._listen(channel, self._from_driver, lambda: self._driver_closed(channel))
            for message in (*self._unlogged, *self._waiting_for_driver):
                channel.post(message)
            self._waiting_for_driver.clear()
        elif role == "supervisor":
            self._add_supervisor(channel)
        else:
            channel.close()
            return
        listener = self._selector.get_key(channel).data
        listener.handle(rest)
        self._flush()

    def _add_supervisor(self, channel: Channel) -> None:
        self._supervisors.append(channel)
        self._listen(
            channel, lambda message: self._from_supervisor(channel, message), lambda: self._supervisor_closed(channel)
        )

    def _listen(
        self, channel: Channel, on_message: Callable[[dict[str, Any]], None], on_close: Callable[[], None]
    ) -> None:
        self._selector.register(channel, selectors.EVENT_READ, _Listener(self, channel, on_message, on_close))

    # ── what they say ─────────────────────────────────────────────────────────────────────────────────────────
    def _hear_engine(self, name: str, message: dict[str, Any]) -> None:
        """What a dead one had to tell counts, and nothing that it would do."""
        if name in self._buried:
            self._pass_on(message)
        else:
            self._from_engine(name, message)

    def _from_engine(self, name: str, message: dict[str, Any]) -> None:
        now, mind = self._clock(), self._mind
        match message["kind"]:
            case "standing":
                mind.connect(name, message, now)
            case "ready":
                mind.ready(name, message["facts"], message["addresses"], now, message["round"])
            case "built":
                mind.built(name, message["generation"], now)
            case "build-failed":
                mind.build_failed(name, message["generation"], now)
            case "switching":
                mind.switching(name, message["generation"], message["tick"], now)
            case "received":
                mind.received(name, message["generation"], message["step"], now)
            case "retracted":
                mind.retracted(name, message["generation"], message["promised"], now)
            case "pull-failed":
                mind.pull_failed(name, now)
            case "finished":
                mind.finished(name, message["generation"], message["body"], now)
            case "leave":
                mind.leave([name], now)
            case "trouble" | "standing-at" | "reformed" | "replica" | "unrestorable":
                self._from_survivor(name, message)
            case _:
                self._pass_on(message)

    def _from_survivor(self, name: str, message: dict[str, Any]) -> None:
        now, mind = self._clock(), self._mind
        match message["kind"]:
            case "trouble":
                seen, built = message.get("unreachable", ()), bool(message.get("built"))
                mind.trouble(name, message["generation"], message["round"], seen, now, built=built)
            case "standing-at":
                mind.stands(name, message["round"], message, now)
            case "reformed":
                mind.reformed(name, message["round"], now)
            case "replica":
                mind.replica(name, message, now)
            case "unrestorable":
                mind.unrestorable(message["why"])

    def _pass_on(self, message: dict[str, Any]) -> None:
        """What an engine tells driver or platform."""
        match message["kind"]:
            case "metrics":
                self._bundles += 1
                bundle = {**message, "bundle": self._bundles}
                self._unlogged.append(bundle)
                self._to_driver(bundle)
            case "note":
                self._to_driver(message)
            case "report" if message["report"] == "resized":
                if message["body"]["generation"] > self._newest_resize:  # else the first engine before has told it
                    self._newest_resize = message["body"]["generation"]
                    self._pass_on_resize(message)
            case "report" if message["report"] == "guarantee-ended":
                self._mind.guarantee_ended(**message["body"])
            case "report":
                self._to_leader(message)
                if message["report"] == "progress":  # how long a leave may take is counted in steps
                    self._to_guests({"kind": "pace", "step": message["body"]["step"]})

    def _pass_on_resize(self, message: dict[str, Any]) -> None:
        """Some may have come through a round of which others have not said so when the next one is called: that one
        has all who have died since the last that all came through."""
        lost = set(message["body"]["lost"])
        new = lost - self._told_lost
        self._told_lost |= lost
        if new or not lost:
            self._to_leader({**message, "body": {**message["body"], "lost": sorted(new)}})

    def _from_driver(self, message: dict[str, Any]) -> None:
        match message["kind"]:
            case "begin":
                self._mind.begin(
                    message["definition"], self._clock(), message.get("history"), message.get("resumed_at")
                )
            case "received":
                self._mind.driver_received()
            case "logged":
                while self._unlogged and self._unlogged[0]["bundle"] <= message["bundle"]:
                    self._unlogged.popleft()

    def _from_supervisor(self, channel: Channel, message: dict[str, Any]) -> None:
        now, mind = self._clock(), self._mind
        match message["kind"]:
            case "expect":
                self._children.setdefault(channel, set()).add(message["engine"])
                self._orphans.pop(message["engine"], None)
                mind.expect(message["engine"])
            case "leave":
                mind.leave(message["engines"], now)
            case "gone":
                self._buried.add(message["engine"])
                self._orphans.pop(message["engine"], None)
                self._children.get(channel, set()).discard(message["engine"])
                found = message.get("micro_batch")
                mind.gone(message["engine"], now, (found[0], found[1]) if found else None, message.get("how", ""))
            case "stuck":
                mind.stuck(message["engine"])
            case "idle":
                mind.idle()
            case "raised":
                mind.raised(message["engine"], message["message"], message["traceback"])

    # ── who hears ─────────────────────────────────────────────────────────────────────────────────────────────
    def _flush(self) -> None:
        sends = self._mind.take()
        self._log_round(sends)
        for send in sends:
            message = dict(send.message)
            if send.to == "driver":
                self._to_driver(message)
            elif send.to == "leader":
                self._to_leader(message)
            elif send.to == "supervisors":
                for supervisor in self._supervisors:
                    supervisor.send(message)
            elif send.to in self._engines:
                if message["kind"] in ("prepare", "handover", "reform"):
                    message["store"] = self._store[1]
                elif message["kind"] in ("wake", "rejoin"):  # whoever waits on the store is to be woken, too
                    message["addresses"] = [*message["addresses"], self._store[1]]
                self._engines[send.to].send(message)

    def _log_round(self, sends: Sequence[Send]) -> None:
        called = [send for send in sends if send.message["kind"] == "wake"]
        if called and called[0].message["round"] > self._newest_round:
            self._newest_round = int(called[0].message["round"])
            _log.info("regroup %d of engines %s", self._newest_round, ", ".join(send.to for send in called))

    def _to_driver(self, message: dict[str, Any]) -> None:
        if message["kind"] == "handover":
            message["store"] = self._store[1]
        if self._driver is None:
            if message["kind"] not in ("metrics", "handover"):  # those are kept, or done again when it says begin
                self._waiting_for_driver.append(message)
        elif message["kind"] != "metrics" or self._driver.backlog < _MOST_BACKLOG:
            self._driver.post(message)

    def _to_guests(self, message: dict[str, Any]) -> None:
        for supervisor in self._supervisors:
            if supervisor is not self._leader:
                supervisor.send(message)

    def _to_leader(self, message: dict[str, Any]) -> None:
        if self._leader is not None:
            self._leader.send(message)

    # ── who goes ──────────────────────────────────────────────────────────────────────────────────────────────
    def _engine_closed(self, name: str, channel: Channel) -> None:
        if self._engines.get(name) is channel:
            del self._engines[name]
            self._mind.disconnect(name)
            if name in self._orphans:
                self._lose_orphan(name)
            elif name not in self._buried and not self._has_supervisor(name):
                self._orphans[name] = self._clock() + _UNKNOWN_SECONDS

    def _has_supervisor(self, name: str) -> bool:
        """Somebody is there who will say when this engine is gone."""
        return any(name in children for children in self._children.values())

    def _driver_closed(self, channel: Channel) -> None:
        if self._driver is channel:
            self._driver = None
            self._mind.driver_lost()

    def _supervisor_closed(self, channel: Channel) -> None:
        self._supervisors.remove(channel)
        self._done = self._done or channel is self._leader
        for name in self._children.pop(channel, set()):  # children die with their supervisor
            self._orphans[name] = self._clock() + _ORPHAN_SECONDS
            if name not in self._engines:
                self._lose_orphan(name)

    def _lose_orphan(self, name: str) -> None:
        del self._orphans[name]
        self._mind.gone(name, self._clock())

    def _drop(self, channel: Channel) -> None:
        self._strangers.pop(channel, None)
        self._selector.unregister(channel)
        channel.close()

    def forget(self, channel: Channel) -> None:
        self._selector.unregister(channel)
        channel.close()

    def flush(self) -> None:
        self._flush()


class _Listener:
    """One introduced peer in the selector."""

    def __init__(
        self,
        owner: Coordinator,
        channel: Channel,
        on_message: Callable[[dict[str, Any]], None],
        on_close: Callable[[], None],
    ) -> None:
        self._owner, self._channel, self._on_message, self._on_close = owner, channel, on_message, on_close

    def __call__(self) -> None:
        self.handle(self._channel.read())

    def handle(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            self._on_message(message)
            self._owner.flush()
        if self._channel.closed:
            self._owner.forget(self._channel)
            self._on_close()


def _serve_store(host: str) -> tuple[object, str]:
    """A TCPStore on ``host`` alone, which the constructor by itself would open on every address."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    listener = socket.create_server((host, 0), backlog=128)
    port = listener.getsockname()[1]
    store = TCPStore(
        host_name=host,
        port=port,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=os.dup(listener.fileno()),
        timeout=timedelta(seconds=30),
    )
    listener.close()
    return store, f"{host}:{port}"
