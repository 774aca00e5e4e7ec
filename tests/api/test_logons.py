"""Signing in under attack: what wrong passwords cost, whom, for how long; and the queue before argon2."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections import Counter
from collections.abc import Awaitable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import httpx
import pytest
from limits import parse, strategies
from limits.storage import memory

from edt_api import concurrency
from edt_api.access import passwords as queue
from edt_api.access.guard import Authenticator
from edt_api.access.logon_limits import SITE, FailedLogons, Limits, _Counters, network
from edt_api.access.passwords import Passwords
from edt_api.access.rules import Credential
from edt_api.errors import TooManyLogons
from edt_api.settings import Settings
from support.credentials import PASSWORD, account
from support.served_api import EXECS, ServedApi, cheap_hasher, cheap_passwords, served

_T = TypeVar("_T")
HOME, CAFE, OFFICE = "192.0.2.7", "198.51.100.9", "203.0.113.5"
FEW = Limits(parse("5 per 10 minutes"), parse("4 per 10 minutes"), parse("2 per 10 minutes"))


@dataclass
class Clock:
    """The time by which wrong passwords are counted."""

    now: float = 1_000_000_207.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (memory, strategies, "edt_api.access.logon_limits"):
        monkeypatch.setattr(*((f"{module}.time", clock) if isinstance(module, str) else (module, "time", clock)))
    return clock


def refused(failed_logons: FailedLogons, name: str, address: str) -> TooManyLogons | None:
    try:
        failed_logons.admit(name, address)
    except TooManyLogons as error:
        return error
    return None


class TestWhoIsRefused:
    def test_a_guesser_at_one_address_locks_out_nobody_but_themselves(self, clock: Clock) -> None:
        failed_logons = FailedLogons(FEW)
        while not refused(failed_logons, "ana", CAFE):
            failed_logons.wrong("ana", CAFE)
        assert refused(failed_logons, "ana", HOME) is None, "the user's own address is another one"
        assert refused(failed_logons, "bob", CAFE) is None, "nor does it keep others from theirs there"

    def test_one_address_that_tries_many_names_is_refused_for_all_of_them(self, clock: Clock) -> None:
        failed_logons = FailedLogons(FEW)
        for number in range(5):
            assert refused(failed_logons, f"name{number}", CAFE) is None
            failed_logons.wrong(f"name{number}", CAFE)
        error = refused(failed_logons, "another", CAFE)
        assert error is not None and "this address" in str(error)
        assert refused(failed_logons, "another", HOME) is None

    def test_many_addresses_that_try_one_name_are_refused_but_not_where_the_user_has_signed_in(
        self, clock: Clock
    ) -> None:
        failed_logons = FailedLogons(FEW)
        failed_logons.right("ana", 1, HOME)
        for number in range(4):
            failed_logons.wrong("ana", f"198.51.100.{number}")
        error = refused(failed_logons, "ana", CAFE)
        assert error is not None and "this user" in str(error)
        assert refused(failed_logons, "ana", HOME) is None
        assert refused(failed_logons, "bob", CAFE) is None

    def test_a_neighbour_behind_the_same_address_locks_out_only_who_never_signed_in_there(self, clock: Clock) -> None:
        failed_logons = FailedLogons(FEW)
        failed_logons.right("ana", 1, OFFICE)
        for number in range(5):
            failed_logons.wrong(f"name{number}", OFFICE)
        assert refused(failed_logons, "bob", OFFICE) is not None
        assert refused(failed_logons, "ana", OFFICE) is None

    def test_at_a_familiar_address_too_a_user_may_be_guessed_so_often_only(self, clock: Clock) -> None:
        failed_logons = FailedLogons(FEW)
        failed_logons.right("ana", 1, HOME)
        for _ in range(2):
            failed_logons.wrong("ana", HOME)
        assert refused(failed_logons, "ana", HOME) is not None

    def test_the_answer_says_after_how_many_seconds_it_is_looked_at_again_and_then_it_is(self, clock: Clock) -> None:
        failed_logons = FailedLogons(FEW)
        for _ in range(2):
            failed_logons.wrong("ana", HOME)
            clock.now += 30.5
        error = refused(failed_logons, "ana", HOME)
        assert error is not None and 1 <= error.retry_after <= 600
        assert f"try again in {error.retry_after} second" in str(error)
        clock.now += error.retry_after - 2
        assert refused(failed_logons, "ana", HOME) is not None
        clock.now += 2
        assert refused(failed_logons, "ana", HOME) is None

    def test_a_guesser_who_goes_on_does_not_make_it_longer(self, clock: Clock) -> None:
        passwords = Passwords(cheap_hasher(), FailedLogons(FEW))
        stored, waits = passwords.hash_now("hush"), []
        for number in range(10):
            try:
                asyncio.run(passwords.verify("ana", f"guess{number}", account(stored), CAFE))
            except TooManyLogons as error:
                waits.append(error.retry_after)
                clock.now += 20
        assert len(waits) == 8
        assert waits == pytest.approx([waits[0] - 20 * each for each in range(8)], abs=1)

    def test_the_networks_of_one_home_are_one_address_for_who_tries_many_names(self, clock: Clock) -> None:
        failed_logons = FailedLogons(FEW)
        for number in range(5):
            failed_logons.wrong(f"name{number}", f"2001:db8:1:2{number:02}::1")
        assert refused(failed_logons, "another", "2001:db8:1:2ff::1") is not None
        assert refused(failed_logons, "another", "2001:db8:1:3ff::1") is None

    def test_who_signs_in_at_many_addresses_takes_the_familiar_ones_from_nobody_else(self) -> None:
        failed_logons = FailedLogons(FEW)
        failed_logons.right("ana", 1, HOME)
        for number in range(200):
            failed_logons.right("bob", 2, f"198.51.100.{number}")
        assert failed_logons.familiar("ana", HOME)
        assert [failed_logons.familiar("bob", f"198.51.100.{number}") for number in (167, 168)] == [False, True]

    def test_a_new_user_by_an_old_name_is_familiar_nowhere(self) -> None:
        passwords = Passwords(cheap_hasher(), FailedLogons(FEW))
        stored = passwords.hash_now("hush")
        assert asyncio.run(passwords.verify("ana", "hush", account(stored), HOME))
        assert not asyncio.run(passwords.verify("ana", "guess", account(stored, user=2), CAFE))
        assert not passwords.failed_logons.familiar("ana", HOME)

    def test_the_log_names_the_address_once_and_no_user(self, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
        failed_logons = FailedLogons(FEW)
        with caplog.at_level(logging.WARNING, "edt.api"):
            for number in range(5):
                failed_logons.wrong(f"hunter{number}", CAFE)
        assert [CAFE in line for line in caplog.messages] == [True]
        assert "hunter" not in caplog.text

    @pytest.mark.parametrize(
        ("address", "counted"),
        [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:aaaa::1", "2001:db8:1:2::/64"),
            ("2001:db8:1:2:bbbb::2", "2001:db8:1:2::/64"),
            ("fe80::1%eth0", "fe80::/64"),
            ("", ""),
            ("x" * 100, "x" * 64),
        ],
    )
    def test_one_address_is_what_one_person_has(self, address: str, counted: str) -> None:
        assert network(address) == counted

    def test_one_home_has_256_networks_of_ipv6(self) -> None:
        assert network("2001:db8:1:2aa:aaaa::1", of_ipv6=SITE) == "2001:db8:1:200::/56"
        assert network(HOME, of_ipv6=SITE) == HOME


class TestTheCounters:
    def test_the_oldest_of_too_many_are_forgotten(self, clock: Clock) -> None:
        counters = _Counters(most=3)
        for key in "abcde":
            counters.incr(key, 100)
        assert [counters.get(key) for key in "abcde"] == [0, 0, 1, 1, 1]
        assert set(counters.storage) == set(counters.expirations) == set("cde")

    def test_what_has_run_out_is_dropped_when_more_is_counted(self, clock: Clock) -> None:
        counters = _Counters()
        assert [counters.incr(key, 100) for key in "aab"] == [1, 2, 1]
        clock.now += 101
        assert counters.get("a") == 0
        assert counters.incr("b", 100) == 1
        assert counters.storage == Counter(b=1)

    def test_counting_starts_no_thread(self, clock: Clock) -> None:
        counters = _Counters()
        counters.timer.join(10)
        counters.acquire_sliding_window_entry("a", 5, 100)
        assert not counters.timer.is_alive()


class TestWhatIsCounted:
    def test_a_client_that_sends_its_right_password_with_each_request_is_never_refused(self, clock: Clock) -> None:
        now = [0.0]
        passwords = Passwords(cheap_hasher(), FailedLogons(FEW), lambda: now[0])
        stored = passwords.hash_now("hush")
        for _ in range(200):
            assert asyncio.run(passwords.verify("ana", "hush", account(stored), HOME))
            now[0] += 61  # what was remembered is forgotten, so it is hashed again

    def test_a_program_that_repeats_an_outdated_password_counts_once(self, clock: Clock) -> None:
        passwords = Passwords(cheap_hasher(), FailedLogons(FEW))
        stored = passwords.hash_now("the new one")
        for _ in range(50):
            assert not asyncio.run(passwords.verify("ana", "the old one", account(stored), HOME))
        assert asyncio.run(passwords.verify("ana", "the new one", account(stored), HOME))

    def test_who_is_refused_learns_nothing_of_whether_the_password_was_right(self, clock: Clock) -> None:
        passwords = Passwords(cheap_hasher(), FailedLogons(FEW))
        stored = passwords.hash_now("hush")
        for number in range(2):
            asyncio.run(passwords.verify("ana", f"guess{number}", account(stored), CAFE))
        for guess in ("guess3", "hush"):
            with pytest.raises(TooManyLogons):
                asyncio.run(passwords.verify("ana", guess, account(stored), CAFE))

    def test_that_it_was_right_elsewhere_a_moment_ago_tells_a_refused_guesser_nothing(self, clock: Clock) -> None:
        passwords = Passwords(cheap_hasher(), FailedLogons(FEW))
        stored = passwords.hash_now("hush")
        assert asyncio.run(passwords.verify("ana", "hush", account(stored), HOME))
        for number in range(2):
            assert not asyncio.run(passwords.verify("ana", f"guess{number}", account(stored), CAFE))
        for guess in ("guess0", "guess3", "hush"):
            with pytest.raises(TooManyLogons):
                asyncio.run(passwords.verify("ana", guess, account(stored), CAFE))
        assert not passwords.failed_logons.familiar("ana", CAFE)
        assert asyncio.run(passwords.verify("ana", "hush", account(stored), HOME))

    def test_who_is_refused_does_not_reach_the_database(self, clock: Clock) -> None:
        passwords = Passwords(cheap_hasher(), FailedLogons(FEW))
        for _ in range(2):
            passwords.failed_logons.wrong("ana", CAFE)
        authenticator = Authenticator(None, passwords, "join-me")  # type: ignore[arg-type]  # it is not to be asked
        with pytest.raises(TooManyLogons):
            asyncio.run(authenticator.caller(Credential("hush", "ana"), CAFE))

    def test_what_is_remembered_as_wrong_is_right_as_soon_as_it_is_set(self) -> None:
        passwords = cheap_passwords()
        assert not asyncio.run(passwords.verify("ana", "coming", account(passwords.hash_now("hush")), HOME))
        assert asyncio.run(passwords.verify("ana", "coming", account(passwords.hash_now("coming")), HOME))


THREADS = concurrency.Pool("held", 2)
"""Where what waits for the test can wait."""


@dataclass
class Held:
    """A hasher whose work waits for the test."""

    go: threading.Event
    most: int = 0
    now: int = 0
    asked: list[str] = field(default_factory=list)
    """Passwords in the order in which their turn came."""

    def verify(self, _stored: str, password: str) -> bool:
        self.asked.append(password)
        self.now += 1
        self.most = max(self.most, self.now)
        assert self.go.wait(20)
        self.now -= 1
        return password == "hush"

    def hash(self, password: str) -> str:
        self.verify("", password)
        return "stored"


async def outcomes(asked: list[Awaitable[_T]], held: Held, until: int, at_work: int = 2) -> list[_T | BaseException]:
    """What each gets; the hasher works on once ``until`` of them are answered, which are those who do not wait, and
    ``at_work`` of the others are being hashed."""
    tasks = [asyncio.ensure_future(each) for each in asked]
    while held.now < at_work or sum(task.done() for task in tasks) < until:  # noqa: ASYNC110  they are tasks of the product
        await asyncio.sleep(0.001)
    held.go.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


class TestTheQueue:
    @pytest.fixture
    def held(self) -> Iterator[Held]:
        held = Held(threading.Event())
        yield held
        held.go.set()

    def test_strangers_who_would_wait_long_are_told_when_to_come_again(self, held: Held) -> None:
        passwords = Passwords(held, hashing=THREADS)  # type: ignore[arg-type]  # what is used of it
        places = [f"192.0.2.{number}" for number in range(40)]
        asked = [passwords.verify(f"name{n}", "guess", account("stored"), place) for n, place in enumerate(places)]
        got = asyncio.run(outcomes(list(asked), held, 8, at_work=1))
        late = [each for each in got if isinstance(each, TooManyLogons)]
        assert len(late) == 8
        assert all(1 <= each.retry_after <= 10 for each in late)
        assert got.count(False) == 32
        assert held.most == 1

    def test_one_address_takes_no_more_than_half_of_the_places(self, held: Held) -> None:
        passwords = Passwords(held, hashing=THREADS)  # type: ignore[arg-type]
        asked = [passwords.verify(f"name{n}", "guess", account("stored"), CAFE) for n in range(20)]
        asked += [passwords.verify(f"name{n}", "guess", account("stored"), HOME) for n in range(5)]
        got = asyncio.run(outcomes(list(asked), held, 4, at_work=1))
        assert [isinstance(each, TooManyLogons) for each in got] == [False] * 16 + [True] * 4 + [False] * 5

    def test_behind_all_the_strangers_there_is_room_for_who_has_signed_in_there_before(self, held: Held) -> None:
        passwords = Passwords(held, hashing=THREADS)  # type: ignore[arg-type]
        passwords.failed_logons.right("ana", 1, HOME)
        asked = [passwords.verify(f"name{n}", "guess", account("stored"), f"192.0.2.{n + 20}") for n in range(33)]
        got = asyncio.run(outcomes([*asked, passwords.verify("ana", "hush", account("stored"), HOME)], held, 1))
        assert isinstance(got[32], TooManyLogons)
        assert got[33] is True
        assert held.asked[1] == "hush", "whom we know waits for one stranger at most"

    def test_who_sets_many_passwords_at_once_shuts_nobody_out(self, held: Held) -> None:
        passwords = Passwords(held, hashing=THREADS)  # type: ignore[arg-type]
        passwords.failed_logons.right("ana", 1, HOME)
        setting: list[Awaitable[object]] = [passwords.hash("new", by, CAFE) for by in [7] * 70 + [8] * 10 + [9]]
        signing_in = [
            passwords.verify("ana", "hush", account("stored"), HOME),
            passwords.verify("bob", "hush", account("stored", 2), OFFICE),
        ]
        got = asyncio.run(outcomes([*setting, *signing_in], held, 73))
        assert got[:4] == got[70:74] == ["stored"] * 4, "four of each user, and eight of all"
        assert all(isinstance(each, TooManyLogons) for each in got[4:70] + got[74:81])
        assert got[81:] == [True, True]
        assert not passwords._new and not passwords._queued

    def test_requests_of_one_client_that_come_together_take_one_place(self, held: Held) -> None:
        passwords = Passwords(held, hashing=THREADS)  # type: ignore[arg-type]
        asked = [passwords.verify("ana", "hush", account("stored"), HOME) for _ in range(100)]
        assert asyncio.run(outcomes(list(asked), held, 0, at_work=1)) == [True] * 100
        assert held.most == 1

    def test_a_request_that_is_given_up_does_not_spoil_it_for_the_others(self, held: Held) -> None:
        passwords = Passwords(held, hashing=THREADS)  # type: ignore[arg-type]

        async def one_goes() -> bool:
            asked = (passwords.verify("ana", "hush", account("stored"), HOME) for _ in range(2))
            first, second = map(asyncio.create_task, asked)
            while not held.now:  # noqa: ASYNC110  set in a thread
                await asyncio.sleep(0.001)
            first.cancel()
            held.go.set()
            return await second

        assert asyncio.run(one_goes())
        assert not passwords._queued

    def test_nobody_waits_longer_than_a_while(self, held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(queue, "LONGEST_WAIT_SECONDS", 0.01)
        passwords = Passwords(held, hashing=THREADS)  # type: ignore[arg-type]
        asked = [passwords.verify(f"name{n}", "guess", account("stored"), HOME) for n in range(3)]
        got = asyncio.run(outcomes(list(asked), held, 2, at_work=1))
        assert [isinstance(each, TooManyLogons) for each in got] == [False, True, True]


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApi]:
    """An API that believes its proxy and takes few wrong passwords."""
    few = {
        "logon_per_address": parse("6 per hour"),
        "logon_per_user": parse("4 per hour"),
        "logon_per_user_and_address": parse("2 per hour"),
    }
    with served(tmp_path_factory.mktemp("home"), forwarded_allow_ips="127.0.0.1", **few) as opened:
        yield opened


def added(api: ServedApi, name: str) -> str:
    api.client("admin").post("/api/v1/users", json={"name": name, "password": PASSWORD}).raise_for_status()
    return name


def by_basic(client: httpx.Client, name: str, password: str, address: str) -> httpx.Response:
    return client.get("/api/v1/me", auth=(name, password), headers={"X-Forwarded-For": address})


def by_session(client: httpx.Client, name: str, password: str, address: str) -> httpx.Response:
    who = {"name": name, "password": password}
    return client.post("/api/v1/session", json=who, headers={"X-Forwarded-For": address})


@pytest.mark.usefixtures("clock")  # it stands: no window of the limits ends in the middle of a test
class TestOverHttp:
    """Each with users and addresses of its own."""

    def test_wherever_a_password_is_looked_at_wrong_ones_are_counted_together(self, strict: ServedApi) -> None:
        client = strict.client()
        assert by_basic(client, "ana", "guess1", "192.0.2.1").status_code == 401
        assert by_session(client, "ana", "guess2", "192.0.2.1").status_code == 401
        for ask in (by_basic, by_session):
            answer = ask(client, "ana", PASSWORD, "192.0.2.1")
            assert (answer.status_code, answer.json()["code"]) == (429, "too-many-logons")
            assert 1 <= int(answer.headers["Retry-After"]) <= 3600
            assert f"try again in {answer.headers['Retry-After']} seconds" in answer.json()["detail"]
        for ask in (by_basic, by_session):
            assert ask(client, "ana", PASSWORD, "192.0.2.2").status_code in (200, 204), "from elsewhere it is right"

    def test_wmlas_clients_read_it_as_a_line_of_text(self, strict: ServedApi) -> None:
        bea = added(strict, "bea")
        for number in range(3):
            wrong = (bea, f"guess{number}")
            answer = strict.client().get(EXECS, auth=wrong, headers={"X-Forwarded-For": "192.0.2.3"})
        assert answer.status_code == 429
        assert answer.text.startswith("Error 429: too many wrong passwords were sent for this user: try again in ")

    def test_a_token_is_good_while_passwords_are_refused(self, strict: ServedApi) -> None:
        here = {"X-Forwarded-For": "192.0.2.4"}
        cid = added(strict, "cid")
        token = strict.client(cid).get("/auth/v1/logon", headers=here).json()["accessToken"]
        for number in range(3):
            answer = by_basic(strict.client(), cid, f"stab{number}", "192.0.2.4")
        assert answer.status_code == 429
        assert by_basic(strict.client(), cid, PASSWORD, "192.0.2.4").status_code == 429
        assert strict.client(token=token).get("/api/v1/me", headers=here).status_code == 200

    def test_an_own_password_is_changed_with_the_current_one(self, strict: ServedApi) -> None:
        path, new = "/api/v1/users/eve/password", {"password": "eves new one"}
        eve = strict.client(token=strict.client(added(strict, "eve")).get("/auth/v1/logon").json()["accessToken"])
        without = eve.put(path, json=new)
        assert (without.status_code, "current_password" in without.json()["detail"]) == (400, True)
        wrong = [eve.put(path, json={**new, "current_password": f"guess{n}"}) for n in range(3)]
        assert [(each.status_code, each.json()["code"]) for each in wrong] == [
            (403, "wrong-password"),
            (403, "wrong-password"),
            (429, "too-many-logons"),
        ]
        assert not any("guess" in each.text for each in wrong)
        elsewhere = {"X-Forwarded-For": "192.0.2.5"}
        right = eve.put(path, json={**new, "current_password": PASSWORD}, headers=elsewhere)
        assert right.status_code == 204
        assert by_basic(strict.client(), "eve", "eves new one", "192.0.2.6").status_code == 200

    def test_an_admin_needs_their_own_current_password_and_nobody_elses(self, strict: ServedApi) -> None:
        admin = strict.client("admin")
        added(strict, "fay")
        assert admin.put("/api/v1/users/fay/password", json={"password": "fays new one"}).status_code == 204
        assert admin.put("/api/v1/users/admin/password", json={"password": "another one"}).status_code == 400

    def test_guessers_from_everywhere_do_not_shut_out_who_works_here(self, strict: ServedApi) -> None:
        added(strict, "gus")
        assert by_basic(strict.client(), "gus", PASSWORD, "192.0.2.8").status_code == 200
        with ThreadPoolExecutor(8) as pool:
            guesses = [pool.submit(by_basic, strict.client(), "gus", f"wild{n}", f"198.51.100.{n}") for n in range(40)]
            statuses = [each.result().status_code for each in guesses]
        assert set(statuses) == {401, 429}
        assert statuses.count(401) <= 4 + 2, "two may be hashed while the last one is counted"
        strict.app.state.passwords._right._kept.clear()  # as if a minute had passed
        assert by_basic(strict.client(), "gus", PASSWORD, "192.0.2.8").status_code == 200


class TestSettings:
    def test_limits_are_read_from_the_environment(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("EDT_LOGON_PER_USER", "7/2 minutes")
        limit = Settings(home=tmp_path).logon_limits.per_user
        assert (limit.amount, limit.get_expiry()) == (7, 120)
        assert math.isclose(Settings(home=tmp_path).logon_limits.per_address.amount, 100)

    @pytest.mark.parametrize("text", ["", "many", "0 per minute", "7"])
    def test_a_limit_that_is_none_is_named(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
        monkeypatch.setenv("EDT_LOGON_PER_ADDRESS", text)
        with pytest.raises(ValueError, match=r"100 per 15 minutes") as caught:
            Settings(home=tmp_path)
        assert "logon_per_address" in str(caught.value)
