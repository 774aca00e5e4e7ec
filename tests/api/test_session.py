"""A page's session: who gets the cookie, what it opens, and which changes are refused that come with it."""

from __future__ import annotations

from typing import ClassVar

import httpx
import pytest

from edt_api.access.rules import wrong_origin
from support.credentials import PASSWORD
from support.served_api import EXECS, ServedApi

SESSION = "/api/v1/session"


def sign_in(api: ServedApi, name: str = "ana", password: str = PASSWORD, **headers: str) -> httpx.Response:
    return api.client().post(SESSION, json={"name": name, "password": password}, headers=headers)


def page(api: ServedApi, name: str = "ana", *, origin: str | None = "own") -> httpx.Client:
    """A client that shows the cookie and, with ``origin``, where its page comes from."""
    token = sign_in(api, name).cookies["edt_session"]
    client = api.client()
    client.headers["Cookie"] = f"edt_session={token}"
    if origin is not None:
        client.headers["Origin"] = api.url if origin == "own" else origin
    return client


class TestSigningIn:
    def test_the_cookie_is_kept_from_scripts_and_from_other_sites(self, api: ServedApi) -> None:
        answer = sign_in(api)
        assert (answer.status_code, answer.content) == (204, b"")
        name, _, rest = answer.headers["set-cookie"].partition("=")
        token, *attributes = rest.split("; ")
        assert name == "edt_session"
        assert len(token) > 40
        assert {each.lower() for each in attributes} == {"httponly", "samesite=strict", "path=/", "max-age=43200"}

    def test_a_wrong_password_and_an_unknown_name_get_one_answer_and_no_cookie(self, api: ServedApi) -> None:
        answers = [sign_in(api, "ana", "wrong"), sign_in(api, "nobody", "wrong"), sign_in(api, "ana", "")]
        assert {answer.status_code for answer in answers} == {401}
        assert len({answer.text for answer in answers}) == 1
        assert answers[0].json()["code"] == "not-authenticated"
        assert not any("set-cookie" in answer.headers for answer in answers)

    def test_a_page_of_another_site_cannot_sign_its_visitors_in(self, api: ServedApi) -> None:
        for origin in ("https://evil.example", "null", f"{api.url}0"):
            answer = sign_in(api, Origin=origin)
            assert answer.status_code == 403, origin
            assert "set-cookie" not in answer.headers
        assert sign_in(api, Origin=api.url).status_code == 204

    def test_a_form_of_another_site_is_no_sign_in(self, api: ServedApi) -> None:
        text = f'{{"name": "ana", "password": "{PASSWORD}"}}'
        for kind in ("text/plain", "application/x-www-form-urlencoded"):
            answer = api.client().post(SESSION, content=text, headers={"Content-Type": kind})
            assert answer.status_code == 400, kind

    def test_signing_in_anew_ends_the_browsers_older_session(self, api: ServedApi) -> None:
        older = page(api)
        answer = older.post(SESSION, json={"name": "bob", "password": PASSWORD})
        assert answer.status_code == 204
        assert older.get(EXECS).status_code == 401

    def test_it_says_who_one_is(self, api: ServedApi) -> None:
        assert page(api, "admin").get("/api/v1/me").json()["role"] == "admin"
        me = page(api).get("/api/v1/me").json()
        assert (me["name"], me["role"]) == ("ana", "user")
        assert me["version"]


