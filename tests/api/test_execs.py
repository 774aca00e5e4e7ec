"""WMLA's calls as its clients make them: the five forms of submit, states, logs, results, stop and delete."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from edt_api.job_files import logs, results
from edt_api.job_files.files import Found, files
from edt_scheduler.model.states import JobState
from edt_scheduler.store import jobs as job_rows
from edt_scheduler.views import JobView
from support.credentials import PASSWORD
from support.served_api import ARGS, EXECS, ServedApi, served, tar
from support.waiting import until

MAIN = {"net/main.py": "print('hello')\n", "net/lib.py": "x = 1\n"}
RECORDED = {
    "id", "args", "submissionId", "creator", "state", "appId", "schedulerUrl", "modelFileOwnerName", "workDir",
    "appName", "createTime", "elastic", "nameSpace", "numWorker", "framework", "userName", "sigName", "sigId",
    "masterURL", "executionUserName",
}  # fmt: skip


def code(api: ServedApi, exec_id: str) -> dict[str, str]:
    """What lies in a job's submitted code."""
    folder = api.settings.job_directory(exec_id) / "_submitted_code"
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def staged(api: ServedApi) -> list[str]:
    return [path.name for path in api.settings.staged.iterdir()]


class TestTheFiveFormsOfSubmit:
    def test_notebooks_of_generation_a_send_a_gzip_tar_a_sig_name_and_basic(self, api: ServedApi) -> None:
        args = "--exec-start edtPyTorch  --ig dli     --numWorker 2 --model-dir net --model-main main.py --epochs 3 "
        response = httpx.post(
            f"{api.url}{EXECS}?sigName=dli&args={quote(args)}",
            files={"file": ("tmpabc.modelDir.tar", tar(MAIN))},
            headers={"Accept": "application/json"},
            auth=("ana", PASSWORD),
            timeout=20,
        )
        assert response.status_code == 200
        body = response.json()
        assert body["args"] == args
        assert body["workDir"].endswith("/_submitted_code/net")
        assert code(api, body["id"]) == MAIN

    def test_notebooks_of_generation_b_send_a_bare_script_and_a_token_header(self, api: ServedApi) -> None:
        token = api.client("ana").get("/auth/v1/logon").json()["accessToken"]
        response = api.client().post(
            f"{EXECS}?args={quote(ARGS)}",
            files={"file": ("main.py", b"print(1)\n")},
            headers={"X-Auth-Token": token, "accept": "application/json"},
        )
        body = response.json()
        assert body["workDir"].endswith("/_submitted_code")
        assert code(api, body["id"]) == {"main.py": "print(1)\n"}

    def test_dlicmd_sends_a_slash_several_files_and_a_data_source(self, api: ServedApi) -> None:
        token = api.client("ana").get("/auth/v1/logon").json()["accessToken"]
        (api.settings.data / "mnist").mkdir(parents=True, exist_ok=True)
        response = api.client(token=token).post(
            f"{EXECS}/?args={quote('--exec-start edtPyTorch --model-dir net --model-main /home/me/net/main.py')}",
            files=[
                ("file", ("net.modelDir.tar", tar(MAIN))),
                ("file", ("env.yaml", b"name: dlipy3\n")),
                ("file", ("package.tar.bz2", b"BZh9" + b"x" * 3_000_000)),
            ],
            data={"data": json.dumps({"dataSource": [{"type": "fs", "location": {"paths": "mnist"}}]})},
        )
        body = response.json()
        assert body["id"] == body["appId"] == body["submissionId"]
        assert code(api, body["id"]) == MAIN

    def test_generation_c_puts_all_into_the_form_and_packs_without_a_top_folder(self, api: ServedApi) -> None:
        form = {"args": "--exec-start edtPyTorch --model-main main.py", "hardwareSpec": {"nodes": {"num_nodes": "3"}}}
        response = api.client("ana").post(
            EXECS,
            data={"data": json.dumps(form)},
            files={"file": ("x.modelDir.tar", tar({"./main.py": "print(1)\n"}, "w"))},
        )
        assert response.json()["numWorker"] == 3

    def test_the_sdk_sends_a_part_without_a_name_and_blanks_as_plus_signs(self, api: ServedApi) -> None:
        archive = tar(MAIN)
        body = b'--b0\r\nContent-Disposition: form-data; name="file"\r\n\r\n' + archive + b"\r\n--b0--\r\n"
        response = api.client("ana").post(
            f"{EXECS}?sigName=&args=--exec-start+edtPyTorch+--model-dir+net+--model-main+main.py",
            content=body,
            headers={"Content-Type": "multipart/form-data; boundary=b0"},
        )
        assert response.status_code == 200, response.text
        assert code(api, response.json()["id"]) == MAIN

    def test_the_sdk_may_send_a_script_without_a_name_which_the_option_names(self, api: ServedApi) -> None:
        body = b'--b0\r\nContent-Disposition: form-data; name="file"\r\n\r\nprint(1)\n\r\n--b0--\r\n'
        response = api.client("ana").post(
            EXECS,
            params={"args": "--exec-start edtPyTorch --model-main src/train.py"},
            content=body,
            headers={"Content-Type": "multipart/form-data; boundary=b0"},
        )
        assert code(api, response.json()["id"]) == {"train.py": "print(1)\n"}


