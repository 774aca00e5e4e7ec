"""A provisioner's loop: look at the cluster manager, tell the API, learn what is wanted, and create or end the rest.

It keeps nothing that matters: a provisioner that is started again goes on from what the cluster manager and the API
say. While it is away, nodes that are there stay and their jobs train on; only nothing new comes.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence

from edt_contract.pools import NodeState, PoolState
from edt_provisioner.api import Api
from edt_provisioner.cluster import Cluster, ClusterAway
from edt_provisioner.decide import decide
from edt_provisioner.errors import ApiUnreachable, PoolUnknown
from edt_provisioner.settings import Settings

log = logging.getLogger(__name__)

REFUSED_SECONDS = 10.0
"""Seconds after which a node that was refused is asked for again."""
_LEAST_SECONDS = 0.2
"""Fewest seconds between two looks, however many hints come."""


class Provisioner:
    """Keeps one pool.

    Args:
        settings: the common settings.
        cluster: the cluster manager.
        clock: monotonic seconds.
    """

    def __init__(self, settings: Settings, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._cluster, self._clock = settings, cluster, clock
        self._api = Api(settings)
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._registered = False
        self._refused: dict[str, tuple[float, NodeState]] = {}
        """Nodes that could not be asked for: since when, and what the cluster manager said."""
        self._ending: frozenset[str] = frozenset()
        """Nodes that were ended at the last look, for the log."""
        self._said = ""

    def stop(self) -> None:
        """Let ``run`` return soon. The nodes stay."""
        self._stopping.set()
        self._wake.set()

    def run(self) -> None:
        """Work until ``stop``.

        Raises:
            ApiRefused: the API refuses the pool.
        """
        self._cluster.watch(self._wake.set)
        try:
            while not self._stopping.is_set():
                self._wake.clear()
                try:
                    self.look()
                except ApiUnreachable as error:
                    self._say(f"nothing is changed without the API: {error}")
                except PoolUnknown as error:
                    self._registered = False
                    self._say(f"registering again: {error}")
                else:
                    self._heard()
                self._stopping.wait(_LEAST_SECONDS)
                self._wake.wait(self._settings.pool_sync_seconds)
        finally:
            self.close()

    def close(self) -> None:
        """End the connections. The nodes stay."""
        self._cluster.close()
        self._api.close()

    def look(self) -> None:
        """Look once.

        Raises:
            ApiUnreachable, ApiRefused: as the API's requests do.
        """
        if not self._registered:
            self._api.register(self._cluster.offer())
            log.info("registered as pool %s", self._settings.pool)
            self._registered = True
        try:
            found: Sequence[NodeState] | None = self._cluster.nodes()
            trouble = None
        except ClusterAway as error:
            found, trouble = None, str(error)
            self._say(f"nothing is changed without the cluster manager: {error}")
        if found is None:
            self._api.sync(None, trouble)
            return
        there = {node.node for node in found}
        refused = [node for _, node in self._refused.values() if node.node not in there]
        requests = self._api.sync([*found, *refused], None)
        told = frozenset(node.node for node in found if node.state == PoolState.ENDED)
        actions = decide(requests, found, told)
        wanted = {each.node for each in requests if not each.end}
        now = self._clock()
        self._refused = {node: each for node, each in self._refused.items() if node in wanted and node not in there}
        create = [
            each
            for each in actions.create
            if each.node not in self._refused or self._refused[each.node][0] + REFUSED_SECONDS <= now
        ]
        try:
            if actions.end:
                if new := [node for node in actions.end if node not in self._ending]:
                    log.info("ending %s", ", ".join(new))
                self._ending = frozenset(actions.end)
                self._cluster.end(actions.end)
            if create:
                log.info("asking for %s", ", ".join(each.node for each in create))
                for refusal in self._cluster.create(create):
                    if refusal.node not in self._refused or self._refused[refusal.node][1].reason != refusal.reason:
                        log.warning("%s was refused: %s", refusal.node, refusal.reason)
                    self._refused[refusal.node] = (now, refusal)
                    self._wake.set()  # the API should know soon
        except ClusterAway as error:
            self._say(f"the cluster manager does not answer: {error}")
        else:
            self._said = ""

    def _heard(self) -> None:
        if self._settings.alive_file is not None:
            with contextlib.suppress(OSError):  # the disk is full; a health check notices the old file
                self._settings.alive_file.touch()

    def _say(self, words: str) -> None:
        """Log a trouble once, however long it lasts."""
        if words != self._said:
            log.warning("%s", words)
        self._said = words
