"""Who gets in: every route of the application is walked, with every kind of credential."""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TypeVar, TypeVarTuple

import httpx
import pytest
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from edt_api import concurrency
from edt_api.access.passwords import Passwords
from edt_api.access.rules import NOBODY, Audience, Caller, audience_of
from edt_api.concurrency import Runs
from edt_api.dependencies import OpensTo, for_admins, for_anyone
from edt_api.main import create_app
from edt_api.routes.stream import Batch, events_of
from edt_api.settings import Settings
from edt_scheduler.model import states
from edt_scheduler.model.states import Role
from edt_scheduler.operations import accounts, execs, history
from edt_scheduler.views import UserView
from support.credentials import PASSWORD, account
from support.served_api import EXECS, JOIN_TOKEN, ServedApi, cheap_passwords

PAGES = {(method, path) for method in ("GET", "HEAD") for path in ("/", "/ui", "/ui/tools/dlicmd.py", "/ui/{path}")}
OPEN = {("GET", "/livez"), ("GET", "/readyz"), *PAGES, ("POST", "/api/v1/session")}
NODES_OWN = {
    ("GET", "/api/v1/nodes/{name}/assignments"),
    ("POST", "/api/v1/nodes/{name}/reports"),
    ("POST", "/api/v1/nodes/{name}/images"),
    ("POST", "/api/v1/nodes/{name}/usage"),
    ("POST", "/api/v1/nodes/{name}/leaving"),
}
JOINING = {("POST", "/api/v1/nodes"), ("PUT", "/api/v1/pools/{name}"), ("POST", "/api/v1/pools/{name}/sync")}
ACCOUNTS = {
    ("DELETE", "/api/v1/session"),
    ("POST", "/auth/v1/logoff"),
    ("POST", "/auth/v1/logoff/"),
    ("GET", "/platform/rest/conductor/v1/auth/logoff"),
    ("GET", "/platform/rest/conductor/v1/auth/logoff/"),
    ("POST", "/dlim/v1/auth/token"),
    ("POST", "/dlim/v1/auth/token/"),
    ("PUT", "/api/v1/users/{name}/password"),
    ("GET", "/api/v1/tokens"),
    ("POST", "/api/v1/tokens"),
    ("DELETE", "/api/v1/tokens/{number}"),
}
ADMINS = {
    ("POST", "/api/v1/images"),
    ("DELETE", "/api/v1/images/{name}"),
    ("POST", "/api/v1/nodes/{name}/cordon"),
    ("POST", "/api/v1/nodes/{name}/uncordon"),
    ("POST", "/api/v1/nodes/{name}/drain"),
    ("DELETE", "/api/v1/nodes/{name}"),
    ("PATCH", "/api/v1/pools/{name}"),
    ("DELETE", "/api/v1/pools/{name}"),
    ("PUT", "/api/v1/queues/{path}"),
    ("DELETE", "/api/v1/queues/{path}"),
    ("DELETE", "/platform/rest/deeplearning/v1/resplans/resplan/{plan}"),
    ("GET", "/api/v1/decisions"),
    ("GET", "/api/v1/decisions/{number}"),
    ("GET", "/api/v1/users"),
    ("POST", "/api/v1/users"),
    ("DELETE", "/api/v1/users/{name}"),
}


_T = TypeVar("_T")
_Given = TypeVarTuple("_Given")
HERE = "127.0.0.1"
NAMES = {
    "exec_id": "edt-1",
    "name": "node-a",
    "path": "icon.svg",
    "log": "stdout",
    "number": "1",
    "plan": "openedt",
    "sig_id": "openedt",
}
BODIES = {
    ("POST", "/api/v1/jobs/{exec_id}/extend"): {"epochs": 3},
    ("PATCH", "/api/v1/jobs/{exec_id}"): {"priority": 1},
}
"""Of routes about a job which look at it only once their body is what it has to be."""


