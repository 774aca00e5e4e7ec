"""Pauses, more epochs, and jobs that begin from the checkpoints of others, as clients ask for them."""

from __future__ import annotations

import asyncio
import os
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest

from edt_contract.reports import ReportKind
from edt_scheduler.decide.reconcile import look
from edt_scheduler.home.secret_key import KeyFile, Keys
from edt_scheduler.model.jobs import Begin
from edt_scheduler.operations import accounts, execs, lives
from edt_scheduler.views import JobView
from support.puppets import Puppet
from support.served_api import ARGS, EXECS, ServedApi
from support.whole_checkpoints import write_checkpoint


def ask(client: httpx.Client, job: JobView, verb: str, **body: object) -> httpx.Response:
    return client.post(f"/api/v1/jobs/{job.exec_id}/{verb}", json=body or None)


def kept(api: ServedApi, args: str = ARGS) -> JobView:
    """A job of ana that was stopped and has a checkpoint."""
    job = api.submit("ana", args)
    write_checkpoint(api.settings.checkpoint_directory(job.exec_id), 40, step=36)
    return execs.stop(api.platform, job.exec_id, viewer=accounts.user(api.platform, "ana"))


def submit(client: httpx.Client, args: str) -> httpx.Response:
    return client.post(EXECS, params={"args": args}, files={"file": ("main.py", b"print('hello')\n")})


def staged(api: ServedApi) -> list[Path]:
    return list(api.settings.staged.iterdir())


def test_a_job_is_paused_and_resumed_and_the_answers_say_what_happens(api: ServedApi) -> None:
    ana, job = api.client("ana"), api.submit("ana")
    paused = ask(ana, job, "pause").json()
    assert paused["message"] == f"{job.exec_id} is paused: it gets no slot; `edt resume {job.exec_id}` lets it go on"
    assert (paused["job"]["status"], paused["job"]["paused_by"]) == ("paused", "ana")
    assert ana.get(f"{EXECS}/{job.exec_id}").json()["state"] == "SUBMITTED"  # WMLA's clients know no other states
    again = ask(ana, job, "pause")
    assert (again.status_code, again.json()["code"]) == (409, "not-now")
    assert again.json()["detail"] == f"{job.exec_id} is paused already, by ana"
    resumed = ask(ana, job, "resume").json()
    assert resumed["message"] == f"{job.exec_id} waits for slots and starts as soon as it has some"
    assert resumed["job"]["paused_at"] is None


def test_the_answers_about_a_job_that_holds_slots_say_what_happens_to_it(api: ServedApi) -> None:
    ana, job = api.client("ana"), api.submit("ana")
    name, node = job.exec_id, Puppet(api.platform).join()
    look(api.platform)
    node.fetch()
    node.report((name, 1), ReportKind.ATTEMPT_STARTED, pid=1)

    def told(verb: str, **body: object) -> str:
        message: str = ask(ana, job, verb, **body).json()["message"]
        return message

    alone = told("pause")
    assert alone.startswith(f"{name} is pausing: its processes are asked to end, and killed after ")
    assert alone.endswith(
        f"`edt resume {name}` starts it again from the beginning of its script, which may have kept checkpoints of its "
        "own"
    )
    again = f"{name} goes on; if it is leaving its slots already, it starts as soon as it has some again"
    assert told("resume") == again
    refused = ask(ana, job, "extend", epochs=9)
    assert (refused.status_code, refused.json()["code"]) == (409, "not-now")
    assert "only its script knows the epochs of a loop of its own" in refused.json()["detail"]

    node.report((name, 1), ReportKind.ENGINES_KNOWN, engines=4, steps_total=100, epochs=2)
    assert told("pause") == (
        f"{name} is pausing: its engines leave at the next step with a checkpoint; `edt resume {name}` lets it go on"
    )
    assert told("extend", epochs=9) == (
        f"{name} has 9 epochs in all: it is paused, and trains them once `edt resume {name}` lets it go on"
    )
    told("resume")
    assert told("extend", epochs=8) == (
        f"{name} has 8 epochs in all: its engines leave at the next step with a checkpoint, and go on with that a "
        "second or two later"
    )


