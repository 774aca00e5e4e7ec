"""How a supervisor reaches the coordinator: by hosting it, or over the network. Room: runners; sockets, processes.

Who hosts is the platform's word (``Wish.coordinator``), and it may change while the attempt lives. Where that word does
not arrive, a file on the shared storage says it: whoever begins to host writes it, whoever hosts and reads another
name there has been succeeded.
"""

from __future__ import annotations

import json
import logging
import selectors
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edt_runner.contract import Letter
from edt_runner.spool import note_coordinator
from edt_runner.storage import Outage
from edt_runner.supervisor import users
from edt_runner.supervisor.children import Child
from edt_runner.supervisor.engines import Engines
from edt_runner.supervisor.home import Home
from edt_runner.supervisor.line import Line

_log = logging.getLogger(__name__)
HOME_FILE = "home"
"""In the job's checkpoint folder: fence, node and address of whoever began to host last."""
ALONE_SECONDS = 120.0
"""So long do engines whose coordinator is gone wait for another one."""


class Contact:
    """``reach`` is called again and again; ``alone`` when there is no coordinator and none comes."""

    def __init__(
        self,
        letter: Letter,
        selector: selectors.BaseSelector,
        descriptors: Callable[[], list[int]],
        engines: Engines,
        *,
        obey: Callable[[dict[str, Any]], None],
        alone: Callable[[], None],
    ) -> None:
        self._letter, self._selector, self._others, self._engines = letter, selector, descriptors, engines
        self._alone = alone
        self._line = Line(selector, obey, self._broken)
        self.home: Home | None = None
        """What this supervisor hosts."""
        self._old_homes: list[Home] = []
        """Whose processes may still be going."""
        self.address: str | None = None
        """Of the coordinator, where it can be talked to."""
        self._succeeded_by: str | None = None
        """Address of who hosts now, though the platform's word has not said so here."""
        self._alone_since: float | None = None
        self._home_noted = False
        self._home_before: str | None = None
        """Whom the file named when this supervisor began to host."""
        self._home_outage = Outage("the file that says who hosts", lambda news: _log.warning("%s", news))
        self._note_outage = Outage("the address of the coordinator", lambda news: _log.warning("%s", news))
        self._noted: str | None = None
        """Where this node's driver and engines can read that the coordinator is."""

    def say(self, message: dict[str, Any]) -> None:
        """To the coordinator, now or when there is one again."""
        self._line.say(message)

    def catch_up(self) -> None:
        """Hear what the coordinator has said by now."""
        self._line.catch_up()

    def reach(self, coordinator: str | None, now: float) -> bool:
        """Whether the coordinator can be talked to; sees to it. ``coordinator``: as wished, None: it is hosted here."""
        if coordinator is not None:
            self._succeeded_by = None
        coordinator = coordinator or self._succeeded_by
        if coordinator is None:
            return self._host(now)
        if self.home is not None:
            self._move_out(coordinator)
        if self.address != coordinator:
            self._line.hang_up()
            self.address = coordinator
            self._note(coordinator)
        if self._line.up:
            return True
        if self._line.call(coordinator, self._letter.token, self._letter.node):
            self._introduce_engines()
            self._alone_since = None
            return True
        self._alone_since = self._alone_since or now
        if now > self._alone_since + ALONE_SECONDS or not self._engines:
            self._alone()
        return False

    # ── hosting ───────────────────────────────────────────────────────────────────────────────────────────────
    def _host(self, now: float) -> bool:
        """Be the attempt's home."""
        if self.home is None:
            # Whoever follows another home of this attempt never begins anew: the training has one beginning a fence.
            self._home_before, self._home_noted = self._read_home(), False
            recovering = self.address is not None or self._home_before is not None
            self._line.hang_up()
            self.home = Home(self._letter, self._selector, self._others, recovering=recovering)
        if self.home.coordinator is None and now >= self.home.coordinator_restarts.not_before:
            self.address = None
            self._line.attach(self.home.start_coordinator())
            self._introduce_engines()
        return self.address is not None

    def listens(self) -> bool:
        """The coordinator that is hosted here listens. True: for the first time."""
        assert self.home is not None
        self.address = self.home.address
        self._note(self.address)
        if self.home.coordinator_restarts.count:
            return False
        self._write_home()
        return True

    def start_driver(self, now: float) -> None:
        """Where one is due."""
        home = self.home
        if home is not None and home.driver is None and home.driver_wanted and now >= home.driver_restarts.not_before:
            _log.info("driver of %s starts", self._letter.job)
            home.start_driver()

    def heed_other_homes(self) -> None:
        """Somebody else of this attempt may have begun to host, and the wish that says so not arrived."""
        if self.address is not None and self._noted != self.address:
            self._note(self.address)
        if self.home is None or self.address is None:
            return
        successor = self._read_home()
        if not self._home_noted and successor in (None, self._home_before):  # the disk did not take it before
            self._write_home()
        elif successor is not None and successor != self.address:
            _log.warning("this attempt is hosted at %s from here on", successor)
            self._succeeded_by = successor

    def _read_home(self) -> str | None:
        """Address of who began to host this attempt last; None: nobody yet, or the file (which the job could have
        written) says nothing that can be read."""
        try:
            with users.as_script():
                told = json.loads(self._home_file.read_text())
            address = str(told["address"]) if told["fence"] == self._letter.fence else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return address

    def _write_home(self) -> None:
        facts = {"fence": self._letter.fence, "node": self._letter.node, "address": self.address}
        draft = self._home_file.with_name(f".{HOME_FILE}.{self._letter.node}.tmp")
        try:
            with users.as_script():
                draft.parent.mkdir(parents=True, exist_ok=True)
                draft.write_text(json.dumps(facts))
                draft.replace(self._home_file)
            self._home_noted = True
            self._home_outage.worked()
        except OSError as error:
            self._home_outage.failed(error)

    @property
    def _home_file(self) -> Path:
        return Path(self._letter.checkpoint_dir) / HOME_FILE

    def _move_out(self, coordinator: str) -> None:
        """Another node is the home from now on: its coordinator listens already, and its driver will run."""
        assert self.home is not None
        _log.info("the home moves to %s", coordinator)
        self._line.hang_up()
        self._note(coordinator)  # before the line of the engines breaks
        self.home.close()
        self._old_homes.append(self.home)
        self.home = None

    def _note(self, address: str) -> None:
        """Where the disk is full that is done later: whoever runs has the address, and looks there only when its line
        breaks."""
        try:
            note_coordinator(self._letter, address)
        except OSError as error:
            self._note_outage.failed(error)
        else:
            self._noted = address
            self._note_outage.worked()

    # ── the line ──────────────────────────────────────────────────────────────────────────────────────────────
    def _introduce_engines(self) -> None:
        """To a coordinator that may be new: who lives, who does not any more, who shall leave."""
        for allocation in self._engines:
            self.say({"kind": "expect", "engine": str(allocation)})
        self._line.say_held()
        for allocation in self._engines.over:
            self.say({"kind": "gone", "engine": str(allocation)})
        leaving = self._engines.leaving()
        if leaving:
            self.say({"kind": "leave", "engines": [str(allocation) for allocation in leaving]})

    def _broken(self) -> None:
        if self.home is None and not self._engines:
            self._alone()

    # ── processes ─────────────────────────────────────────────────────────────────────────────────────────────
    def homes(self) -> list[Home]:
        """This one, and those of before."""
        return [*([self.home] if self.home is not None else []), *self._old_homes]

    def drivers(self) -> list[Child]:
        return [home.driver for home in self.homes() if home.driver is not None]

    def descriptors(self) -> list[int]:
        """What a child must not hold."""
        home = self.home.descriptors() if self.home is not None else []
        old = [descriptor for home in self._old_homes if home.driver for descriptor in home.driver.descriptors()]
        return home + old + self._line.descriptors()
