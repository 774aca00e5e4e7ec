"""A pool whose nodes are jobs of Slurm, of one machine each."""

from __future__ import annotations

import logging
import pwd
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from edt_contract.pools import NodeRequest, NodeState, PoolOffer, PoolState, node_token
from edt_provisioner.cluster import ClusterAway
from edt_provisioner.settings import join_token
from edt_provisioner.slurm.batches import Batch, Batches
from edt_provisioner.slurm.commands import Lost, Refused, Slurm
from edt_provisioner.slurm.script import Kind, Submission, batch_script, kind_of, leave_seconds
from edt_provisioner.slurm.settings import SLURM_USER, SlurmSettings, own_user
from edt_provisioner.slurm.states import Task

log = logging.getLogger(__name__)

_MOST_TASKS = 500
"""Most jobs of one array. Slurm's own limit, MaxArraySize, is 1001 by default."""
_LOST_SECONDS = 60.0
"""Seconds after which jobs are asked for again of which nobody knows whether Slurm has taken them."""
_FACTS_SECONDS = 300.0
"""Seconds after which Slurm's configuration is read again."""
_Seen = tuple[NodeState, Batch, Task | None]
"""A node: its state, its batch, and its job, unless Slurm has forgotten that."""
_ORDER = {PoolState.RUNNING: 0, PoolState.PENDING: 1, PoolState.ENDED: 2}


