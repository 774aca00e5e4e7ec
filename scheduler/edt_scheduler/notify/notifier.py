"""Sends notifications: Celery messages that only say look. Uses the broker and the outbox.

A notification is a row of the outbox until its transaction has committed. Then a thread of this process sends it, so
that no transaction and no request ever waits for the broker. A notification may be lost, sent twice or late: every
receiver also looks by its own timer, and looking twice changes nothing. Without a broker the rows are deleted and
nothing is sent.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from celery import Celery

from edt_contract.crash_points import CrashPoint, crash_point
from edt_scheduler.errors import Unavailable
from edt_scheduler.notify import broker
from edt_scheduler.store import outbox, resizes
from edt_scheduler.store.database import Database

log = logging.getLogger("edt.notification")

RETRY_SECONDS = 1.0
"""Seconds until the next try when the broker or the database did not answer."""
PAUSE_SECONDS = 0.1
"""Seconds from one relay to the next. Each relay writes, and one notification is enough for many submits."""


class Notifier:
    """The relay: takes notifications out of the outbox after their commit and hands them to the broker.

    Any thread may call ``notify`` after each commit that wrote notifications. The call returns at once.

    Args:
        database: the database with the outbox.
        broker_url: URL of the broker; empty: there is none.
        clock: wall clock, in seconds since the epoch.
    """

    def __init__(self, database: Database, broker_url: str = "", clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._app = broker.celery_app(broker_url, sends=True) if broker_url else None
        self._clock = clock
        self._wanted = threading.Event()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._silent = False
        self._wrote = False
        """Whether the newest relay had something to send."""

    def start(self) -> None:
        """Start the thread and let it connect, so that even the first notification is sent quickly.

        For processes that run for long. Without this call the first ``notify`` starts the thread, and the first
        notification is about half a second late.
        """
        with self._lock:
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._run, name="notifier", daemon=True)
                self._thread.start()

    def notify(self) -> None:
        """Ask the thread to send what is in the outbox. Returns at once."""
        self.start()
        self._wanted.set()

    def close(self) -> None:
        """Send what is left, if the broker answers, and end the thread."""
        self._closing.set()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(2 * broker.SEND_TIMEOUT_SECONDS)
        if self._app is not None:
            self._app.close()

    def _run(self) -> None:
        self._connect()
        while True:
            self._wanted.wait()
            self._wanted.clear()
            try:
                delivered = self.relay()
            except Unavailable:
                delivered = False  # not logged here: the code that needs the database logs it
            except Exception:
                log.exception("the notifications could not be read from the outbox; the timers go on")
                delivered = False
            if self._closing.is_set():
                return
            if self._wrote or not delivered:
                self._closing.wait(PAUSE_SECONDS if delivered else RETRY_SECONDS)
            if not delivered:
                self._wanted.set()

    def relay(self) -> bool:
        """Notify each queue of the outbox once, and delete the rows that were sent or have expired.

        Two processes may relay at once, and then a notification is sent twice. This also happens if power is lost
        between sending and deleting.

        Returns:
            Whether every queue could be notified; False: the broker does not answer.

        Raises:
            Unavailable: if the database cannot be used now.
        """
        self._wrote = False
        with self._database.snapshot() as tx:
            rows = outbox.pending(tx)
        if not rows:
            return True
        self._wrote = True
        oldest = self._clock() - outbox.EXPIRES_SECONDS
        newest = {row.queue: row for row in rows if row.created_at > oldest}
        app = self._app
        sent = {queue: self._clock() for queue, row in newest.items() if app is not None and self._send(app, row)}
        crash_point(CrashPoint.SCHEDULER_RELAY)
        silent = newest.keys() - sent.keys() if app is not None else set()
        with self._database.transaction(durable=False) as tx:
            outbox.drop(tx, [row.id for row in rows if row.queue not in silent or row.created_at <= oldest])
            for queue, at in sent.items():
                resizes.notified(tx, {row.resize_id for row in rows if row.queue == queue and row.resize_id}, at)
        return not silent

    def _connect(self) -> None:
        """Connect before the first notification, since Celery's imports and connection take time.

        A failure is not logged here.
        """
        if self._app is not None:
            with contextlib.suppress(Exception), self._app.producer_or_acquire() as producer:
                producer.connection.default_channel  # noqa: B018  # connects

    def _send(self, app: Celery, row: Any) -> bool:
        try:
            app.send_task(
                row.task,
                args=row.arguments,
                queue=row.queue,
                expires=outbox.EXPIRES_SECONDS,
                ignore_result=True,
                retry=False,
            )
        except Exception as error:
            # After any error of the broker's client the same thing helps: every receiver also looks by its own timer.
            if not self._silent:
                log.warning("the broker does not answer (%s); until it does, everybody looks by the clock", error)
            self._silent = True
            return False
        if self._silent:
            log.info("the broker answers again")
        self._silent = False
        return True
