"""The flows of three generations of WMLA's notebooks, with the requests that they send and the parsing that they do.

One job for each generation, on one platform; its tests read what the job left behind.
"""

from __future__ import annotations

import io
import json
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pytest
import requests

from support.credentials import PASSWORD
from support.journey import platform_in
from support.running_platform import EXECS, Platform

pytestmark = [pytest.mark.lane("processes"), pytest.mark.timeout(300)]

SCRIPT = b'''
"""A classifier of generated points, in the form that WMLA's samples have."""
import argparse
import os

import torch
import torch.nn.functional as F
from torch.utils.data import TensorDataset

from callbacks import Callback
from emetrics import EMetrics
from fabric_model import FabricModel

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch-size", type=int, default=16)
args = parser.parse_args()
print("The script trains for", args.epochs, "epochs in", os.environ["RESULT_DIR"])


def get_datasets():
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(192, 8, generator=generator)
    classes = (points.sum(1) > 0).long()
    return TensorDataset(points[:160], classes[:160]), TensorDataset(points[160:], classes[160:])


net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
model = FabricModel(net, get_datasets, F.cross_entropy, torch.optim.SGD(net.parameters(), lr=0.1))
model.train(args.epochs, args.batch_size, 2)
print("The script has ended.")
'''


def packed(mode: str, top: str) -> bytes:
    """The model as an archive: gzip with a folder of its own, or plain with the files at its root."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        if not top:
            folder = tarfile.TarInfo(".")
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
        member = tarfile.TarInfo(f"{top}/main.py" if top else "./main.py")
        member.size = len(SCRIPT)
        archive.addfile(member, io.BytesIO(SCRIPT))
    return buffer.getvalue()


@dataclass
class Notebook:
    """A notebook's kernel: the server's address, the headers it sends, and the job that it has submitted."""

    platform: Platform
    headers: dict[str, str]
    auth: tuple[str, str] | None = None
    job: dict[str, Any] | None = None
    polled: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        assert self.job is not None
        return str(self.job["id"])

    def get(self, path: str, **more: Any) -> requests.Response:
        return requests.get(self.platform.url + path, auth=self.auth, timeout=30, **{"headers": self.headers, **more})

    def submit(self, path: str, **more: Any) -> None:
        answer = requests.post(self.platform.url + path, headers=self.headers, auth=self.auth, timeout=60, **more)
        assert answer.ok, answer.text
        table = pd.DataFrame(answer.json(), index=[0])
        assert len(table) == 1
        self.job = answer.json()
        self.platform.checker.acknowledge(self.id)
        self.platform.jobs.append(self.id)

    def wait(self) -> None:
        """Poll as notebooks do: go on only in three states."""
        states = []
        deadline = time.monotonic() + 120
        while True:
            state = str(self.get(f"{EXECS}/{self.id}").json()["state"])
            states += [state] if states[-1:] != [state] else []
            if state not in {"PENDING_CRD_SCHEDULER", "SUBMITTED", "RUNNING"}:
                break
            assert time.monotonic() < deadline, states
            time.sleep(0.2)
        self.polled = tuple(states)


ARGS = (
    "--exec-start edtPyTorch \n   --numWorker 2  --cs-datastore-meta type=fs --model-dir digits "
    "--model-main main.py  --epochs 3 "
)
"""With the blanks and line ends of a notebook's string."""


def generation_a(platform: Platform) -> Notebook:
    """Basic on every call, a gzip tar that is named .tar, the instance group's name."""
    notebook = Notebook(platform, {"Accept": "application/json"}, ("admin", PASSWORD))
    assert notebook.get("/platform/rest/conductor/v1/auth/logon").ok
    file = {"file": ("tmp4x1k.modelDir.tar", packed("w:gz", "digits"), "application/octet-stream")}
    notebook.submit(EXECS, params={"sigName": "dli-edt", "args": ARGS}, files=file)
    return notebook


def generation_b(platform: Platform) -> Notebook:
    """A logon, then X-Auth-Token; a bare main.py."""
    answer = requests.get(platform.url + "/auth/v1/logon", auth=("admin", PASSWORD), timeout=30)
    token = answer.json()["accessToken"]
    notebook = Notebook(platform, {"X-Auth-Token": token, "accept": "application/json"})
    args = "--exec-start edtPyTorch --numWorker 2 --model-main main.py --epochs 3"
    notebook.submit(EXECS, params={"args": args}, files={"file": ("main.py", SCRIPT)})
    return notebook