class TestWhatItOpens:
    def test_it_opens_what_its_users_password_opens_and_no_more(self, api: ServedApi) -> None:
        client = page(api)
        for path in (EXECS, "/api/v1/jobs", "/api/v1/nodes", "/api/v1/me"):
            assert client.get(path).status_code == 200, path
        assert client.get("/api/v1/users").status_code == 403

    def test_a_credential_that_is_shown_counts_before_the_cookie(self, api: ServedApi) -> None:
        client = page(api)
        assert client.get("/api/v1/me", auth=("bob", PASSWORD)).json()["name"] == "bob"
        assert client.get("/api/v1/me", headers={"Authorization": "Bearer nonsense"}).status_code == 401
        assert client.get("/api/v1/me", headers={"X-Auth-Token": "nonsense"}).status_code == 401

    def test_signing_out_ends_the_token_and_takes_the_cookie_back(self, api: ServedApi) -> None:
        client, other = page(api), page(api)
        answer = client.delete(SESSION)
        assert answer.status_code == 204
        assert 'edt_session=""' in answer.headers["set-cookie"]
        assert client.get(EXECS).status_code == 401
        assert other.get(EXECS).status_code == 200

    def test_a_session_that_has_ended_is_401_and_its_cookie_is_taken_back(self, api: ServedApi) -> None:
        admin = api.client("admin")
        admin.post("/api/v1/users", json={"name": "eve", "password": PASSWORD}).raise_for_status()
        client = page(api, "eve")
        assert client.get(EXECS).status_code == 200
        admin.delete("/api/v1/users/eve").raise_for_status()
        answer = client.get("/api/v1/jobs")
        assert (answer.status_code, answer.json()["code"]) == (401, "not-authenticated")
        assert "max-age=0" in answer.headers["set-cookie"].lower()
        token = api.client(token="nonsense").get("/api/v1/jobs")
        assert "set-cookie" not in token.headers


class TestChanges:
    @pytest.mark.parametrize(
        "origin", [None, "null", "https://evil.example", "http://127.0.0.1", "file://", "", "own/"]
    )
    def test_a_change_with_the_cookie_from_elsewhere_is_refused(self, api: ServedApi, origin: str | None) -> None:
        client = page(api, origin=f"{api.url}/" if origin == "own/" else origin)
        job = api.submit().exec_id
        for method, path in (("POST", f"{EXECS}/{job}/stop"), ("DELETE", f"{EXECS}/{job}"), ("DELETE", SESSION)):
            assert client.request(method, path).status_code == 403, (method, path)
        assert client.get(f"/api/v1/jobs/{job}").json()["stop_requested_at"] is None
        assert client.get(EXECS).status_code == 200  # looking needs no Origin

    def test_a_page_of_this_server_may_change_what_its_user_may(self, api: ServedApi) -> None:
        job = api.submit().exec_id
        assert page(api).post(f"{EXECS}/{job}/stop").status_code == 204
        assert page(api).post("/api/v1/nodes/node-a/drain").status_code == 403
        assert page(api, "bob").delete(f"{EXECS}/{job}").status_code == 400  # not there, for him

    def test_the_refusal_says_what_a_proxy_lacks(self, api: ServedApi) -> None:
        problem = page(api, origin="https://edt.example").put("/api/v1/users/ana/password", json={}).json()
        assert problem["code"] == "forbidden"
        assert "EDT_FORWARDED_ALLOW_IPS" in problem["detail"]

    def test_a_client_that_is_no_browser_needs_no_origin(self, api: ServedApi) -> None:
        job, cookie = api.submit().exec_id, {"Cookie": "edt_session=nonsense"}
        powershell = "Mozilla/5.0 (Windows NT; Windows NT 10.0; en-US) WindowsPowerShell/5.1.19041.1"
        for agent in ("python-requests/2.9.1", "curl/8.5.0", powershell):
            headers = {**cookie, "User-Agent": agent}
            assert api.client("ana").post(f"{EXECS}/{job}/stop", headers=headers).status_code == 204, agent

    def test_a_change_with_a_password_that_a_browser_keeps_is_a_page_of_this_server(self, api: ServedApi) -> None:
        job = api.submit().exec_id
        browser = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)"}
        client = api.client("ana")
        for origin in ("https://evil.example", "null", f"{api.url}0"):
            for headers in ({"Origin": origin}, {"Origin": origin, **browser}):
                assert client.post(f"{EXECS}/{job}/stop", headers=headers).status_code == 403, headers
        assert client.post(f"{EXECS}/{job}/stop", headers=browser).status_code == 403
        assert client.get(f"/api/v1/jobs/{job}").json()["stop_requested_at"] is None
        assert client.get(EXECS, headers={"Origin": "https://evil.example", **browser}).status_code == 200
        assert client.post(f"{EXECS}/{job}/stop", headers={"Origin": api.url, **browser}).status_code == 204

    def test_a_token_that_a_client_shows_needs_no_origin(self, api: ServedApi) -> None:
        token = api.client("ana").get("/auth/v1/logon").json()["accessToken"]
        for shown in ({"Authorization": f"Bearer {token}"}, {"X-Auth-Token": token}):
            headers = {**shown, "Origin": "https://notebooks.example", "User-Agent": "Mozilla/5.0"}
            assert api.client().delete(EXECS, headers=headers).status_code == 204

    @pytest.mark.parametrize(
        ("origin", "scheme", "host"),
        [
            ("http://edt:9280", "http", "edt:9280"),
            ("https://edt.example", "https", "edt.example"),
            ("https://edt.example", "https", "edt.example:443"),
            ("http://EDT.example", "http", "edt.example:80"),
            ("http://[::1]:9280", "http", "[::1]:9280"),
        ],
    )
    def test_one_origin_may_be_written_in_several_ways(self, origin: str, scheme: str, host: str) -> None:
        assert wrong_origin(origin, scheme, host) is None

    @pytest.mark.parametrize(
        ("origin", "scheme", "host"),
        [
            ("http://edt.example", "https", "edt.example"),
            ("https://edt.example:8443", "https", "edt.example"),
            ("https://edt.example.evil.com", "https", "edt.example"),
            ("https://edt.example@evil.com", "https", "evil.com"),
            ("https://edt.example:port", "https", "edt.example"),
            ("null", "null", ""),
            ("://", "", ""),
            ("", "http", ""),
        ],
    )
    def test_what_only_looks_like_it_is_another(self, origin: str, scheme: str, host: str) -> None:
        assert wrong_origin(origin, scheme, host) is not None