class TestWhatIsAnswered:
    def test_the_json_has_every_recorded_field_and_only_scalars(self, api: ServedApi) -> None:
        job = api.submit(args=f"{ARGS} --msd-env TOKEN=hush --lr 0.1 ")
        body = api.client("ana").get(f"{EXECS}/{job.exec_id}").json()
        assert set(body) >= RECORDED
        assert all(isinstance(value, str | int | bool) for value in body.values())
        assert body["args"] == f"{ARGS} --msd-env TOKEN=**** --lr 0.1 "
        assert body["state"] == "SUBMITTED"
        assert body["elastic"] is True
        assert len(body["createTime"]) == len("2021-03-08T03:24:40Z") and body["createTime"].endswith("Z")

    def test_what_is_answered_is_in_the_store_and_on_disk(self, api: ServedApi) -> None:
        job = api.submit(args=f"{ARGS} --workerDeviceNum 2 --maxRestarts 5 --msd-env EDT_SEED=7 -- --epochs 3")
        assert (job.max_restarts, job.restarts) == (5, 0)
        assert (job.num_worker, job.worker_device_num, job.seed) == (4, 2, 7)
        assert (job.directory / "model").is_dir()
        assert staged(api) == []

    def test_states_are_shown_by_wmlas_names(self) -> None:
        assert {state.wire for state in JobState} == {
            "SUBMITTED", "PENDING_CRD_SCHEDULER", "RUNNING", "FINISHED", "KILLED", "ERROR",
        }  # fmt: skip

    def test_the_list_of_frameworks_is_not_taken_for_a_job(self, api: ServedApi) -> None:
        body = api.client("ana").get(f"{EXECS}/frameworks").json()
        assert [(each["name"], each["backend"]) for each in body] == [
            ("edtPyTorch", "pytorch"),
            ("edtTensorflow", "tensorflow"),
            ("distPyTorch", "pytorch"),
            ("disttensorflow", "tensorflow"),
            ("PyTorch", "pytorch"),
            ("tensorflow", "tensorflow"),
        ]
        assert {"name", "desc", "frameworkVersion", "appName", "backend"} <= set(body[0])

    @pytest.mark.parametrize("path", ["", "/log", "/result"])
    def test_an_unknown_id_is_a_400_in_wmlas_words(self, api: ServedApi, path: str) -> None:
        for unknown in ("edt-999", "wmla-398", "edt-0", "edt-1e1", "%2e%2e"):
            response = api.client("ana").get(f"{EXECS}/{unknown}{path}")
            assert (response.status_code, response.text) == (400, "Error 400: Cannot find task with given execId.\n")


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("args", "why"),
        [
            (None, "args: got nothing"),
            ("--exec-start ddlTensorFlow --model-main main.py", "this release runs: edtPyTorch"),
            ("--exec-start edtPyTorch --numWorker none --model-main main.py", "--numWorker: got 'none'"),
            ("--exec-start edtPyTorch --model-main other.py", "--model-main: got 'other.py'"),
            ("--exec-start edtPyTorch --model-main main.py --msd-env EDT_SEED=x", "EDT_SEED"),
        ],
    )
    def test_wrong_args_are_told_in_a_line_and_leave_nothing(self, api: ServedApi, args: str | None, why: str) -> None:
        before = len(api.client("ana").get(EXECS).json())
        response = api.client("ana").post(
            EXECS, params={"args": args} if args else {}, files={"file": ("x.tar", tar(MAIN))}
        )
        assert response.status_code == 400
        assert response.text.startswith("Error 400: ") and response.text.endswith("\n") and why in response.text
        assert response.headers["content-type"].startswith("text/plain")
        assert len(api.client("ana").get(EXECS).json()) == before
        assert staged(api) == []

    @pytest.mark.parametrize(
        ("data", "why"),
        [
            (b"", "empty"),
            (tar(MAIN)[:-20], "cut short"),
            (tar(MAIN, "w")[:1536], "cut short"),
            (tar({"../main.py": ""}), "leads out"),
            (b"/home/me/net.modelDir.tar", "open the file"),
            (b"\x7fELF\0", "neither"),
        ],
        ids=["nothing", "half a gzip", "half a tar", "a way out", "a path", "a binary"],  # a gzip holds the time
    )
    def test_a_wrong_archive_is_refused_whole_and_leaves_nothing(self, api: ServedApi, data: bytes, why: str) -> None:
        response = api.client("ana").post(EXECS, params={"args": ARGS}, files={"file": ("x.tar", data)})
        assert response.status_code == 400
        assert why in response.text
        assert staged(api) == []

    def test_a_submission_without_code_is_refused_in_every_form_of_nothing(self, api: ServedApi) -> None:
        client, query = api.client("ana"), {"args": ARGS}
        for request in (
            client.post(f"{EXECS}/", params=query),
            client.post(EXECS, params=query, data={"data": "{}"}),
            client.post(EXECS, params=query, files={"data": (None, "{}")}),
        ):
            assert (request.status_code, "no part named file" in request.text) == (400, True)

    @pytest.mark.parametrize(
        ("kind", "body", "why"),
        [
            ("application/gzip", b"x", "Content-Type"),
            ("", b"x", "Content-Type none"),
            ("multipart/form-data", b"x", "multipart"),
            ("multipart/form-data; boundary=b", b"--x\r\n", "multipart"),
            (
                "multipart/form-data; boundary=b",
                b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx',
                "cut short",
            ),
            ("multipart/form-data; boundary=b", b"--b\r\nA: b\r\n\r\nx\r\n" * 21, "20 parts"),
            ("application/x-www-form-urlencoded", b"data=%7B", "data: got what is not JSON"),
            ("application/x-www-form-urlencoded", b"data=\xff", "UTF-8"),
        ],
    )
    def test_a_body_that_is_no_form_is_refused(self, api: ServedApi, kind: str, body: bytes, why: str) -> None:
        response = api.client("ana").post(
            EXECS, params={"args": ARGS}, content=body, headers={"Content-Type": kind} if kind else {}
        )
        assert response.status_code == 400
        assert why in response.text

    def test_a_field_that_is_too_long_is_refused(self, api: ServedApi) -> None:
        for sent in ({"data": {"data": "x" * 1_100_000}}, {"files": {"data": (None, "x" * 1_100_000)}}):
            assert api.client("ana").post(EXECS, params={"args": ARGS}, **sent).status_code == 413  # type: ignore[arg-type]

    def test_a_body_beyond_the_limit_is_refused_while_it_comes(self, tmp_path: Path) -> None:
        with served(tmp_path / "home", upload_bytes=300_000) as small:
            files = {"file": ("x.py", b"x" * 400_000)}
            response = small.client("ana").post(EXECS, params={"args": ARGS}, files=files)
            assert response.status_code == 413
            assert "300000 bytes" in response.text
            assert staged(small) == []

    def test_a_client_that_goes_away_in_the_middle_leaves_nothing(self, api: ServedApi) -> None:
        def half() -> object:
            yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="x.tar"\r\n\r\n' + bytes(2_000_000)
            raise RuntimeError("gone")

        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        with pytest.raises(RuntimeError, match="gone"):
            api.client("ana").post(EXECS, params={"args": ARGS}, content=half(), headers=headers)  # type: ignore[arg-type]
        until(lambda: staged(api) == [], 10)  # the server learns of it by itself
        assert api.client("ana").get(EXECS).status_code == 200