def generation_c(platform: Platform) -> Notebook:
    """A Bearer token; args and hardware in the form's data, a plain tar of the current folder."""
    answer = requests.get(platform.url + "/auth/v1/logon", auth=("admin", PASSWORD), timeout=30)
    notebook = Notebook(platform, {"Authorization": f"Bearer {answer.json()['accessToken']}"})
    hardware = {"nodes": {"num_nodes": "2", "num_drivers": "0", "mem": {"size": "16g"}, "gpu": {"num_gpu": 1}}}
    data = {"args": "--exec-start edtPyTorch --model-main main.py -- --epochs 3", "hardwareSpec": hardware}
    notebook.submit(EXECS, data={"data": json.dumps(data)}, files={"file": ("x.modelDir.tar", packed("w:", ""))})
    return notebook


GENERATIONS: dict[str, Callable[[Platform], Notebook]] = {
    "Conductor": generation_a,
    "OpenShift": generation_b,
    "Cloud Pak": generation_c,
}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform_in(tmp_path_factory.mktemp("platform")) as platform:
        yield platform


@pytest.fixture(scope="module")
def notebooks(platform: Platform) -> dict[str, Notebook]:
    """A notebook of each generation whose job has ended."""
    found = {name: begin(platform) for name, begin in GENERATIONS.items()}
    for notebook in found.values():
        notebook.wait()
    return found


@pytest.fixture(params=list(GENERATIONS))
def notebook(request: pytest.FixtureRequest, notebooks: dict[str, Notebook]) -> Notebook:
    return notebooks[request.param]


def test_the_poller_goes_on_until_the_job_has_finished(notebook: Notebook) -> None:
    assert notebook.polled[-1] == "FINISHED", notebook.platform.errors(notebook.id)
    assert set(notebook.polled) <= {"SUBMITTED", "PENDING_CRD_SCHEDULER", "RUNNING", "FINISHED"}


def test_the_metrics_table_has_no_holes_from_its_first_row_on(notebook: Notebook) -> None:
    text = notebook.get(f"{EXECS}/{notebook.id}/log", headers={**notebook.headers, "Accept": "application/json"}).json()
    table = pd.read_csv(io.StringIO(text.replace(":", ",")), header=None)
    assert len(table) == 3 * 5 + 3, "a row for each step and each validation"
    assert not table.isna().any(axis=None)
    shown = table[[4, 6, 8, 10, 12]]
    shown.columns = pd.Index(["time", "steps", "iteration", "loss", "accuracy"])
    assert list(shown.head(5)["steps"]) == [1, 2, 3, 4, 5]
    assert list(shown.head(5)["iteration"]) == [2, 4, 6, 8, 10]
    assert (shown["loss"] > 0).all()
    assert shown["accuracy"].between(0, 1).all()


def test_what_the_script_printed_is_the_output_log(notebook: Notebook) -> None:
    lines = notebook.get(
        f"{EXECS}/{notebook.id}/log?logType=outlog", headers={**notebook.headers, "Accept": "text/plain"}
    )
    assert lines.headers["content-type"].startswith("text/plain")
    assert "The script trains for 3 epochs" in lines.text
    assert "The script has ended." in lines.text
    assert lines.text.index("START TRAINING") < lines.text.index("END TRAINING")


def test_the_result_is_a_zip_whose_size_and_name_stand_in_the_header(notebook: Notebook) -> None:
    answer = notebook.get(
        f"{EXECS}/{notebook.id}/result", headers={**notebook.headers, "accept": "application/octet-stream"}
    )
    header = answer.headers["Content-Disposition"]
    assert int(header.split("size=")[1]) == len(answer.content)
    name = next(item for item in header.split(";") if item.startswith("filename=")).removeprefix("filename=")
    assert name.startswith("dlpd-model-")
    assert name.endswith(f"{notebook.id}-result.zip")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as model:
        assert {"train/model_epoch_final.pth", "train/model_epoch_final_optimizer_state.pth"} <= set(model.namelist())