def test_another_users_job_is_unknown(api: ServedApi) -> None:
    job, bob = api.submit("ana"), api.client("bob")
    assert [ask(bob, job, verb).status_code for verb in ("pause", "resume")] == [404, 404]
    assert ask(bob, job, "extend", epochs=3).status_code == 404
    assert ask(api.client("admin"), job, "pause").status_code == 200


def test_a_job_that_is_not_over_has_its_epochs_noted(api: ServedApi) -> None:
    ana, job = api.client("ana"), api.submit("ana")
    answer = ask(ana, job, "extend", epochs=9).json()
    assert answer["message"].startswith(f"{job.exec_id} has 9 epochs in all: it holds no slot now")
    assert answer["job"]["wanted_epochs"] == 9
    refused = ask(ana, job, "extend", epochs=0)
    assert (refused.status_code, "epochs" in refused.text) == (400, True)


def test_a_job_that_is_over_is_extended_by_one_new_job(api: ServedApi) -> None:
    place = "--queue /x --msd-priority 4 --minWorkers 2 --sizes 2,4 --time-limit 2h --gpu-model A"
    ana, job, key = api.client("ana"), kept(api, f"{ARGS} {place} --lr 0.1"), uuid.uuid4().hex
    path, body = f"/api/v1/jobs/{job.exec_id}/extend", {"epochs": 9}
    first, second = (ana.post(path, json=body, headers={"Idempotency-Key": key}) for _ in range(2))
    assert first.status_code == 200, first.text
    new = first.json()["job"]
    assert second.json()["job"]["id"] == new["id"]
    assert first.json()["message"] == f"{new['id']} goes on where {job.exec_id} ended, with 9 epochs in all"
    assert (new["resumed_from"], new["resumed_step"], new["wanted_epochs"]) == (job.exec_id, 36, 9)
    assert new["remark"] == f"goes on where {job.exec_id} ended, with 9 epochs in all"
    assert {"name": "--resume-from", "values": [job.exec_id], "effect": True} in new["options"]
    asked = {"queue": "/x", "priority": 4, "min_workers": 2, "sizes": [2, 4], "time_limit": 7200, "gpu_models": ["a"]}
    assert {name: new[name] for name in asked} == asked
    folder = api.settings.job_directory(new["id"])
    assert (folder / "_submitted_code" / "main.py").read_bytes() == b"print('hello')\n"
    assert [path.name for path in (folder / "begin").iterdir()] == ["at-0000000040"]
    assert staged(api) == []


def test_a_job_begins_from_the_checkpoint_of_one_that_its_user_may_see(api: ServedApi) -> None:
    job = kept(api)
    begun = submit(api.client("ana"), f"{ARGS} --resume-from {job.exec_id} --lr 0.2").json()
    shown = api.client("ana").get(f"/api/v1/jobs/{begun['id']}").json()
    assert (shown["resumed_from"], shown["resumed_step"], shown["seed"]) == (job.exec_id, 36, job.seed)
    view = execs.job(api.platform, begun["id"], viewer=accounts.user(api.platform, "ana"))
    assert (view.directory / "begin" / "at-0000000040" / "state.safetensors").read_bytes() == b"state"
    assert staged(api) == []


@pytest.mark.parametrize(
    ("user", "args", "told"),
    [
        ("bob", "{args} --resume-from {job}", "--resume-from: there is no job '{job}'"),
        ("ana", "{args} --resume-from edt-999999", "--resume-from: there is no job 'edt-999999'"),
        ("ana", "{args} --resume-from newest", "got 'newest'; it takes the id of a job"),
        ("ana", "--exec-start PyTorch --model-main main.py --resume-from {job}", "whose jobs are gangs"),
        ("ana", "--exec-start edtTensorflow --model-main main.py --resume-from {job}", "trains with pytorch"),
    ],
)
def test_what_a_job_cannot_begin_from_is_a_400_that_says_why(api: ServedApi, user: str, args: str, told: str) -> None:
    job = kept(api)
    refused = submit(api.client(user), args.format(args=ARGS, job=job.exec_id))
    assert refused.status_code == 400
    assert told.format(job=job.exec_id) in refused.text
    assert staged(api) == []