class SlurmCluster:
    """Asks Slurm for nodes. What it must know after a restart lies in the pool's folder in EDT_HOME.

    Args:
        settings: the settings.
        slurm: how Slurm is asked.

    Raises:
        BadSetting: another provisioner keeps this pool.
        OSError: the pool's folder cannot be made.
    """

    def __init__(self, settings: SlurmSettings, slurm: Slurm) -> None:
        self._settings, self._slurm = settings, slurm
        self._prefix = f"edt-{settings.pool}-"
        self._batches = Batches(settings.folder, settings.slurm_as_user)
        self._leave: tuple[float, float] | None = None
        """Seconds in which a node has to leave, and when that was read."""

    def offer(self) -> PoolOffer:
        settings = self._settings
        return PoolOffer(
            kind="slurm",
            slots=settings.pool_slots,
            max_nodes=settings.pool_max_nodes,
            min_nodes=settings.pool_min_nodes,
            per_job=settings.per_job,
            device=settings.pool_device,
            model=settings.pool_model,
            patience_seconds=settings.pool_patience_seconds,
            idle_seconds=settings.pool_idle_seconds,
            note=_note(settings),
        )

    def nodes(self) -> list[NodeState]:
        batches = self._batches.all()
        self._batches.sweep(batches)
        return [state for state, _, _ in self._seen(batches).values()]

    def create(self, requests: Sequence[NodeRequest]) -> list[NodeState]:
        batches = self._batches.all()
        there = {*self._seen(batches), *_on_their_way(batches)}
        refused: list[NodeState] = []
        kinds: dict[Kind, list[NodeRequest]] = {}
        for request in requests:
            if request.node in there:
                continue
            try:
                user = self._user(request)
            except Refused as error:
                refused.append(NodeState(request.node, PoolState.REFUSED, str(error)))
                continue
            kinds.setdefault(kind_of(request, self._settings, user, self._leave_seconds()), []).append(request)
        for kind, alike in kinds.items():
            names = [request.node for request in alike]
            for some in _cut(names):
                refused += self._submit(kind, some)
        return refused

    def end(self, nodes: Collection[str]) -> None:
        batches = self._batches.all()
        cancelled: dict[str | None, list[Task]] = {}
        over: dict[Batch, list[int]] = {}
        for name, (state, batch, task) in self._seen(batches).items():
            if name not in nodes:
                continue
            if state.state == PoolState.ENDED:
                over.setdefault(batch, []).append(batch.nodes.index(name))
            elif task is not None:
                cancelled.setdefault(batch.user, []).append(task)
        for user, tasks in cancelled.items():
            self._cancel(user, tasks)
        for batch, indices in over.items():
            self._batches.finish(batch, indices)

    def watch(self, changed: Callable[[], None]) -> None:
        """Nothing to start: Slurm has no watch."""

    def close(self) -> None:
        self._slurm.close()
        self._batches.close()

    def _seen(self, batches: Sequence[Batch]) -> dict[str, _Seen]:
        """What Slurm says of each node that is not over. Of jobs that were asked for twice, because an answer came too
        late, one is kept."""
        alive = [batch for batch in batches if len(batch.over) < len(batch.nodes)]
        found: dict[str, dict[int, Task]] = {}
        for each in self._slurm.tasks(self._prefix, alive) if alive else ():
            found.setdefault(each.name.removeprefix(self._prefix), {})[each.index] = each
        known: dict[str, _Seen] = {}
        for batch in alive:
            tasks = found.get(batch.id, {})
            there = batch
            if batch.job is None and tasks:  # Slurm's answer was lost
                there = replace(batch, job=next(iter(tasks.values())).array)
                self._batches.write(there)
            for index, node in enumerate(there.nodes):
                task = tasks.get(index)
                if index in there.over or (task is None and there.job is None):
                    continue
                new = _state(node, task), there, task
                known[node] = self._one_of(known[node], new) if node in known else new
        return known

    def _one_of(self, one: _Seen, other: _Seen) -> _Seen:
        """Of two jobs for one node the one that is further; the other one is cancelled."""
        kept, gone = sorted((one, other), key=lambda each: _ORDER[PoolState(each[0].state)])
        if gone[2] is not None and gone[0].state != PoolState.ENDED:
            log.warning("%s was asked for twice: job %s_%d is cancelled", gone[0].node, gone[2].array, gone[2].index)
            self._cancel(gone[1].user, [gone[2]])
        return kept

    def _cancel(self, user: str | None, tasks: Sequence[Task]) -> None:
        try:
            self._slurm.cancel(user, tasks)
        except Refused as error:  # it has just ended, or it is somebody else's now
            log.warning("a job was not cancelled: %s", error)

    def _submit(self, kind: Kind, nodes: Sequence[str]) -> list[NodeState]:
        """Ask for one array; returns the nodes that were refused."""
        settings = self._settings
        tokens = [node_token(join_token(settings), node) for node in nodes]
        try:
            prologue = settings.prologue()
            batch = self._batches.add(nodes, tokens, kind.user)
        except OSError as error:
            return [NodeState(node, PoolState.REFUSED, str(error)) for node in nodes]
        script = batch_script(nodes, dict(kind.environ), self._batches.token_path(batch), settings, prologue)
        asked = Submission(self._prefix + batch.id, len(nodes), kind, script, self._batches.output_path(batch))
        try:
            self._batches.write(replace(batch, job=self._slurm.submit(asked)))
        except Lost:
            raise  # the batch stays, so that its jobs are known if they come
        except ClusterAway:
            self._batches.drop(batch)
            raise
        except Refused as error:
            self._batches.drop(batch)
            # Slurm refuses an array as a whole, also where it would take a part of it.
            if len(nodes) > 1 and "limit" in str(error).lower():
                half = len(nodes) // 2
                return [*self._submit(kind, nodes[:half]), *self._submit(kind, nodes[half:])]
            return [NodeState(node, PoolState.REFUSED, str(error)) for node in nodes]
        return []

    def _user(self, request: NodeRequest) -> str | None:
        """The user of Slurm whose job the node is; None: the provisioner's.

        Raises:
            Refused: there is none.
        """
        settings = self._settings
        if not settings.per_job:
            return None
        if request.user is None:
            raise Refused("this pool's nodes are asked for by job, and this one is for none")
        user = settings.slurm_users.get(request.user, request.user)
        if user == "root" and request.user not in settings.slurm_users:
            raise Refused("no job runs as root, unless EDT_SLURM_USERS says so")
        if not SLURM_USER.fullmatch(user):
            raise Refused(f"{user!r} is no user of Slurm's: EDT_SLURM_USERS says who {request.user} is there")
        try:
            pwd.getpwnam(user)
        except KeyError:
            raise Refused(
                f"this machine knows no user {user}: EDT_SLURM_USERS says who {request.user} is in Slurm"
            ) from None
        return user

    def _leave_seconds(self) -> float:
        """Within how many seconds after SIGTERM a node has to be gone."""
        given = self._settings.slurm_grace_seconds
        if given is not None:
            return leave_seconds(given)
        now = time.monotonic()
        if self._leave is None or self._leave[1] + _FACTS_SECONDS < now:
            facts = self._slurm.grace()
            self._leave = leave_seconds(facts.partition or facts.kill_wait or 0.0), now
        return self._leave[0]


def _state(node: str, task: Task | None) -> NodeState:
    if task is None:
        return NodeState(node, PoolState.ENDED, "Slurm does not know its job any more")
    return NodeState(node, task.pool_state, task.words, task.oom)


def _on_their_way(batches: Sequence[Batch]) -> set[str]:
    """Nodes that Slurm was just asked for, while its answer was lost."""
    since = time.time() - _LOST_SECONDS
    return {node for batch in batches if batch.job is None and batch.made > since for node in batch.nodes}


def _cut(names: Sequence[str]) -> list[Sequence[str]]:
    return [names[start : start + _MOST_TASKS] for start in range(0, len(names), _MOST_TASKS)]


def _note(settings: SlurmSettings) -> str:
    where = settings.slurm_partitions or "the default partition"
    how = {
        "no": f"jobs of the service's user {own_user()}, whoever trains there",
        "sudo": "jobs of the training's owner, by sudo",
        "jwt": "jobs of the training's owner, by slurmrestd",
    }
    return f"{how[settings.slurm_as_user]}, in {where}"
