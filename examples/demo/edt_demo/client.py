"""What a user's program says to the platform, and nothing else: REST.

Jobs go in and out through WMLA's surface; what is watched meanwhile comes from ``/api/v1``.
"""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import Any

import httpx

from edt_api.schemas.cluster import Timeline
from edt_api.schemas.jobs import Job, Resize, ResizePage
from edt_demo.exits import DemoFailed, ExitCode
from edt_demo.settings import Framework

_EXECS = "/platform/rest/deeplearning/v1/execs"


class Client:
    """One user's connection. Raises DemoFailed for whatever the platform refuses or does not answer."""

    def __init__(self, url: str, user: str, password: str) -> None:
        self._http = httpx.Client(base_url=url, auth=(user, password), timeout=30.0, trust_env=False)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def serves(self) -> bool:
        """Whether the platform answers, and a node has come."""
        try:
            return self._http.get("/readyz").is_success and bool(self._http.get("/api/v1/nodes").json()["items"])
        except (httpx.HTTPError, ValueError, KeyError):
            return False

    def submit(self, framework: Framework, workers: int, environ: Mapping[str, str], arguments: str) -> str:
        """Send the framework's script as a job for at most ``workers`` engines; its exec id."""
        folder = framework.script
        variables = " ".join(f"--msd-env {quote(f'{name}={value}')}" for name, value in environ.items())
        args = (
            f"--exec-start {framework.submitted_as} --model-dir {folder.name} --model-main main.py "
            f"--numWorker {workers} {variables} {arguments}"
        )
        file = {"file": (f"{folder.name}.modelDir.tar", packed(folder))}
        return str(self._ask("POST", _EXECS, params={"args": args}, files=file).json()["id"])

    def job(self, exec_id: str) -> Job:
        return Job.model_validate(self._ask("GET", f"/api/v1/jobs/{exec_id}").json())

    def resizes(self, exec_id: str) -> list[Resize]:
        """All of them, page by page."""
        found: list[Resize] = []
        cursor: str | None = None
        while True:
            where = {"cursor": cursor} if cursor else {}
            answer = self._ask("GET", f"/api/v1/jobs/{exec_id}/resizes", params=where)
            page = ResizePage.model_validate_json(answer.content)
            found += page.items
            if page.next is None:
                return found
            cursor = page.next

    def timeline(self) -> Timeline:
        return Timeline.model_validate(self._ask("GET", "/api/v1/timeline").json())

    def log(self, exec_id: str, log_type: str = "") -> str:
        """A job's log as text."""
        return self._ask(
            "GET", f"{_EXECS}/{exec_id}/log", params={"logType": log_type}, headers={"Accept": "text/plain"}
        ).text

    def download(self, exec_id: str, path: str, to: Path) -> None:
        """Fetch what a job saved, and of it the file ``path``."""
        packed = self._ask("GET", f"{_EXECS}/{exec_id}/result").content
        to.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            to.write_bytes(archive.read(path))

    def _ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise DemoFailed(ExitCode.PLATFORM, f"{method} {path}: {error}") from None
        if not answer.is_success:
            raise DemoFailed(ExitCode.PLATFORM, f"{method} {path}: {answer.status_code} {answer.text.strip()}")
        return answer


def packed(folder: Path) -> bytes:
    """``folder`` as a tar, without what Python has compiled."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(folder, folder.name, filter=lambda entry: None if "__pycache__" in entry.name else entry)
    return buffer.getvalue()
