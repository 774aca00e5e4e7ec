"""Every form in which WMLA's clients send a submission, byte for byte, and what comes of it."""

from __future__ import annotations

import base64
import io
import json
import os
import socket
import tarfile
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edt_api.protocol import MOST_HEAD_BYTES
from edt_api.submissions.args import LONGEST
from support.credentials import PASSWORD
from support.served_api import EXECS, ServedApi, tar
from support.typed import edt

SCRIPT = b"print('hello')\n"
FILES = {"net/main.py": SCRIPT, "net/lib.py": b"x = 1\n"}
BASIC = f"Authorization: Basic {base64.b64encode(f'ana:{PASSWORD}'.encode()).decode()}"
NOTEBOOK = [
    "User-Agent: python-requests/2.34.2",
    "Accept-Encoding: gzip, deflate",
    "Accept: application/json",
    "Connection: keep-alive",
]
BOUNDARY = "5a1e5f0c2f5d4c0f9f8f6f1f0a9b8c7d"


@dataclass(frozen=True)
class Answer:
    status: int
    body: str

    @property
    def exec_id(self) -> str:
        assert self.status == 200, self.body
        return str(json.loads(self.body)["id"])


def sent(api: ServedApi, target: str, headers: list[str], body: bytes = b"") -> Answer:
    """Write a request as it is on the wire, and read the answer to the end of the connection."""
    host, port = api.url.removeprefix("http://").split(":")
    length = [f"Content-Length: {len(body)}"]
    head = "\r\n".join([f"POST {target} HTTP/1.1", f"Host: {host}:{port}", *headers, *length, "Connection: close"])
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n" + body)
        with connection.makefile("rb") as stream:
            status = int(stream.readline().split()[1])
            fields = dict(line.decode().lower().strip().split(": ", 1) for line in iter(stream.readline, b"\r\n"))
            return Answer(status, stream.read(int(fields["content-length"])).decode())