def routes_of(app: FastAPI) -> list[tuple[str, str, APIRoute]]:
    """Every method and path template of the application, and the route behind them."""
    found = []
    for route in app.routes:
        assert isinstance(route, APIRoute), f"{route} is of a kind that this walk does not know"
        found += [(method, route.path.replace(":path}", "}"), route) for method in sorted(route.methods)]
    return found


def walk(api: ServedApi) -> list[tuple[str, str]]:
    return [(method, path) for method, path, _ in routes_of(api.app)]


def unguarded() -> FastAPI:
    """The application's routes with nothing before them but who asks, ``app.state.caller``; no platform behind them."""

    def acting(inner: ASGIApp) -> ASGIApp:
        async def act(scope: Scope, receive: Receive, send: Send) -> None:
            await inner({**scope, "state": {"caller": scope["app"].state.caller}}, receive, send)

        return act

    app = create_app(Settings.model_construct())
    app.user_middleware = [Middleware(acting)]
    for part in ("platform", "passwords", "authenticator", "watcher", "following"):
        setattr(app.state, part, None)
    return app


def ask(client: httpx.Client, method: str, path: str, **names: str) -> httpx.Response:
    body = BODIES.get((method, path))
    return client.request(method, path.format(**{**NAMES, **names}), json=body)


class TestEveryRoute:
    def test_the_walk_meets_what_is_promised(self, api: ServedApi) -> None:
        met = set(walk(api))
        assert met >= OPEN | NODES_OWN | JOINING | ADMINS | ACCOUNTS
        assert {
            ("POST", EXECS),
            ("POST", f"{EXECS}/"),
            ("GET", "/auth/v1/logon"),
            ("DELETE", f"{EXECS}/{{exec_id}}"),
        } <= met
        assert len(met) > 30

    def test_nobody_comes_in_without_a_credential(self, api: ServedApi) -> None:
        client = api.client()
        for method, path in walk(api):
            status = ask(client, method, path).status_code
            assert (status == 401) != ((method, path) in OPEN), f"{method} {path}: {status}"

    def test_nobody_comes_in_with_a_wrong_one(self, api: ServedApi) -> None:
        wrong = [
            {"Authorization": "Bearer nonsense"},
            {"X-Auth-Token": "nonsense"},
            {"Authorization": "Basic " + base64.b64encode(b"ana:wrong").decode()},
            {"Authorization": "Basic !!!"},
            {"Authorization": "Negotiate abc"},
            {"Authorization": "Bearer"},
        ]
        client = api.client()
        for method, path in walk(api):
            for headers in wrong if path == EXECS else wrong[:2]:
                status = client.request(method, path.format(**NAMES), headers=headers).status_code
                assert (status == 401) != ((method, path) in OPEN), f"{method} {path} {headers}: {status}"

    def test_a_node_may_use_its_own_routes_and_no_other(self, api: ServedApi) -> None:
        own, other = api.client(token=api.register("node-a")), api.client(token=api.register("node-b"))
        for method, path in walk(api):
            if (method, path) in OPEN:
                continue
            expected = {200, 400} if (method, path) in NODES_OWN else {403}
            assert ask(own, method, path).status_code in expected, f"{method} {path}"
            assert ask(other, method, path).status_code == 403, f"{method} {path}"

    def test_the_join_token_registers_nodes_and_opens_nothing_else(self, api: ServedApi) -> None:
        client = api.client(token=JOIN_TOKEN)
        for method, path in walk(api):
            if (method, path) not in OPEN:
                expected = 400 if (method, path) in JOINING else 403  # 400: no body was sent
                assert ask(client, method, path).status_code == expected, f"{method} {path}"

    def test_who_shows_a_wrong_join_token_is_told_that_and_where_the_right_one_lies(self, api: ServedApi) -> None:
        for client in (api.client(token="nonsense"), api.client()):
            problem = client.post("/api/v1/nodes", json={}).json()
            assert (problem["status"], problem["code"]) == (401, "not-authenticated")
            assert "join token is wrong" in problem["detail"] and "EDT_HOME/join-token" in problem["detail"]

    def test_users_may_not_use_the_routes_of_admins_nodes_and_joiners(self, api: ServedApi) -> None:
        for user in ("bob", "admin"):
            client = api.client(user)
            for method, path in JOINING | NODES_OWN | (ADMINS if user == "bob" else set()):
                assert ask(client, method, path).status_code == 403, f"{user} {method} {path}"

    def test_a_path_that_leads_nowhere_says_so_only_to_those_inside(self, api: ServedApi) -> None:
        for path in (
            "/nothing",
            "/uii",
            "/static/index.html",
            "/docs",
            "/api/v1/nodes/node-a/assignments/",
            "/%2flivez",
            "/livez/",
            "/%6civez/x",
        ):
            assert api.client().get(path).status_code == 401, path
            assert api.client("ana").get(path).status_code == 404, path

    def test_methods_that_a_route_does_not_take_are_no_way_round(self, api: ServedApi) -> None:
        for method in ("HEAD", "OPTIONS", "PUT", "PATCH", "TRACE", "POST"):
            assert api.client().request(method, "/livez").status_code == 401
            assert api.client("ana").request(method, "/livez").status_code == 405

    def test_a_route_that_is_added_tomorrow_is_closed_but_to_users(self) -> None:
        assert audience_of("GET", "/api/v1/something/new") == (Audience.USER, None)
        assert audience_of("DELETE", "/livez") == (Audience.USER, None)


