"""Room: runners, agent. Supervisors as first processes of containers, one for each attempt on this node.

Asks the Docker daemon, writes the ledger, makes folders and gives them to whom the container runs as. One listener
hears of every change of a container; between changes everybody answers from what it saw last.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from edt_agent.container import (
    LABEL_FENCE,
    LABEL_JOB,
    Node,
    container_spec,
    folders,
    image_of,
)
from edt_agent.container_handle import ContainerHandle
from edt_agent.decide import backoff_seconds
from edt_agent.docker_settings import DockerSettings
from edt_agent.dockerd import TOO_LARGE, Dockerd, Seen, check_host, in_thread
from edt_agent.errors import BadSetting, ImageMissing, LauncherAway, StartFailed
from edt_agent.launcher import Handle, NotHere, Started, key_of, prepared
from edt_agent.ledger import Entry, Key, Ledger, from_attempt_file
from edt_agent.process_handle import ProcessHandle
from edt_agent.processes import alive
from edt_agent.settings import AgentSettings, make_private
from edt_agent.slots import Slot
from edt_agent.spool import last_word_heard
from edt_runner.contract import Letter, Wish
from edt_runner.crash_points import CrashPoint, crash_point

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 2.0
"""A daemon that does not answer is asked again so often at least: it is near, and that costs little."""
_LOOK_SECONDS = 10.0
"""So often the containers are looked at without an event."""
_NOT_THERE = ("not found", "does not exist", "denied", "unauthorized", "invalid reference", TOO_LARGE.lower())
"""What is said of an image that another try would not fetch either."""


class DockerLauncher:
    """See ``Launcher``."""

    def __init__(self, settings: AgentSettings, docker: DockerSettings, ledger: Ledger, slots: Sequence[Slot]) -> None:
        self._settings, self._docker, self._ledger = settings, docker, ledger
        self._node = Node(settings.name, settings.tag, tuple(slots), 0, 0)
        self._known_node: Node | None = None
        check_host(os.environ)
        self._dockerd = Dockerd()
        self._sockets = _made(settings.sockets)
        self._pulls = asyncio.Semaphore(docker.pulls_at_once)
        self._handles: list[ContainerHandle] = []
        self._starting: set[Key] = set()
        self._news = asyncio.Event()
        self._changed: set[str] = set()
        """Containers of which something has happened; "" stands for all."""

    async def start(self, letter: Letter, wish: Wish, before: int = 0) -> Started:
        key = key_of(letter)
        self._starting.add(key)
        try:
            node = await self._measured()
            await self._fetch(letter)
            for old in await self._of(key):  # an earlier one of this attempt, which has ended or never began
                await self._dockerd.remove(old.id)
            return await self._begin(letter, wish, before, node)
        except StartFailed:
            self._ledger.remove(key)
            raise
        finally:
            self._starting.discard(key)

    async def _begin(self, letter: Letter, wish: Wish, before: int, node: Node) -> Started:
        """Folders, container, ledger, start, letter, in this order: the agent may die between any two of them.

        What is made and not started is swept. What is started and in whose standard input nobody writes, ends.
        """
        socket = self._socket(letter)
        self._sockets.mkdir(mode=0o700, parents=True, exist_ok=True)  # the agent before this one took it along
        socket.parent.mkdir(mode=0o700, exist_ok=True)
        letter = prepared(letter, socket)
        separate = self._docker.script_user if self._is_guarded(letter) else None
        user, script_user = await in_thread(lambda: give(letter, self._docker.user, separate))
        with_data = await in_thread(self._docker.data.is_dir)
        spec = container_spec(letter, wish, self._docker, node, user=user, script_user=script_user, with_data=with_data)
        container = await self._dockerd.create(spec)
        guarded = script_user is not None
        handle = ContainerHandle(container, socket, self._dockerd, self._docker, node, guarded=guarded)
        pipe = None
        try:
            pipe = await self._dockerd.attach(container)
            entry = Entry(
                job=letter.job,
                fence=letter.fence,
                node=letter.node,
                spool_dir=letter.spool_dir,
                socket=letter.socket,
                grace_seconds=letter.grace_seconds,
                pid=0,
                starttime=0,
                life="",
                acked=before,
                before=before,
                container=container,
                guarded=guarded,
            )
            self._ledger.write(entry)
            await self._dockerd.start(container)
            crash_point(CrashPoint.AGENT_LETTER)
            await pipe.write(letter.to_json().encode() + b"\n")
        except BaseException:
            with contextlib.suppress(StartFailed):
                await self._dockerd.remove(container)
            raise
        finally:
            if pipe is not None:
                pipe.close()
        handle.has_room_for(len(wish.slots))
        self._handles.append(handle)
        self._hear(container)
        return Started(entry, handle)

    def adopt(self, entry: Entry) -> Handle:
        if not entry.container:  # a process that was started before this node went over to containers
            return ProcessHandle(entry, self._settings.tag)
        socket, node = Path(entry.socket), self._known_node
        handle = ContainerHandle(entry.container, socket, self._dockerd, self._docker, node, guarded=entry.guarded)
        self._handles.append(handle)
        self._hear(entry.container)
        return handle

    async def find(self, letter: Letter) -> Entry | None:
        """By the container list. One that never ran, or whose last word the API has heard, is not adopted."""
        key = key_of(letter)
        over = last_word_heard(letter) > 0
        for seen in await self._of(key):
            if seen.state == "created" or (over and seen.state in {"exited", "dead"}):
                continue
            return Entry(
                letter.job,
                letter.fence,
                letter.node,
                letter.spool_dir,
                str(self._socket(letter)),
                letter.grace_seconds,
                0,
                0,
                "",
                container=seen.id,
                guarded=self._is_guarded(letter),
            )
        known = from_attempt_file(letter)
        return known if known is not None and known.pid > 1 and alive(known.process) else None

    def _is_guarded(self, letter: Letter) -> bool:
        """Whether the job's code gets a user of its own. An image of the job's own is the job's code altogether: it
        never begins as root, nor with a capability."""
        return self._docker.script_user is not None and not letter.image

    def _socket(self, letter: Letter) -> Path:
        """In a folder of its own: that is all of this node's that a container sees besides its job's."""
        return self._sockets / f"{letter.job}.{letter.fence}" / "supervisor.sock"

    async def sweep(self, known: Callable[[], Collection[Entry]]) -> int:
        failed = 0
        while True:
            try:
                found = await self._dockerd.containers(self._node.labels)
                kept = {entry.key for entry in known()} | self._starting
                strays = [seen for seen in found if _key(seen) not in kept]
                for seen in strays:
                    await self._dockerd.remove(seen.id)
                return len(strays)
            except StartFailed as error:
                failed += 1
                log.warning("strays are not swept yet: %s", error)
                await asyncio.sleep(backoff_seconds(failed))

    async def go_on(self, busy: asyncio.Event) -> None:
        """Keep what is known of the containers fresh. While the daemon is away it stays as it was."""
        failed = 0
        while True:
            listening = asyncio.create_task(self._dockerd.events(self._node.labels, self._hear))
            try:
                await self._measured()
                while not listening.done():
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_LOOK_SECONDS):
                            await self._until_news(listening)
                    await self._look()
                    if failed:
                        log.info("the Docker daemon answers again")
                        failed = 0
                listening.result()
            except LauncherAway as error:
                failed += 1
                if failed in {2, 20}:
                    log.warning("containers go on unseen: %s", error)
                await asyncio.sleep(min(_AGAIN_SECONDS, backoff_seconds(failed)))
            finally:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)

    def _hear(self, container: str) -> None:
        self._changed.add(container)
        self._news.set()

    async def _until_news(self, listening: asyncio.Task[None]) -> None:
        news = asyncio.create_task(self._news.wait())
        try:
            await asyncio.wait({news, listening}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()

    async def _look(self) -> None:
        """Tell handles what their containers are now: those of which something was heard, or all."""
        self._news.clear()
        changed, self._changed = self._changed, set()
        self._handles = [handle for handle in self._handles if not handle.dropped]
        asked = list(self._handles)  # those that come while the daemon is asked wait their turn
        if changed and "" not in changed:
            for handle in asked:
                if handle.container in changed:
                    await handle.saw(await self._dockerd.state(handle.container))
            return
        states = {seen.id: seen.state for seen in await self._dockerd.containers(self._node.labels)}
        for handle in asked:
            await handle.saw(states.get(handle.container))

    def close(self) -> None:
        """Everything is known: what was started stands in the ledger."""

    async def _measured(self) -> Node:
        """The node, with what its daemon says it has."""
        if self._known_node is None:
            memory, cores = await self._dockerd.node()
            self._known_node = Node(self._node.name, self._node.tag, self._node.slots, memory, cores)
            for handle in self._handles:
                handle.runs_on(self._known_node)
        return self._known_node

    async def _of(self, key: Key) -> list[Seen]:
        labels = {**self._node.labels, LABEL_JOB: key.job, LABEL_FENCE: str(key.fence)}
        return await self._dockerd.containers(labels)

    async def fetch(self, image: str) -> NotHere | None:
        """See ``Launcher``. A few are pulled at once, the others wait: the disk and the network are the jobs', too."""
        async with self._pulls:
            if await self._dockerd.has_image(image):
                return None
            if self._docker.pull == "never":
                return NotHere("EDT_DOCKER_PULL is never", for_good=True)
            log.info("image %s is not here and is pulled", image)
            said = await self._dockerd.pull(image, self._docker.pull_seconds, self._docker.pull_bytes)
        if not said:
            return None
        return NotHere(f"it cannot be pulled: {said}", for_good=any(each in said.lower() for each in _NOT_THERE))

    async def _fetch(self, letter: Letter) -> None:
        """See to it that its image is here. Raises StartFailed, which names it and says what would do."""
        image = image_of(letter, self._docker)
        if await self._dockerd.has_image(image):
            return
        missing = await self.fetch(image)
        if missing is None:
            return
        where = "--msd-image-name" if letter.image else f"EDT_DOCKER_IMAGE_{letter.framework.upper()}"
        words = (
            f"image {image} ({where}) is not on node {letter.node}, and {missing.why};"
            f" build it or load it there, or name another one"
        )
        if letter.image and missing.for_good:
            raise ImageMissing(words)
        raise StartFailed(words)


