"""Access tokens of ``/auth/v1``: their form, what makes them valid, and what ends them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import httpx
import jwt
import pytest
from cryptography.fernet import Fernet
from sqlalchemy import update

from edt_api.access import tokens
from edt_scheduler.home.secret_key import KEY_FILE
from edt_scheduler.model.states import Role
from edt_scheduler.operations import accounts
from edt_scheduler.platform import Platform
from edt_scheduler.store import tables
from support.credentials import PASSWORD
from support.served_api import EXECS, ServedApi

HOUR = 3600.0
BOTH_SURFACES = (EXECS, f"{EXECS}/frameworks", "/api/v1/jobs", "/api/v1/me", "/api/v1/nodes")


def logon(api: ServedApi, user: str = "ana") -> dict[str, Any]:
    answer = api.client(user).get("/auth/v1/logon")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def status(api: ServedApi, token: str, path: str = EXECS) -> int:
    return api.client().get(path, headers={"X-Auth-Token": token.encode()}).status_code


def signing_key(platform: Platform) -> bytes:
    keys = platform.secret_key.keys()
    key = keys.signing_key(keys.ids[0])
    assert key is not None
    return key


def part(value: Mapping[str, Any]) -> str:
    """One part of a JWT."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def claims_of(token: str) -> dict[str, Any]:
    return dict(jwt.decode(token, options={"verify_signature": False}))


def at(platform: Platform, now: float) -> Platform:
    """The same platform at another time."""
    return replace(platform, clock=lambda: now)


class TestForm:
    def test_a_token_is_a_jwt_whose_claims_tell_who_it_is_and_for_how_long(self, api: ServedApi) -> None:
        before = int(api.platform.clock())
        answer = logon(api, "admin")
        header = jwt.get_unverified_header(answer["accessToken"])
        assert (answer["accessToken"].count("."), header["alg"], header["typ"]) == (2, "HS256", "JWT")
        claims = jwt.decode(
            answer["accessToken"], signing_key(api.platform), algorithms=["HS256"], audience=tokens.AUDIENCE
        )
        admin = accounts.user(api.platform, "admin")
        assert (claims["username"], claims["sub"], claims["uid"]) == ("admin", "admin", str(admin.id))
        assert (claims["role"], claims["permissions"]) == ("Admin", ["read", "submit", "admin"])
        assert (claims["groups"], claims["iss"]) == ([], tokens.ISSUER)
        assert before <= claims["iat"] <= api.platform.clock()
        assert claims["exp"] - claims["iat"] == answer["expiresIn"] == 12 * HOUR
        assert len(claims["jti"]) == 32

    def test_all_tokens_have_one_length_whoever_signs_in(self, api: ServedApi) -> None:
        found = set()
        for number, role in enumerate(Role):
            for length in (1, 2, 3, 17, 63, 64):
                name = f"{number}" + "x" * (length - 1)
                user = accounts.add_user(api.platform, name, "hash", role)
                for now in (1.0, api.platform.clock(), 9_999_999_999.5):
                    found.add(len(tokens.issue(at(api.platform, now), user, 12 * HOUR)))
        assert len(found) == 1, found

    def test_no_two_tokens_are_the_same(self, api: ServedApi) -> None:
        user = accounts.user(api.platform, "ana")
        still = at(api.platform, api.platform.clock())
        assert len({tokens.issue(still, user, HOUR) for _ in range(3)}) == 3


class TestWaysToShowIt:
    @pytest.mark.parametrize(
        "headers",
        [
            {"Authorization": "Bearer {}"},
            {"authorization": "bearer {}"},
            {"Authorization": "{}"},
            {"X-Auth-Token": "{}"},
        ],
        ids=str,
    )
    def test_each_header_opens_both_surfaces(self, api: ServedApi, headers: dict[str, str]) -> None:
        token = logon(api)["accessToken"]
        shown = {name: value.format(token) for name, value in headers.items()}
        for path in BOTH_SURFACES:
            assert api.client().get(path, headers=shown).status_code == 200, path

    @pytest.mark.parametrize("path", ["/auth/v1/logon", "/auth/v1/logon/"])
    @pytest.mark.parametrize("body", [None, {"username": "ana", "password": PASSWORD}, {"username": "bob"}], ids=str)
    def test_logon_takes_the_password_of_the_header_whatever_body_comes_with_it(
        self, api: ServedApi, path: str, body: object
    ) -> None:
        answer = api.client("ana").request("GET", path, json=body)
        assert answer.status_code == 200
        assert claims_of(answer.json()["accessToken"])["username"] == "ana"

    def test_a_session_of_a_page_is_such_a_token_too(self, api: ServedApi) -> None:
        answer = api.client().post("/api/v1/session", json={"name": "ana", "password": PASSWORD})
        assert claims_of(answer.cookies["edt_session"])["username"] == "ana"
        assert len(answer.cookies["edt_session"]) == len(logon(api, "bob")["accessToken"])