def test_driver_and_executors_of_the_application_have_their_logs(notebook: Notebook) -> None:
    base = "/platform/rest/deeplearning/v1/scheduler/applications"
    (app,) = notebook.get(f"{base}?applicationid={notebook.id}").json()
    assert app["task0"]
    assert app["task12n"], "an executor for each engine that the job has had"
    driver = notebook.get(f"{base}/{notebook.id}/driver/logs/stdout?lastlines=2").text
    assert driver.splitlines()[-1] == "The script has ended."
    assert len(driver.splitlines()) == 2
    executor = notebook.get(f"{base}/{notebook.id}/executor/1/logs/stdout?lastlines=1000").text
    assert "The script trains for 3 epochs" in executor
    assert "--------START TRAINING--------" in executor
    assert notebook.get(f"{base}/{notebook.id}/executor/9/logs/stdout").status_code in {400, 404}


def test_the_conductor_gives_generation_as_logs(notebooks: dict[str, Notebook]) -> None:
    notebook = notebooks["Conductor"]
    assert notebook.job is not None
    instance = f"/platform/rest/conductor/v1/instances/{notebook.job['sigId']}/applications"
    driver = notebook.job["submissionId"]
    log = notebook.get(f"{instance}/{driver}/logs/stdout/download", headers={"Accept": "application/octet-stream"})
    assert "The script has ended." in log.text
    assert notebook.get(f"{instance}?state=RUNNING").json() == []


# ── scripts that are not elastic ──────────────────────────────────────────────────────────────────────────────────
PLAIN = b'''
"""A loop of the user's own: it knows nothing of OpenEDT."""
import argparse
import json
import os

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--no-cuda", default="false")
args = parser.parse_args()
weight = 0.0
for epoch in range(args.epochs):
    weight += (3 - weight) / 2
    print(f"Train Epoch: {epoch} Loss: {(3 - weight) ** 2:.6f}")
print("no cuda:", args.no_cuda)
with open(os.environ["RESULT_DIR"] + "/model/weight.json", "w") as file:
    json.dump(weight, file)
'''


def a_single_file(platform: Platform) -> Notebook:
    """A bare main.py, with its options among the platform's."""
    answer = requests.get(platform.url + "/auth/v1/logon", auth=("admin", PASSWORD), timeout=30)
    notebook = Notebook(platform, {"X-Auth-Token": answer.json()["accessToken"], "accept": "application/json"})
    args = "--exec-start PyTorch  --cs-datastore-meta type=fs --workerDeviceNum 1 --model-main main.py --epochs 10"
    notebook.submit(EXECS, params={"args": f"{args} --no-cuda true"}, files={"file": ("main.py", PLAIN)})
    return notebook


def a_folder_and_words_after_dashes(platform: Platform) -> Notebook:
    """A folder, whose script's options follow after ``--``."""
    notebook = Notebook(platform, {"Accept": "application/json"}, ("admin", PASSWORD))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo("net/main.py")
        member.size = len(PLAIN)
        archive.addfile(member, io.BytesIO(PLAIN))
    args = "--exec-start PyTorch --workerDeviceNum 1 --model-main main.py --model-dir net -- --epochs 10 --no-cuda true"
    notebook.submit(EXECS, params={"args": args}, files={"file": ("x.modelDir.tar", buffer.getvalue())})
    return notebook


@pytest.mark.parametrize("form", [a_single_file, a_folder_and_words_after_dashes])
def test_a_script_of_pytorch_trains_as_it_is_and_its_log_is_what_it_printed(
    form: Callable[[Platform], Notebook], platform: Platform
) -> None:
    notebook = form(platform)
    notebook.wait()
    assert notebook.polled[-1] == "FINISHED", platform.errors(notebook.id)
    plain = {**notebook.headers, "Accept": "text/plain"}
    printed = notebook.get(f"{EXECS}/{notebook.id}/log?logType=outlog", headers=plain).text
    assert [line.split()[:3] for line in printed.splitlines()[:10]] == [["Train", "Epoch:", str(n)] for n in range(10)]
    assert printed.splitlines()[10:] == ["no cuda: true"]
    log = f"{EXECS}/{notebook.id}/log"
    assert notebook.get(log, headers={**notebook.headers, "Accept": "application/json"}).json() == printed
    base = "/platform/rest/deeplearning/v1/scheduler/applications"
    (app,) = notebook.get(f"{base}?applicationid={notebook.id}").json()
    assert not app["task0"]
    assert len(app["task12n"]) == 1
    assert notebook.get(f"{base}/{notebook.id}/executor/1/logs/stdout?lastlines=1000").text == printed
    result = notebook.get(f"{EXECS}/{notebook.id}/result")
    with zipfile.ZipFile(io.BytesIO(result.content)) as model:
        assert 2.9 < json.loads(model.read("weight.json")) < 3