def test_a_job_whose_code_does_not_compile_leaves_no_copy_of_a_checkpoint(api: ServedApi) -> None:
    job = kept(api)
    files = {"file": ("main.py", b"print(\n")}
    refused = api.client("ana").post(EXECS, params={"args": f"{ARGS} --resume-from {job.exec_id}"}, files=files)
    assert refused.status_code == 400
    assert staged(api) == []


def test_code_that_is_refused_costs_no_copy_of_a_checkpoint(api: ServedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []
    stage = lives.stage_checkpoint

    def counted(*of: Any, **more: Any) -> Begin:
        copied.append("")
        return stage(*of, **more)

    monkeypatch.setattr(lives, "stage_checkpoint", counted)
    job = kept(api)
    args = {"args": f"{ARGS} --resume-from {job.exec_id}"}
    refused = api.client("ana").post(EXECS, params=args, files={"file": ("main.py", b"print(\n")})
    assert (refused.status_code, copied) == (400, [])
    assert (submit(api.client("ana"), args["args"]).status_code, copied) == (200, [""])


def test_a_copy_for_which_the_disk_has_no_room_is_a_507(api: ServedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    ana, job = api.client("ana"), kept(api)
    monkeypatch.setattr("edt_scheduler.home.copying.RESERVE_BYTES", 1 << 62)
    for refused in (submit(ana, f"{ARGS} --resume-from {job.exec_id}"), ask(ana, job, "extend", epochs=9)):
        assert refused.status_code == 507
        assert "the server's disk is full" in refused.text
    assert staged(api) == []


def test_code_that_its_job_has_made_too_large_is_a_413_that_says_what_to_do(api: ServedApi) -> None:
    ana, job = api.client("ana"), kept(api)
    large = job.work_dir / "data.bin"
    large.touch()
    os.truncate(large, 3 << 30)  # sparse
    refused = ask(ana, job, "extend", epochs=9)
    assert (refused.status_code, refused.json()["code"]) == (413, "too-large")
    assert refused.json()["detail"] == (
        f"the code of {job.exec_id} cannot be copied with what the job wrote beside it: 'data.bin' has 3221225472 "
        f"bytes, at most 1073741824 are copied. Submit the code again with --resume-from {job.exec_id}"
    )
    assert staged(api) == []


def test_a_pipe_in_place_of_a_main_script_is_not_waited_for(api: ServedApi) -> None:
    ana, job = api.client("ana"), kept(api)
    (job.work_dir / "main.py").unlink()
    os.mkfifo(job.work_dir / "main.py")
    refused = ask(ana, job, "extend", epochs=9)
    assert refused.status_code == 400
    assert f"the code of {job.exec_id} has no file main.py any more" in refused.json()["detail"]
    assert staged(api) == []


def test_the_key_file_is_not_read_on_the_event_loop(api: ServedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    ana, job, keys = api.client("ana"), kept(api), KeyFile.keys
    loops: list[object] = []

    def looked(file: KeyFile) -> Keys:
        loops.append(asyncio._get_running_loop())  # of this thread
        return keys(file)

    monkeypatch.setattr(KeyFile, "keys", looked)
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    assert ana.post(f"/api/v1/jobs/{job.exec_id}/extend", json={"epochs": 9}, headers=headers).status_code == 200
    assert loops and set(loops) == {None}


def test_a_job_that_was_stopped_says_how_to_go_on(api: ServedApi) -> None:
    job = kept(api)
    over = ask(api.client("ana"), job, "resume")
    assert over.status_code == 409
    assert "submit it again; it had no checkpoint yet" in over.json()["detail"]  # no engine has reported one
