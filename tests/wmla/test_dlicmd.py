"""``dlicmd``, every verb: the file itself, run by a bare Python against a served API, with the checks scripts do."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import shutil
import socket
import stat
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from edt_cli.up.certificate import choose
from edt_scheduler.decide.reconcile import look
from edt_scheduler.views import JobView
from support.credentials import PASSWORD
from support.dlicmd import FILE, Dlicmd
from support.puppets import Puppet
from support.served_api import EXECS, ServedApi, served

ELOG = "[2026-11-21 12:00:00] Train,\tTimestamp: 1,\tGlobal steps: 1,\tIteration: 1,\tLoss: 0.5,\tAccuracy: 0.1\n"
SCRIPT = "print('hello')\n"


@pytest.fixture(scope="module")
def ana(api: ServedApi, tmp_path_factory: pytest.TempPathFactory) -> Dlicmd:
    """The command of ana, who is logged on."""
    command = Dlicmd(tmp_path_factory.mktemp("ana"), api.url)
    assert command("--logon", "--username", "ana", "--password", PASSWORD).status == 0
    return command


@pytest.fixture
def job(api: ServedApi) -> JobView:
    """A job of ana that nothing has begun."""
    return api.submit("ana")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Dlicmd, ServedApi, str]]:
    """A job that two engines work on, with logs and a model, on a platform of its own; the command of its owner."""
    with served(tmp_path_factory.mktemp("home")) as api:
        node = Puppet(api.platform, slots=2, engines=2).join()
        job = api.submit("ana")
        for _ in range(3):
            look(api.platform)
            node.obey()
        [engines] = node.running.values()
        (job.log_dir / "stdout").write_text(ELOG)
        (job.log_dir / "driver.out").write_text("said by the script\n")
        (job.log_dir / "driver.err").write_text("a warning\n")
        for number, allocation in enumerate(sorted(engines), 1):
            (job.log_dir / f"engine-{allocation}.out").write_text(f"step 1 of engine {number}\nstep 2\n")
            (job.log_dir / f"engine-{allocation}.err").write_text("")
        model = job.log_dir.parent / "model"
        model.mkdir(exist_ok=True)
        (model / "weights.pth").write_bytes(os.urandom(200_000))
        command = Dlicmd(tmp_path_factory.mktemp("ana"), api.url)
        assert command("--logon", "--username", "ana", "--password", PASSWORD).status == 0
        yield command, api, job.exec_id


def folder(where: Path, **files: str) -> Path:
    """A folder with these files and ``main.py``."""
    where.mkdir()
    (where / "main.py").write_text(SCRIPT)
    for name, text in files.items():
        (where / name).write_text(text)
    return where


def names(where: Path) -> list[str]:
    return sorted(path.name for path in where.iterdir())


class Recorder:
    """A server that writes down what it is asked, and gives the answers that it was told."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        """By method and path (``GET /platform/…/conf``): status, headers, body."""
        self.dropped: dict[str, int] = {}
        """By path: how many requests are still to get no answer at all."""

    def __getitem__(self, path: str) -> tuple[str, str, dict[str, str], bytes]:
        """The only request to this path."""
        [found] = [each for each in self.asked if urlsplit(each[1]).path == path]
        return found

    @contextmanager
    def serving(self) -> Iterator[str]:
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                recorder.asked.append((self.command, self.path, dict(self.headers), body))
                path = urlsplit(self.path).path
                if recorder.dropped.get(path, 0) > 0:
                    recorder.dropped[path] -= 1
                    self.close_connection = True
                    return
                told = recorder.answers.get(f"{self.command} {path}", (200, {}, b"{}"))
                status, headers, sent = told
                self.send_response(status)
                for name, value in {"Content-Length": str(len(sent)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(sent)

            do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        server = HTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def stranger(recorder: Recorder, tmp_path: Path) -> Iterator[Dlicmd]:
    """The command of somebody with a token, for the recorder."""
    with recorder.serving() as url:
        command = Dlicmd(tmp_path / "home", url)
        command.home.mkdir()
        (command.home / ".dlicmd").write_text("a.b.c")
        yield command


class TestTheFile:
    def test_a_python_of_2019_can_read_it(self) -> None:
        source = FILE.read_text()
        ast.parse(source, feature_version=(3, 8))
        imported = {
            (node.module or "") if isinstance(node, ast.ImportFrom) else name.name
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in node.names
        }
        assert not any(name.startswith(("edt_", "httpx", "requests", "typer")) for name in imported)

    def test_anybody_may_fetch_it_and_it_runs_from_where_it_was_saved(self, api: ServedApi, tmp_path: Path) -> None:
        answer = api.client().get("/ui/tools/dlicmd.py")
        assert answer.headers["content-type"].startswith("text/x-python")
        assert answer.headers["content-disposition"] == 'attachment; filename="dlicmd.py"'
        (tmp_path / "saved.py").write_bytes(answer.content)
        done = Dlicmd(tmp_path, api.url, tmp_path / "saved.py").as_typed("--help")
        assert done.status == 0
        assert "--exec-start FRAMEWORK" in done.out

    def test_help_names_every_verb_and_asks_no_server(self, tmp_path: Path) -> None:
        command = Dlicmd(tmp_path, "http://127.0.0.1:9")
        shown = command.as_typed("-h").out
        verbs = set(re.findall(r'^    "(--[a-z0-9-]+)": Entry\(', FILE.read_text(), re.MULTILINE))
        assert len(verbs) > 40
        assert all(f"  {verb}" in shown for verb in verbs)

    @pytest.mark.parametrize("words", [(), ("--exec-fly", "edt-1"), ("--exec-get",), ("--exec-get", "edt-1")])
    def test_wrong_use_is_one_sentence_and_status_1(self, tmp_path: Path, words: tuple[str, ...]) -> None:
        done = Dlicmd(tmp_path, "http://127.0.0.1:9").as_typed(*words)
        assert (done.status, done.out, len(done.err.splitlines())) == (1, "", 1)
        assert done.err.startswith("dlicmd: ")

    def test_a_server_that_is_not_there_is_one_sentence(self, tmp_path: Path) -> None:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{closed.getsockname()[1]}"
            done = Dlicmd(tmp_path, url)("--exec-get-all", "--jwt-token", "a.b.c")
        assert (done.status, done.out, len(done.err.splitlines())) == (1, "", 1)
        assert "no answer from" in done.err


class TestLoggingOn:
    def test_the_answer_is_printed_and_the_token_kept_for_its_owner_alone(self, api: ServedApi, tmp_path: Path) -> None:
        command = Dlicmd(tmp_path / "home", api.url)
        command.home.mkdir()
        kept = command.home / ".dlicmd"
        kept.write_text("x" * 5000)  # a longer one of an earlier logon leaves nothing behind
        kept.chmod(0o644)
        done = command("--logon", "--username", "ana", "--password", PASSWORD)
        assert done.status == 0
        assert kept.read_text() == done.json["accessToken"]
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert names(command.home) == [".dlicmd"]
        assert command("--exec-get-all").status == 0

        ended = command("--logoff")
        assert (ended.status, list(ended.json)) == (0, ["message"])
        assert not kept.exists()
        assert command("--exec-get-all").err == (
            "dlicmd: nobody is logged on here: run --logon, or give --jwt-token TOKEN\n"
        )

    def test_a_password_that_is_not_given_is_read_from_standard_input(self, api: ServedApi, tmp_path: Path) -> None:
        command = Dlicmd(tmp_path, api.url)
        assert command("--logon", "--username", "ana", stdin=f"{PASSWORD}\n").status == 0
        assert command("--exec-get-all", "--username", "ana", stdin=f"{PASSWORD}\n").status == 0

    def test_a_wrong_password_and_a_wrong_token_end_with_the_servers_words(
        self, api: ServedApi, tmp_path: Path
    ) -> None:
        command = Dlicmd(tmp_path, api.url)
        for words in (
            ("--logon", "--username", "ana", "--password", "no"),
            ("--exec-get-all", "--jwt-token", "no.token.atall"),
        ):
            done = command(*words)
            assert done.status == 1
            assert done.out.startswith("Authentication error. The request was denied.\nError 401: "), words
        assert not (tmp_path / ".dlicmd").exists()

    def test_a_token_may_be_given_by_hand_and_the_server_by_one_word(self, api: ServedApi, ana: Dlicmd) -> None:
        token = (ana.home / ".dlicmd").read_text()
        stranger = Dlicmd(ana.home / "elsewhere", api.url)
        host = api.url.removeprefix("http://")
        assert stranger.as_typed("--exec-get-all", "--rest-host", host, "--jwt-token", token).status == 0
        assert (
            stranger.as_typed(
                f"--master-host={host}", "--exec-get-all", f"--jwt-token={token}", "--dli-rest-port", "-1"
            ).status
            == 0
        )

    def test_403_says_that_another_logon_may_help(self, recorder: Recorder, stranger: Dlicmd) -> None:
        recorder.answers["GET /platform/rest/deeplearning/v1/conf"] = (403, {}, b"Error 403: not here\n")
        done = stranger("--exec-get-all")
        assert (done.status, done.out) == (1, "Error 403: not here\nTry to run --logon again.\n")


class TestTls:
    def test_everything_goes_over_tls_whoever_made_the_certificate(self, tmp_path: Path) -> None:
        shown = choose(tmp_path, "127.0.0.1", True, (None, None))
        assert shown is not None
        with served(tmp_path / "home", tls_certificate=shown.certificate, tls_key=shown.key) as api:
            assert api.url.startswith("https://")
            command = Dlicmd(tmp_path / "ana", api.url)
            done = command("--logon", "--username", "ana", "--password", PASSWORD)
            assert (done.status, done.err) == (0, "")
            sent = folder(tmp_path / "m")
            made = command("--exec-start", "edtPyTorch", "--model-dir", str(sent), "--model-main", "main.py")
            assert made.status == 0, made.out + made.err
            assert command("--exec-get", made.json["execId"]).json["state"] == "SUBMITTED"

            # Who wants it checked names the certificate; then nothing else is accepted, and nothing goes unencrypted.
            assert command("--status", "--cacert", str(shown.certificate)).status == 0
            (tmp_path / "other").mkdir()
            other = choose(tmp_path / "other", "127.0.0.1", True, (None, None))
            assert other is not None
            refused = command("--status", "--cacert", str(other.certificate))
            assert (refused.status, refused.out) == (1, "")
            assert "CERTIFICATE_VERIFY_FAILED" in refused.err

    @pytest.mark.parametrize("verb", ["--logon", "--exec-get-all", "--logoff"])
    def test_a_password_that_goes_unencrypted_is_warned_of(self, api: ServedApi, tmp_path: Path, verb: str) -> None:
        command = Dlicmd(tmp_path, api.url)
        done = command(verb, "--username", "ana", "--password", PASSWORD)
        assert (done.status, done.err) == (0, f"{api.url} does not speak TLS: the password goes there unencrypted\n")
        named = command("--logon", "--username", "ana", "--password", PASSWORD, "--cacert", str(tmp_path / "nowhere"))
        assert (named.status, named.out) == (1, "")
        assert "--cacert" in named.err

    @pytest.mark.parametrize("answer", [b"", b"\x15\x03\x03\x00\x02\x02\x28"], ids=["nothing", "an alert of TLS"])
    def test_a_server_that_breaks_the_handshake_off_gets_nothing_unencrypted(
        self, tmp_path: Path, answer: bytes
    ) -> None:
        got: list[bytes] = []
        with socket.create_server(("127.0.0.1", 0)) as listening:

            def answer_all() -> None:
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        got.append(connection.recv(1 << 16))
                        if not got[-1]:
                            return
                        connection.sendall(answer)

            thread = threading.Thread(target=answer_all)
            thread.start()
            command = Dlicmd(tmp_path, f"http://127.0.0.1:{listening.getsockname()[1]}")
            done = command("--logon", "--username", "ana", "--password", PASSWORD)
            socket.create_connection(listening.getsockname()).close()
            thread.join()
        assert (done.status, done.out, len(done.err.splitlines())) == (1, "", 1)
        assert [first[:1] for first in got] == [b"\x16", b""]  # one handshake, and the end of the test


class TestSubmitting:
    def test_a_folder_becomes_a_gzipped_tar_with_one_folder_and_json_follows_the_first_brace(
        self, api: ServedApi, ana: Dlicmd, tmp_path: Path
    ) -> None:
        sent = folder(tmp_path / "mnist", helper="x = 1\n")
        (sent / "__pycache__").mkdir()
        (sent / "__pycache__" / "main.pyc").write_bytes(b"")
        done = ana(
            *("--exec-start", "edtPyTorch", "--numWorker", "2", "--model-dir", str(sent), "--model-main", "main.py"),
            *("--cs-datastore-meta", "type=fs", "--", "--epochs", "3"),
        )
        assert done.status == 0, done.out + done.err
        first, second, rest = done.out.split("\n", 2)
        assert first == "Copying files and directories ..."
        assert re.fullmatch(r"Content size: \d+(\.\d)?[BK]", second)
        assert rest.startswith("{")
        made = done.json
        assert set(made) == {"execId", "appId"}
        job = api.client("ana").get(f"{EXECS}/{made['execId']}").json()
        assert " ".join(job["args"].split()) == (
            "--exec-start edtPyTorch --numWorker 2 --model-dir mnist --model-main main.py "
            "--cs-datastore-meta type=fs -- --epochs 3"
        )
        code = api.settings.job_directory(made["execId"]) / "_submitted_code" / "mnist"
        assert {path.name for path in code.iterdir()} == {"main.py", "helper"}

    def test_a_single_script_is_sent_as_it_is(self, api: ServedApi, ana: Dlicmd, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text(SCRIPT)
        done = ana("--exec-start", "edtPyTorch", "--model-main", str(tmp_path / "train.py"))
        assert done.status == 0, done.out + done.err
        code = api.settings.job_directory(done.json["execId"]) / "_submitted_code"
        assert (code / "train.py").read_text() == SCRIPT

    def test_a_refusal_is_shown_in_the_servers_words(self, ana: Dlicmd, tmp_path: Path) -> None:
        done = ana("--exec-start", "edtAbacus", "--model-dir", str(folder(tmp_path / "m")), "--model-main", "main.py")
        assert done.status == 1
        assert "Error 400: " in done.out
        assert "{" not in done.out

    @pytest.mark.parametrize("words", [("--model-dir", "nowhere"), ("--model-main", "nowhere.py")])
    def test_what_is_not_there_is_not_sent(self, recorder: Recorder, stranger: Dlicmd, words: tuple[str, ...]) -> None:
        done = stranger("--exec-start", "edtPyTorch", *words)
        assert done.status == 1
        assert "nowhere" in done.err
        assert [asked[0] for asked in recorder.asked] == ["GET"]  # conf alone

    def test_words_of_the_connection_are_not_args_and_others_keep_their_order_and_quotes(
        self, recorder: Recorder, stranger: Dlicmd, tmp_path: Path
    ) -> None:
        recorder.answers[f"POST {EXECS}/"] = (200, {}, b'{"id": "edt-1", "appId": "edt-1"}')
        (tmp_path / "env.yaml").write_text("name: e\n")
        sent = folder(tmp_path / "m d")
        done = stranger(
            *("--exec-start", "edtPyTorch", "--query-args", "x=1", "--password=secret", "--jwt-token", "t.t.t"),
            *("--model-dir", f"{sent}/", "--model-main", "main.py", "--conda-env-yaml", str(tmp_path / "env.yaml")),
            *("-o", "json", "--msd-env", "A=b c", "-o", "mine.txt", "--lr&x", "0.1+#", "--", "--password", "mine"),
        )
        assert (done.status, done.json) == (0, {"execId": "edt-1", "appId": "edt-1"})
        _, path, headers, body = recorder[f"{EXECS}/"]
        assert parse_qs(urlsplit(path).query)["args"] == [
            f"--exec-start edtPyTorch --model-dir 'm d' --model-main main.py --conda-env-yaml {tmp_path}/env.yaml "
            "--msd-env 'A=b c' -o mine.txt --lr&x 0.1+# -- --password mine"
        ]
        assert headers["Authorization"] == "Bearer t.t.t"
        parts = multipart(headers["Content-Type"], body)
        assert [(name, file) for name, file, _ in parts] == [("file", "m d.modelDir.tar"), ("file", "env.yaml")]
        with tarfile.open(fileobj=io.BytesIO(parts[0][2]), mode="r:gz") as archive:
            assert archive.getnames() == ["m d", "m d/main.py"]

    def test_with_data_sources_a_form_field_goes_along_and_without_code_it_is_all_there_is(
        self, recorder: Recorder, stranger: Dlicmd, tmp_path: Path
    ) -> None:
        recorder.answers[f"POST {EXECS}/"] = (200, {}, b'{"id": "edt-1", "appId": "edt-1"}')
        sources = [{"type": "fs", "location": {"paths": "mnist"}}]
        (tmp_path / "main.py").write_text(SCRIPT)
        given = ("--data-source", json.dumps(sources))
        assert stranger("--exec-start", "PyTorch", "--model-main", str(tmp_path / "main.py"), *given).status == 0
        assert stranger("--exec-start", "PyTorch", "--pbmodel-name", "AlexNet", *given).status == 0
        assert stranger("--exec-start", "PyTorch", "--user-cmd", "--", "bash", "run.sh").status == 0
        [whole, data_alone, nothing] = [each for each in recorder.asked if each[0] == "POST"]
        fields = {name: content for name, file, content in multipart(whole[2]["Content-Type"], whole[3]) if not file}
        assert json.loads(fields["data"]) == {"dataSource": sources}
        assert data_alone[2]["Content-Type"] == "application/x-www-form-urlencoded"
        assert json.loads(parse_qs(data_alone[3].decode())["data"][0]) == {"dataSource": sources}
        assert "Content-Type" not in nothing[2]
        assert nothing[3] == b""
        assert parse_qs(urlsplit(nothing[1]).query)["args"] == ["--exec-start PyTorch --user-cmd -- bash run.sh"]

    def test_links_are_followed_and_a_link_into_itself_is_refused(
        self, recorder: Recorder, stranger: Dlicmd, tmp_path: Path
    ) -> None:
        recorder.answers[f"POST {EXECS}/"] = (200, {}, b'{"id": "edt-1", "appId": "edt-1"}')
        sent = folder(tmp_path / "m")
        (tmp_path / "shared.py").write_text("y = 1\n")
        (sent / "shared.py").symlink_to(tmp_path / "shared.py")
        os.mkfifo(sent / "pipe")
        done = stranger("--exec-start", "edtPyTorch", "--model-dir", str(sent), "--model-main", "main.py")
        assert done.status == 0
        assert "pipe is neither a file nor a folder" in done.err
        _, _, headers, body = recorder[f"{EXECS}/"]
        with tarfile.open(fileobj=io.BytesIO(multipart(headers["Content-Type"], body)[0][2]), mode="r:gz") as archive:
            assert archive.getmember("m/shared.py").isfile()
        (sent / "round").symlink_to(sent)
        assert "a link to a folder that it lies in" in stranger("--exec-start", "x", "--model-dir", str(sent)).err


def multipart(content_type: str, body: bytes) -> list[tuple[str, str, bytes]]:
    """Name, file name and content of each part."""
    boundary = content_type.partition("boundary=")[2].encode()
    assert body.endswith(b"--" + boundary + b"--\r\n")
    found = []
    for part in body.split(b"--" + boundary)[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        name = re.search(rb'; name="([^"]*)"', head)
        file = re.search(rb'filename="([^"]*)"', head)
        assert name is not None
        found.append((name[1].decode(), file[1].decode() if file else "", content.removesuffix(b"\r\n")))
    return found


class TestJobs:
    def test_frameworks_are_told_in_lines_or_as_json(self, ana: Dlicmd) -> None:
        lines = ana("--dl-frameworks").out
        assert re.search(r"^Name: edtPyTorch\nVersion: .*\nDesc: .*\n(      .*\n)*\n", lines, re.MULTILINE)
        assert "edtPyTorch" in {each["name"] for each in ana("--dl-frameworks", "-o", "json").json}

    def test_one_job_is_its_json(self, ana: Dlicmd, job: JobView) -> None:
        found = ana("--exec-get", job.exec_id).json
        assert (found["id"], found["state"]) == (job.exec_id, "SUBMITTED")
        assert re.fullmatch(r"00:0\d:\d\d", found["pendingDuration"])
        assert "runningDuration" not in found

    def test_a_job_that_runs_says_for_how_long_and_what_its_tasks_want(
        self, trained: tuple[Dlicmd, ServedApi, str]
    ) -> None:
        command, _, exec_id = trained
        found = command("--exec-get", exec_id).json
        assert found["state"] == "RUNNING"
        assert re.fullmatch(r"\d+:\d\d:\d\d", found["runningDuration"])
        assert found["parallelJobInfo"]["jobStatus"]
        assert found["parallelJobInfo"]["taskGroups"]

    def test_a_job_that_nobody_knows_ends_with_the_servers_words(self, ana: Dlicmd) -> None:
        done = ana("--exec-get", "edt-99999")
        assert (done.status, done.out[:11]) == (1, "Error 400: ")

    def test_all_jobs_are_a_table_json_or_the_columns_one_names(self, ana: Dlicmd, job: JobView) -> None:
        shown = ana("--exec-get-all").out.splitlines()
        assert " ".join(shown[0].split()) == "id submit_user name framework type state num submit_time age"
        [row] = [line.split() for line in shown if line.startswith(f"{job.exec_id} ")]
        assert row[:7] == [job.exec_id, "ana", "ElasticPyTorchTrain", "edtPyTorch", "ELASTIC", "SUBMITTED", "4"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row[7])
        assert re.fullmatch(r"\d+[sm]", row[8])
        named = ana("--exec-get-all", "-o", "custom-columns=state,appId", "--query-args", "sort_by=id:desc&limit=1")
        assert [line.split() for line in named.out.splitlines()] == [["state", "appId"], ["SUBMITTED", job.exec_id]]
        found = ana("--exec-get-all", "-o", "json", "--query-args", "sort_by=id:desc&limit=1").json
        assert [each["id"] for each in found] == [job.exec_id]
        assert ana("--exec-get-all", "-o", "custom-columns=nothing").status == 1

    def test_stop_delete_and_delete_all_say_what_became_of_it(self, ana: Dlicmd, job: JobView) -> None:
        assert ana("--exec-stop", job.exec_id).out == f"Stop exec {job.exec_id} succeed. HTTP:204 \n"
        assert ana("--exec-delete", job.exec_id).out == f"Delete exec {job.exec_id} succeed. HTTP:204 \n"
        for what in ("Stop", "Delete"):
            done = ana(f"--exec-{what.lower()}", job.exec_id)
            assert done.status == 1
            assert done.out.startswith(f"{what} exec {job.exec_id} failed. HTTP:400 Error 400: ")
        done = ana("--exec-delete-all")
        assert (done.status, done.out) == (0, "Execs are deleted\n")
        assert ana("--exec-get-all", "-o", "json").json == []


class TestLogsAndResults:
    def test_the_trainings_logs_are_printed_as_they_are(self, trained: tuple[Dlicmd, ServedApi, str]) -> None:
        command, _, exec_id = trained
        assert command("--exec-trainoutlogs", exec_id).out == "said by the script\n"
        assert command("--exec-trainerrlogs", exec_id).out == "a warning\n"
        assert command("--exec-trainlogs", exec_id).out == f"{ELOG}said by the script\na warning\n"

    @pytest.mark.parametrize("verb", ["--exec-outlogs", "--app-outlogs"])
    def test_logs_of_driver_and_executors_follow_a_line_that_names_them(
        self, trained: tuple[Dlicmd, ServedApi, str], verb: str
    ) -> None:
        command, _, exec_id = trained
        parts = command(verb, exec_id, "--lastlines", "1").out.split("-" * 80 + "\n")
        assert parts == [
            "",
            "Driver stdout\nsaid by the script\n",
            "Executor 1 stdout\nstep 2\n",
            "Executor 2 stdout\nstep 2\n",
        ]

    def test_errors_and_the_launchers_log_come_in_the_same_way(self, trained: tuple[Dlicmd, ServedApi, str]) -> None:
        command, _, exec_id = trained
        for place in ("exec", "app"):
            assert "Driver stderr\na warning\n" in command(f"--{place}-errlogs", exec_id).out
            assert "Executor 2 launcherlog\n" in command(f"--{place}-launcherlogs", exec_id).out

    def test_a_result_is_saved_under_the_servers_name(self, trained: tuple[Dlicmd, ServedApi, str]) -> None:
        command, _, exec_id = trained
        done = command("--exec-trainresult", exec_id)
        name = re.fullmatch(r"Train result is saved to (dlpd-model-\S+-result\.zip)\n", done.out)
        assert name is not None
        with zipfile.ZipFile(command.home / name[1]) as result:
            assert [each.partition("/")[2] or each for each in result.namelist()][-1].endswith("weights.pth")
        assert names(command.home) == [".dlicmd", name[1]]

    @pytest.mark.parametrize(
        ("named", "saved"),
        [
            ("../../out.zip", "out.zip"),
            ("/etc/out.zip", "out.zip"),
            ("..\\out.zip", "out.zip"),
            ("..", None),
            (".bashrc", None),
            ("", None),
        ],
    )
    def test_no_server_can_name_a_place_outside_of_this_folder(
        self, recorder: Recorder, stranger: Dlicmd, named: str, saved: str | None
    ) -> None:
        headers = {"Content-Disposition": f"attachment;filename={named};size=3"}
        recorder.answers[f"GET {EXECS}/edt-1/result"] = (200, headers, b"zip")
        done = stranger("--exec-trainresult", "edt-1")
        assert done.status == (0 if saved else 1)
        assert names(stranger.home) == [".dlicmd", *([saved] if saved else [])]
        assert recorder[f"{EXECS}/edt-1/result"][2]["Accept"] == "text/plain"

    def test_a_result_that_breaks_off_is_not_kept(self, recorder: Recorder, stranger: Dlicmd) -> None:
        headers = {"Content-Disposition": "attachment;filename=r.zip;size=9", "Content-Length": "9"}
        recorder.answers[f"GET {EXECS}/edt-1/result"] = (200, headers, b"zip")
        done = stranger("--exec-trainresult", "edt-1")
        assert (done.status, done.out) == (1, "")
        assert names(stranger.home) == [".dlicmd"]

    def test_deploying_sends_what_was_named_and_shows_the_answer(
        self, recorder: Recorder, stranger: Dlicmd, ana: Dlicmd, job: JobView
    ) -> None:
        words = ("--kernel", "k.py", "--name", "m", "--attributes", "a=1", "--environments", "E=x=y")
        assert stranger("--exec-deploy", "edt-1", *words).json == {}
        sent = json.loads(recorder[f"{EXECS}/edt-1/deploy"][3])
        assert sent == {"kernel": "k.py", "name": "m", "attributes": {"a": "1"}, "environments": {"E": "x=y"}}
        done = ana("--exec-deploy", job.exec_id, "--kernel", "k.py")
        assert (done.status, done.out[:11]) == (1, "Error 501: ")


class TestApplicationsAndPlans:
    def test_applications_are_listed_shown_and_waited_for(self, trained: tuple[Dlicmd, ServedApi, str]) -> None:
        command, api, exec_id = trained
        [header, row] = command("--app-get-all").out.splitlines()
        assert header.split()[:5] == ["id", "submit_user", "name", "consumer", "type"]
        assert row.split()[:3] == [exec_id, "ana", "ElasticPyTorchTrain"]
        assert command("--app-history-get-all", "-o", "json").json == []
        assert command("--app-get", exec_id).json[0]["state"] == "RUNNING"
        other = api.submit("ana").exec_id
        waiting = threading.Thread(target=lambda: ended.append(command("--app-wait", other, "--interval", "0.05")))
        ended: list[Any] = []
        waiting.start()
        assert command("--app-stop", other).out == f"Stop app {other} succeed. HTTP:204 \n"
        waiting.join(60)
        assert ended[0].status == 1
        assert ended[0].out.splitlines()[-1].startswith(f"{other} KILLED, submitted ")

    def test_a_server_that_is_away_for_a_while_does_not_end_the_wait(
        self, recorder: Recorder, stranger: Dlicmd
    ) -> None:
        path = "/platform/rest/deeplearning/v1/scheduler/engine/applications/edt-1"
        recorder.answers[f"GET {path}"] = (200, {}, b'[{"state": "FINISHED", "submit_time": 1}]')
        recorder.dropped[path] = 3
        done = stranger("--app-wait", "edt-1", "--interval", "0")
        assert (done.status, done.err) == (0, "")
        recorder.dropped[path] = 1000
        done = stranger("--app-wait", "edt-1", "--interval", "0")
        assert (done.status, done.out, len(done.err.splitlines())) == (1, "", 1)

    def test_who_used_how_much_is_told_by_user_tag_and_type(self, trained: tuple[Dlicmd, ServedApi, str]) -> None:
        command, _, _ = trained
        shown = command("--app-analyze", "24").out
        assert shown.count("in the last 24 hours:") == 3
        [row] = command("--app-analyze", "24", "-o", "json").json["submit_user"]
        assert (row["submit_user"], row["RUNNING"]) == ("ana", 1)

    def test_jobs_are_shown_below_the_plan_of_their_queue(self, trained: tuple[Dlicmd, ServedApi, str]) -> None:
        command, api, exec_id = trained
        for path in ("research", "research/vision"):
            assert api.client("admin").put(f"/api/v1/queues/{path}", json={}).status_code == 200
        waiting = {
            given: api.submit(args=f"--exec-start edtPyTorch --model-main main.py --consumer {given}").exec_id
            for given in ("/research/vision", "/research/other")
        }
        look(api.platform)
        tree = [line.split()[0] for line in command("--rp-get-all").out.splitlines()]
        assert tree == [
            "root", "openedt", exec_id, "research", waiting["/research/other"], "vision", waiting["/research/vision"]
        ]  # fmt: skip
        assert command("--rp-get", "vision").json["path"] == "/openedt/research/vision"
        for job in waiting.values():
            api.client("ana").delete(f"{EXECS}/{job}")
        for path in ("research/vision", "research"):
            api.client("admin").delete(f"/api/v1/queues/{path}")

    def test_plans_objects_and_the_status_are_shown(self, trained: tuple[Dlicmd, ServedApi, str]) -> None:
        command, _, exec_id = trained
        tree = command("--rp-get-all").out.splitlines()
        plan = next(at for at, line in enumerate(tree) if line.strip() == "openedt")
        assert tree[plan + 1].split()[:3] == [exec_id, "ana", "RUNNING"]
        assert isinstance(command("--rp-get", "openedt").json, dict)
        assert command("--rp-delete", "openedt").status == 1
        assert exec_id in command("--pj-get-all").out
        assert "items" in command("--k8s-obj-get-all", "pod").json
        assert command("--k8s-obj-get", "paralleljob", exec_id).json["status"]["jobStatus"]
        assert isinstance(command("--status").json, dict)

    def test_all_that_runs_can_be_stopped_at_once(self, fresh_api: ServedApi, tmp_path: Path) -> None:
        jobs = [fresh_api.submit("ana").exec_id for _ in range(2)]
        command = Dlicmd(tmp_path / "ana", fresh_api.url)
        words = ("--username", "ana", "--password", PASSWORD)
        done = command("--app-stop-all", *words)
        assert sorted(done.out.splitlines()) == [f"Stop app {job} succeed. HTTP:204 " for job in jobs]
        assert command("--app-stop-all", *words).out == "No application runs\n"


class TestSearches:
    def test_an_empty_list_is_shown_and_what_there_is_not_yet_ends_with_a_sentence(self, ana: Dlicmd) -> None:
        assert ana("--hpo-get-all").json == []
        for verb in ("--hpo-get", "--hpo-stop", "--hpo-restart", "--hpo-delete"):
            done = ana(verb, "ana-hpo-1")
            assert done.status == 1, verb
            assert "Error " in done.out, verb

    @pytest.mark.parametrize(
        ("words", "method", "path"),
        [
            (("--hpo-stop", "a/b"), "PUT", "/a%2Fb"),
            (("--hpo-restart", "a"), "PUT", "/a/restart"),
            (("--hpo-delete", "a"), "DELETE", "/a"),
            (("--hpo-delete-all",), "DELETE", ""),
            (("--hpo-get", "a"), "GET", "/a"),
            (("--hpo-algorithm-get-all",), "GET", "/algorithm"),
            (("--hpo-algorithm-get", "TPE"), "GET", "/algorithm/TPE"),
            (("--hpo-algorithm-delete", "Mine"), "DELETE", "/algorithm/Mine"),
        ],
    )
    def test_each_verb_makes_its_call(
        self, recorder: Recorder, stranger: Dlicmd, words: tuple[str, ...], method: str, path: str
    ) -> None:
        assert stranger(*words).status == 0
        assert [each[:2] for each in recorder.asked] == [
            ("GET", "/platform/rest/deeplearning/v1/conf"),
            (method, f"/platform/rest/deeplearning/v1/hypersearch{path}"),
        ]

    def test_a_search_is_sent_with_its_code(self, recorder: Recorder, stranger: Dlicmd, tmp_path: Path) -> None:
        described = {"algoDef": {"algorithm": "Random"}}
        (tmp_path / "search.json").write_text(json.dumps(described))
        done = stranger("--hpo-start", str(tmp_path / "search.json"), "--model-dir", str(folder(tmp_path / "trial")))
        assert done.status == 0
        _, _, headers, body = recorder["/platform/rest/deeplearning/v1/hypersearch"]
        parts = {name: (file, content) for name, file, content in multipart(headers["Content-Type"], body)}
        assert json.loads(parts["data"][1]) == described
        assert parts["file"][0] == "trial.modelDir.tar"


@pytest.mark.extended
def test_a_large_upload_does_not_lie_in_memory(recorder: Recorder, stranger: Dlicmd, tmp_path: Path) -> None:
    recorder.answers[f"POST {EXECS}/"] = (200, {}, b'{"id": "edt-1", "appId": "edt-1"}')
    sent = folder(tmp_path / "m")
    with (sent / "data.bin").open("wb") as file:
        for _ in range(64):
            file.write(os.urandom(1 << 20))
    limited = stranger.home / "limited.py"
    shutil.copy(FILE, stranger.home / "dlicmd.py")
    limited.write_text(
        "import resource, runpy, sys\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (48 << 20, 48 << 20))\n"
        "runpy.run_path('dlicmd.py', run_name='__main__')\n"
    )
    command = Dlicmd(stranger.home, stranger.url, limited)
    done = command("--exec-start", "edtPyTorch", "--model-dir", str(sent), "--model-main", "main.py")
    assert (done.status, done.json["execId"]) == (0, "edt-1"), done.err
    assert len(recorder[f"{EXECS}/"][3]) > 64 << 20
