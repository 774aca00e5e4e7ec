"""Long bodies are refused before anybody parses them; what is read piece by piece has caps of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from edt_api.access.guard import MOST_BYTES, MOST_BYTES_OF_ANYONE
from edt_contract.reports import BATCH_BYTES
from support.credentials import PASSWORD
from support.served_api import ARGS, EXECS, ServedApi

SESSION = "/api/v1/session"
JSON = {"Content-Type": "application/json"}


def sign_in_of(size: int) -> bytes:
    who = json.dumps({"name": "ana", "password": PASSWORD})
    return who.encode() + b" " * (size - len(who))


def in_pieces(body: bytes) -> Iterator[bytes]:
    """Sent without a length."""
    for at in range(0, len(body), 4096):
        yield body[at : at + 4096]


@pytest.mark.parametrize("pieces", [False, True])
def test_who_is_not_signed_in_sends_a_name_and_a_password_and_no_more(api: ServedApi, pieces: bool) -> None:
    bodies = [sign_in_of(MOST_BYTES_OF_ANYONE), sign_in_of(MOST_BYTES_OF_ANYONE + 1)]
    answers = [api.client().post(SESSION, content=in_pieces(b) if pieces else b, headers=JSON) for b in bodies]
    assert [answer.status_code for answer in answers] == [204, 413]
    assert answers[1].json()["code"] == "too-large"
    assert answers[1].json()["detail"] == "the body is larger than 16384 bytes"


def test_a_user_sends_a_mebibyte_at_most(api: ServedApi) -> None:
    admin = api.client("admin")
    new = json.dumps({"name": "eve", "password": PASSWORD}).encode()
    fits = admin.post("/api/v1/users", content=new.ljust(MOST_BYTES), headers=JSON)
    too_long = admin.post("/api/v1/users", content=new.ljust(MOST_BYTES + 1), headers=JSON)
    assert (fits.status_code, too_long.status_code) == (201, 413)
    assert "1048576 bytes" in too_long.json()["detail"]


def test_a_connection_whose_body_was_refused_serves_the_next_request(api: ServedApi) -> None:
    client = api.client("ana")
    assert client.put("/api/v1/users/ana/password", content=bytes(3 * MOST_BYTES), headers=JSON).status_code == 413
    assert client.get("/api/v1/me").status_code == 200


def test_a_submission_may_be_longer_and_reports_have_their_own_cap(api: ServedApi) -> None:
    long = {"file": ("main.py", b"#" * (MOST_BYTES + 1))}
    assert api.client("ana").post(EXECS, params={"args": ARGS}, files=long).status_code == 200
    node = api.client(token=api.register())
    refused = node.post("/api/v1/nodes/node-a/reports", content=bytes(BATCH_BYTES + 1))
    assert refused.status_code == 413 and refused.json()["detail"].startswith("reports: ")