class TestChallenges:
    def test_browsers_are_not_made_to_open_a_window_of_their_own(self, api: ServedApi) -> None:
        browsers = ({"Sec-Fetch-Mode": "cors"}, {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)"})
        for headers in browsers:
            for path in (EXECS, "/api/v1/jobs", "/api/v1/stream"):
                answer = api.client().get(path, headers=headers)
                assert answer.status_code == 401
                assert not answer.headers["www-authenticate"].lower().startswith("basic"), path
        assert not sign_in(api, "ana", "wrong", **browsers[0]).headers["www-authenticate"].startswith("Basic")

    def test_other_clients_are_told_that_a_password_serves(self, api: ServedApi) -> None:
        for path in (EXECS, "/api/v1/jobs", "/auth/v1/logon"):
            assert api.client().get(path).headers["www-authenticate"].startswith("Basic ")


class TestBehindAProxy:
    FORWARDED: ClassVar = {
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Host": "edt.example",
        "Origin": "https://edt.example",
    }

    def test_a_believed_proxys_word_on_scheme_and_host_counts(self, proxied: ServedApi) -> None:
        answer = sign_in(proxied, **self.FORWARDED)
        assert answer.status_code == 204
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-edt_session=")
        assert "; Secure" in cookie
        assert "; Path=/;" in cookie
        assert "domain" not in cookie.lower()
        token = cookie.partition("=")[2].partition(";")[0]
        client = proxied.client()
        client.headers["Cookie"] = f"__Host-edt_session={token}"
        assert client.delete(SESSION, headers={**self.FORWARDED, "Origin": proxied.url}).status_code == 403
        assert client.delete(SESSION, headers=self.FORWARDED).status_code == 204

    def test_under_https_a_cookie_that_anybody_could_have_set_is_not_read(self, proxied: ServedApi) -> None:
        token = sign_in(proxied).cookies["edt_session"]
        plain = {"Cookie": f"edt_session={token}"}
        assert proxied.client().get("/api/v1/me", headers=plain).status_code == 200
        assert proxied.client().get("/api/v1/me", headers={**plain, **self.FORWARDED}).status_code == 401

    def test_of_several_hosts_the_nearest_proxys_counts(self, proxied: ServedApi) -> None:
        headers = {**self.FORWARDED, "X-Forwarded-Host": "evil.example, edt.example"}
        assert sign_in(proxied, **headers).status_code == 204

    def test_nobody_elses_word_counts(self, api: ServedApi) -> None:
        assert sign_in(api, **self.FORWARDED).status_code == 403
        del (headers := dict(self.FORWARDED))["Origin"]
        assert sign_in(api, **headers).headers["set-cookie"].startswith("edt_session=")
