"""The launcher that runs supervisors in Docker containers: one container for each attempt on this node, with the
supervisor as its first process.

The launcher makes the folders into which the container writes, and changes their owner to the container's user. It
listens to the daemon's events, and gives each handle the newest state of its container.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import stat
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from edt_agent import compiled
from edt_agent.docker_settings import DockerSettings
from edt_agent.errors import ImageMissing, LauncherAway, StartFailed, backoff_seconds, wait_until_set
from edt_agent.launchers import Handle, ImageAbsent, prepare
from edt_agent.launchers.docker.container import (
    LABEL_FENCE,
    LABEL_JOB,
    Node,
    container_spec,
    folders,
    image_of,
)
from edt_agent.launchers.docker.daemon import TOO_LARGE, ContainerSummary, DockerDaemon, check_host, in_thread
from edt_agent.launchers.docker.handle import ContainerHandle
from edt_agent.launchers.process import ProcessHandle
from edt_agent.processes import alive
from edt_agent.settings import AgentSettings, make_private
from edt_agent.slots import Slot
from edt_agent.spool import acknowledged_end
from edt_agent.supervisor_records import Key, SupervisorRecord, SupervisorRecords, from_attempt_file
from edt_contract.attempt import AttemptSpec, DesiredState
from edt_contract.crash_points import CrashPoint, crash_point
from edt_contract.encoding import dumps

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 2.0
"""Most seconds between two tries while the daemon does not answer."""
_LOOK_SECONDS = 10.0
"""Seconds after which the states are read without an event."""
_NOT_THERE = ("not found", "does not exist", "denied", "unauthorized", "invalid reference", TOO_LARGE.lower())
"""If a pull's error contains one of these words, another pull would fail too."""