def multipart(*parts: tuple[str, bytes]) -> tuple[str, bytes]:
    """The header and the body of a form. A part is what follows ``Content-Disposition: form-data; `` and its value."""
    pieces = [f"--{BOUNDARY}\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + v for head, v in parts]
    body = b"\r\n".join([*pieces, f"--{BOUNDARY}--\r\n".encode()])
    return f"Content-Type: multipart/form-data; boundary={BOUNDARY}", body


def bearer(api: ServedApi) -> str:
    return str(api.client("ana").get("/auth/v1/logon").json()["accessToken"])


def code(api: ServedApi, exec_id: str) -> dict[str, bytes]:
    folder = api.settings.job_directory(exec_id) / "_submitted_code"
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def job(api: ServedApi, exec_id: str) -> dict[str, Any]:
    found: dict[str, Any] = api.client("ana").get(f"/api/v1/jobs/{exec_id}").json()
    return found


def recorded(api: ServedApi, exec_id: str) -> dict[str, tuple[list[str], bool]]:
    return {each["name"]: (each["values"], each["effect"]) for each in job(api, exec_id)["options"]}


class TestNotebooks:
    def test_generation_a_sends_basic_a_sig_name_and_a_gzip_tar_that_is_called_tar(self, api: ServedApi) -> None:
        args = (
            "--exec-start%20edtPyTorch%20%20%20%20%20%20%20%20%20--cs-datastore-meta%20type=fs%20%20--workerDeviceNum%201"
            "%20%20%20--model-dir%20net%20--model-main%20main.py%20%20--edt-options%20maxWorkers=2%20--epochs%203%20"
        )
        kind, body = multipart(('name="file"; filename="tmpx1y2.modelDir.tar"', tar(FILES)))
        answer = sent(api, f"{EXECS}?sigName=dli-edt&args={args}", [*NOTEBOOK, BASIC, kind], body)
        exec_json = json.loads(answer.body)
        assert exec_json["args"] == urllib.parse.unquote(args)
        assert exec_json["id"] == exec_json["submissionId"]
        assert exec_json["numWorker"] == 2
        assert code(api, answer.exec_id) == FILES

    def test_generation_b_sends_a_token_in_a_header_of_its_own_and_a_bare_script(self, api: ServedApi) -> None:
        kind, body = multipart(('name="file"; filename="main.py"', SCRIPT))
        target = f"{EXECS}?args=--exec-start%20edtPyTorch%20--model-main%20main.py"
        answer = sent(api, target, ["accept: application/json", f"X-Auth-Token: {bearer(api)}", kind], body)
        assert code(api, answer.exec_id) == {"main.py": SCRIPT}

    @pytest.mark.parametrize("blanks", ["+", "%20", "%20%20%20%20", "%0A%20", "+%5C%0A+++"])
    def test_blanks_may_be_plus_signs_runs_and_joined_lines(self, api: ServedApi, blanks: str) -> None:
        kind, body = multipart(('name="file"; filename="main.py"', SCRIPT))
        words = ["", "--exec-start", "edtPyTorch", "--numWorker", "3", "--model-main", "main.py", "--lr", "0.1", ""]
        answer = sent(api, f"{EXECS}?args={blanks.join(words)}", [*NOTEBOOK, BASIC, kind], body)
        assert json.loads(answer.body)["numWorker"] == 3


class TestTheCli:
    def test_it_sends_a_slash_and_several_parts_all_named_file(self, api: ServedApi) -> None:
        (api.settings.data / "mnist").mkdir(parents=True, exist_ok=True)
        args = "--exec-start edtPyTorch --model-dir net --model-main main.py --conda-env-yaml env.yaml --epochs 2"
        kind, body = multipart(
            ('name="file"; filename="net.modelDir.tar"', tar(FILES)),
            ('name="file"; filename="env.yaml"', b"name: dlipy3\n"),
            ('name="file"; filename="package.tar.gz"', b"\x1f\x8b" + bytes(100_000)),
            ('name="data"', b'{"dataSource": [{"type": "fs", "location": {"paths": "mnist"}}]}'),
        )
        headers = [*NOTEBOOK, f"Authorization: Bearer {bearer(api)}", kind]
        answer = sent(api, f"{EXECS}/?args={urllib.parse.quote(args)}", headers, body)
        assert json.loads(answer.body)["appId"] == answer.exec_id
        assert code(api, answer.exec_id) == FILES
        assert recorded(api, answer.exec_id)["--conda-env-yaml"] == (["env.yaml"], False)
        told = job(api, answer.exec_id)["remark"]
        assert "env.yaml, package.tar.gz not kept" in told
        first = api.client("ana").get(f"/api/v1/jobs/{answer.exec_id}/events").json()["items"][0]
        assert (first["seq"], first["kind"], first["message"]) == (1, "remark", told)

    def test_a_prebuilt_model_comes_with_no_body_and_no_content_type(self, api: ServedApi) -> None:
        target = (
            f"{EXECS}/?args=--exec-start%20edtPyTorch%20--pbmodel-name%20MNIST%20--pbmodel-cmd%20train%20--epochs%202"
        )
        answer = sent(api, target, [*NOTEBOOK, f"Authorization: Bearer {bearer(api)}"])
        assert set(code(api, answer.exec_id)) == {"mnist.py"}
        assert json.loads(answer.body)["appName"] == "ElasticPyTorchTrain"

    def test_a_prebuilt_model_with_a_data_source_comes_as_a_urlencoded_form(self, api: ServedApi) -> None:
        (api.settings.data / "mnist").mkdir(parents=True, exist_ok=True)
        form = urllib.parse.urlencode({"data": '{"dataSource": [{"type": "fs", "location": {"paths": "mnist"}}]}'})
        headers = [*NOTEBOOK, BASIC, "Content-Type: application/x-www-form-urlencoded"]
        target = f"{EXECS}/?args=--exec-start%20edtPyTorch%20--pbmodel-name%20MNIST"
        assert recorded(api, sent(api, target, headers, form.encode()).exec_id)["dataSource"][1] is True

    @pytest.mark.parametrize(
        ("args", "why"),
        [
            ("--exec-start edtPyTorch --user-cmd -- bash run.sh", "--user-cmd: got 'bash run.sh'; it takes no command"),
            ("--exec-start edtPyTorch --pbmodel-name VGG16", "--pbmodel-name: got 'VGG16'; it takes MNIST"),
            ("--exec-start edtPyTorch --model-main main.py", "no part named file"),
        ],
    )
    def test_without_a_model_all_else_is_a_clear_400(self, api: ServedApi, args: str, why: str) -> None:
        answer = sent(api, f"{EXECS}/?args={urllib.parse.quote(args)}", [*NOTEBOOK, BASIC])
        assert answer.status == 400 and answer.body.startswith(f"Error 400: {why}"), answer.body

    def test_a_prebuilt_model_beside_an_upload_is_refused(self, api: ServedApi) -> None:
        kind, body = multipart(('name="file"; filename="main.py"', SCRIPT))
        target = f"{EXECS}?args=--exec-start%20edtPyTorch%20--pbmodel-name%20MNIST"
        answer = sent(api, target, [*NOTEBOOK, BASIC, kind], body)
        assert (answer.status, "takes the place of an upload" in answer.body) == (400, True)


class TestGangs:
    def test_a_notebook_sends_a_single_file_for_one_process_and_words_behind_dashes(self, api: ServedApi) -> None:
        kind, body = multipart(('name="file"; filename="main.py"', SCRIPT))
        args = "--exec-start PyTorch --workerDeviceNum 1 --model-main main.py -- --epochs 10 --no-cuda true"
        target = f"{EXECS}?args={urllib.parse.quote(args)}"
        answer = sent(api, target, ["accept: application/json", f"X-Auth-Token: {bearer(api)}", kind], body)
        told = json.loads(answer.body)
        assert (told["framework"], told["appName"], told["elastic"]) == ("PyTorch", "SingleNodePytorchTrain", False)
        assert (told["args"], told["workDir"].endswith("_submitted_code")) == (args, True)
        assert code(api, answer.exec_id) == {"main.py": SCRIPT}

    def test_the_cli_sends_a_command_without_a_body(self, api: ServedApi) -> None:
        args = "--exec-start distPyTorch --numWorker 2 --user-cmd -- bash bash_torchrun.sh train.py"
        headers = [*NOTEBOOK, f"Authorization: Bearer {bearer(api)}"]
        answer = sent(api, f"{EXECS}/?args={urllib.parse.quote(args)}", headers)
        assert (json.loads(answer.body)["numWorker"], json.loads(answer.body)["args"]) == (2, args)
        assert (api.settings.job_directory(answer.exec_id) / "_submitted_code").is_dir()
        assert code(api, answer.exec_id) == {}
        assert job(api, answer.exec_id)["app_name"] == "bash bash_torchrun.sh train.py"

    def test_a_command_comes_with_a_data_source_as_a_urlencoded_form(self, api: ServedApi) -> None:
        (api.settings.data / "mnist").mkdir(parents=True, exist_ok=True)
        form = urllib.parse.urlencode({"data": '{"dataSource": [{"type": "fs", "location": {"paths": "mnist"}}]}'})
        headers = [*NOTEBOOK, BASIC, "Content-Type: application/x-www-form-urlencoded"]
        target = f"{EXECS}/?args=--exec-start%20tensorflow%20--user-cmd%20--%20ls"
        assert recorded(api, sent(api, target, headers, form.encode()).exec_id)["dataSource"][1] is True

    def test_generation_c_sends_a_folder_for_a_command_with_a_hardware_spec(self, api: ServedApi) -> None:
        form = {"args": "--exec-start distPyTorch --user-cmd -- bash run.sh", "hardwareSpec": SPEC}
        kind, body = multipart(
            ('name="data"', json.dumps(form).encode()),
            ('name="file"; filename="x.modelDir.tar"', tar({"./run.sh": b"exit 0\n"}, "w")),
        )
        answer = sent(api, EXECS, ["User-Agent: curl/8.5.0", "Accept: */*", BASIC, kind], body)
        found = job(api, answer.exec_id)
        assert (found["num_worker"], found["worker_device_num"], found["remark"]) == (4, 2, None)
        assert code(api, answer.exec_id) == {"run.sh": b"exit 0\n"}

    @pytest.mark.parametrize("framework", ["PyTorch", "distPyTorch"])
    def test_a_prebuilt_model_of_pictures_needs_no_code(self, api: ServedApi, framework: str) -> None:
        target = f"{EXECS}/?args=--exec-start%20{framework}%20--pbmodel-name%20ResNet18%20--pbmodel-cmd%20train"
        answer = sent(api, target, [*NOTEBOOK, f"Authorization: Bearer {bearer(api)}"])
        assert set(code(api, answer.exec_id)) == {"pictures.py"}

    def test_a_plain_loop_for_several_workers_is_told_so_in_its_first_event(self, api: ServedApi) -> None:
        kind, body = multipart(('name="file"; filename="main.py"', SCRIPT))
        target = f"{EXECS}?args=--exec-start%20edtPyTorch%20--numWorker%204%20--model-main%20main.py"
        answer = sent(api, target, [*NOTEBOOK, BASIC, kind], body)
        first = api.client("ana").get(f"/api/v1/jobs/{answer.exec_id}/events").json()["items"][0]
        assert first["kind"] == "remark" and first["message"].startswith("this job is not elastic")


SPEC: dict[str, Any] = {
    "nodes": {
        "num_nodes": 4, "num_drivers": "0", "mem": {"size": "16g"}, "cpu": {"units": "0.25"},
        "gpu": {"num_gpu": "2", "gpu_profile": "slice", "mig_profile": ""},
        "drivers": {"cpu": {"units": "1"}, "mem": {"size": "4Gi"}},
    }
}  # fmt: skip


class TestGenerationC:
    def curl(self, api: ServedApi, form: dict[str, Any], archive: bytes) -> Answer:
        kind, body = multipart(
            ('name="data"', json.dumps(form).encode()), ('name="file"; filename="x.modelDir.tar"', archive)
        )
        return sent(api, EXECS, ["User-Agent: curl/8.5.0", "Accept: */*", BASIC, kind], body)

    def test_all_is_in_the_form_and_the_tar_is_plain_and_begins_with_a_dot(
        self, api: ServedApi, tmp_path: Path
    ) -> None:
        (tmp_path / "main.py").write_bytes(SCRIPT)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(tmp_path, ".")
        args = "--exec-start edtPyTorch --model-main main.py"
        answer = self.curl(api, {"args": args, "hardwareSpec": SPEC}, packed.getvalue())
        assert code(api, answer.exec_id) == {"main.py": SCRIPT}
        found = job(api, answer.exec_id)
        assert (found["num_worker"], found["worker_device_num"]) == (4, 2)
        kept = recorded(api, answer.exec_id)
        assert kept["hardwareSpec.nodes.num_nodes"] == (["4"], True)
        assert kept["hardwareSpec.nodes.gpu.num_gpu"] == (["2"], True)
        assert kept["hardwareSpec.nodes.drivers.mem.size"] == (["4Gi"], False)
        assert kept["hardwareSpec.nodes.gpu.mig_profile"] == ([""], False)

    def test_a_hardware_spec_may_be_a_name(self, api: ServedApi) -> None:
        form = {"args": "--exec-start edtPyTorch --numWorker 3 --model-main main.py", "hardwareSpec": {"name": "large"}}
        answer = self.curl(api, form, tar(FILES))
        assert json.loads(answer.body)["numWorker"] == 3
        assert recorded(api, answer.exec_id)["hardwareSpec.name"] == (["large"], False)

    @pytest.mark.parametrize(
        ("spec", "why"),
        [
            (
                {"nodes": {"mem": {"size": "much"}}},
                "hardwareSpec.nodes.mem.size: got 'much'; it takes a size of memory",
            ),
            ({"nodes": {"num_nodes": "some"}}, "hardwareSpec num_nodes: got 'some'; it takes a whole number"),
            (["large"], "hardwareSpec: got another JSON value; it takes a JSON object"),
            ({"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}}, "objects in objects; it takes at most 5 levels"),
            ({"\ud800": {"b": {"c": {"d": {"e": {"f": 1}}}}}}, "objects in objects; it takes at most 5 levels"),
            ({str(n): n for n in range(101)}, "hardwareSpec: got 101 values; it takes at most 100"),
        ],
    )
    def test_a_wrong_hardware_spec_is_refused_by_its_key(self, api: ServedApi, spec: object, why: str) -> None:
        form = {"args": "--exec-start edtPyTorch --model-main main.py", "hardwareSpec": spec}
        answer = self.curl(api, form, tar(FILES))
        assert answer.status == 400 and why in answer.body, answer.body


class TestEdtGet:
    def test_it_shows_the_remark_and_the_options_without_effect(self, api: ServedApi, tmp_path: Path) -> None:
        kind, body = multipart(('name="file"; filename="main.py"', SCRIPT))
        options = "--msd-label a --msd-label b --numWorkers 4 --cs-url-bearer hush"
        args = urllib.parse.quote(f"--exec-start edtPyTorch --model-main main.py {options}")
        submitted = sent(api, f"{EXECS}?args={args}", [BASIC, kind], body)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("EDT_")}
        environ = {**kept, "EDT_API": api.url, "EDT_TOKEN": bearer(api), "NO_COLOR": "1", "COLUMNS": "200"}
        done = edt(["get", submitted.exec_id], environ, tmp_path)
        assert done.returncode == 0, done.stderr
        shown = " ".join(done.stdout.split())
        assert "Note --numWorkers went to the script, since the platform's option is --numWorker" in shown
        assert "No effect --msd-label a b, --cs-url-bearer ****" in shown
        assert "hush" not in shown


class TestTheSdk:
    HEADERS = ("User-Agent: wmla-python-sdk/1.0 (lang=python; arch=x86_64)", "Accept-Encoding: gzip", BASIC)

    @pytest.mark.parametrize(
        "upload", [tar(FILES), tar(FILES, "w"), tar({"main.py": SCRIPT})], ids=["gz", "tar", "flat"]
    )
    def test_its_part_has_neither_a_file_name_nor_a_content_type(self, api: ServedApi, upload: bytes) -> None:
        kind, body = multipart(('name="file"', upload))
        args = "args=--exec-start+edtPyTorch+--model-dir+net+--model-main+main.py"
        answer = sent(api, f"{EXECS}?sigName=&{args}", [*self.HEADERS, kind], body)
        assert any(name.endswith("main.py") for name in code(api, answer.exec_id))

    def test_a_path_in_place_of_a_file_is_told_so(self, api: ServedApi) -> None:
        kind, body = multipart(('name="file"', b"/home/me/tmpx.modelDir.tar"))
        target = f"{EXECS}?sigName=&args=--exec-start+edtPyTorch+--model-main+main.py"
        answer = sent(api, target, [*self.HEADERS, kind], body)
        assert (answer.status, "open the file and send that" in answer.body) == (400, True)


class TestWhatIsCheckedFirst:
    @pytest.mark.parametrize(
        ("args", "files", "why"),
        [
            ("--model-main main.py", {"net/main.py": "x = (\n"}, "--model-main: got 'main.py', which does not compile"),
            ("--model-main main.py", {"net/main.py": ""}, "--model-main: got 'main.py', an empty file"),
            (
                "--model-main main.py",
                {"net/train.py": "1"},
                "--model-main: got 'main.py'; it takes a file of the upload",
            ),
            ("--model-dir other", {"net/main.py": "1"}, "--model-dir: got 'other'; it takes a folder of the upload"),
            ("--model-dir net --model-main src", {"net/src/a.py": "1"}, "--model-main: got 'src', a folder"),
            (
                "--model-main main.py --cs-datastore-meta type=fs,data_path=nowhere",
                {"main.py": "1"},
                "--cs-datastore-meta data_path: got 'nowhere'; it takes a folder below the data file system",
            ),
        ],
    )
    def test_what_can_be_known_is_refused_at_once(
        self, api: ServedApi, args: str, files: dict[str, str], why: str
    ) -> None:
        api.settings.data.mkdir(parents=True, exist_ok=True)
        before = len(api.client("ana").get(EXECS).json())
        response = api.client("ana").post(
            EXECS, params={"args": f"--exec-start edtPyTorch {args}"}, files={"file": ("x.tar", tar(files))}
        )
        assert response.status_code == 400
        assert response.text.startswith(f"Error 400: {why}"), response.text
        assert len(api.client("ana").get(EXECS).json()) == before
        assert list(api.settings.staged.iterdir()) == []

    def test_a_job_with_an_image_of_its_own_may_be_for_another_python(self, api: ServedApi) -> None:
        args = "--exec-start edtPyTorch --model-main main.py --msd-image-name openedt/runner-torch:old"
        response = api.client("ana").post(
            EXECS, params={"args": args}, files={"file": ("x.tar", tar({"main.py": "print 'old'\n"}))}
        )
        assert response.status_code == 200, response.text


class TestLongArgs:
    START = "--exec-start edtPyTorch --model-main main.py "

    def long(self, length: int) -> str:
        return self.START + "--note " + "x" * (length - len(self.START) - len("--note "))

    @pytest.mark.parametrize("length", [100_000, 200_000, LONGEST])
    def test_they_are_taken_by_the_request_line(self, api: ServedApi, length: int) -> None:
        kind, body = multipart(('name="file"; filename="main.py"', SCRIPT))
        target = f"{EXECS}?args={urllib.parse.quote(self.long(length))}"
        answer = sent(api, target, [*NOTEBOOK, BASIC, kind], body)
        assert len(json.loads(answer.body)["args"]) == length

    def test_they_are_taken_by_the_form(self, api: ServedApi) -> None:
        args = self.START + "ä" * (LONGEST - len(self.START))  # six bytes a letter, as JSON writes it
        kind, body = multipart(
            ('name="data"', json.dumps({"args": args}, ensure_ascii=False).encode()),
            ('name="file"; filename="main.py"', SCRIPT),
        )
        answer = sent(api, EXECS, [*NOTEBOOK, BASIC, kind], body)
        assert json.loads(answer.body)["args"] == args

    def test_longer_ones_are_refused_with_the_limit(self, api: ServedApi) -> None:
        kind, body = multipart(('name="file"; filename="main.py"', SCRIPT))
        answer = sent(api, f"{EXECS}?args={urllib.parse.quote(self.long(LONGEST + 1))}", [BASIC, kind], body)
        why = f"Error 400: args: got {LONGEST + 1} characters; it takes at most {LONGEST}\n"
        assert (answer.status, answer.body) == (400, why)

    @pytest.mark.parametrize("length", [2 * MOST_HEAD_BYTES, 8 * MOST_HEAD_BYTES])
    def test_a_request_line_beyond_all_limits_is_answered_too(self, api: ServedApi, length: int) -> None:
        kind, body = multipart(('name="file"; filename="main.py"', SCRIPT))
        answer = sent(api, f"{EXECS}?args={'x' * length}", [BASIC, kind], body)
        assert answer.status == 400
        assert answer.body.startswith(f"Error 400: the request line with its headers is longer than {MOST_HEAD_BYTES}")


KEYS = {
    "name", "description", "desc", "deployMode", "hasTask0", "execMode", "appName", "numWorkers", "maxWorkers",
    "workerMemory", "frameworkCmdGenerator", "backend", "prebuiltModelMain", "prebuiltModelDir",
    "frameworkVersion", "exports", "numPs", "distributeStrategy",
}  # fmt: skip

OURS = {"elastic", "processes", "command", "addedBy"}


class TestFrameworks:
    def test_each_entry_has_the_keys_that_were_recorded(self, api: ServedApi) -> None:
        torch, tensorflow, *gangs = api.client("ana").get(f"{EXECS}/frameworks").json()
        assert [set(each) - KEYS for each in (torch, tensorflow, *gangs)] == [OURS] * 6
        assert set(torch) & set(tensorflow) & set(gangs[0]) >= KEYS
        assert (torch["name"], torch["backend"], torch["appName"], torch["workerMemory"]) == (
            "edtPyTorch", "pytorch", "ElasticPyTorchTrain", "4G",
        )  # fmt: skip
        assert (tensorflow["name"], tensorflow["backend"], tensorflow["workerMemory"]) == (
            "edtTensorflow", "tensorflow", "8G",
        )  # fmt: skip

    def test_the_prebuilt_model_is_named_where_there_is_one(self, api: ServedApi) -> None:
        torch, tensorflow, *_ = api.client("ana").get(f"{EXECS}/frameworks").json()
        assert (torch["prebuiltModelMain"], torch["prebuiltModelDir"]) == ("mnist.py", "prebuilt")
        assert (tensorflow["prebuiltModelMain"], tensorflow["prebuiltModelDir"]) == ("", "")