class TestForgeries:
    def test_a_changed_claim_is_refused(self, api: ServedApi) -> None:
        token = logon(api)["accessToken"]
        header, _, signature = token.split(".")
        for change in ({"role": "Admin"}, {"username": "admin", "sub": "admin"}, {"exp": 9_999_999_999}):
            changed = f"{header}.{part(claims_of(token) | change)}.{signature}"
            assert status(api, changed) == 401, change
        assert status(api, token) == 200

    @pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")  # of the forger's own
    def test_a_token_without_a_signature_or_with_one_of_another_kind_is_refused(self, api: ServedApi) -> None:
        token = logon(api, "admin")["accessToken"]
        claims, key_id = claims_of(token), jwt.get_unverified_header(token)["kid"]
        for alg in ("none", "None", "HS256", "RS256"):
            assert status(api, f"{part({'alg': alg, 'typ': 'JWT', 'kid': key_id})}.{part(claims)}.") == 401, alg
        for alg in ("HS384", "HS512"):
            longer = jwt.encode(claims, signing_key(api.platform), alg, headers={"kid": key_id})
            assert status(api, longer) == 401, alg

    def test_another_key_signs_nothing_and_the_right_one_makes_no_token_that_was_not_given_out(
        self, api: ServedApi
    ) -> None:
        token = logon(api, "admin")["accessToken"]
        claims, header = claims_of(token), jwt.get_unverified_header(token)
        other = jwt.encode(claims, b"k" * 32, headers=header)
        unknown = jwt.encode(claims, b"k" * 32, headers={**header, "kid": "0" * 12})
        made_up = jwt.encode({**claims, "jti": "0" * 32}, signing_key(api.platform), headers=header)
        for forged in (other, unknown, made_up):
            assert status(api, forged) == 401
        assert status(api, token) == 200

    def test_a_token_that_was_cut_lengthened_or_taken_apart_is_refused(self, api: ServedApi) -> None:
        token = logon(api)["accessToken"]
        header, claims, signature = token.split(".")
        for cut in (
            token[:-1],
            token[:-4],
            token + "A",
            token + "=",
            claims,
            f"{header}.{claims}",
            f"..{signature}",
            "..",
        ):
            assert status(api, cut) == 401, cut
        assert status(api, "é.é.é".encode().decode("latin-1")) == 401
        deep = base64.urlsafe_b64encode(b'{"kid":' + b"[" * 20_000 + b"]" * 20_000 + b"}").decode().rstrip("=")
        assert status(api, f"{deep}.{claims}.{signature}") == 401

    @pytest.mark.parametrize("claim", ["exp", "iat", "jti", "iss", "aud"])
    def test_a_claim_that_is_missing_or_another_platforms_is_refused_even_if_signed_and_stored(
        self, api: ServedApi, claim: str
    ) -> None:
        platform, token = api.platform, logon(api)["accessToken"]
        claims, header, ana = claims_of(token), jwt.get_unverified_header(token), accounts.user(api.platform, "ana")
        lacking = {name: value for name, value in claims.items() if name != claim}
        for wrong in (lacking, {**claims, "iss": "else", "jti": claim}, {**claims, "aud": "else", "jti": claim}):
            stored = jwt.encode(wrong, signing_key(platform), headers=header)
            accounts.add_token(platform, ana, stored, platform.clock() + HOUR)
            assert tokens.user_of(platform, stored) is None

    def test_the_role_is_the_stores_and_not_the_claims(self, api: ServedApi) -> None:
        user = accounts.add_user(api.platform, "was-admin", "hash", Role.ADMIN)
        client = api.client(token=tokens.issue(api.platform, user, HOUR))
        assert client.get("/api/v1/users").status_code == 200
        with api.platform.database.transaction() as tx:
            tx.execute(update(tables.users).where(tables.users.c.id == user.id).values(role="user"))
        assert client.get("/api/v1/users").status_code == 403
        assert client.get("/api/v1/me").json()["role"] == "user"