class DockerLauncher:
    """Starts each supervisor in a container of its own.

    Raises:
        BadSetting: DOCKER_HOST is not an address, or the folder for sockets cannot be made.
    """

    def __init__(
        self, settings: AgentSettings, docker: DockerSettings, records: SupervisorRecords, slots: Sequence[Slot]
    ) -> None:
        self._settings, self._docker, self._records = settings, docker, records
        self._node = Node(settings.name, settings.tag, tuple(slots), 0, 0)
        self._known_node: Node | None = None
        check_host(os.environ)
        self._daemon = DockerDaemon()
        self._sockets = make_private(settings.sockets)
        self._pulls = asyncio.Semaphore(docker.pulls_at_once)
        self._handles: list[ContainerHandle] = []
        self._starting: set[Key] = set()
        self._event = asyncio.Event()
        self._changed: set[str] = set()
        """Ids of containers with a new event; "" stands for all containers."""

    async def start(self, spec: AttemptSpec, desired: DesiredState, before: int = 0) -> Handle:
        key = Key.of(spec)
        self._starting.add(key)
        try:
            node = await self._with_resources()
            await self._ensure_image_of(spec)
            # Earlier containers of this attempt have ended or were never started.
            for old in await self._containers_of(key):
                await self._daemon.remove(old.id)
            return await self._create(spec, desired, before, node)
        except StartFailed:
            self._records.remove(key)
            raise
        finally:
            self._starting.discard(key)

    async def _create(self, spec: AttemptSpec, desired: DesiredState, before: int, node: Node) -> Handle:
        """Make the folders and the container, write the record, start the container, and send the spec. The order
        matters, because the agent may die between two steps. ``sweep`` removes a container that was never started, and
        a container that gets no spec ends.
        """
        socket = self._socket(spec)
        self._sockets.mkdir(mode=0o700, parents=True, exist_ok=True)  # the agent before this one may have removed it
        socket.parent.mkdir(mode=0o700, exist_ok=True)
        spec = prepare(spec, socket)
        separate = self._docker.script_user if self._is_guarded(spec) else None
        user, script_user = await in_thread(lambda: chown_folders(spec, self._docker.user, separate))
        code_user = (user[0] if script_user is None else script_user, user[1])
        spec, kept = await in_thread(lambda: compiled.with_folder(spec, self._settings.compiled, code_user))
        with_data = await in_thread(self._docker.data.is_dir)
        config = container_spec(
            spec,
            desired,
            self._docker,
            node,
            user=user,
            script_user=script_user,
            with_data=with_data,
            compiled=kept,
        )
        container = await self._daemon.create(config)
        guarded = script_user is not None
        record = SupervisorRecord.of(
            spec, spec.socket, acked=before, before=before, container=container, guarded=guarded
        )
        pipe = None
        try:
            pipe = await self._daemon.attach(container)
            self._records.write(record)
            await self._daemon.start(container)
            crash_point(CrashPoint.AGENT_SPEC)
            await pipe.write(dumps(spec).encode() + b"\n")
        except BaseException:
            with contextlib.suppress(StartFailed):
                await self._daemon.remove(container)
            raise
        finally:
            if pipe is not None:
                pipe.close()
        return self._handle(record, len(desired.slots))

    def adopt(self, record: SupervisorRecord) -> Handle:
        if not record.container:  # a process that was started before this node used containers
            return ProcessHandle(record, self._settings.tag)
        return self._handle(record)

    def _handle(self, record: SupervisorRecord, room: int | None = None) -> Handle:
        handle = ContainerHandle(record, self._daemon, self._docker, self._known_node, room)
        self._handles.append(handle)
        self._on_event(record.container)
        return handle

    async def find(self, spec: AttemptSpec) -> SupervisorRecord | None:
        """Search in the daemon's list of containers. A container that was never started is not adopted, nor a container
        of an elastic job that has ended and whose last report the API has, because another one is wanted."""
        key = Key.of(spec)
        over = spec.gang is None and acknowledged_end(spec) > 0
        for seen in await self._containers_of(key):
            if seen.state == "created" or (over and seen.state in {"exited", "dead"}):
                continue
            socket = str(self._socket(spec))
            return SupervisorRecord.of(spec, socket, container=seen.id, guarded=self._is_guarded(spec))
        known = from_attempt_file(spec)
        return known if known is not None and known.pid > 1 and alive(known.process) else None

    def _is_guarded(self, spec: AttemptSpec) -> bool:
        """Whether the job's code runs as another user than the supervisor. An image that the job itself asks for is
        user code, so its container never starts as root or with a capability."""
        return self._docker.script_user is not None and not spec.image

    def _socket(self, spec: AttemptSpec) -> Path:
        """The socket's path. The socket has a folder of its own, because the container sees this folder."""
        return self._sockets / f"{spec.job}.{spec.fence}" / "supervisor.sock"

    async def sweep(self, known: Callable[[], Collection[SupervisorRecord]]) -> int:
        found = await self._daemon.containers(self._node.labels)
        kept = {record.key for record in known()} | self._starting
        strays = [seen for seen in found if _key(seen) not in kept]
        for seen in strays:
            await self._daemon.remove(seen.id)
        return len(strays)

    async def run(self, busy: asyncio.Event) -> None:
        """Keep the states of the containers up to date, for ever. While the daemon does not answer, the states stay as
        they are."""
        failed = 0
        while True:
            listening = asyncio.create_task(self._daemon.events(self._node.labels, self._on_event))
            try:
                await self._with_resources()
                while not listening.done():
                    await wait_until_set(self._event, listening, seconds=_LOOK_SECONDS)
                    await self._refresh()
                    if failed:
                        log.info("the Docker daemon answers again")
                        failed = 0
                listening.result()
            except LauncherAway as error:
                failed += 1
                if failed in {2, 20}:
                    log.warning("containers run on, but their states are unknown: %s", error)
                await asyncio.sleep(min(_AGAIN_SECONDS, backoff_seconds(failed)))
            finally:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)

    def _on_event(self, container: str) -> None:
        self._changed.add(container)
        self._event.set()

    async def _refresh(self) -> None:
        """Update the handles whose containers have new events. Without an event, or after the event "", update all."""
        self._event.clear()
        changed, self._changed = self._changed, set()
        self._handles = [handle for handle in self._handles if not handle.dropped]
        asked = list(self._handles)  # handles that are added during this are updated the next time
        if changed and "" not in changed:
            for handle in asked:
                if handle.container in changed:
                    await handle.update(await self._daemon.state(handle.container))
            return
        states = {seen.id: seen.state for seen in await self._daemon.containers(self._node.labels)}
        for handle in asked:
            await handle.update(states.get(handle.container))

    def close(self) -> None:
        """Nothing to do: every container that was started has a record."""

    async def _with_resources(self) -> Node:
        """The node with its memory and cores, which the daemon reports.

        Raises:
            LauncherAway: the daemon does not answer.
        """
        if self._known_node is None:
            memory, cores = await self._daemon.node()
            self._known_node = dataclasses.replace(self._node, memory=memory, cores=cores)
            for handle in self._handles:
                handle.node = self._known_node
        return self._known_node

    async def _containers_of(self, key: Key) -> list[ContainerSummary]:
        labels = {**self._node.labels, LABEL_JOB: key.job, LABEL_FENCE: str(key.fence)}
        return await self._daemon.containers(labels)

    async def ensure_image(self, image: str) -> ImageAbsent | None:
        """Pull an image if it is not here. At most EDT_DOCKER_PULLS_AT_ONCE images are pulled at the same time, because
        jobs use disk and network too."""
        async with self._pulls:
            if await self._daemon.has_image(image):
                return None
            if self._docker.pull == "never":
                return ImageAbsent("EDT_DOCKER_PULL is never", for_good=True)
            log.info("image %s is not here and is pulled", image)
            error = await self._daemon.pull(image, self._docker.pull_seconds, self._docker.pull_bytes)
        if not error:
            return None
        return ImageAbsent(f"it cannot be pulled: {error}", for_good=any(each in error.lower() for each in _NOT_THERE))

    async def _ensure_image_of(self, spec: AttemptSpec) -> None:
        """Pull the image of an attempt if it is not here.

        Raises:
            StartFailed: the image is missing; the message names it and says what to do.
        """
        image = image_of(spec, self._docker)
        if await self._daemon.has_image(image):
            return
        missing = await self.ensure_image(image)
        if missing is None:
            return
        where = "--msd-image-name" if spec.image else f"EDT_DOCKER_IMAGE_{spec.framework.upper()}"
        words = (
            f"image {image} ({where}) is not on node {spec.node}, and {missing.why};"
            f" build it or load it there, or name another one"
        )
        if spec.image and missing.for_good:
            raise ImageMissing(words)
        raise StartFailed(words)


