"""API tokens: how they are made, what each scope opens, and what ends them."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import httpx
import pytest
from sqlalchemy import select, update

from edt_api.access.rules import Credential
from edt_api.access.token_uses import RECORDED_SECONDS, ApiTokenUses
from edt_scheduler.model.states import Role, Scope
from edt_scheduler.operations import accounts, api_tokens
from edt_scheduler.periodic.sweeping import API_TOKENS_KEPT_SECONDS, sweep_tokens
from edt_scheduler.platform import Platform
from edt_scheduler.store import tables
from support.credentials import PASSWORD
from support.served_api import ARGS, EXECS, ServedApi

TOKENS = "/api/v1/tokens"
DAY = 86_400.0
UPLOAD = {"file": ("main.py", b"print('hello')\n")}


def made(api: ServedApi, user: str = "ana", name: str = "ci", **given: Any) -> dict[str, Any]:
    answer = api.client(user).post(TOKENS, json={"name": name, **given})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def holder(api: ServedApi, *scopes: str, user: str = "ana") -> httpx.Client:
    """A client that shows an API token of these scopes."""
    return api.client(token=made(api, user, scopes=list(scopes))["token"])


def new_user(api: ServedApi, name: str, role: str = "user") -> httpx.Client:
    new = {"name": name, "password": PASSWORD, "role": role}
    api.client("admin").post("/api/v1/users", json=new).raise_for_status()
    return api.client(name)


def at(platform: Platform, now: float) -> Platform:
    """The same platform at another time."""
    return replace(platform, clock=lambda: now)


class TestMaking:
    def test_the_secret_is_shown_once_and_stored_nowhere(self, api: ServedApi) -> None:
        token = made(api, scopes=["submit"])
        assert token["token"].startswith("edt_pat_") and len(token["token"]) == 51
        listed = api.client("ana").get(TOKENS)
        assert token["token"] not in listed.text
        (shown,) = (each for each in listed.json()["items"] if each["id"] == token["id"])
        assert shown == {name: value for name, value in token.items() if name != "token"}
        with api.platform.database.snapshot() as tx:
            rows = [dict(row._mapping) for row in tx.execute(select(tables.api_tokens))]
        assert token["token"] not in repr(rows)

    @pytest.mark.parametrize(
        ("asked", "scopes"),
        [
            ({}, ["read"]),
            ({"scopes": ["read"]}, ["read"]),
            ({"scopes": ["submit"]}, ["read", "submit"]),
            ({"scopes": ["submit", "read"]}, ["read", "submit"]),
            ({"scopes": ["admin"]}, ["read", "submit", "admin"]),
            ({"scopes": ["read", "admin", "admin"]}, ["read", "submit", "admin"]),
        ],
        ids=str,
    )
    def test_a_scope_includes_the_smaller_ones(self, api: ServedApi, asked: dict[str, Any], scopes: list[str]) -> None:
        assert made(api, "admin", **asked)["scopes"] == scopes

    def test_it_is_valid_for_the_days_that_were_asked_for_thirty_if_none_were(self, api: ServedApi) -> None:
        for asked, days in (({}, 30), ({"days": 1}, 1), ({"days": 366}, 366)):
            token = made(api, **asked)
            assert token["expires_at"] - token["created_at"] == pytest.approx(days * DAY, abs=5)
        assert made(api, days=None)["expires_at"] is None

    @pytest.mark.parametrize(
        "wrong",
        [
            {"days": 0},
            {"days": 367},
            {"days": "soon"},
            {"name": ""},
            {"name": "x" * 65},
            {"name": "a\nb"},
            {"name": "<b>"},
            {"scopes": []},
            {"scopes": ["write"]},
            {"scopes": "read"},
            {"for": "bob"},
        ],
        ids=str,
    )
    def test_what_cannot_be_is_refused_by_name(self, api: ServedApi, wrong: dict[str, Any]) -> None:
        answer = api.client("ana").post(TOKENS, json={"name": "ci", **wrong})
        assert answer.status_code == 400 and next(iter(wrong)) in answer.json()["detail"], answer.text

    def test_a_user_has_a_hundred_at_most(self, api: ServedApi) -> None:
        new_user(api, "hoarder")
        hoarder = accounts.user(api.platform, "hoarder")
        for number in range(api_tokens.MOST_TOKENS):
            api_tokens.create(
                api.platform, hoarder, name="ci", scope=Scope.READ, secret=f"edt_pat_{number}", expires_at=None
            )
        answer = api.client("hoarder").post(TOKENS, json={"name": "one more"})
        assert answer.status_code == 400 and "revoke one" in answer.json()["detail"]


class TestWaysToShowIt:
    @pytest.mark.parametrize(
        "headers",
        [{"Authorization": "Bearer {}"}, {"Authorization": "{}"}, {"X-Auth-Token": "{}"}],
        ids=str,
    )
    def test_each_header_opens_both_surfaces(self, api: ServedApi, headers: dict[str, str]) -> None:
        token = made(api)["token"]
        shown = {name: value.format(token) for name, value in headers.items()}
        for path in (EXECS, f"{EXECS}/frameworks", "/api/v1/jobs", "/api/v1/me", "/api/v1/nodes"):
            assert api.client().get(path, headers=shown).status_code == 200, path

    def test_it_opens_the_event_stream_until_it_is_revoked(self, api: ServedApi) -> None:
        token = made(api)
        with api.client(token=token["token"]).stream("GET", "/api/v1/stream") as answer:
            assert answer.status_code == 200
            assert next(answer.iter_lines()).startswith(("event: hello", "id:", ":", "retry:"))
        authenticator = api.app.state.authenticator
        caller = asyncio.run(authenticator.caller(Credential(token["token"]), ""))
        assert caller.api_token == token["id"]
        assert asyncio.run(authenticator.still(caller))
        api.client("ana").delete(f"{TOKENS}/{token['id']}").raise_for_status()
        assert not asyncio.run(authenticator.still(caller))

    def test_as_a_password_or_a_cookie_it_opens_nothing_but_what_a_token_opens(self, api: ServedApi) -> None:
        token = made(api)["token"]
        assert httpx.get(f"{api.url}{EXECS}", auth=("ana", token)).status_code == 401
        session = api.client()
        session.cookies.set("edt_session", token)
        assert session.post(TOKENS, json={"name": "more"}, headers={"Origin": api.url}).status_code == 403

    @pytest.mark.parametrize("wrong", ["edt_pat_", "edt_pat_nonsense", "EDT_PAT_x", "edt_pat_" + "A" * 43])
    def test_a_text_that_only_looks_like_one_is_refused(self, api: ServedApi, wrong: str) -> None:
        assert api.client(token=wrong).get(EXECS).status_code == 401
        token = made(api)["token"]
        for changed in (token[:-1], token + "A", token.swapcase()):
            assert api.client(token=changed).get(EXECS).status_code == 401


class TestScopes:
    def test_read_opens_what_changes_nothing(self, api: ServedApi) -> None:
        job, client = api.submit("ana").exec_id, holder(api, "read")
        assert client.get(f"{EXECS}/{job}").status_code == 200
        for answer in (
            client.post(EXECS, params={"args": ARGS}, files=UPLOAD),
            client.post(f"{EXECS}/{job}/stop"),
            client.delete(f"{EXECS}/{job}"),
            client.delete(EXECS),
        ):
            assert answer.status_code == 403 and "needs the scope submit" in answer.text

    def test_submit_opens_submitting_stopping_and_deleting_ones_own(self, api: ServedApi) -> None:
        client, others = holder(api, "submit"), api.submit("bob").exec_id
        answer = client.post(EXECS, params={"args": ARGS}, files=UPLOAD)
        assert answer.status_code == 200
        job = answer.json()["id"]
        assert client.post(f"{EXECS}/{job}/stop").status_code == 204
        assert client.delete(f"{EXECS}/{job}").status_code == 204
        assert client.post(f"{EXECS}/{others}/stop").status_code == 400
        assert client.get("/api/v1/users").status_code == 403

    def test_an_admins_smaller_token_reads_all_jobs_and_changes_none_of_others(self, api: ServedApi) -> None:
        job = api.submit("ana").exec_id
        for scope in ("read", "submit"):
            client = holder(api, scope, user="admin")
            assert client.get(f"{EXECS}/{job}").status_code == 200
            for refused in (
                client.post(f"{EXECS}/{job}/stop"),
                client.delete(f"{EXECS}/{job}"),
                client.get("/api/v1/users"),
                client.post("/api/v1/nodes/node-a/cordon"),
            ):
                assert refused.status_code == 403, refused.text

    def test_admin_opens_what_the_role_opens(self, api: ServedApi) -> None:
        job, client = api.submit("ana").exec_id, holder(api, "admin", user="admin")
        assert client.get("/api/v1/users").status_code == 200
        assert client.post(f"{EXECS}/{job}/stop").status_code == 204

    def test_no_token_is_made_beyond_the_role_of_its_user(self, api: ServedApi) -> None:
        viewer = new_user(api, "vito", "viewer")
        for client, scope in ((api.client("ana"), "admin"), (viewer, "submit"), (viewer, "admin")):
            answer = client.post(TOKENS, json={"name": "more", "scopes": [scope]})
            assert answer.status_code == 400 and "does not allow" in answer.json()["detail"]
        assert viewer.post(TOKENS, json={"name": "wall", "scopes": ["read"]}).status_code == 201

    def test_a_token_never_exceeds_the_role_that_its_user_has_when_it_is_used(self, api: ServedApi) -> None:
        new_user(api, "lowered", "admin")
        client, others = holder(api, "admin", user="lowered"), api.submit("ana").exec_id
        assert client.get("/api/v1/users").status_code == 200
        for role, sees, submits in ((Role.USER, 400, 200), (Role.VIEWER, 200, 403)):
            with api.platform.database.transaction() as tx:
                tx.execute(update(tables.users).where(tables.users.c.name == "lowered").values(role=role))
            assert client.get("/api/v1/users").status_code == 403
            assert client.get(f"{EXECS}/{others}").status_code == sees
            assert client.post(EXECS, params={"args": ARGS}, files=UPLOAD).status_code == submits

    def test_no_token_makes_lists_or_revokes_tokens_changes_a_password_or_signs_in_or_out(self, api: ServedApi) -> None:
        own = made(api, "admin", scopes=["admin"])
        client = api.client(token=own["token"])
        change = {"password": "another one", "current_password": PASSWORD}
        for answer in (
            client.post(TOKENS, json={"name": "child"}),
            client.get(TOKENS),
            client.delete(f"{TOKENS}/{own['id']}"),
            client.put("/api/v1/users/admin/password", json=change),
            client.put("/api/v1/users/ana/password", json={"password": "another one"}),
            client.post("/auth/v1/logoff"),
            client.delete("/api/v1/session"),
        ):
            assert answer.status_code == 403 and "API token" in answer.text
        assert client.get("/auth/v1/logon").status_code == 401
        assert client.get(EXECS).status_code == 200


class TestItsEnd:
    def test_users_revoke_their_own_and_an_admin_anybodys(self, api: ServedApi) -> None:
        first, second = made(api), made(api)
        assert api.client("bob").delete(f"{TOKENS}/{first['id']}").status_code == 404
        assert api.client(token=first["token"]).get(EXECS).status_code == 200
        assert api.client("ana").delete(f"{TOKENS}/{first['id']}").status_code == 204
        assert api.client("admin").delete(f"{TOKENS}/{second['id']}").status_code == 204
        for token in (first, second):
            assert api.client(token=token["token"]).get(EXECS).status_code == 401
        assert api.client("ana").delete(f"{TOKENS}/{first['id']}").status_code == 404

    @pytest.mark.parametrize("number", ["0", "-1", "x", str(1 << 63), "999999"])
    def test_a_number_of_no_token_is_refused(self, api: ServedApi, number: str) -> None:
        assert api.client("ana").delete(f"{TOKENS}/{number}").status_code in {400, 404}

    def test_it_is_valid_until_its_last_second_and_listed_for_a_month_more(self, fresh_api: ServedApi) -> None:
        platform, token, keeps = fresh_api.platform, made(fresh_api, days=2), made(fresh_api, days=None)
        end, ana = token["expires_at"], accounts.user(platform, "ana")
        for now, valid in ((end - 1, True), (end, False), (end + DAY, False)):
            assert (api_tokens.verify(at(platform, now), token["token"]) is not None) == valid
            assert api_tokens.verify(at(platform, now), keeps["token"]) is not None
        for now, left in ((end + API_TOKENS_KEPT_SECONDS - 1, 2), (end + API_TOKENS_KEPT_SECONDS, 1)):
            sweep_tokens(at(platform, now))
            assert len(api_tokens.tokens_of(platform, ana)) == left

    def test_a_new_password_and_the_users_removal_end_it(self, api: ServedApi) -> None:
        eve, admin = new_user(api, "eve"), api.client("admin")
        older = made(api, "eve")["token"]
        change = {"password": "another one", "current_password": PASSWORD}
        assert eve.put("/api/v1/users/eve/password", json=change).status_code == 204
        assert api.client(token=older).get(EXECS).status_code == 401
        answer = api.client().post(TOKENS, json={"name": "ci"}, auth=("eve", "another one"))
        newer = answer.json()["token"]
        assert api.client(token=newer).get(EXECS).status_code == 200
        admin.delete("/api/v1/users/eve").raise_for_status()
        new_user(api, "eve")
        assert api.client(token=newer).get(EXECS).status_code == 401
        assert api.client("eve").get(TOKENS).json()["items"] == []

    def test_expired_tokens_of_signing_in_are_forgotten(self, fresh_api: ServedApi) -> None:
        fresh_api.client("ana").get("/auth/v1/logon").raise_for_status()
        now = fresh_api.platform.clock()
        assert [sweep_tokens(at(fresh_api.platform, now + hours * 3600)) for hours in (11, 13, 14)] == [0, 1, 0]


class TestListing:
    def test_a_user_lists_their_own_and_an_admin_another_users(self, api: ServedApi) -> None:
        mine, theirs = made(api, name="mine"), made(api, "bob", name="theirs")
        listed = {each["id"]: each for each in api.client("ana").get(TOKENS).json()["items"]}
        assert listed[mine["id"]]["user"] == "ana" and theirs["id"] not in listed
        seen = api.client("admin").get(TOKENS, params={"user": "bob"}).json()["items"]
        assert theirs["id"] in {each["id"] for each in seen} and {each["user"] for each in seen} == {"bob"}
        assert api.client("ana").get(TOKENS, params={"user": "ana"}).status_code == 200
        assert api.client("ana").get(TOKENS, params={"user": "bob"}).status_code == 403
        assert api.client("admin").get(TOKENS, params={"user": "nobody"}).status_code == 404

    def test_the_list_comes_in_pages(self, api: ServedApi) -> None:
        client = new_user(api, "pager")
        made_ids = [made(api, "pager")["id"] for _ in range(3)]
        first = client.get(TOKENS, params={"limit": 2}).json()
        second = client.get(TOKENS, params={"limit": 2, "cursor": first["next"]}).json()
        assert [each["id"] for page in (first, second) for each in page["items"]] == made_ids
        assert second["next"] is None

    def test_it_says_when_a_token_was_last_used(self, api: ServedApi) -> None:
        token, platform, uses = made(api), api.platform, ApiTokenUses()
        number, begin = token["id"], platform.clock()
        assert token["last_used_at"] is None
        for later, written in ((0.0, 1), (RECORDED_SECONDS - 1, 0), (RECORDED_SECONDS, 1), (RECORDED_SECONDS, 0)):
            uses.note(number, begin + later)
            assert uses.record(platform) == written
        (listed,) = (each for each in api.client("ana").get(TOKENS).json()["items"] if each["id"] == number)
        assert listed["last_used_at"] == begin + RECORDED_SECONDS
        ApiTokenUses({number: begin}).record(platform)  # another process, whose record comes late
        (listed,) = (each for each in api.client("ana").get(TOKENS).json()["items"] if each["id"] == number)
        assert listed["last_used_at"] == begin + RECORDED_SECONDS

    def test_a_request_with_it_is_noted_for_that(self, api: ServedApi) -> None:
        token, before = made(api), api.platform.clock()
        api.client(token=token["token"]).get(EXECS).raise_for_status()
        api.client(token=token["token"]).delete(EXECS)  # refused, and a use all the same
        noted = api.app.state.authenticator.uses._noted[token["id"]]
        assert before <= noted <= api.platform.clock()


def test_making_and_revoking_are_logged_without_the_secret(api: ServedApi, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "edt.api"):
        token = made(api, name="nightly", scopes=["submit"], days=7)
        api.client("admin").delete(f"{TOKENS}/{token['id']}").raise_for_status()
    lines = [record.getMessage() for record in caplog.records if record.name == "edt.api"]
    assert any(
        f"ana at 127.0.0.1 made the API token {token['id']} ('nightly') of the scope submit, valid for 7 days" in line
        for line in lines
    )
    assert any(f"admin at 127.0.0.1 revoked the API token {token['id']} ('nightly') of ana" in line for line in lines)
    assert not any(token["token"] in line for line in lines)