def declared(dependant: Dependant) -> set[Audience]:
    """The audiences that a route declares, itself or by what it depends on."""
    own = {dependant.call.audience} if isinstance(dependant.call, OpensTo) else set()
    return own.union(*(declared(each) for each in dependant.dependencies))


class TestWhatRoutesSayThemselves:
    def test_each_route_declares_one_door_and_it_is_the_tables(self) -> None:
        for method, path, route in routes_of(create_app(Settings.model_construct())):
            found = declared(route.dependant)
            assert found == {audience_of(method, path.format(**NAMES))[0]}, (
                f"{method} {path} declares {found or 'none'}"
            )

    def test_a_route_that_declares_no_audience_or_two_is_noticed(self) -> None:
        assert declared(Dependant(call=lambda: None)) == set()
        two = Dependant(dependencies=[Dependant(call=each.dependency) for each in (for_anyone, for_admins)])
        assert declared(two) == {Audience.ANYONE, Audience.ADMIN}

    def test_without_the_guard_each_route_refuses_for_itself(self) -> None:
        user, admin, viewer = (UserView(1, "ana", role, "", 0.0) for role in (Role.USER, Role.ADMIN, Role.VIEWER))
        scoped = {scope: Caller(user=replace(admin, scope=scope), api_token=1) for scope in states.Scope}
        by_token = {Audience.ANYONE, Audience.USER, Audience.READER}
        users = by_token | {Audience.ACCOUNT}
        callers = {
            "nobody": (NOBODY, {Audience.ANYONE}),
            "a user": (Caller(user=user), users),
            "an admin": (Caller(user=admin), users | {Audience.ADMIN}),
            "a viewer": (Caller(user=viewer), users),
            "an admin's token that reads": (scoped[states.Scope.READ], by_token),
            "an admin's token that submits": (scoped[states.Scope.SUBMIT], by_token),
            "an admin's whole token": (scoped[states.Scope.ADMIN], by_token | {Audience.ADMIN}),
            "the node": (Caller(node=NAMES["name"]), {Audience.ANYONE, Audience.NODE}),
            "another node": (Caller(node="node-b"), {Audience.ANYONE}),
            "a joiner": (Caller(joins=True), {Audience.ANYONE, Audience.JOIN, Audience.NODE_JOIN}),
        }
        app = unguarded()

        async def walked() -> None:
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://edt") as client:
                for method, path, route in routes_of(app):
                    (whose,) = declared(route.dependant)
                    for who, (app.state.caller, opens) in callers.items():
                        status = (await client.request(method, path.format(**NAMES))).status_code
                        reads = who in {"a viewer", "an admin's token that reads"}
                        shut = whose not in opens or (
                            reads and whose is Audience.USER and method not in ("GET", "HEAD")
                        )
                        assert (status in (401, 403)) == shut, f"{who} at {method} {path}: {status}"

        asyncio.run(walked())


