"""Room: runners, agent. The Docker daemon, asked through its SDK. Each question waits in a thread of its own.

A daemon that does not answer is away: that says nothing about containers, which may run on without it. The threads are
daemons themselves, so that one that waits for such a daemon keeps no agent from going.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import docker
import requests.exceptions
import urllib3.exceptions
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.utils import kwargs_from_env

from edt_agent.errors import BadSetting, LauncherAway, StartFailed

_ANSWER_SECONDS = 20.0
_AWAY = (
    requests.exceptions.ConnectionError,
    requests.exceptions.Timeout,
    urllib3.exceptions.HTTPError,
    OSError,
)
_STALLED_SECONDS = 300.0
"""A pull of which nothing is heard for so long is given up."""
TOO_LARGE = "more than EDT_DOCKER_PULL_BYTES"
_T = TypeVar("_T")


class _Puller(docker.APIClient):  # type: ignore[misc]  # docker has no types
    """A client for one pull that waits for each line no longer than its timeout: the SDK's own would wait for ever."""

    def _post(self, url: str, **given: Any) -> Any:
        return super()._post(url, **{**given, "timeout": self.timeout})


@dataclass(frozen=True)
class Seen:
    """A container as the daemon described it."""

    id: str
    name: str
    labels: Mapping[str, str]
    state: str
    """``created``, ``running``, ``paused``, ``restarting``, ``removing``, ``exited``, ``dead``"""


@dataclass(frozen=True)
class End:
    """How a container ended."""

    code: int
    oom: bool
    said: str
    """The last lines of its output."""


class Pipe:
    """A container's standard input, as long as this process lives or until it is closed."""

    def __init__(self, response_socket: Any) -> None:
        self._keeper = response_socket
        self._socket = getattr(response_socket, "_sock", response_socket)

    async def write(self, data: bytes) -> None:
        try:
            await in_thread(lambda: self._socket.sendall(data))
        except OSError as error:
            raise LauncherAway(f"the Docker daemon does not take the letter: {error}") from error

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._keeper.close()
        with contextlib.suppress(OSError):
            self._socket.close()


class Dockerd:
    """The daemon that DOCKER_HOST names, or this machine's. Every method may raise LauncherAway."""

    def __init__(self) -> None:
        self._made: Any = None
        self._lock = threading.Lock()

    async def containers(self, labels: Mapping[str, str]) -> list[Seen]:
        """All that bear these labels, running or not."""
        wanted = {"label": [f"{name}={value}" for name, value in labels.items()]}
        found = await self._ask(lambda api: api.containers(all=True, filters=wanted))
        return [
            Seen(str(each["Id"]), str(each["Names"][0]).lstrip("/"), dict(each["Labels"]), str(each["State"]))
            for each in found
        ]

    async def node(self) -> tuple[int, int]:
        """Bytes of memory and cores of the daemon's machine."""
        info = await self._ask(lambda api: api.info())
        return int(info["MemTotal"]), int(info["NCPU"])

    async def has_image(self, image: str) -> bool:
        def ask(api: Any) -> bool:
            try:
                api.inspect_image(image)
            except ImageNotFound:
                return False
            return True

        return await self._ask(ask)

    async def pull(self, image: str, seconds: float, most: int) -> str:
        """Fetch an image; "" when it is here, else why it is not. Given up after ``seconds``, or as soon as its layers
        are known to have more than ``most`` bytes, as they are sent: the daemon stops when nobody listens any more."""

        too_long = f"it took longer than EDT_DOCKER_PULL_SECONDS, {seconds:g}"

        def ask(_: Any) -> str:
            name, tag = _with_tag(image)
            until, layers = time.monotonic() + seconds, Counter[str]()
            puller = _Puller(version="auto", timeout=min(seconds, _STALLED_SECONDS), **kwargs_from_env())
            try:
                for line in puller.pull(name, tag=tag, stream=True, decode=True):
                    if "error" in line:
                        return str(line["error"])
                    layer, told = line.get("id", ""), (line.get("progressDetail") or {}).get("total") or 0
                    layers[layer] = max(layers[layer], int(told))
                    if (size := layers.total()) > most:
                        return f"its layers have {size} bytes or more, {TOO_LARGE}, {most}"
                    if time.monotonic() > until:
                        return too_long
            except APIError as error:
                return str(error.explanation or error)
            except (*_AWAY, DockerException) as error:
                if not _nothing_came(error):
                    raise
                return too_long if time.monotonic() >= until else f"nothing came for {_STALLED_SECONDS:g} s"
            finally:
                puller.close()  # the daemon stops a pull to which nobody listens
            return ""

        return await self._ask(ask)

    async def create(self, config: Mapping[str, Any]) -> str:
        """Make a container as ``container.container_spec`` describes it; its id. Raises StartFailed."""

        def ask(api: Any) -> str:
            host = api.create_host_config(**config["host_config"])
            made = api.create_container(**{**config, "host_config": host}, use_config_proxy=False)
            return str(made["Id"])

        return await self._ask(ask, refused="its container could not be made")

    async def attach(self, container: str) -> Pipe:
        """Take hold of its standard input: when the last hold is let go, it has ended."""
        return Pipe(await self._ask(lambda api: api.attach_socket(container, params={"stdin": 1, "stream": 1})))

    async def start(self, container: str) -> None:
        await self._ask(lambda api: api.start(container), refused="its container could not be started")

    async def state(self, container: str) -> str | None:
        """What it is at this instant, as in ``Seen``; None: there is none. The list may lag behind an event."""

        def ask(api: Any) -> str | None:
            try:
                return str(api.inspect_container(container)["State"]["Status"])
            except NotFound:
                return None

        return await self._ask(ask)

    async def end(self, container: str) -> End | None:
        """How it ended; None: it is gone, and nobody knows."""

        def ask(api: Any) -> End | None:
            try:
                state = api.inspect_container(container)["State"]
                said = api.logs(container, tail=5)
            except NotFound:
                return None
            lines = said.decode(errors="replace").strip().splitlines()
            return End(int(state["ExitCode"]), bool(state["OOMKilled"]), lines[-1][:500] if lines else "")

        return await self._ask(ask)

    async def limit(self, container: str, memory: int, cpu_quota: int) -> bool:
        """Set what it may use; False: it could not be done now (more is in use, or it is no longer there)."""

        def ask(api: Any) -> bool:
            try:
                if memory < _memory_used(api, container):
                    return False
                api.update_container(container, mem_limit=memory, memswap_limit=memory, cpu_quota=cpu_quota)
            except APIError:
                return False
            return True

        return await self._ask(ask)

    async def kill(self, container: str) -> None:
        """SIGKILL, if it still runs."""

        def ask(api: Any) -> None:
            with contextlib.suppress(APIError):
                api.kill(container)

        await self._ask(ask)

    async def remove(self, container: str) -> None:
        """Remove it, killing what runs of it. Returns when there is none of that id."""

        def ask(api: Any) -> None:
            with contextlib.suppress(NotFound):
                api.remove_container(container, force=True, v=True)

        await self._ask(ask)

    async def events(self, labels: Mapping[str, str], happened: Callable[[str], None]) -> None:
        """Call ``happened`` at each event of these containers, with its id. Ends by LauncherAway.

        The first call is without an id: from then on nothing is missed.
        """
        loop = asyncio.get_running_loop()
        wanted = {"type": "container", "label": [f"{name}={value}" for name, value in labels.items()]}
        stream = await self._ask(lambda api: api.events(decode=True, filters=wanted))

        def listen() -> None:
            loop.call_soon_threadsafe(happened, "")
            for event in _until_it_breaks(stream):
                loop.call_soon_threadsafe(happened, str(event.get("id", "")))

        try:
            await in_thread(listen)
        finally:
            with contextlib.suppress(Exception):
                stream.close()
        raise LauncherAway("the Docker daemon has gone")

    async def _ask(self, question: Callable[[Any], _T], refused: str = "") -> _T:
        """``refused``: what a no of the daemon's means, as StartFailed; else it counts as no answer."""
        try:
            return await in_thread(lambda: question(self._api()))
        except APIError as error:
            said = str(error.explanation or error)
            if refused:
                raise StartFailed(f"{refused}: {said}") from error
            raise LauncherAway(f"the Docker daemon: {said}") from error
        except (DockerException, *_AWAY) as error:
            self._made = None  # its connections are as dead as this one; the next question opens new ones
            raise LauncherAway(f"the Docker daemon does not answer: {_short(error)}") from error

    def _api(self) -> Any:
        """The client, made when the daemon first answers. It opens a connection for each thread that asks."""
        with self._lock:
            api = self._made  # which may be forgotten at any time
            if api is None:
                api = self._made = docker.from_env(timeout=_ANSWER_SECONDS, version="auto").api
            return api


