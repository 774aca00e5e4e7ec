"""A submission whose request is cut off while its job is being made."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from edt_api.concurrency import Gathered
from edt_scheduler.operations import accounts, execs
from edt_scheduler.operations.submitting import StagedSubmission
from edt_scheduler.views import JobView
from support.served_api import ARGS, EXECS, ServedApi
from support.waiting import until


def cut_off(loop: asyncio.AbstractEventLoop) -> None:
    """End all requests of this event loop, as the server does that ends and has waited for them for some seconds."""
    for task in asyncio.all_tasks(loop):
        if "run_asgi" in str(task.get_coro()):
            task.cancel()


def test_a_job_that_is_made_all_the_same_has_all_its_code(
    fresh_api: ServedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    submits: Gathered[StagedSubmission, JobView] = fresh_api.app.state.submits
    make, begun, go_on = submits._do, threading.Event(), threading.Event()

    def slowly(some: list[StagedSubmission]) -> list[JobView | Exception]:
        begun.set()
        assert go_on.wait(30)
        return make(some)

    monkeypatch.setattr(submits, "_do", slowly)

    def submit() -> bool:
        try:
            sent = {"file": ("main.py", b"print('hello')\n")}
            return fresh_api.client("ana").post(EXECS, params={"args": ARGS}, files=sent).is_success
        except httpx.HTTPError:
            return False

    with ThreadPoolExecutor(1) as pool:
        answered = pool.submit(submit)
        assert begun.wait(30)
        fresh_api.loop.call_soon_threadsafe(cut_off, fresh_api.loop)
        assert not answered.result()
        go_on.set()
    viewer = accounts.user(fresh_api.platform, "ana")
    until(lambda: bool(list(execs.jobs(fresh_api.platform, viewer=viewer))))
    (job,) = execs.jobs(fresh_api.platform, viewer=viewer)
    assert (job.work_dir / "main.py").read_text() == "print('hello')\n"
