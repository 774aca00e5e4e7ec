"""The event stream: who hears what, how it is taken up again, and when it ends."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from tests.api.test_api_process import serving

from edt_api.routes import stream
from edt_scheduler.decide.reconcile import look
from edt_scheduler.errors import DatabaseUnavailable
from edt_scheduler.operations import history
from edt_scheduler.views import Changes
from support.credentials import PASSWORD
from support.listening import STREAM, Listening, Received, listening
from support.puppets import Clock
from support.served_api import ARGS, EXECS, ServedApi
from support.waiting import until


def jobs_in(received: Received) -> list[str]:
    return [job["id"] for job in received.data["items"]] if received.event == "jobs" else []


def receive_job(listener: Listening, exec_id: str) -> Received:
    while exec_id not in jobs_in(received := listener.until("jobs")):
        pass
    return received


def jobs_until(listener: Listening, last: str) -> list[str]:
    """All jobs that are told of up to this one, in however many events."""
    jobs: list[str] = []
    while last not in jobs:
        jobs += jobs_in(listener.until("jobs"))
    return jobs


@pytest.fixture(autouse=True)
def _nobody_listens_any_more(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier test did is no news: the watcher that told it has stopped. This one looks more often."""
    monkeypatch.setattr(stream, "LOOK_SECONDS", 0.05)
    if "api" in request.fixturenames:
        api: ServedApi = request.getfixturevalue("api")
        watching: stream.ChangeWatcher = api.app.state.watcher
        until(lambda: watching._watching is None or watching._watching.done())


class TestWhoHearsWhat:
    def test_it_begins_with_hello_and_then_tells_what_changes(self, api: ServedApi) -> None:
        with listening(api.client("ana")) as listener:
            hello = listener.next()
            assert (hello.event, bool(hello.id)) == ("hello", True)
            job = api.submit("ana").exec_id
            received = receive_job(listener, job)
            assert received.data["items"] == [api.client("ana").get(f"/api/v1/jobs/{job}").json()]
            api.client("ana").post(f"{EXECS}/{job}/stop").raise_for_status()
            again = receive_job(listener, job)
            assert again.data["items"][0]["stop_requested_at"] is not None
            api.client("ana").delete(f"{EXECS}/{job}").raise_for_status()
            while job not in (received := listener.until("jobs")).data["removed"]:
                pass
            assert received.data["items"] == []

    def test_a_user_hears_of_no_other_users_jobs_and_an_admin_of_all(self, api: ServedApi) -> None:
        with listening(api.client("bob")) as bob, listening(api.client("admin")) as admin:
            assert bob.next().event == admin.next().event == "hello"
            hidden = api.submit("ana").exec_id
            receive_job(admin, hidden)
            api.client("ana").delete(f"{EXECS}/{hidden}").raise_for_status()
            admin.until("jobs")
            own = api.submit("bob").exec_id
            received = bob.until("jobs")  # the first that he hears of any job
            assert (jobs_in(received), received.data["removed"]) == ([own], [])
            receive_job(admin, own)

    def test_slots_that_change_hands_are_told_to_everybody_by_exec_id_alone(self, fresh_api: ServedApi) -> None:
        api = fresh_api
        with listening(api.client("bob")) as bob:
            bob.next()
            api.register("node-a", slots=2)
            job = api.submit("ana").exec_id
            look(api.platform)
            timeline = bob.until("timeline")
            (bar,) = timeline.data["allocations"]
            assert (bar["exec_id"], bar["node"], bar["slot"], bar["released_at"]) == (job, "node-a", "0", None)
            assert timeline.data["resizes"][0]["to_slots"] == 1
            assert timeline.data["resizes"][0]["detail"] is None
            assert "ana" not in str(timeline.data)
        (node,) = api.client("bob").get("/api/v1/nodes").json()["items"]
        assert [slot["owner"] for slot in node["slots"]] == [None, None]

    def test_of_the_events_of_one_look_only_the_last_has_an_id(self, fresh_api: ServedApi) -> None:
        api = fresh_api
        api.register("node-a", slots=1)
        api.submit("ana")
        with listening(api.client("ana")) as listener:
            cursor = listener.next().id
            look(api.platform)
            events = [listener.next()]
            while events[-1].event != "timeline":
                events.append(listener.next())
        assert {"jobs", "nodes"} <= {received.event for received in events}
        assert events[-1].id not in {None, cursor}
        assert all(received.id is None for received in events if received.event == "nodes")

    def test_a_session_opens_it_and_nobody_else_comes_in(self, api: ServedApi) -> None:
        cookie = api.client().post("/api/v1/session", json={"name": "ana", "password": PASSWORD}).cookies
        page = api.client()
        page.cookies = cookie
        with listening(page) as listener:
            assert listener.next().event == "hello"
        assert api.client().get(STREAM).status_code == 401
        assert api.client(token=api.register("node-z")).get(STREAM).status_code == 403