class TestCredentials:
    def test_basic_bearer_and_the_token_header_work_everywhere(self, api: ServedApi) -> None:
        token = api.client("ana").get("/auth/v1/logon").json()["accessToken"]
        client = api.client()
        basic = "Basic " + base64.b64encode(f"ana:{PASSWORD}".encode()).decode()
        for headers in (
            {"Authorization": basic},
            {"authorization": basic.replace("Basic", "basic")},
            {"Authorization": f"Bearer {token}"},
            {"Authorization": token},
            {"X-Auth-Token": token},
            {"x-auth-token": token, "accept": "application/json"},
        ):
            for path in (EXECS, "/api/v1/jobs", "/api/v1/nodes", "/api/v1/timeline"):
                assert client.get(path, headers=headers).status_code == 200, (path, headers)

    def test_logon_gives_a_token_of_constant_length_and_needs_a_password(self, api: ServedApi) -> None:
        answers = [api.client(user).get("/auth/v1/logon").json() for user in ("ana", "admin", "ana")]
        assert len({len(answer["accessToken"]) for answer in answers}) == 1
        assert len({answer["accessToken"] for answer in answers}) == 3
        assert [(answer["username"], answer["role"]) for answer in answers[:2]] == [("ana", "User"), ("admin", "Admin")]
        again = api.client(token=answers[0]["accessToken"]).get("/auth/v1/logon")
        assert again.status_code == 401

    def test_logon_takes_a_body_as_one_notebook_sends_it(self, api: ServedApi) -> None:
        answer = api.client("ana").request("GET", "/auth/v1/logon", json={"username": "ana", "password": PASSWORD})
        assert answer.status_code == 200

    def test_logoff_ends_the_token_and_no_other(self, api: ServedApi) -> None:
        first, second = (api.client("ana").get("/auth/v1/logon").json()["accessToken"] for _ in range(2))
        assert api.client(token=first).post("/auth/v1/logoff").status_code == 200
        assert api.client(token=first).get(EXECS).status_code == 401
        assert api.client(token=second).get(EXECS).status_code == 200
        assert api.client("ana").post("/auth/v1/logoff").status_code == 200

    def test_an_unknown_user_and_a_wrong_password_get_the_same_answer(self, api: ServedApi) -> None:
        client = api.client()
        wrong = client.get("/auth/v1/logon", auth=("ana", "wrong"))
        unknown = client.get("/auth/v1/logon", auth=("nobody", "wrong"))
        assert (wrong.status_code, wrong.text) == (unknown.status_code, unknown.text)
        assert wrong.status_code == 401
        assert wrong.text.startswith("Error 401: ")
        assert wrong.headers["www-authenticate"].startswith("Basic")

    def test_a_changed_password_and_a_removed_user_are_out_at_once(self, api: ServedApi) -> None:
        admin = api.client("admin")
        admin.post("/api/v1/users", json={"name": "eve", "password": PASSWORD}).raise_for_status()
        eve = api.client("eve")
        token = eve.get("/auth/v1/logon").json()["accessToken"]
        assert eve.get(EXECS).status_code == 200  # her password is remembered now
        admin.put("/api/v1/users/eve/password", json={"password": "another one"}).raise_for_status()
        assert eve.get(EXECS).status_code == 401
        assert api.client(token=token).get(EXECS).status_code == 401
        assert api.client().get(EXECS, auth=("eve", "another one")).status_code == 200
        admin.delete("/api/v1/users/eve").raise_for_status()
        assert api.client().get(EXECS, auth=("eve", "another one")).status_code == 401

    def test_a_node_that_registers_anew_shuts_its_older_self_out(self, api: ServedApi) -> None:
        older, newer = api.register("node-c"), api.register("node-c")
        path = "/api/v1/nodes/node-c/assignments"
        assert api.client(token=older).get(path).status_code == 401
        assert api.client(token=newer).get(path).status_code == 200