class TestTheList:
    def test_it_can_be_cut_sorted_and_narrowed_as_dlicmd_asks(self, fresh_api: ServedApi) -> None:
        ids = [fresh_api.submit().exec_id for _ in range(3)]
        client = fresh_api.client("ana")
        client.post(f"{EXECS}/{ids[1]}/stop")

        def listed(**query: object) -> list[str]:
            return [each["id"] for each in client.get(f"{EXECS}/", params=query).json()]  # type: ignore[arg-type]

        assert listed() == ids
        assert listed(sort_by="id:desc", limit=2) == [ids[2], ids[1]]
        assert listed(state="KILLED") == [ids[1]]
        assert listed(state="SUBMITTED,RUNNING") == [ids[0], ids[2]]
        assert listed(sort_by="state:asc", limit=1) == [ids[1]]
        assert listed(sort_by="createTime:desc")[0] == ids[2]

    @pytest.mark.parametrize("query", ["state=GONE", "limit=0", "limit=x", "sort_by=colour", "sort_by=id:down"])
    def test_a_wrong_query_is_told_by_name(self, api: ServedApi, query: str) -> None:
        response = api.client("ana").get(f"{EXECS}?{query}")
        assert response.status_code == 400
        assert query.partition("=")[0] in response.text


class TestStopAndDelete:
    def test_a_job_that_has_not_started_is_killed_at_once(self, api: ServedApi) -> None:
        job, client = api.submit().exec_id, api.client("ana")
        stopped = client.post(f"{EXECS}/{job}/stop")
        assert (stopped.status_code, stopped.content) == (204, b"")
        assert "content-type" not in stopped.headers, "a client that goes by it would parse nothing as JSON"
        assert client.get(f"{EXECS}/{job}").json()["state"] == "KILLED"
        assert client.post(f"{EXECS}/{job}/stop").status_code == 204

    def test_a_deleted_job_is_unknown(self, api: ServedApi) -> None:
        job, client = api.submit().exec_id, api.client("ana")
        assert client.delete(f"{EXECS}/{job}").status_code == 204
        for response in (
            client.get(f"{EXECS}/{job}"),
            client.delete(f"{EXECS}/{job}"),
            client.post(f"{EXECS}/{job}/stop"),
        ):
            assert response.status_code == 400

    def test_all_of_ones_own_are_deleted_by_one_call(self, api: ServedApi) -> None:
        api.submit("bob")
        client = api.client("bob")
        assert client.delete(f"{EXECS}/").status_code == 204
        assert client.get(EXECS).json() == []