class TestComingBack:
    def test_what_was_missed_is_told_first_and_once(self, api: ServedApi) -> None:
        client = api.client("ana")
        with listening(client) as listener:
            listener.next()
            receive_job(listener, api.submit("ana").exec_id)
            last_id = listener.last_id
        missed = [api.submit("ana").exec_id for _ in range(3)]
        with listening(client, last_id) as listener:
            assert listener.next().event == "beat"
            assert jobs_until(listener, missed[-1]) == missed
            later = api.submit("ana").exec_id
            assert jobs_in(listener.until("jobs")) == [later]

    def test_whoever_comes_back_to_a_watcher_that_runs_hears_nothing_twice(self, api: ServedApi) -> None:
        with listening(api.client("admin")) as watching:
            watching.next()
            with listening(api.client("ana")) as listener:
                last_id = listener.next().id
            missed = api.submit("ana").exec_id
            receive_job(watching, missed)
            with listening(api.client("ana"), last_id) as listener:
                listener.next()
                assert jobs_in(listener.until("jobs")) == [missed]
                later = api.submit("ana").exec_id
                assert jobs_in(listener.until("jobs")) == [later]

    def test_after_the_death_of_the_server_nothing_is_lost_and_nothing_doubled(self, tmp_path: Path) -> None:
        admin = ("admin", PASSWORD)

        def submit(client: httpx.Client) -> str:
            answer = client.post(EXECS, params={"args": ARGS}, files={"file": ("main.py", b"1\n")})
            return str(answer.raise_for_status().json()["id"])

        with ExitStack() as stack:
            process, url = stack.enter_context(serving(tmp_path / "home", EDT_ADMIN_PASSWORD=PASSWORD))
            client = stack.enter_context(httpx.Client(base_url=url, auth=admin, trust_env=False, timeout=60))
            listener = stack.enter_context(listening(client))
            listener.next()
            receive_job(listener, submit(client))
            missed = [submit(client) for _ in range(3)]
            process.kill()
            process.wait()
        with ExitStack() as stack:
            _, url = stack.enter_context(serving(tmp_path / "home"))
            client = stack.enter_context(httpx.Client(base_url=url, auth=admin, trust_env=False, timeout=60))
            missed.append(submit(client))
            listener = stack.enter_context(listening(client, listener.last_id))
            assert jobs_until(listener, missed[-1]) == missed
            later = submit(client)
            assert jobs_in(listener.until("jobs")) == [later]

    def test_a_place_that_is_not_known_any_more_is_a_reset_and_the_stream_goes_on(self, api: ServedApi) -> None:
        with listening(api.client("ana"), "99999999") as listener:  # of another database, which had seen more
            assert listener.until("reset").id == history.newest_change(api.platform)
            receive_job(listener, api.submit("ana").exec_id)

    def test_what_can_be_no_place_is_refused_by_name(self, api: ServedApi) -> None:
        for query, headers in (({}, {"Last-Event-ID": "nonsense"}), ({"after": "1; drop"}, {})):
            answer = api.client("ana").get(STREAM, params=query, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (400, "cursor-invalid")

    def test_a_client_without_headers_of_its_own_may_name_the_place_in_the_address(self, api: ServedApi) -> None:
        cursor = history.newest_change(api.platform)
        missed = api.submit("ana").exec_id
        with api.client("ana").stream("GET", STREAM, params={"after": cursor}) as response:
            assert jobs_in(Listening(response.iter_lines()).until("jobs")) == [missed]


class TestSilence:
    def test_a_beat_says_that_nothing_has_happened_and_moves_the_place_on(
        self, api: ServedApi, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stream, "BEAT_SECONDS", 0.4)
        with listening(api.client("bob")) as listener:
            hello = listener.next()
            api.submit("ana")  # nothing for his eyes
            newest = history.newest_change(api.platform)
            until(lambda: listener.until("beat").id == newest)
            assert newest != hello.id
            assert listener.comments

    def test_a_beat_is_not_late_for_what_was_not_for_ones_eyes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = Clock(0.0)

        class Woken(stream.Subscriber):
            async def wait(self, seconds: float) -> None:
                """Every 1.2 s, by what this stream has nothing to say of."""
                clock.pass_(min(seconds, 1.2))

        async def beat() -> str:
            whoever: Any = SimpleNamespace(clock=clock, healthy=True)
            events = stream._events(whoever, whoever, whoever, whoever, whoever, Woken("7"), b"hello")
            assert await anext(events) == b"hello"
            text = (await anext(events)).decode()
            await events.aclose()  # type: ignore[attr-defined]  # it is a generator
            return text

        monkeypatch.setattr(stream, "asyncio", SimpleNamespace(get_running_loop=lambda: SimpleNamespace(time=clock)))
        monkeypatch.setattr(stream, "CHECK_SECONDS", stream.BEAT_SECONDS + 1)
        assert "event: beat" in asyncio.run(beat())
        assert clock.now == pytest.approx(stream.BEAT_SECONDS)

    def test_while_the_database_is_away_nobody_is_told_that_all_is_well(
        self, api: ServedApi, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A beat is a comment and an event, a stream that is only kept alive the comment alone."""
        monkeypatch.setattr(stream, "BEAT_SECONDS", 0.2)
        monkeypatch.setattr(stream, "_HEALTHY_SECONDS", 0.5)

        def unavailable(*_: object) -> Changes:
            raise DatabaseUnavailable("does not answer", passing=True)

        with listening(api.client("ana")) as listener:
            listener.until("beat")
            with monkeypatch.context() as away:
                away.setattr(history, "changes_since", unavailable)
                while not listener.is_alone():
                    pass
                assert [listener.is_alone() for _ in range(3)] == [True, True, True]
            receive_job(listener, api.submit("ana").exec_id)


class TestTheEnd:
    @pytest.fixture(autouse=True)
    def _looks_often(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(stream, "CHECK_SECONDS", 0.2)

    def signed_in(self, api: ServedApi) -> httpx.Client:
        client = api.client()
        client.cookies = api.client().post("/api/v1/session", json={"name": "bob", "password": PASSWORD}).cookies
        client.headers["Origin"] = api.url
        return client

    @pytest.mark.parametrize("how", ["signing out", "a changed password"])
    def test_a_session_that_ends_ends_its_stream_and_no_other(self, api: ServedApi, how: str) -> None:
        page, other = self.signed_in(api), api.client("ana")
        with listening(page) as listener, listening(other) as still:
            assert listener.next().event == still.next().event == "hello"
            if how == "signing out":
                page.delete("/api/v1/session").raise_for_status()
            else:
                new = {"password": PASSWORD}
                api.client("admin").put("/api/v1/users/bob/password", json=new).raise_for_status()
            assert listener.rest()[-1].event == "bye"
            assert page.get(STREAM).status_code == 401
            receive_job(still, api.submit("ana").exec_id)

    def test_a_server_that_is_to_go_ends_its_streams_at_once(self, tmp_path: Path) -> None:
        with serving(tmp_path / "home", EDT_ADMIN_PASSWORD=PASSWORD) as (process, url), ExitStack() as stack:
            client = stack.enter_context(
                httpx.Client(base_url=url, auth=("admin", PASSWORD), trust_env=False, timeout=60)
            )
            listeners = [stack.enter_context(listening(client)) for _ in range(3)]
            assert {listener.next().event for listener in listeners} == {"hello"}
            process.send_signal(signal.SIGTERM)
            assert [listener.rest() for listener in listeners] == [[], [], []]  # who must be cut off gets no proper end
            assert process.wait(30) == 0


class TestTheWatcher:
    def test_one_looks_for_all_and_none_when_nobody_listens(
        self, api: ServedApi, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stream, "LOOK_SECONDS", 0.25)
        looks: list[float] = []
        changes_since: Callable[..., Changes] = history.changes_since

        def counted(*words: object, **names: object) -> Changes:
            looks.append(time.monotonic())
            return changes_since(*words, **names)

        monkeypatch.setattr(history, "changes_since", counted)
        with ExitStack() as stack:
            # Who is let go of hangs up.
            listeners = [stack.enter_context(listening(api.client("ana"))) for _ in range(8)]
            assert {listener.next().event for listener in listeners} == {"hello"}
            looks.clear()
            began = time.monotonic()
            until(lambda: len(looks) >= 4)
            assert len(looks) <= (time.monotonic() - began) / 0.25 + 2
        until(api.app.state.watcher._watching.done)
        looks.clear()
        time.sleep(0.5)
        assert looks == []
