"""Sends requests to the Docker daemon through its SDK, each in a thread of its own.

Containers may continue to run while the daemon does not answer. The threads are daemon threads, so that a thread which
waits for the Docker daemon does not prevent the agent from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import docker
import requests.exceptions
import urllib3.exceptions
from docker.errors import APIError, DockerException, NotFound
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
"""Seconds without an answer after which a pull is given up."""
TOO_LARGE = "more than EDT_DOCKER_PULL_BYTES"
_T = TypeVar("_T")
_D = TypeVar("_D")


class _Puller(docker.APIClient):  # type: ignore[misc]  # docker has no types
    """A client for one pull. It has a timeout for each line of the answer; the SDK's own client has none."""

    def _post(self, url: str, **given: Any) -> Any:
        return super()._post(url, **{**given, "timeout": self.timeout})


@dataclass(frozen=True)
class ContainerSummary:
    """A container in the daemon's list."""

    id: str
    labels: Mapping[str, str]
    state: str
    """``created``, ``running``, ``paused``, ``restarting``, ``removing``, ``exited`` or ``dead``."""


@dataclass(frozen=True)
class ContainerEnd:
    """How a container ended."""

    code: int
    """Exit status of its first process."""
    oom: bool
    """Whether the kernel has killed a process of the container because memory ran out."""
    output: str
    """The last line of its output."""


class StdinPipe:
    """A container's standard input. It stays open until this process closes it or ends."""

    def __init__(self, response_socket: Any) -> None:
        self._keeper = response_socket
        self._socket = getattr(response_socket, "_sock", response_socket)

    async def write(self, data: bytes) -> None:
        """Write ``data``.

        Raises:
            LauncherAway: the connection to the Docker daemon has broken.
        """
        try:
            await in_thread(lambda: self._socket.sendall(data))
        except OSError as error:
            raise LauncherAway(f"the Docker daemon does not accept the spec: {error}") from error

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._keeper.close()
        with contextlib.suppress(OSError):
            self._socket.close()


