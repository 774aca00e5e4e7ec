"""The form to submit: what it sends is what it shows as a command; what is wrong is told at the field it is about."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from support.browser import Visitor
from support.credentials import PASSWORD
from support.served_api import ServedApi, served

Visit = Callable[..., Visitor]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApi]:
    with served(tmp_path_factory.mktemp("home")) as api:
        yield api


@pytest.fixture
def form(api: ServedApi, visit: Visit) -> Visitor:
    """The form, before somebody who may use it."""
    visitor = visit(api.url)
    credentials = {"name": "admin", "password": PASSWORD}
    assert visitor.page.request.post(f"{api.url}/api/v1/session", data=credentials, headers={"Origin": api.url}).ok
    visitor.open("/submit")
    expect(visitor.button("Submit job")).to_be_visible()
    return visitor


def test_a_folder_is_packed_in_the_browser_and_the_command_beside_it_does_the_same(
    api: ServedApi, form: Visitor, tmp_path: Path
) -> None:
    files = {"main.py": "print(1)\n", "lib/größe.py": "x = 1\n", "__pycache__/main.pyc": "no code"}
    for name, text in files.items():
        path = tmp_path / "my net" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    page = form.page
    page.get_by_label("Folder", exact=True).set_input_files(tmp_path / "my net")
    expect(page.get_by_label("Main script")).to_have_value("main.py")  # it is taken in by and by
    page.get_by_label("Arguments").fill("""--note "it's $5" '' """)
    page.get_by_label("Most workers").fill("3")
    page.get_by_label("Name", exact=True).fill("my job")
    page.get_by_role("button", name="Add a variable").click()
    page.get_by_label("Variable 1").fill("API_KEY")
    page.get_by_label("Value 1").fill("top secret")
    command = page.get_by_role("tabpanel").locator("pre").inner_text()
    form.button("Submit job").click()
    page.wait_for_url("**/ui/jobs/edt-*")
    sent = page.url.rpartition("/")[2]
    assert "top secret" not in command
    typed = _shell(api, command, tmp_path, API_KEY="top secret")
    assert _handed_in(api, typed) == _handed_in(api, sent)
    assert [name for name, _ in _handed_in(api, sent)[1]] == ["lib/größe.py", "main.py"]


def test_the_example_is_the_chosen_frameworks_whichever_is_chosen_first(api: ServedApi, form: Visitor) -> None:
    page = form.page
    page.get_by_label("Framework").select_option("edtTensorflow")
    page.get_by_role("button", name="Try the example").click()
    assert b"import tensorflow" in _submitted(api, form)
    form.open("/submit")
    page.get_by_role("button", name="Try the example").click()
    expect(page.get_by_label("Main script")).to_have_value("digits.py")
    page.get_by_label("Framework").select_option("edtTensorflow")
    page.get_by_label("Framework").select_option("edtPyTorch")
    assert b"import torch" in _submitted(api, form)


def test_what_is_wrong_is_told_before_it_is_sent(form: Visitor) -> None:
    page = form.page
    page.get_by_role("button", name="Try the example").click()
    page.get_by_label("Most workers").fill("many")
    form.button("Submit job").click()
    expect(page.get_by_label("Most workers")).to_be_focused()
    expect(page.get_by_text("A whole number from 1 to 10000.")).to_be_visible()


def test_what_the_api_refuses_is_told_at_its_field(form: Visitor, tmp_path: Path) -> None:
    (tmp_path / "main.py").symlink_to("/etc/passwd")
    subprocess.run(["tar", "-cf", "linked.tar", "main.py"], cwd=tmp_path, check=True)
    page = form.page
    page.get_by_label("Code").set_input_files(tmp_path / "linked.tar")
    expect(page.get_by_label("Main script")).to_have_value("main.py")
    form.button("Submit job").click()
    expect(page.get_by_text("it is a symbolic link")).to_be_visible()
    expect(page.get_by_label("Code")).to_have_attribute("aria-invalid", "true")


def _submitted(api: ServedApi, form: Visitor) -> bytes:
    """The script that the form hands in."""
    expect(form.page.get_by_label("Main script")).to_have_value("digits.py")
    form.button("Submit job").click()
    form.page.wait_for_url("**/jobs/edt-*")
    [(_, script)] = _handed_in(api, form.page.url.rpartition("/")[2])[1]
    return script


def _shell(api: ServedApi, command: str, folder: Path, **variables: str) -> str:
    """What a command says that is typed into a shell whose user is logged in, the virtual environment active."""
    token = api.client("admin").get("/auth/v1/logon").json()["accessToken"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "EDT_API": api.url, "EDT_TOKEN": token, **variables}
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environ, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.strip()


def _handed_in(api: ServedApi, job: str) -> tuple[dict[str, object], list[tuple[str, bytes]]]:
    """What the platform holds of a submission: what was asked for, and the code."""
    shown = api.client("admin").get(f"/api/v1/jobs/{job}").json()
    asked = {name: shown[name] for name in ("framework", "app_name", "num_worker", "worker_device_num", "max_restarts")}
    root = Path(shown["work_dir"])
    files = sorted((str(path.relative_to(root)), path.read_bytes()) for path in root.rglob("*") if path.is_file())
    return asked | {"words": _words(shown["args"])}, files


def _words(args: str) -> list[str]:
    """The words of args, in no order but that of the script's own."""
    platform, _, own = args.partition(" -- ")
    return [*sorted(platform.split()), "--", own]