@pytest.fixture
def job(api: ServedApi) -> JobView:
    """A job with a log and a model."""
    job = api.submit()
    log = api.settings.job_directory(job.exec_id) / "log"
    (log / "stdout").write_text("[2026-11-21 12:00:00] Train,\tTimestamp: 1,\tLoss: 0.5\n")
    (log / "driver.out").write_text("Using pytorch backend.\n")
    (log / "driver.err").write_bytes("Traceback: größer\n".encode() + b"\xff\n")
    return job


class TestTheLog:
    ELOG = "[2026-11-21 12:00:00] Train,\tTimestamp: 1,\tLoss: 0.5\n"

    def log(
        self, api: ServedApi, job: JobView, log_type: str | None = None, accept: str = "text/plain"
    ) -> httpx.Response:
        params = {"args": "--exec-trainlogs"} | ({"logType": log_type} if log_type is not None else {})
        return api.client("ana").get(f"{EXECS}/{job.exec_id}/log", params=params, headers={"Accept": accept})

    @pytest.mark.parametrize("log_type", [None, ""])
    def test_it_is_the_elog_lines_unless_more_is_asked_for(
        self, api: ServedApi, job: JobView, log_type: str | None
    ) -> None:
        assert self.log(api, job, log_type).text == self.ELOG

    def test_outlog_is_what_the_script_printed(self, api: ServedApi, job: JobView) -> None:
        assert self.log(api, job, "outlog").text == "Using pytorch backend.\n"

    def test_errlog_holds_the_traceback_and_outerrlog_everything(self, api: ServedApi, job: JobView) -> None:
        errors = "Traceback: größer\n\ufffd\n"
        assert self.log(api, job, "errlog").text == errors
        assert self.log(api, job, "outerrlog").text == f"{self.ELOG}Using pytorch backend.\n{errors}"

    @pytest.mark.parametrize("accept", ["application/json", "application/json, text/plain", "application/json;q=0.9"])
    def test_who_asks_for_json_gets_a_json_string(self, api: ServedApi, job: JobView, accept: str) -> None:
        response = self.log(api, job, "outerrlog", accept)
        assert response.headers["content-type"] == "application/json"
        assert response.json() == self.log(api, job, "outerrlog").text

    @pytest.mark.parametrize("accept", ["text/plain", "*/*", "", "text/html,application/json"])
    def test_all_others_get_text(self, api: ServedApi, job: JobView, accept: str) -> None:
        assert self.log(api, job, None, accept).headers["content-type"] == "text/plain; charset=utf-8"

    def test_errlog_of_a_job_that_wrote_no_errors_tells_why_it_ended(self, job: JobView) -> None:
        ended = replace(job, message="stopped by its user")
        assert "stopped" not in "".join(logs.text(ended, "errlog"))
        (job.directory / "log" / "driver.err").write_bytes(b"")
        assert "".join(logs.text(ended, "errlog")) == "stopped by its user\n"

    def test_a_log_that_is_not_there_yet_is_empty(self, api: ServedApi) -> None:
        assert self.log(api, api.submit()).text == ""
        assert self.log(api, api.submit(), "errlog", "application/json").json() == ""

    def test_an_unknown_log_type_is_refused_with_those_there_are(self, api: ServedApi, job: JobView) -> None:
        response = self.log(api, job, "launcherlog")
        assert response.status_code == 400
        assert "outerrlog" in response.text

    def test_letters_that_a_pieces_edge_cuts_come_whole(self, api: ServedApi, job: JobView) -> None:
        text = "x" + "ü" * 100_000
        (job.log_dir / "stdout").write_text(text)
        assert self.log(api, job).text == text
        assert self.log(api, job, None, "application/json").json() == text

    def test_what_a_job_puts_in_its_logs_place_leads_nowhere(
        self, api: ServedApi, job: JobView, tmp_path: Path
    ) -> None:
        secret = tmp_path / "secret"
        secret.write_text("hush")
        stdout = job.log_dir / "stdout"
        stdout.unlink()
        stdout.symlink_to(secret)
        assert self.log(api, job).text == ""
        stdout.unlink()
        os.mkfifo(stdout)
        assert self.log(api, job).text == ""
        shutil.rmtree(job.log_dir)
        job.log_dir.symlink_to(tmp_path)
        (tmp_path / "stdout").write_text("hush")
        assert self.log(api, job).text == ""

    def test_a_follower_reads_on_from_where_it_was(self, api: ServedApi, job: JobView) -> None:
        client, path = api.client("ana"), f"/api/v1/jobs/{job.exec_id}/log"
        first = client.get(path)
        assert first.text == self.ELOG
        offset = first.headers["edt-log-offset"]
        assert client.get(path, params={"offset": offset}).content == b""
        with (job.log_dir / "stdout").open("a") as file:
            file.write("more\n")
        assert client.get(path, params={"offset": offset}).text == "more\n"
        assert client.get(path, params={"stream": "out"}).text == "Using pytorch backend.\n"
        (job.log_dir / "driver.err").write_bytes(b"e" * 3_000_000)
        long = client.get(path, params={"stream": "err"})
        assert long.headers["edt-log-offset"] == str(len(long.content)) == str(1 << 20)

    def test_a_follower_of_a_file_that_was_turned_over_gets_its_rest_and_goes_on_in_the_new_one(
        self, api: ServedApi, job: JobView
    ) -> None:
        client, path = api.client("ana"), f"/api/v1/jobs/{job.exec_id}/log"
        out, old = job.log_dir / "driver.out", job.log_dir / "driver.out.1"
        seen, offset = "", "0"

        def follow() -> str:
            nonlocal seen, offset
            while True:
                answer = client.get(path, params={"stream": "out", "offset": offset})
                seen, offset = seen + answer.text, answer.headers["edt-log-offset"]
                if not answer.content:
                    return seen

        out.write_text("one two ")
        assert follow() == "one two "
        out.write_text("one two three ")
        out.replace(old)
        out.write_text("four ")
        assert follow() == "one two three four "
        out.write_text("four five six ")
        assert follow() == "one two three four five six "
        out.replace(old)
        out.write_text("seven")
        assert follow() == "one two three four five six seven", "also where nothing was left of the old one"
        old.unlink()
        out.write_text("8")
        assert follow() == "one two three four five six seven8", "also where the old one is gone"