class DockerDaemon:
    """The Docker daemon that DOCKER_HOST names, or this machine's daemon.

    Every coroutine may raise LauncherAway: the daemon does not answer.
    """

    def __init__(self) -> None:
        self._client: Any = None
        self._lock = threading.Lock()

    async def containers(self, labels: Mapping[str, str]) -> list[ContainerSummary]:
        """All containers with these labels, running or not."""
        wanted = {"label": [f"{name}={value}" for name, value in labels.items()]}
        found = await self._call(lambda api: api.containers(all=True, filters=wanted))
        return [ContainerSummary(str(each["Id"]), dict(each["Labels"]), str(each["State"])) for each in found]

    async def node(self) -> tuple[int, int]:
        """Bytes of memory and cores of the daemon's machine."""
        info = await self._call(lambda api: api.info())
        return int(info["MemTotal"]), int(info["NCPU"])

    async def has_image(self, image: str) -> bool:
        return await self._call_or(False, lambda api: bool(api.inspect_image(image)))

    async def pull(self, image: str, seconds: float, most: int) -> str:
        """Pull an image.

        Args:
            image: its name, with or without a tag.
            seconds: seconds after which the pull is given up.
            most: bytes of all layers, as they are sent, above which the pull is given up.

        Returns:
            "" if the image is here now, else why it is not.
        """

        too_long = f"it took longer than EDT_DOCKER_PULL_SECONDS, {seconds:g}"

        def ask(_: Any) -> str:
            name, tag = _with_tag(image)
            until, layers = time.monotonic() + seconds, Counter[str]()
            puller = _Puller(version="auto", timeout=min(seconds, _STALLED_SECONDS), **kwargs_from_env())
            try:
                for line in puller.pull(name, tag=tag, stream=True, decode=True):
                    if "error" in line:
                        return str(line["error"])
                    layer, size_of_layer = line.get("id", ""), (line.get("progressDetail") or {}).get("total") or 0
                    layers[layer] = max(layers[layer], int(size_of_layer))
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
                puller.close()  # the daemon stops a pull when its client has gone
            return ""

        return await self._call(ask)

    async def create(self, config: Mapping[str, Any]) -> str:
        """Make the container that ``container.container_spec`` describes; returns its id.

        Raises:
            StartFailed: the daemon refuses the request.
        """

        def ask(api: Any) -> str:
            host = api.create_host_config(**config["host_config"])
            made = api.create_container(**{**config, "host_config": host}, use_config_proxy=False)
            return str(made["Id"])

        return await self._call(ask, refused="its container could not be made")

    async def attach(self, container: str) -> StdinPipe:
        """Open the container's standard input. When the last attached client closes it, the container's input ends."""
        return StdinPipe(await self._call(lambda api: api.attach_socket(container, params={"stdin": 1, "stream": 1})))

    async def start(self, container: str) -> None:
        """Start a container.

        Raises:
            StartFailed: the daemon refuses the request.
        """
        await self._call(lambda api: api.start(container), refused="its container could not be started")

    async def state(self, container: str) -> str | None:
        """The container's present state, as in ``ContainerSummary``; None: there is no such container. The result of
        ``containers`` may be older than the newest event; this state is not."""
        return await self._call_or(None, lambda api: str(api.inspect_container(container)["State"]["Status"]))

    async def end(self, container: str) -> ContainerEnd | None:
        """How a container ended; None: the container was removed, so this is unknown."""

        def ask(api: Any) -> ContainerEnd:
            state = api.inspect_container(container)["State"]
            lines = api.logs(container, tail=5).decode(errors="replace").strip().splitlines()
            return ContainerEnd(int(state["ExitCode"]), bool(state["OOMKilled"]), lines[-1][:500] if lines else "")

        return await self._call_or(None, ask)

    async def limit(self, container: str, memory: int, cpu_quota: int) -> bool:
        """Set a container's limits.

        Args:
            container: its id.
            memory: bytes.
            cpu_quota: microseconds of processor time in each ``container.CPU_PERIOD``.

        Returns:
            Whether it was done; False if the container uses more memory than that or is gone.
        """

        def ask(api: Any) -> bool:
            if memory < _memory_used(api, container):
                return False
            api.update_container(container, mem_limit=memory, memswap_limit=memory, cpu_quota=cpu_quota)
            return True

        return await self._call_or(False, ask, on=APIError)

    async def kill(self, container: str) -> None:
        """Send SIGKILL to a container, if it still runs."""
        await self._call_or(None, lambda api: api.kill(container), on=APIError)

    async def remove(self, container: str) -> None:
        """Kill and remove a container. When this returns, no container has this id."""
        await self._call_or(None, lambda api: api.remove_container(container, force=True, v=True))

    async def events(self, labels: Mapping[str, str], happened: Callable[[str], None]) -> None:
        """Call ``happened`` with the container's id at each event of the containers with these labels.

        The first call has "" as id. No event after this call is missed.

        Raises:
            LauncherAway: the connection to the daemon has broken. The method ends only in this way.
        """
        loop = asyncio.get_running_loop()
        wanted = {"type": "container", "label": [f"{name}={value}" for name, value in labels.items()]}
        stream = await self._call(lambda api: api.events(decode=True, filters=wanted))

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

    async def _call_or(self, otherwise: _D, question: Callable[[Any], _T], on: type[APIError] = NotFound) -> _T | _D:
        """The result of a request, or ``otherwise`` if the daemon refuses the request with the error ``on``."""

        def ask(api: Any) -> _T | _D:
            try:
                return question(api)
            except on:
                return otherwise

        return await self._call(ask)

    async def _call(self, question: Callable[[Any], _T], refused: str = "") -> _T:
        """Send a request in a thread. If the daemon refuses it and ``refused`` is not empty, raise StartFailed with
        these words; otherwise raise LauncherAway."""
        try:
            return await in_thread(lambda: question(self._api()))
        except APIError as error:
            answer = str(error.explanation or error)
            if refused:
                raise StartFailed(f"{refused}: {answer}") from error
            raise LauncherAway(f"the Docker daemon: {answer}") from error
        except (DockerException, *_AWAY) as error:
            self._client = None  # its other connections are broken too; the next request opens new ones
            raise LauncherAway(f"the Docker daemon does not answer: {_short(error)}") from error

    def _api(self) -> Any:
        """The client. The first request makes it. The client opens a connection for each thread."""
        with self._lock:
            api = self._client  # a local variable, because the event loop may set the field to None
            if api is None:
                api = self._client = docker.from_env(timeout=_ANSWER_SECONDS, version="auto").api
            return api


async def in_thread(call: Callable[[], _T]) -> _T:
    """Run a call that may block in a new thread; returns its result, or raises its error."""
    answer: Future[_T] = Future()
    answer.set_running_or_notify_cancel()  # the call cannot be cancelled, but its caller can

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # raised again in the caller's thread
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True, name="docker").start()
    return await asyncio.wrap_future(answer)


def check_host(environ: Mapping[str, str]) -> None:
    """Check that DOCKER_HOST, if it is set, is an address.

    Raises:
        BadSetting: DOCKER_HOST is not an address.
    """
    host = environ.get("DOCKER_HOST", "")
    if host and "://" not in host:
        raise BadSetting(f"DOCKER_HOST: {host!r}; it is written like unix:///var/run/docker.sock")


def _until_it_breaks(stream: Any) -> Iterator[Mapping[str, Any]]:
    try:
        yield from stream
    except (*_AWAY, DockerException, ValueError):
        return


def _memory_used(api: Any, container: str) -> int:
    """Bytes of memory that a container uses, without the page cache that the kernel can free."""
    try:
        memory = api.stats(container, stream=False, one_shot=True).get("memory_stats", {})
    except APIError:
        return 0
    used, kinds = int(memory.get("usage", 0)), memory.get("stats", {})
    return max(0, used - int(kinds.get("total_inactive_file", kinds.get("inactive_file", 0))))


def _with_tag(image: str) -> tuple[str, str | None]:
    """Name and tag for a pull request. Without a tag the daemon would pull all tags, so "latest" is the default."""
    if "@" in image or ":" in image.rpartition("/")[2]:
        return image, None
    return image, "latest"


def _nothing_came(error: BaseException) -> bool:
    """Whether a request has timed out; if not, it has lost its connection."""
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
