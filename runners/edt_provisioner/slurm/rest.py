"""Slurm by slurmrestd, as the user of a JSON web token. The version of the API is chosen by what slurmrestd offers."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx

from edt_provisioner.cluster import ClusterAway
from edt_provisioner.slurm.batches import Batch
from edt_provisioner.slurm.commands import Commands, Grace, Lost, Refused, passed_on
from edt_provisioner.slurm.script import Submission, job_description
from edt_provisioner.slurm.settings import SlurmSettings
from edt_provisioner.slurm.states import Task, read_jobs

_SUBMIT = re.compile(r"/slurm/v0\.0\.(\d+)/job/submit")
_OLDEST, _NEWEST = 38, 44
"""Versions v0.0.N whose shapes are known. 38 was tried; from 39 on they are those that Slurm's pages describe."""
_NEW_SHAPES = 39
_TOKEN_SECONDS = 300.0
"""Seconds for which a token is used again."""
_NO_SUCH_JOB = 2017
_LATE = frozenset({1002, 1003, 1005, 5004})
"""Numbers of errors of connections that broke when the request was sent: nobody knows what became of it."""
_AWAY = _LATE | {-1, 0, 1, 1001, 1004, 1800, 6000}
"""Numbers of errors that say nothing of the job: slurmctld does not answer, or does not take the token. slurmrestd
writes -1 for most of them."""


class _NoSuchJob(Refused):
    """Slurm does not know the job, or not any more."""


