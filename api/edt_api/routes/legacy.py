"""WMLA's calls for what the platform does not do: they are answered, so that a client can go on or say why it cannot.

The lists are empty, no single object exists, and every change is refused with a sentence that says what to do instead.
A family of calls is one row of a table. Only the token of the inference service is real.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request

from edt_api.access import tokens
from edt_api.access.guard import shown
from edt_api.dependencies import AccountViewer, TheCaller, ThePlatform, TheSettings, for_users
from edt_api.errors import NoSuchObject, NotAuthenticated, NotOffered
from edt_api.schemas import wmla

router = APIRouter()

_DL, _EDI = "/platform/rest/deeplearning/v1", "/dlim/v1"
_TRAIN = "models are not kept on the server: send the code of a training with POST /execs"
_SERVE = "the platform trains models and does not serve them: fetch one with GET /execs/{id}/result, serve it elsewhere"
_DATA = (
    "data sets are folders of the data file system and are not imported: a job names one with "
    "--cs-datastore-meta type=fs,data_path=FOLDER"
)
_SEARCH = "there is no hyperparameter search yet: submit a job for each set of values"


@dataclass(frozen=True)
class Family:
    """All calls at a path and below it."""

    path: str
    instead: str
    """What to do instead, in a sentence."""
    lists: tuple[str, ...] = ("",)
    """Paths below ``path`` at which a GET is answered with an empty list."""


FAMILIES = (
    Family(f"{_DL}/modeltemplates", _TRAIN),
    Family(f"{_DL}/models", _TRAIN),
    Family(f"{_DL}/datasets", _DATA),
    Family(f"{_DL}/inferences", _SERVE),
    Family(f"{_DL}/edimodels", _SERVE),
    Family(f"{_DL}/hypersearch", _SEARCH, ("", "/algorithm")),
    Family(f"{_EDI}/model", _SERVE),
    Family(f"{_EDI}/modelextension", _SERVE),
    Family(f"{_EDI}/deployment", _SERVE, ("/runtime",)),
    Family(f"{_EDI}/inference", _SERVE, ()),
    Family(f"{_EDI}/auth", _SERVE, ()),
)


@router.post(f"{_EDI}/auth/token")
@router.post(f"{_EDI}/auth/token/")
def inference_token(
    request: Request, platform: ThePlatform, settings: TheSettings, caller: TheCaller, viewer: AccountViewer
) -> wmla.InferenceToken:
    """Return a token for a name and a password. A caller who sends a token gets the same one back."""
    token = caller.token
    if token is None:
        token = tokens.issue(platform, viewer, settings.token_hours * 3600)
    elif shown(request.headers) is None:  # no page gets the token of its session
        raise NotAuthenticated("sign in with a name and a password (Authorization: Basic)")
    return wmla.InferenceToken(access_token=token, service_token=token, user_token=token)


def _answer_of(family: Family) -> Callable[[Request], Coroutine[Any, Any, list[Any]]]:
    """Return the route of a family."""

    async def answer(request: Request) -> list[Any]:
        below = request.url.path.removeprefix(family.path).rstrip("/")
        if request.method != "GET":
            raise NotOffered(family.instead)
        if below not in family.lists:
            raise NoSuchObject(f"there is nothing here: {family.instead}")
        return []

    return answer


for _family in FAMILIES:
    for _path in (_family.path, f"{_family.path}/{{path:path}}"):
        router.add_api_route(
            _path,
            _answer_of(_family),
            methods=["GET", "POST", "PUT", "DELETE"],
            dependencies=[for_users],
            include_in_schema=False,
        )