class TestItsEnd:
    def test_it_is_valid_for_twelve_hours_of_the_platforms_clock(self, api: ServedApi) -> None:
        token = logon(api)["accessToken"]
        issued = float(claims_of(token)["iat"])
        for now, valid in ((issued, True), (issued + 12 * HOUR - 1, True), (issued + 12 * HOUR, False)):
            assert (tokens.user_of(at(api.platform, now), token) is not None) == valid, now

    def test_an_expired_one_opens_nothing(self, api: ServedApi) -> None:
        ana, now = accounts.user(api.platform, "ana"), api.platform.clock()
        young = tokens.issue(at(api.platform, now - 11 * HOUR), ana, 12 * HOUR)
        old = tokens.issue(at(api.platform, now - 13 * HOUR), ana, 12 * HOUR)
        assert [status(api, token) for token in (young, old)] == [200, 401]

    def test_its_end_is_looked_up_in_its_claims_too(self, api: ServedApi) -> None:
        ana, now = accounts.user(api.platform, "ana"), api.platform.clock()
        token = tokens.issue(at(api.platform, now - 13 * HOUR), ana, 12 * HOUR)
        with api.platform.database.transaction() as tx:
            tx.execute(update(tables.tokens).values(expires_at=now + HOUR))
        assert status(api, token) == 401

    def test_logoff_a_new_password_and_the_users_removal_end_it(self, api: ServedApi) -> None:
        admin = api.client("admin")
        new = {"name": "zoe", "password": PASSWORD}
        admin.post("/api/v1/users", json=new).raise_for_status()
        first, second = logon(api, "zoe")["accessToken"], logon(api, "zoe")["accessToken"]
        assert api.client(token=first).post("/auth/v1/logoff").status_code == 200
        assert [status(api, token) for token in (first, second)] == [401, 200]
        admin.put("/api/v1/users/zoe/password", json={"password": "another one"}).raise_for_status()
        assert status(api, second) == 401
        third = api.client().get("/auth/v1/logon", auth=("zoe", "another one")).json()["accessToken"]
        assert status(api, third) == 200
        admin.delete("/api/v1/users/zoe").raise_for_status()
        admin.post("/api/v1/users", json=new).raise_for_status()
        assert status(api, third) == 401

    def test_a_new_key_keeps_older_tokens_and_a_key_that_is_taken_away_ends_them(self, fresh_api: ServedApi) -> None:
        platform, path = fresh_api.platform, fresh_api.settings.home / KEY_FILE
        older, first_key = logon(fresh_api)["accessToken"], path.read_text()
        path.write_text(Fernet.generate_key().decode() + "\n" + first_key)
        newer = logon(fresh_api)["accessToken"]
        kids = [jwt.get_unverified_header(token)["kid"] for token in (older, newer)]
        assert kids == list(reversed(platform.secret_key.keys().ids))
        assert [status(fresh_api, token) for token in (older, newer)] == [200, 200]
        path.write_text(path.read_text().splitlines()[0] + "\n")
        assert len(platform.secret_key.keys().ids) == 1
        assert [status(fresh_api, token) for token in (older, newer)] == [401, 200]

    def test_a_key_that_another_process_has_added_is_found_when_its_first_token_comes(
        self, fresh_api: ServedApi
    ) -> None:
        path = fresh_api.settings.home / KEY_FILE
        path.write_text(Fernet.generate_key().decode() + "\n" + path.read_text())
        other = replace(fresh_api.platform)  # as another process has it, which reads the file anew
        token = tokens.issue(other, accounts.user(other, "ana"), HOUR)
        assert status(fresh_api, token) == 200


def test_a_token_in_basic_and_a_password_in_bearer_open_nothing(api: ServedApi) -> None:
    token = logon(api)["accessToken"]
    assert httpx.get(f"{api.url}{EXECS}", auth=("ana", token)).status_code == 401
    assert status(api, PASSWORD) == 401
