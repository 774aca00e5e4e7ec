"""Room: api, CLI. The platform's processes under one roof: in what order they start, live and go.

One thread, one selector. Supervisors are not among the children: they belong to the agent, and outlive it and this.
"""

from __future__ import annotations

import enum
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import httpx

from edt_cli.errors import CannotStart
from edt_cli.up.broker import Broker
from edt_cli.up.console import Console
from edt_cli.up.home import PYTHON, TAG_VARIABLE, Home
from edt_cli.up.parts import Part, Voice, become_reaper, kill_all

_READY_SECONDS = 60.0
_END_SECONDS = 5.0
"""So long has a part of the control plane after SIGTERM."""
_ONE_CTRL_C_SECONDS = 0.3
"""A wrapper (make, uvx) passes on the SIGINT that the terminal has sent to all of them: that is one Ctrl-C."""
_PREPARE_SECONDS = 300.0


class Stage(enum.IntEnum):
    """Where the house stands; it only ever goes on."""

    STARTING = 0  # not yet all there
    UP = 1  # serving
    LEAVING = 2  # training writes checkpoints and leaves; the API still hears of it
    ENDING = 3  # the control plane goes
    KILLED = 4  # a second Ctrl-C: everything at once


@dataclass(frozen=True)
class Plan:
    """What to start and where."""

    home: Home
    host: str
    port: int
    broker: Broker
    join_token: Path
    environ: Mapping[str, str]
    """Environment of every part."""
    secrets: Mapping[str, str]
    """What only the preparation is told."""

    @property
    def environ_of_the_agent(self) -> Mapping[str, str]:
        """Without a broker that is not ours to start, and its password: the API tells the agent where that is, and how
        it is opened, as it tells every node."""
        if self.broker.command:
            return self.environ
        return {name: value for name, value in self.environ.items() if not name.startswith("EDT_BROKER_")}

    @property
    def url(self) -> str:
        """Where a person finds it from this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)  # noqa: S104
        return f"http://{f'[{host}]' if ':' in host and host[0] != '[' else host}:{self.port}"


class House:
    """``run`` from the first child to the last. One a process: it takes over signals."""

    def __init__(self, plan: Plan, console: Console) -> None:
        self._plan = plan
        self._console = console
        self._stage = Stage.STARTING
        self._asked = 0
        self._leaving_since = 0.0
        self._selector = selectors.DefaultSelector()
        self._parts = self._list_parts()
        self._wakeup, self._wakeup_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._deadline = time.monotonic() + _READY_SECONDS

    def run(self) -> int:
        """Exit status: 0 after a Ctrl-C, 130 after two, 1 where it did not come up."""
        become_reaper()
        signal.set_wakeup_fd(self._wakeup_end, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._count)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(self._wakeup, selectors.EVENT_READ, None)
        while True:
            self._start_what_is_due()
            self._heed()
            self._listen(0.2 if self._stage in {Stage.STARTING, Stage.LEAVING, Stage.ENDING} else 1.0)
            self._reap()
            status = self._step(time.monotonic())
            if status is not None:
                self._listen(0)
                return status

    def _list_parts(self) -> dict[str, Part]:
        plan = self._plan
        parts = []
        if plan.broker.command:
            parts.append(Part("broker", plan.broker.command, plan.environ))
        agent_words = ["--api", plan.url, "--token-file", str(plan.join_token), "--home", str(plan.home.path)]
        parts += [
            Part("api", (*PYTHON, "edt_api"), plan.environ),
            Part("scheduler", (*PYTHON, "edt_scheduler"), plan.environ),
            Part("agent", (*PYTHON, "edt_agent", *agent_words), plan.environ_of_the_agent),
        ]
        return {part.name: part for part in parts}

    def _count(self, _: int, __: FrameType | None) -> None:
        self._asked += 1

    def _heed(self) -> None:
        """Do what signals asked for since the last time. Their handler only counts: it may interrupt a write."""
        asked, self._asked = self._asked, 0
        if not asked:
            return
        now = time.monotonic()
        if self._stage < Stage.LEAVING:
            self._stage, self._leaving_since = Stage.LEAVING, now
            self._console.say(
                "up", "training writes a checkpoint and leaves; Ctrl-C once more kills everything at once"
            )
            self._parts["agent"].send(signal.SIGINT)
        elif now > self._leaving_since + _ONE_CTRL_C_SECONDS:
            self._stage = Stage.KILLED

    def _start_what_is_due(self) -> None:
        now = time.monotonic()
        if self._stage > Stage.UP:
            return
        for part in self._parts.values():
            if part.due is not None and part.due <= now:
                try:
                    voice = part.start(now)
                except OSError as error:
                    raise CannotStart(f"{part.command[0]} cannot be started: {error.strerror}") from error
                self._selector.register(voice.descriptor, selectors.EVENT_READ, voice)

    def _listen(self, seconds: float) -> None:
        """Pass on what the parts say, until ``seconds`` go by without a word or something happens."""
        for key, _ in self._selector.select(seconds):
            voice: Voice | None = key.data
            if voice is None:
                with suppress(BlockingIOError):
                    os.read(self._wakeup, 4096)
                continue
            lines = voice.lines()
            if lines is None:
                self._selector.unregister(key.fd)
            for line in lines or ():
                self._console.say(voice.name, line)

    def _reap(self) -> bool:
        """Take the exit status of every child and of every orphan. True: none of them lives."""
        now = time.monotonic()
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            for part in self._parts.values():
                if part.process is not None and part.process.pid == pid:
                    pause = part.ended(status, now)
                    if self._stage <= Stage.UP:
                        self._console.say("up", f"{part.name} ended ({_how(part)}), it starts again in {pause:g} s")

    def _step(self, now: float) -> int | None:
        """What is next. An exit status: nothing is."""
        match self._stage:
            case Stage.STARTING:
                return self._come_up(now)
            case Stage.UP:
                return None
            case Stage.LEAVING:
                # The agent ends when the last supervisor's end is reported; one that is not there cannot do
                # that.
                if not self._parts["agent"].runs:
                    self._end_control_plane(now)
                return None
            case Stage.ENDING:
                running = [part for part in self._parts.values() if part.runs]
                # Descendants, too: whoever lost its parent is this process's child now.
                if self._reap() or (not running and now > self._deadline):
                    self._console.say("up", "ended; `edt up` goes on where this stopped")
                    return 0
                if now > self._deadline:
                    for part in running:
                        part.send(signal.SIGKILL)
                return None
            case Stage.KILLED:
                while kill_all(TAG_VARIABLE, self._plan.home.tag):
                    time.sleep(0.02)
                self._reap()
                return 130

    def _come_up(self, now: float) -> int | None:
        api = self._parts["api"]
        if not api.runs and api.process is not None and api.process.returncode == 2:
            self._stage = Stage.KILLED  # it said why in one sentence, and would again
            kill_all(TAG_VARIABLE, self._plan.home.tag)
            return 2
        if api.runs and self._answers("/readyz"):
            self._stage = Stage.UP
            self._console.say("up", f"OpenEDT is at {self._plan.url}")
            return None
        if now > self._deadline:
            self._console.say("up", f"the API did not become ready in {_READY_SECONDS:g} s; it is tried further")
            self._deadline = float("inf")
        return None

    def _answers(self, path: str) -> bool:
        try:
            return httpx.get(self._plan.url + path, timeout=2.0, trust_env=False).is_success
        except httpx.HTTPError:
            return False

    def _end_control_plane(self, now: float) -> None:
        if self._parts["agent"].process is not None and self._parts["agent"].process.returncode != 0:
            self._console.say("up", "the agent is not there to end training, so it is killed")
            kill_all(TAG_VARIABLE, self._plan.home.tag)
        self._stage = Stage.ENDING
        self._deadline = now + _END_SECONDS
        for part in self._parts.values():
            part.send(signal.SIGTERM)


def prepare(plan: Plan) -> str | None:
    """Make the home fit to serve: newest schema, join token, a first administrator. Answers the latter's password
    where one was made up, to be shown this once. Raises CannotStart with the sentence that says why not.
    """
    done = subprocess.run(
        [*PYTHON, "edt_api", "--ensure-admin"],
        env={**plan.environ, **plan.secrets},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_PREPARE_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        words = done.stderr.strip().splitlines()
        raise CannotStart(words[-1] if words else f"the home could not be prepared: exit status {done.returncode}")
    return done.stdout.strip() or None


def _how(part: Part) -> str:
    code = part.process.returncode if part.process is not None else None
    return f"signal {-code}" if code is not None and code < 0 else f"status {code}"
