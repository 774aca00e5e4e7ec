"""A request that is sent again, because nobody saw the answer: one job, one answer, for a day."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from edt_scheduler.model.idempotency import KEPT_SECONDS
from edt_scheduler.operations import accounts, execs
from edt_scheduler.periodic.sweeping import sweep_keys
from edt_scheduler.platform import Platform
from support.served_api import ARGS, EXECS, ServedApi

SCRIPT = b"print('hello')\n"


def send(
    client: httpx.Client, key: str | None, args: str = ARGS, script: bytes = SCRIPT, **more: str
) -> httpx.Response:
    headers = {"Idempotency-Key": key} if key is not None else {}
    return client.post(EXECS, params={"args": args}, files={"file": ("main.py", script)}, headers=headers, data=more)


def listed(api: ServedApi, user: str) -> list[str]:
    return [job.exec_id for job in execs.jobs(api.platform, viewer=accounts.user(api.platform, user))]


@pytest.fixture
def key() -> str:
    return uuid.uuid4().hex


def test_the_same_request_twice_is_one_job_and_the_second_leaves_nothing(api: ServedApi, key: str) -> None:
    ana, before = api.client("ana"), len(listed(api, "ana"))
    first, second = send(ana, key), send(ana, key)
    assert first.status_code == second.status_code == 200
    assert first.json()["id"] == second.json()["id"]
    assert len(listed(api, "ana")) == before + 1
    assert list(api.settings.staged.iterdir()) == []


def test_without_a_key_two_requests_are_two_jobs(api: ServedApi) -> None:
    ana = api.client("ana")
    assert send(ana, None).json()["id"] != send(ana, None).json()["id"]


def test_a_user_may_send_the_key_of_another(api: ServedApi, key: str) -> None:
    assert send(api.client("ana"), key).json()["id"] != send(api.client("bob"), key).json()["id"]


@pytest.mark.parametrize(
    "other",
    [{"args": ARGS + " --epochs 9"}, {"script": b"print('other')\n"}, {"data": '{"hardwareSpec": {}}'}],
    ids=["args", "upload", "form"],
)
def test_the_key_of_another_request_is_a_409_that_names_the_header(
    api: ServedApi, key: str, other: dict[str, str]
) -> None:
    ana = api.client("ana")
    send(ana, key)
    before = listed(api, "ana")
    refused = send(ana, key, **other)  # type: ignore[arg-type]
    assert refused.status_code == 409
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["code"] == "idempotency-key-reused"
    assert "Idempotency-Key" in refused.json()["detail"]
    assert listed(api, "ana") == before


@pytest.mark.parametrize("wrong", ["", "two words", "ü", "x" * 256])
def test_a_key_that_cannot_be_kept_is_a_400_that_names_the_header(api: ServedApi, wrong: str) -> None:
    headers = {b"Idempotency-Key": wrong.encode()}
    refused = api.client("ana").post(EXECS, params={"args": ARGS}, headers=headers)  # type: ignore[arg-type]
    assert refused.status_code == 400
    assert "Idempotency-Key" in refused.json()["detail"]


def test_a_refused_submission_uses_no_key_up(api: ServedApi, key: str) -> None:
    ana = api.client("ana")
    assert send(ana, key, args="--exec-start edtPyTorch --model-main missing/x.py").status_code == 200
    assert send(ana, (other := uuid.uuid4().hex), args="--exec-start edtCaffe").status_code == 400
    assert send(ana, other).status_code == 200


def test_many_at_once_with_one_key_are_one_job(api: ServedApi, key: str) -> None:
    before = len(listed(api, "bob"))
    clients = [api.client("bob") for _ in range(8)]
    with ThreadPoolExecutor(8) as several:
        answers = list(several.map(lambda client: send(client, key), clients))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len(listed(api, "bob")) == before + 1
    assert list(api.settings.staged.iterdir()) == []


def test_a_job_that_was_removed_meanwhile_is_still_the_answer(api: ServedApi, key: str) -> None:
    ana = api.client("ana")
    job = send(ana, key).json()["id"]
    assert ana.delete(f"{EXECS}/{job}").status_code == 204
    assert send(ana, key).json()["id"] == job


def test_after_a_day_a_key_means_another_request_and_is_swept(fresh_api: ServedApi, key: str) -> None:
    ana = fresh_api.client("ana")
    first = send(ana, key).json()["id"]
    platform = fresh_api.platform
    old = Platform(platform.database, platform.notifier, platform.settings, lambda: platform.clock() + KEPT_SECONDS + 1)
    assert sweep_keys(platform) == 0
    assert send(ana, key).json()["id"] == first
    assert sweep_keys(old) == 1
    assert send(ana, key, script=b"print('another day')\n").json()["id"] != first


def test_a_user_who_is_added_twice_with_one_key_is_added_once(api: ServedApi, key: str) -> None:
    admin, headers = api.client("admin"), {"Idempotency-Key": key}
    new = {"name": f"u{key[:8]}", "password": "a good password"}
    answers = [admin.post("/api/v1/users", json=new, headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json() == answers[1].json()
    assert admin.post("/api/v1/users", json={**new, "name": "else"}, headers=headers).status_code == 409
    assert admin.post("/api/v1/users", json=new).json()["code"] == "user-exists"