def give(
    letter: Letter, fallback: tuple[int, int], script_user: int | None = None
) -> tuple[tuple[int, int], int | None]:
    """Who the container runs as, and the job's code in it. The one is the owner of the job's folder; where that is
    root, ``fallback``, who then gets all of it. What this agent made in it belongs to the owner, too. Where the other
    is to be somebody else, the owner's group may write all but the spool, which nobody but the owner may."""
    status = Path(letter.result_dir).stat()
    user = (status.st_uid, status.st_gid) if status.st_uid else fallback
    if script_user == user[0]:
        script_user += 1
    spool = Path(letter.spool_dir).parent
    for folder in folders(letter):
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        is_socket = path == Path(letter.socket).parent
        _give_all(path, user, None if is_socket else script_user, str(spool))
    return user, script_user


def _give_all(folder: Path, user: tuple[int, int], script_user: int | None, spool: str) -> None:
    """Change the owner of a folder and all in it that is not his yet; links are given, not followed."""
    try:
        _give_one(str(folder), None, user, script_user, kept=str(folder) == spool)
        for path, folders_in, files, descriptor in os.fwalk(folder):
            for name in (*folders_in, *files):
                kept = f"{path}/{name}/".startswith(f"{spool}/")
                with contextlib.suppress(FileNotFoundError):
                    _give_one(name, descriptor, user, script_user, kept=kept)
    except PermissionError as error:
        raise StartFailed(
            f"{folder} cannot be given to user {user[0]}, as whom its container runs: {error.strerror};"
            " run the agent as root or as the owner of the jobs' folders"
        ) from error


def _give_one(name: str, folder: int | None, user: tuple[int, int], script_user: int | None, *, kept: bool) -> None:
    """``kept``: it is the supervisor's, not the job's. What the job's user owns its supervisor will share."""
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


def _made(folder: Path) -> Path:
    try:
        return make_private(folder)
    except OSError as error:
        raise BadSetting(f"EDT_RUNTIME_DIR: {folder} cannot be made: {error.strerror}") from error


def _key(seen: Seen) -> Key:
    fence = seen.labels.get(LABEL_FENCE, "")
    return Key(seen.labels.get(LABEL_JOB, ""), int(fence) if fence.isdecimal() else 0)
