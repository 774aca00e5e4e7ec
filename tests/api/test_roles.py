"""What users of each role may do: an admin, a user, and a viewer, who reads everything and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from fastapi.routing import APIRoute

from edt_api.routes.stream import Batch, events_of
from edt_scheduler.errors import NotTheOwner
from edt_scheduler.model.states import Role
from edt_scheduler.operations import accounts, execs, history
from support.credentials import PASSWORD
from support.served_api import ARGS, EXECS, ServedApi, served

OWN_ACCOUNT = {
    ("DELETE", "/api/v1/session"),
    ("POST", "/auth/v1/logoff"),
    ("POST", "/auth/v1/logoff/"),
    ("POST", "/dlim/v1/auth/token"),
    ("POST", "/dlim/v1/auth/token/"),
    ("PUT", "/api/v1/users/{name}/password"),
    ("POST", "/api/v1/tokens"),
    ("DELETE", "/api/v1/tokens/{number}"),
}
NOT_THEIRS = {"/api/v1/users", "/api/v1/decisions", "/api/v1/decisions/{number}"}
"""What only admins read."""
ONLY_ASKS = {("POST", "/api/v1/what-if")}
NAMES = {
    "exec_id": "edt-999999",
    "name": "vera",
    "path": "icon.svg",
    "log": "stdout",
    "number": "999999",
    "plan": "openedt",
    "sig_id": "openedt",
}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApi]:
    """One with a viewer, ``vera``, too."""
    with served(tmp_path_factory.mktemp("home")) as opened:
        new = {"name": "vera", "password": PASSWORD, "role": "viewer"}
        opened.client("admin").post("/api/v1/users", json=new).raise_for_status()
        yield opened


@pytest.fixture
def vera(api: ServedApi) -> httpx.Client:
    return api.client("vera")


def walk(api: ServedApi) -> list[tuple[str, str]]:
    """Every method and path template, the nodes' own left out."""
    found = []
    for route in api.app.routes:
        assert isinstance(route, APIRoute)
        path = route.path.replace(":path}", "}")
        found += [(method, path) for method in sorted(route.methods)]
    return found


class TestAViewer:
    def test_no_route_that_changes_something_is_open_to_them_but_those_of_their_own_account(
        self, api: ServedApi, vera: httpx.Client
    ) -> None:
        changing = {(m, p) for m, p in walk(api) if m not in {"GET", "HEAD"} and p != "/api/v1/session"}
        assert len(changing) > 15
        for method, path in sorted(changing):
            answer = vera.request(method, path.format(**NAMES))
            mine = (method, path) in OWN_ACCOUNT | ONLY_ASKS
            assert (answer.status_code == 403) != mine, (method, path, answer.text)

    def test_they_read_what_an_admin_reads_but_users_and_decisions(self, api: ServedApi, vera: httpx.Client) -> None:
        job, admin = api.submit("ana").exec_id, api.client("admin")
        names = {**NAMES, "exec_id": job}
        for method, path in walk(api):
            if method != "GET" or path in {"/api/v1/stream", "/api/v1/nodes/{name}/assignments"}:
                continue
            seen, expected = (client.get(path.format(**names)).status_code for client in (vera, admin))
            assert seen == (403 if path in NOT_THEIRS else expected), path

    def test_they_see_the_jobs_of_all_users_with_their_logs_and_owners(
        self, api: ServedApi, vera: httpx.Client
    ) -> None:
        job = api.submit("ana")
        (job.directory / "log" / "driver.out").write_text("hello of ana\n")
        assert job.exec_id in {each["id"] for each in vera.get(EXECS).json()}
        assert job.exec_id in {each["id"] for each in vera.get("/api/v1/jobs", params={"owner": "ana"}).json()["items"]}
        log = vera.get(f"/api/v1/jobs/{job.exec_id}/log", params={"stream": "out"})
        assert (log.status_code, log.text) == (200, "hello of ana\n")
        assert vera.get("/api/v1/usage/slot-hours").status_code == 200
        cursor = history.newest_change(api.platform)
        other = api.submit("bob").exec_id.encode()
        changes = Batch(history.changes_since(api.platform, cursor))
        seen = {name: other in events_of(changes, accounts.user(api.platform, name)) for name in ("vera", "ana", "bob")}
        assert seen == {"vera": True, "ana": False, "bob": True}

    def test_a_refusal_says_that_the_role_only_reads(self, api: ServedApi, vera: httpx.Client) -> None:
        wmla = vera.post(EXECS, params={"args": ARGS}, files={"file": ("main.py", b"")})
        assert wmla.status_code == 403 and wmla.text.startswith("Error 403: the role viewer")
        ours = vera.post("/api/v1/nodes/node-a/cordon").json()
        assert (ours["code"], ours["detail"]) == ("forbidden", "this is open to an admin only")

    def test_they_sign_in_as_a_viewer_change_their_password_and_sign_out(self, api: ServedApi) -> None:
        new = {"name": "vic", "password": PASSWORD, "role": "viewer"}
        api.client("admin").post("/api/v1/users", json=new).raise_for_status()
        logon = api.client("vic").get("/auth/v1/logon").json()
        assert logon["role"] == "Viewer"
        vic = api.client(token=logon["accessToken"])
        assert vic.get("/api/v1/me").json()["role"] == "viewer"
        assert vic.delete(EXECS).status_code == 403
        change = {"password": "another one", "current_password": PASSWORD}
        assert api.client("vic").put("/api/v1/users/vic/password", json=change).status_code == 204
        assert api.client("vic").put("/api/v1/users/ana/password", json=change).status_code == 401
        page = api.client()
        session = page.post("/api/v1/session", json={"name": "vic", "password": "another one"})
        assert session.status_code == 204
        assert page.delete("/api/v1/session", headers={"Origin": api.url}).status_code == 204

    def test_they_set_nobody_elses_password(self, api: ServedApi, vera: httpx.Client) -> None:
        assert vera.put("/api/v1/users/ana/password", json={"password": "taken over"}).status_code == 403

    def test_the_platform_refuses_their_changes_whoever_lets_them_through(self, api: ServedApi) -> None:
        job, viewer = api.submit("ana").exec_id, accounts.user(api.platform, "vera")
        assert execs.job(api.platform, job, viewer=viewer).owner == "ana"
        for change in (execs.stop, execs.delete):
            with pytest.raises(NotTheOwner, match="belongs to another user"):
                change(api.platform, job, viewer=viewer)
        assert execs.job(api.platform, job, viewer=viewer).stop_requested_at is None


def test_only_the_three_roles_can_be_given(api: ServedApi) -> None:
    admin = api.client("admin")
    for role in ("owner", "Viewer", "", None):
        new = {"name": "odd", "password": PASSWORD, "role": role}
        assert admin.post("/api/v1/users", json=new).status_code == 400, role
    roles = {user["name"]: user["role"] for user in admin.get("/api/v1/users").json()["items"]}
    assert roles["vera"] == Role.VIEWER and roles["ana"] == Role.USER and roles["admin"] == Role.ADMIN