class TestBrowsers:
    def test_another_sites_page_cannot_use_the_password_that_a_browser_keeps(self, api: ServedApi) -> None:
        client = api.client("ana")
        for site in ("cross-site", "same-site"):
            for method, path in (("POST", EXECS), ("DELETE", EXECS), ("PUT", "/api/v1/users/ana/password")):
                response = client.request(method, path, headers={"Sec-Fetch-Site": site})
                assert response.status_code == 403, (method, path, site)
        assert client.get(EXECS, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200
        assert client.delete(EXECS, headers={"Sec-Fetch-Site": "same-origin"}).status_code == 204

    def test_answers_are_neither_kept_nor_taken_for_pages(self, api: ServedApi) -> None:
        for response in (
            api.client("ana").get("/auth/v1/logon"),
            api.client().get(EXECS),
            api.client().get("/livez"),
        ):
            assert response.headers["cache-control"] == "no-store"
            assert response.headers["x-content-type-options"] == "nosniff"


class TestManyAtOnce:
    def test_many_logons_at_once_are_all_answered_and_most_are_remembered(self, fresh_api: ServedApi) -> None:
        hashing = fresh_api.app.state.passwords.hashing = Watched(concurrency.passwords)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            right = [pool.submit(fresh_api.client("ana").get, EXECS) for _ in range(24)]
            wrong = [pool.submit(fresh_api.client().get, EXECS, auth=("ana", f"wrong{n}")) for n in range(8)]
            assert {each.result().status_code for each in right} == {200}
            assert {each.result().status_code for each in wrong} == {401}
        assert hashing.calls == 9  # those who ask meanwhile share one look, all later ones are remembered

    def test_no_more_than_two_passwords_are_hashed_at_once(self, fresh_api: ServedApi) -> None:
        assert fresh_api.client("ana").get(EXECS).is_success  # she is known here
        hashing = fresh_api.app.state.passwords.hashing = Watched(concurrency.Pool("slow", 12), seconds=0.02)
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            asked = [pool.submit(fresh_api.client().get, EXECS, auth=("ana", f"wrong{n}")) for n in range(12)]
            assert {each.result().status_code for each in asked} == {401}
        assert hashing.most == 2


@dataclass
class Watched:
    """Where passwords are hashed, and how many of them, and how many at once; each ``seconds`` later."""

    pool: Runs
    seconds: float = 0.0
    calls: int = 0
    most: int = 0
    now: int = 0

    async def run(self, do: Callable[[*_Given], _T], *given: *_Given) -> _T:
        self.calls += 1
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(self.seconds)
        try:
            return await self.pool.run(do, *given)
        finally:
            self.now -= 1


class TestPasswords:
    def test_a_right_one_is_remembered_for_a_minute_under_a_hash(self) -> None:
        passwords, now = cheap_passwords(), [0.0]
        passwords.clock = lambda: now[0]
        stored = passwords.hash_now("hush")
        assert asyncio.run(passwords.verify("ana", "hush", account(stored), HERE))
        assert "hush" not in repr(passwords._right)
        passwords.hasher = None  # type: ignore[assignment]  # from here on, hashing would fail
        now[0] = 59.0
        assert asyncio.run(passwords.verify("ana", "hush", account(stored), HERE))
        now[0] = 61.0
        with pytest.raises(AttributeError):
            asyncio.run(passwords.verify("ana", "hush", account(stored), HERE))

    def test_what_is_remembered_is_worth_nothing_for_another_user_or_hash(self) -> None:
        passwords = cheap_passwords()
        assert asyncio.run(passwords.verify("ana", "hush", account(passwords.hash_now("hush")), HERE))
        assert not asyncio.run(passwords.verify("bob", "hush", account(passwords.hash_now("other")), HERE))
        assert not asyncio.run(passwords.verify("ana", "hush", account(passwords.hash_now("other")), HERE))
        assert not asyncio.run(passwords.verify("ana", "hush", None, HERE))

    def test_for_an_unknown_user_a_hash_is_computed_all_the_same(self) -> None:
        hashed: list[str] = []
        hasher = SimpleNamespace(hash=hashed.append)
        passwords = Passwords(hasher, hashing=concurrency.Pool("here", 1))  # type: ignore[arg-type]  # what is used of it
        assert not asyncio.run(passwords.verify("nobody", "hush", None, HERE))
        assert hashed == ["hush"]

    def test_a_hash_that_cannot_be_read_is_a_wrong_password(self) -> None:
        assert not asyncio.run(cheap_passwords().verify("ana", "hush", account("not a hash"), HERE))


class TestOwnJobsOnly:
    def test_anothers_job_is_as_unknown_as_one_that_never_was(self, api: ServedApi) -> None:
        job = api.submit("ana")
        bob = api.client("bob")
        calls = [(method, path) for method, path in walk(api) if "{exec_id}" in path]
        assert len(calls) >= 9
        for method, path in calls:
            foreign = ask(bob, method, path, exec_id=job.exec_id)
            unknown = ask(bob, method, path, exec_id="edt-999999")
            assert foreign.status_code == unknown.status_code == (400 if path.startswith("/platform") else 404)
            same = foreign.text.replace(job.exec_id, "edt-999999")
            assert same == unknown.text, f"{method} {path}"
        assert execs.job(api.platform, job.exec_id, viewer=accounts.user(api.platform, "ana")).stop_requested_at is None

    def test_lists_hold_ones_own_and_an_admins_everybodys(self, api: ServedApi) -> None:
        mine, theirs = api.submit("ana").exec_id, api.submit("bob").exec_id
        for path in (EXECS, f"{EXECS}/", "/api/v1/jobs"):
            answers = {user: api.client(user).get(path).json() for user in ("ana", "bob", "admin")}
            listed = {user: body["items"] if path == "/api/v1/jobs" else body for user, body in answers.items()}
            ids = {user: {each["id"] for each in items} for user, items in listed.items()}
            assert mine in ids["ana"] and theirs not in ids["ana"]
            assert theirs in ids["bob"] and mine not in ids["bob"]
            assert {mine, theirs} <= ids["admin"]

    def test_who_gets_a_removed_users_name_is_told_of_none_of_their_jobs(self, api: ServedApi) -> None:
        admin, ana = api.client("admin"), api.client("ana")
        job = api.submit("ana").exec_id
        before = accounts.user(api.platform, "ana")
        cursor = history.newest_change(api.platform)
        assert admin.delete("/api/v1/users/ana").status_code == 204
        assert admin.post("/api/v1/users", json={"name": "ana", "password": PASSWORD}).status_code == 201
        viewer = accounts.user(api.platform, "ana")
        assert viewer.id != before.id
        assert ana.get(f"{EXECS}/{job}").status_code == 400
        assert ana.get("/api/v1/jobs").json()["items"] == ana.get(EXECS).json() == []
        changes = Batch(history.changes_since(api.platform, cursor))
        assert job.encode() in events_of(changes, before) and job.encode() not in events_of(changes, viewer)
        (seen,) = (
            each for each in admin.get("/api/v1/jobs", params={"owner": "ana"}).json()["items"] if each["id"] == job
        )
        assert seen["owner_removed"]

    def test_deleting_all_is_about_ones_own_even_for_an_admin(self, api: ServedApi) -> None:
        kept = api.submit("ana").exec_id
        gone = api.submit("admin").exec_id
        assert api.client("admin").delete(EXECS).status_code == 204
        left = {each["id"] for each in api.client("admin").get(EXECS).json()}
        assert kept in left and gone not in left

    def test_an_admin_may_stop_and_remove_anybodys(self, api: ServedApi) -> None:
        job = api.submit("ana").exec_id
        admin = api.client("admin")
        assert admin.post(f"{EXECS}/{job}/stop").status_code == 204
        assert admin.delete(f"{EXECS}/{job}").status_code == 204
        assert api.client("ana").get(f"{EXECS}/{job}").status_code == 400