class Rest:
    """Slurm by slurmrestd."""

    def __init__(self, settings: SlurmSettings) -> None:
        self._settings, self._environ = settings, passed_on()
        url = settings.slurm_rest or ""
        where = urlsplit(url)
        unix = where.scheme == "unix"
        self._http = httpx.Client(
            base_url="http://slurmrestd" if unix else url,
            transport=httpx.HTTPTransport(uds=where.path) if unix else None,
            timeout=settings.slurm_timeout_seconds,
            trust_env=False,
        )
        self._version: int | None = None
        self._tokens: dict[str, tuple[str, float]] = {}

    def close(self) -> None:
        self._http.close()

    def tasks(self, prefix: str, batches: Sequence[Batch]) -> list[Task]:
        found: list[Task] = []
        for batch in batches:
            assert batch.user is not None
            # One array by its number is a small answer; all jobs are listed where an answer was lost.
            path = "jobs" if batch.job is None else f"job/{batch.job}"
            with contextlib.suppress(_NoSuchJob):
                answer = self._ask("GET", path, batch.user)
                found += [task for task in read_jobs(answer.get("jobs") or ()) if task.name == prefix + batch.id]
        return found

    def submit(self, asked: Submission) -> str:
        assert asked.kind.user is not None
        version = self._api_version(asked.kind.user)
        body = job_description(asked, self._settings, new=version >= _NEW_SHAPES)
        try:
            answer = self._ask("POST", "job/submit", asked.kind.user, body)
        except httpx.TimeoutException as error:
            raise Lost(f"slurmrestd did not answer in {self._settings.slurm_timeout_seconds:g} s") from error
        number = answer.get("job_id")
        if not isinstance(number, int) or number <= 0:
            raise Lost("slurmrestd named no job")
        return str(number)

    def cancel(self, user: str | None, tasks: Sequence[Task]) -> None:
        assert user is not None
        for task in tasks:
            with contextlib.suppress(_NoSuchJob):
                self._ask("DELETE", f"job/{task.array}_{task.index}", user)

    def grace(self) -> Grace:
        """What Slurm's commands say, if they are installed here."""
        try:
            return Commands(self._settings).grace()
        except ClusterAway:
            return Grace(None, None)

    def _api_version(self, user: str) -> int:
        if self._version is None:
            answer = self._answer("GET", "/openapi", user, None)
            if answer.status_code == httpx.codes.NOT_FOUND:
                answer = self._answer("GET", "/openapi/v3", user, None)
            paths = self._read(answer, user).get("paths") or ()
            offered = {int(match[1]) for path in paths if (match := _SUBMIT.fullmatch(path))}
            known = [number for number in offered if _OLDEST <= number <= _NEWEST]
            if not known:
                said = ", ".join(f"v0.0.{number}" for number in sorted(offered)) or f"status {answer.status_code}"
                raise ClusterAway(f"slurmrestd offers none of v0.0.{_OLDEST} to v0.0.{_NEWEST}, but {said}")
            self._version = max(known)
        return self._version

    def _ask(self, method: str, path: str, user: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Ask slurmrestd as this user.

        Raises:
            ClusterAway: slurmrestd or slurmctld does not answer.
            Refused: Slurm refuses.
            httpx.TimeoutException: the answer to a request that changes something did not come in time.
        """
        version = self._api_version(user)
        answer = self._answer(method, f"/slurm/v0.0.{version}/{path}", user, body)
        data = self._read(answer, user)
        errors = [each for each in data.get("errors") or () if isinstance(each, dict)]
        if errors:
            codes = {int(each.get("error_number") or each.get("error_code") or 0) for each in errors}
            said = "; ".join(dict.fromkeys(filter(None, map(_words, errors))))[:500] or "an error without words"
            if _NO_SUCH_JOB in codes:
                raise _NoSuchJob(said)
            if method == "POST" and codes & _LATE:
                raise Lost(said)
            if method == "GET" or codes & _AWAY:
                raise ClusterAway(said)
            raise Refused(said)
        if not answer.is_success:
            raise ClusterAway(f"slurmrestd answered {answer.status_code}")
        return data

    @staticmethod
    def _read(answer: httpx.Response, user: str) -> dict[str, Any]:
        """The object in an answer.

        Raises:
            ClusterAway: there is none, which says nothing of a job.
        """
        try:
            data = answer.json()
        except ValueError:
            data = None
        if isinstance(data, dict):
            return data
        if answer.status_code in {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}:
            raise ClusterAway(f"slurmrestd does not accept the token of {user}")
        raise ClusterAway(f"slurmrestd answered {answer.status_code}: {answer.text[:200].strip()}")

    def _answer(self, method: str, path: str, user: str, body: Mapping[str, Any] | None) -> httpx.Response:
        headers = {"X-SLURM-USER-NAME": user, "X-SLURM-USER-TOKEN": self._token(user)}
        try:
            answer = self._http.request(method, path, headers=headers, json=body)
        except httpx.ReadTimeout as error:
            if method == "POST":
                raise
            raise ClusterAway("slurmrestd does not answer in time") from error
        except httpx.HTTPError as error:
            raise ClusterAway(f"slurmrestd does not answer: {error or type(error).__name__}") from error
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            self._tokens.pop(user, None)
        return answer

    def _token(self, user: str) -> str:
        """A token of this user, from the command that makes them.

        Raises:
            ClusterAway: the command fails.
        """
        known = self._tokens.get(user)
        if known is not None and known[1] > time.monotonic():
            return known[0]
        words = [word.replace("{user}", user) for word in self._settings.slurm_token_command]
        try:
            done = subprocess.run(
                words,
                capture_output=True,
                text=True,
                env=self._environ,
                cwd="/",
                timeout=self._settings.slurm_timeout_seconds,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ClusterAway(f"EDT_SLURM_TOKEN_COMMAND: {words[0]}: {type(error).__name__}") from error
        token = done.stdout.strip().rpartition("SLURM_JWT=")[2].strip()
        if done.returncode != 0 or not token:
            raise ClusterAway(f"EDT_SLURM_TOKEN_COMMAND: {words[0]} ended with {done.returncode} and gave no token")
        self._tokens[user] = (token, time.monotonic() + _TOKEN_SECONDS)
        return token


def _words(error: Mapping[str, Any]) -> str:
    found = [str(error.get(name) or "").strip() for name in ("description", "error")]
    return ": ".join(each for each in dict.fromkeys(found) if each)