class TestTheResult:
    def fetch(self, api: ServedApi, job: JobView) -> httpx.Response:
        return api.client("ana").get(f"{EXECS}/{job.exec_id}/result", headers={"Accept": "application/json"})

    def fill(self, job: JobView) -> dict[str, bytes]:
        made = {"train/model_epoch_final.pth": os.urandom(3_000_000), "val_dict_list.json": b"[]", "leer ü.txt": b""}
        for name, data in made.items():
            path = job.directory / "model" / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
        return made

    def test_it_is_the_models_folder_as_a_zip(self, api: ServedApi, job: JobView) -> None:
        made = self.fill(job)
        response = self.fetch(api, job)
        assert response.headers["content-type"] == "application/octet-stream"
        with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
            assert archive.testzip() is None
            assert {name: archive.read(name) for name in archive.namelist()} == made

    def test_a_draft_that_an_engine_is_writing_is_not_in_it(self, api: ServedApi, job: JobView) -> None:
        made = self.fill(job)
        (job.directory / "model/train/.draft-1-model").mkdir()
        (job.directory / "model/train/.draft-1-model/saved_model.pb").touch()
        (job.directory / "model/train/.draft-2-model_epoch_1.pth").write_bytes(b"half")
        with zipfile.ZipFile(io.BytesIO(self.fetch(api, job).content)) as archive:
            assert set(archive.namelist()) == set(made)

    def test_the_files_of_tensorboard_are_in_it_behind_the_model(self, api: ServedApi, job: JobView) -> None:
        made = self.fill(job)
        run = job.directory / "tensorboard/train"
        run.mkdir(parents=True)
        (run / "events.out.tfevents.1").write_bytes(b"points")
        with zipfile.ZipFile(io.BytesIO(self.fetch(api, job).content)) as archive:
            assert archive.testzip() is None
            assert set(archive.namelist()[:-1]) == set(made)
            assert archive.namelist()[-1] == "tensorboard/train/events.out.tfevents.1"
        (job.directory / "model/tensorboard").mkdir()
        (job.directory / "model/tensorboard/of the script").touch()
        with zipfile.ZipFile(io.BytesIO(self.fetch(api, job).content)) as archive:
            assert [name for name in archive.namelist() if name.startswith("tensorboard/")] == [
                "tensorboard/of the script"
            ]

    def test_the_header_has_the_shape_that_clients_cut_apart(self, api: ServedApi, job: JobView) -> None:
        self.fill(job)
        response = self.fetch(api, job)
        header = response.headers["content-disposition"]
        assert int(header.split("size=")[1]) == len(response.content)  # notebooks
        (name,) = [part for part in header.split(";") if part.startswith("filename=")]  # dlicmd
        name = name.removeprefix("filename=")
        assert name.startswith("dlpd-model-") and name.endswith(f"{job.exec_id}-result.zip")
        assert '"' not in header and "; " not in header

    @pytest.mark.skipif(shutil.which("unzip") is None, reason="needs unzip")
    def test_info_zip_reads_it_too(self, api: ServedApi, job: JobView, tmp_path: Path) -> None:
        self.fill(job)
        (tmp_path / "r.zip").write_bytes(self.fetch(api, job).content)
        subprocess.run(["unzip", "-tq", "r.zip"], cwd=tmp_path, check=True, env={"LC_ALL": "C.UTF-8", **os.environ})

    def test_how_much_there_is_to_download_is_told_before(self, api: ServedApi) -> None:
        job = api.submit()
        client = api.client("ana")
        nothing = client.get(f"/api/v1/jobs/{job.exec_id}/result").json()
        assert nothing == {"bytes": None, "missing": f"{job.exec_id} has saved nothing under RESULT_DIR/model yet"}
        self.fill(job)
        result = client.get(f"/api/v1/jobs/{job.exec_id}/result").json()
        assert result == {"bytes": len(self.fetch(api, job).content), "missing": None}
        assert api.client("bob").get(f"/api/v1/jobs/{job.exec_id}/result").status_code == 404

    def test_a_job_that_saved_nothing_says_so(self, api: ServedApi) -> None:
        job = api.submit()
        response = self.fetch(api, job)
        assert response.status_code == 400
        assert response.text == f"Error 400: {job.exec_id} has saved nothing under RESULT_DIR/model yet\n"

    def test_links_and_pipes_are_not_followed_out_of_the_folder(
        self, api: ServedApi, job: JobView, tmp_path: Path
    ) -> None:
        model = job.directory / "model"
        (tmp_path / "secret").write_text("hush")
        (model / "link").symlink_to(tmp_path / "secret")
        (model / "folder").symlink_to(tmp_path)
        os.mkfifo(model / "pipe")
        assert self.fetch(api, job).status_code == 400
        (model / "a.txt").write_text("a")
        with zipfile.ZipFile(io.BytesIO(self.fetch(api, job).content)) as archive:
            assert archive.namelist() == ["a.txt"]
        shutil.rmtree(model)
        model.symlink_to(tmp_path)
        assert self.fetch(api, job).status_code == 400

    def test_a_file_that_shrinks_under_way_breaks_the_download_off(self, tmp_path: Path) -> None:
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "a").write_bytes(bytes(100))
        found = results.Result(tmp_path, tuple(files(tmp_path, ("model",))))
        (tmp_path / "model" / "a").write_bytes(bytes(50))
        with pytest.raises(results.ResultChanged):
            list(found.chunks())

    def test_one_that_grows_is_taken_as_long_as_it_was(self, tmp_path: Path) -> None:
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "a").write_bytes(b"x" * 100)
        found = results.Result(tmp_path, tuple(files(tmp_path, ("model",))))
        (tmp_path / "model" / "a").write_bytes(b"x" * 5000)
        data = b"".join(found.chunks())
        assert len(data) == found.size
        assert zipfile.ZipFile(io.BytesIO(data)).read("a") == b"x" * 100

    def test_what_does_not_fit_into_32_bits_gets_wide_numbers(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(results, "_WIDE_FROM", 1000)
        (tmp_path / "model").mkdir()
        for name in "abc":
            (tmp_path / "model" / name).write_bytes(name.encode() * 1500)
        found = results.Result(tmp_path, tuple(files(tmp_path, ("model",))))
        data = b"".join(found.chunks())
        assert len(data) == found.size
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            assert {name: archive.read(name) for name in archive.namelist()} == {n: n.encode() * 1500 for n in "abc"}

    def test_a_model_of_many_gigabytes_is_measured_before_it_is_read(self) -> None:
        giant = Found(("model", "weights.pth"), 50 << 30, executable=False, changed_at=0)
        assert results.Result(Path("/nowhere"), (giant,)).size > 50 << 30


class TestWhatSurvives:
    def test_a_submission_that_fails_late_leaves_neither_row_nor_folder(
        self, fresh_api: ServedApi, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(*_: object, **__: object) -> None:
            raise RuntimeError("the store is gone")

        with monkeypatch.context() as patch:
            patch.setattr(job_rows, "add", fails)
            response = fresh_api.client("ana").post(EXECS, params={"args": ARGS}, files={"file": ("main.py", b"1\n")})
        assert response.status_code == 500
        assert response.text == "Error 500: something went wrong on the server's side; its log says what\n"
        assert fresh_api.client("ana").get(EXECS).json() == []
        assert staged(fresh_api) == list(fresh_api.settings.jobs.iterdir()) == []

    def test_a_large_upload_goes_by_the_disk_and_not_through_memory(self, api: ServedApi) -> None:
        noise = os.urandom(6_000_000)
        response = api.client("ana").post(
            EXECS,
            params={"args": ARGS},
            files={"file": ("x.tar.gz", gzip.compress(tar({"main.py": "1\n", "data.bin": noise}, "w"), 1))},
        )
        folder = api.settings.job_directory(response.json()["id"]) / "_submitted_code"
        assert (folder / "data.bin").read_bytes() == noise