def chown_folders(
    spec: AttemptSpec, fallback: tuple[int, int], script_user: int | None = None
) -> tuple[tuple[int, int], int | None]:
    """Change the owner of the job's folders to the container's user.

    The supervisor runs as the owner of the job's folder, or as ``fallback`` if root owns the folder. If the job's code
    runs as another user, the owner's group may write everything except the spool, which only the owner may write.

    Args:
        spec: the attempt.
        fallback: uid and gid of the supervisor if root owns the job's folder.
        script_user: uid of the job's code; None: the same as the supervisor's.

    Returns:
        uid and gid of the supervisor, and uid of the job's code (None: the same). The uid of the job's code is one
        larger than ``script_user`` if the supervisor itself has that uid.

    Raises:
        StartFailed: this process may not change the owner.
        OSError: a folder cannot be made or read.
    """
    status = Path(spec.result_dir).stat()
    user = (status.st_uid, status.st_gid) if status.st_uid else fallback
    if script_user == user[0]:
        script_user += 1
    spool = Path(spec.spool_dir).parent
    for folder in folders(spec):
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        is_socket = path == Path(spec.socket).parent
        _chown_tree(path, user, None if is_socket else script_user, str(spool))
    return user, script_user


def _chown_tree(folder: Path, user: tuple[int, int], script_user: int | None, spool: str) -> None:
    """Change the owner of a folder and of everything in it. Links are changed, not followed."""
    try:
        _chown_one(str(folder), None, user, script_user, kept=str(folder) == spool)
        for path, folders_in, files, descriptor in os.fwalk(folder):
            for name in (*folders_in, *files):
                kept = f"{path}/{name}/".startswith(f"{spool}/")
                with contextlib.suppress(FileNotFoundError):
                    _chown_one(name, descriptor, user, script_user, kept=kept)
    except PermissionError as error:
        raise StartFailed(
            f"{folder} cannot be given to user {user[0]}, as whom its container runs: {error.strerror};"
            " run the agent as root or as the owner of the jobs' folders"
        ) from error


def _chown_one(name: str, folder: int | None, user: tuple[int, int], script_user: int | None, *, kept: bool) -> None:
    """Change the owner of one file or folder. If ``kept``, the job may not write it."""
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        now = os.fstat(handle)
        if script_user is not None and now.st_uid == script_user and not kept:
            return
        if now.st_uid != user[0]:
            os.chown(name, *user, dir_fd=folder, follow_symlinks=False)
        if script_user is None or not (stat.S_ISDIR(now.st_mode) or stat.S_ISREG(now.st_mode)):
            return
        mode = stat.S_IMODE(now.st_mode)
        may = mode & ~0o022 if kept else mode | (0o2070 if stat.S_ISDIR(now.st_mode) else 0o060)
        if may != mode:
            Path(f"/proc/self/fd/{handle}").chmod(may)
    finally:
        os.close(handle)


def _key(seen: ContainerSummary) -> Key:
    fence = seen.labels.get(LABEL_FENCE, "")
    return Key(seen.labels.get(LABEL_JOB, ""), int(fence) if fence.isdecimal() else 0)