async def in_thread(call: Callable[[], _T]) -> _T:
    """The answer of a call that may wait for as long as it likes."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[_T] = loop.create_future()

    def set_answer(result: _T | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, error = None, None
        try:
            result = call()
        except BaseException as raised:  # it is the caller's, who waits in another thread
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop has ended, nobody waits
            loop.call_soon_threadsafe(set_answer, result, error)

    threading.Thread(target=run, daemon=True, name="docker").start()
    return await answer


def check_host(environ: Mapping[str, str]) -> None:
    """Raises BadSetting where DOCKER_HOST is no address; whether anybody answers there is seen later."""
    host = environ.get("DOCKER_HOST", "")
    if host and "://" not in host:
        raise BadSetting(f"DOCKER_HOST: {host!r}; it is written like unix:///var/run/docker.sock")


def _until_it_breaks(stream: Any) -> Iterator[Mapping[str, Any]]:
    try:
        yield from stream
    except (*_AWAY, DockerException, ValueError):
        return


def _memory_used(api: Any, container: str) -> int:
    """Bytes that cannot be had back: what files hold in its page cache can."""
    try:
        memory = api.stats(container, stream=False, one_shot=True).get("memory_stats", {})
    except APIError:
        return 0
    used, kinds = int(memory.get("usage", 0)), memory.get("stats", {})
    return max(0, used - int(kinds.get("total_inactive_file", kinds.get("inactive_file", 0))))


def _with_tag(image: str) -> tuple[str, str | None]:
    """Name and tag; without one the daemon would fetch every tag there is."""
    if "@" in image or ":" in image.rpartition("/")[2]:
        return image, None
    return image, "latest"


def _nothing_came(error: BaseException) -> bool:
    """Whether the daemon was waited for in vain, rather than lost."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, requests.exceptions.Timeout | urllib3.exceptions.ReadTimeoutError | TimeoutError):
            return True
        inner = next((each for each in seen.args if isinstance(each, BaseException)), None)
        seen = inner or seen.__cause__ or seen.__context__
    return False


def _short(error: BaseException) -> str:
    inner: BaseException = error
    while (inner.__cause__ or inner.__context__) is not None:
        inner = inner.__cause__ or inner.__context__  # type: ignore[assignment]
    return str(inner) or type(inner).__name__
