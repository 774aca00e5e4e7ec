"""Requests to the API: each carries the token, and each refusal becomes an error with a sentence."""

from __future__ import annotations

import ssl
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, TypeVar

import httpx
import typer
from pydantic import BaseModel, ValidationError

from edt_api.schemas.jobs import Page
from edt_cli.errors import CliError, NoAnswer, NotLoggedIn, Refused
from edt_cli.login import accepted_by, api_address, token_for

_Shape = TypeVar("_Shape", bound=BaseModel)
_Page = TypeVar("_Page", bound=Page[Any])

EXECS = "/platform/rest/deeplearning/v1/execs"
"""Path of WMLA's resources: here jobs are submitted and their files are fetched."""
OURS = "/api/v1"
PATIENCE_SECONDS = 30.0
"""How long a submission is sent again if the API, or its database, is restarting."""
ANSWER_SECONDS = 60.0
"""How long the API may take for an answer, or for the next piece of one."""
COPYING_SECONDS = 1800.0
"""How long it may take where it first copies the checkpoint from which a job begins, which may have many gigabytes."""
PAGE = 500
"""How many items of a list are requested at once. The API gives no more."""
_PAUSE_SECONDS = 0.5
_CONNECT_SECONDS = 10.0
_COME_BACK = frozenset({502, 503, 504})
"""Status codes, also of a proxy, that only mean: try again later."""


class Session:
    """Requests to one API as one user."""

    def __init__(self, api: str, token: str | None, verify: ssl.SSLContext | bool = True) -> None:
        self.api = api
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=api, headers=headers, timeout=_timeout(ANSWER_SECONDS), verify=verify)

    def close(self) -> None:
        self._http.close()

    def ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Send one request and return the response.

        Raises:
            CliError: there is no answer, or the API refuses. The message can be shown to the user.
        """
        try:
            response = self._http.request(method, path, **request)
        except httpx.HTTPError as error:
            raise NoAnswer(self.api, error) from error
        return self._checked(response)

    def post_once(self, path: str, request: Callable[[], Mapping[str, Any]], *, copies: bool = False) -> httpx.Response:
        """Send a POST that creates something, again and again until there is an answer.

        The statuses 502, 503 and 504 do not count as an answer. All tries have the same Idempotency-Key, so the API
        treats them as one request. The tries end after PATIENCE_SECONDS.

        Args:
            path: path of the request.
            request: makes the body anew for each try.
            copies: whether the API may copy a checkpoint before it answers, which takes long.

        Raises:
            CliError: as in ``ask``.
        """
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        timeout = _timeout(COPYING_SECONDS if copies else ANSWER_SECONDS)
        until = time.monotonic() + PATIENCE_SECONDS
        warned = False
        while True:
            pause = _PAUSE_SECONDS
            try:
                response = self._http.post(path, headers=headers, timeout=timeout, **request())
                if response.status_code not in _COME_BACK:
                    return self._checked(response)
                why = _sentence(response)
                failure: CliError = Refused(why)
                pause = max(pause, _seconds(response.headers.get("Retry-After")))
            except httpx.HTTPError as error:
                why = str(error) or type(error).__name__
                failure = NoAnswer(self.api, error)
            if time.monotonic() + pause > until:
                raise failure
            if not warned:
                typer.echo(f"edt: {why}; trying for {PATIENCE_SECONDS:g} s", err=True)
            warned = True
            time.sleep(pause)

    @contextmanager
    def stream(self, path: str, **request: Any) -> Iterator[httpx.Response]:
        """Send a GET whose body the caller reads piece by piece.

        Raises:
            CliError: as in ``ask``.
        """
        try:
            with self._http.stream("GET", path, **request) as response:
                if not response.is_success:
                    response.read()
                yield self._checked(response)
        except httpx.HTTPError as error:
            raise NoAnswer(self.api, error) from error

    def one(self, shape: type[_Shape], path: str, **request: Any) -> _Shape:
        """GET one object."""
        return self.read(shape, self.ask("GET", path, **request))

    def pages(self, shape: type[_Page], path: str, **params: Any) -> Iterator[_Page]:
        """GET all pages of a list."""
        cursor: dict[str, str] = {}
        while True:
            page = self.one(shape, path, params={"limit": PAGE, **params, **cursor})
            yield page
            if page.next is None:
                return
            cursor = {"cursor": page.next}

    def items(self, shape: type[Page[_Shape]], path: str, **params: Any) -> list[_Shape]:
        """GET all items of a list that comes in pages."""
        return [item for page in self.pages(shape, path, **params) for item in page.items]

    def read(self, shape: type[_Shape], response: httpx.Response) -> _Shape:
        """Return the object in a response.

        Raises:
            CliError: the response does not have this shape.
        """
        try:
            return shape.model_validate_json(response.content)
        except ValidationError as error:
            raise CliError(f"{self.api} answers in words this version of edt does not know: {response.url}") from error

    def _checked(self, response: httpx.Response) -> httpx.Response:
        if response.is_success:
            return response
        if response.status_code == httpx.codes.UNAUTHORIZED:
            raise NotLoggedIn(self.api)
        raise Refused(_sentence(response))


@contextmanager
def session(given: str | None) -> Iterator[Session]:
    """Open a session with the API that ``--api``, the environment or the login names."""
    api = api_address(given)
    with closing(Session(api, token_for(api), accepted_by(api))) as opened:
        yield opened


def _timeout(answer: float) -> httpx.Timeout:
    return httpx.Timeout(ANSWER_SECONDS, connect=_CONNECT_SECONDS, read=answer)


def _seconds(text: str | None) -> float:
    """Return the seconds of a Retry-After header; 0 for a date or no header."""
    return float(text) if text is not None and text.isdecimal() else 0.0


def _sentence(response: httpx.Response) -> str:
    """Return the API's sentence of a refusal: from a problem document, or the text after WMLA's ``Error 400: ``."""
    try:
        data = response.json()
    except ValueError:
        data = None
    if isinstance(data, dict) and data.get("detail"):
        return str(data["detail"])
    text = response.text.strip().splitlines()
    return (
        text[0].removeprefix(f"Error {response.status_code}: ") if text else f"the API answered {response.status_code}"
    )
