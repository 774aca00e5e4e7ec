"""One conversation with the API: requests go out with the token, refusals come back as sentences."""

from __future__ import annotations

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
from edt_cli.login import api_address, token_for

_Shape = TypeVar("_Shape", bound=BaseModel)
_Page = TypeVar("_Page", bound=Page[Any])

EXECS = "/platform/rest/deeplearning/v1/execs"
"""WMLA's resources: jobs are submitted and their files fetched here."""
OURS = "/api/v1"
PATIENCE_SECONDS = 30.0
"""So long is something handed in again that found the API restarting, or its database."""
PAGE = 500
"""So many items of a list are asked for at once; the API gives no more."""
_PAUSE_SECONDS = 0.5
_COME_BACK = frozenset({502, 503, 504})
"""Answers, a proxy's too, that say no more than: not now."""


class Session:
    """Requests to one API as one user."""

    def __init__(self, api: str, token: str | None) -> None:
        self.api = api
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=api, headers=headers, timeout=httpx.Timeout(60, connect=10))

    def close(self) -> None:
        self._http.close()

    def ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        """One request. Raises a CliError whose sentence is fit to be shown."""
        try:
            response = self._http.request(method, path, **request)
        except httpx.HTTPError as error:
            raise NoAnswer(self.api, error) from error
        return self._checked(response)

    def post_once(self, path: str, request: Callable[[], Mapping[str, Any]]) -> httpx.Response:
        """A POST that makes something, again and again until there is an answer: by its key the API knows that it is
        one. ``request`` makes the body anew each time. Raises a CliError as ``ask`` does.
        """
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        until = time.monotonic() + PATIENCE_SECONDS
        warned = False
        while True:
            pause = _PAUSE_SECONDS
            try:
                response = self._http.post(path, headers=headers, **request())
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
        """A GET whose body is read piece by piece."""
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
        """GET a list that comes in pages, to its end."""
        cursor: dict[str, str] = {}
        while True:
            page = self.one(shape, path, params={"limit": PAGE, **params, **cursor})
            yield page
            if page.next is None:
                return
            cursor = {"cursor": page.next}

    def items(self, shape: type[Page[_Shape]], path: str, **params: Any) -> list[_Shape]:
        """GET all items of such a list."""
        return [item for page in self.pages(shape, path, **params) for item in page.items]

    def read(self, shape: type[_Shape], response: httpx.Response) -> _Shape:
        """The object in an answer."""
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
    """A session with the API that ``--api``, the environment or the login names."""
    api = api_address(given)
    with closing(Session(api, token_for(api))) as opened:
        yield opened


def _seconds(text: str | None) -> float:
    """What Retry-After says; a date is as good as nothing."""
    return float(text) if text is not None and text.isdecimal() else 0.0


def _sentence(response: httpx.Response) -> str:
    """What an API says when it refuses: a problem document's words, or those behind WMLA's ``Error 400: ``."""
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
