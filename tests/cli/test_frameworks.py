"""`edt frameworks`, and what `edt submit` sends for jobs that are not elastic, against a real API."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from edt_api.access import tokens
from edt_contract.gang import Processes, Rendezvous
from edt_scheduler.decide.reconcile import look
from edt_scheduler.operations import accounts, execs
from edt_scheduler.views import JobView
from support.puppets import Puppet
from support.served_api import ServedApi, served
from support.typed import Done, edt

RAY = """\
name = "ray"
description = "Ray \\"head\\" and workers"
command = ["ray-start", "{python}", "{main}"]
processes = "job"
rendezvous = ["mpi"]
python_home = "/opt/conda/envs/ray"
default_log = "output"
[environ]
RAY_DEDUP_LOGS = "0"
"""


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApi]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("EDT_")]:
            patch.delenv(name)
        with served(tmp_path_factory.mktemp("home")) as api:
            yield api


def typed(api: ServedApi, folder: Path, *words: str, user: str = "admin") -> Done:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EDT_")}
    token = tokens.issue(api.platform, accounts.user(api.platform, user), 600)
    return edt(list(words), {**kept, "EDT_API": api.url, "EDT_TOKEN": token, "NO_COLOR": "1"}, folder)


def made(api: ServedApi, done: Done) -> JobView:
    assert done.returncode == 0, done.stderr
    return execs.job(api.platform, done.stdout.strip(), viewer=accounts.user(api.platform, "admin"))


def listed(api: ServedApi, folder: Path) -> dict[str, dict[str, object]]:
    done = typed(api, folder, "frameworks", "list", "-o", "json", user="ana")
    return {each["name"]: each for each in json.loads(done.stdout)}


def test_an_admin_adds_an_entry_that_all_users_see_and_use_and_its_jobs_outlive_it(
    api: ServedApi, tmp_path: Path
) -> None:
    (tmp_path / "ray.toml").write_text(RAY)
    (tmp_path / "main.py").write_text("print 'for another Python'\n")
    assert typed(api, tmp_path, "frameworks", "add", "ray.toml").returncode == 0
    assert listed(api, tmp_path)["ray"]["added_by"] == "admin"
    shown = typed(api, tmp_path, "frameworks", "show", "ray", user="ana").stdout
    assert {**tomllib.loads(shown), **tomllib.loads(RAY)} == tomllib.loads(shown)
    submit = ("submit", "--unchecked", "-n", "3", "--framework", "ray", "main.py")
    job = made(api, typed(api, tmp_path, *submit, user="ana"))
    assert typed(api, tmp_path, "frameworks", "remove", "ray").returncode == 0
    assert "ray" not in listed(api, tmp_path)
    kept = execs.job(api.platform, job.exec_id, viewer=accounts.user(api.platform, "admin")).gang
    assert kept is not None and kept.command == ("ray-start", "{python}", "{main}")
    assert (kept.processes, kept.rendezvous) == (Processes.JOB, (Rendezvous.MPI,))
    assert (kept.python_home, kept.environ) == ("/opt/conda/envs/ray", {"RAY_DEDUP_LOGS": "0"})
    refused = typed(api, tmp_path, "submit", "--unchecked", "--framework", "ray", "main.py")
    assert refused.returncode == 1 and "a framework nobody knows" in refused.stderr


def test_an_entry_that_is_added_again_is_replaced(api: ServedApi, tmp_path: Path) -> None:
    entry = {"name": "again", "command": ["a"]}
    for command in (["a"], ["b", "{main}"]):
        (tmp_path / "again.json").write_text(json.dumps(entry | {"command": command}))
        assert typed(api, tmp_path, "frameworks", "add", "again.json").returncode == 0
        assert listed(api, tmp_path)["again"]["command"] == command
    assert typed(api, tmp_path, "frameworks", "remove", "again").returncode == 0
    gone = typed(api, tmp_path, "frameworks", "remove", "again")
    assert gone.returncode == 1 and "list them with `edt frameworks`" in gone.stderr


def test_every_built_in_entry_is_shown_as_a_file_that_could_be_added(api: ServedApi, tmp_path: Path) -> None:
    for name in listed(api, tmp_path):
        text = typed(api, tmp_path, "frameworks", "show", name).stdout
        (tmp_path / "copy.toml").write_text(text.replace(f'name = "{name}"', f'name = "my-{name}"', 1))
        added = typed(api, tmp_path, "frameworks", "add", "copy.toml")
        assert added.returncode == 0, added.stderr
        assert typed(api, tmp_path, "frameworks", "remove", f"my-{name}").returncode == 0


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("a.toml", 'name = "a"\ncommand = "mpirun"\n', "command: it takes a list of"),
        ("a.toml", 'name = "PyTorch"\ncommand = ["x"]\n', "name: PyTorch is built in"),
        ("a.toml", "name = \n", "a.toml is no TOML: Invalid value (at line 1"),
        ("a.json", "{", "a.json is no JSON"),
        ("a.json", "[]", "dictionary"),
        ("a.json", '{"name": "a", "command": ["\\ud800"]}', "a.json holds a value that an entry cannot have"),
        ("a.json", '{"name": "a", "command": ["x"], "max_workers": NaN}', "a.json holds a value that an entry cannot"),
        ("a.toml", 'name = "a"\ncommand = ["x"]\ndescription = 2026-01-01\n', "a.toml holds a value that an entry"),
        ("a.toml", 'name = "a"\ncommand = ["x"]\nmax_workers = inf\n', "a.toml holds a value that an entry cannot"),
    ],
)
def test_a_wrong_entry_is_refused_with_what_to_change(
    api: ServedApi, tmp_path: Path, file: str, text: str, why: str
) -> None:
    (tmp_path / file).write_text(text)
    done = typed(api, tmp_path, "frameworks", "add", file)
    assert done.returncode != 0 and why in done.stderr


def test_others_than_admins_change_nothing(api: ServedApi, tmp_path: Path) -> None:
    (tmp_path / "ray.toml").write_text(RAY)
    for words in (("add", "ray.toml"), ("remove", "PyTorch")):
        done = typed(api, tmp_path, "frameworks", *words, user="ana")
        assert done.returncode == 1 and "admin" in done.stderr
    assert "ray" not in listed(api, tmp_path)


def test_a_command_is_sent_with_its_folder_and_its_words_stay_as_they_were_typed(
    api: ServedApi, tmp_path: Path
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "run.sh").write_text("exit 0\n")
    words = ["bash", "run.sh", "--numWorker", "a  b", "it's", '"', "--"]
    submit = ("submit", "code", "--framework", "distPyTorch", "-n", "2", "--user-cmd", "--", *words)
    job = made(api, typed(api, tmp_path, *submit))
    assert job.gang is not None and job.gang.command == ("bash",) and job.gang.processes is Processes.WORKER
    assert (job.num_worker, job.script, job.work_dir.name) == (2, "", "code")
    assert job.command == " ".join(words)
    assert (job.work_dir / "run.sh").is_file()


def test_a_command_needs_no_code(api: ServedApi, tmp_path: Path) -> None:
    job = made(api, typed(api, tmp_path, "submit", "-", "--framework", "PyTorch", "--user-cmd", "--", "nvidia-smi"))
    assert job.command == "nvidia-smi" and list(job.work_dir.iterdir()) == []
    for words, why in (
        (("submit", "-", "--framework", "PyTorch"), "- sends no code"),
        (("submit", "-", "--main", "x.py", "--user-cmd", "--", "ls"), "--main names a script of a folder"),
        (("submit", ".", "--user-cmd"), "--user-cmd needs the command after --"),
        (("submit", ".", "--main", "a.py", "--user-cmd", "--", "x"), "give one of them"),
    ):
        done = typed(api, tmp_path, *words)
        assert done.returncode == 2 and why in done.stderr


def test_an_entry_whose_command_names_no_script_needs_neither_script_nor_upload(api: ServedApi, tmp_path: Path) -> None:
    (tmp_path / "sh.toml").write_text('name = "sh"\ncommand = ["bash", "run.sh"]\n')
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "run.sh").write_text("exit 0\n")
    assert typed(api, tmp_path, "frameworks", "add", "sh.toml").returncode == 0
    job = made(api, typed(api, tmp_path, "submit", "code", "--framework", "sh", "--unchecked", "--", "--fast"))
    assert (job.script, job.command, job.work_dir.name) == ("", "bash run.sh --fast", "code")
    assert (job.work_dir / "run.sh").is_file()
    assert (
        list(made(api, typed(api, tmp_path, "submit", "-", "--framework", "sh", "--unchecked")).work_dir.iterdir())
        == []
    )
    for folder in ("code", "-"):
        refused = typed(api, tmp_path, "submit", folder, "--framework", "PyTorch", "--unchecked")
        assert refused.returncode == 1 and refused.stderr, "PyTorch runs a script"
    assert typed(api, tmp_path, "frameworks", "remove", "sh").returncode == 0


def test_the_list_says_how_many_processes_a_framework_starts(api: ServedApi, tmp_path: Path) -> None:
    (tmp_path / "ray.toml").write_text(RAY)
    assert typed(api, tmp_path, "frameworks", "add", "ray.toml").returncode == 0
    lines = {line.split()[0]: line for line in typed(api, tmp_path, "frameworks").stdout.splitlines()}
    assert typed(api, tmp_path, "frameworks", "remove", "ray").returncode == 0
    assert " elastic " in lines["edtPyTorch"]
    assert " a process for each slot " in lines["distPyTorch"]
    assert " a process for each worker " in lines["disttensorflow"]
    assert " one process, which starts the others " in lines["ray"]


def test_logs_without_a_rank_say_whose_they_are_and_a_rank_that_a_job_does_not_have_is_refused(
    api: ServedApi, tmp_path: Path
) -> None:
    gang = api.submit(args="--exec-start distPyTorch --numWorker 3 --model-main main.py")
    done = typed(api, tmp_path, "logs", gang.exec_id)
    assert (done.stdout, done.stderr) == ("", "")
    node = Puppet(api.platform, name="n1", slots=16).join()
    node.peers = [node]
    for _ in range(3):
        look(api.platform)
        node.obey()
    (gang.log_dir / "rank-0.out").write_text("this is rank 0\n")
    (gang.log_dir / "rank-2.out").write_text("this is rank 2\n")
    done = typed(api, tmp_path, "logs", gang.exec_id)
    assert done.stdout == "this is rank 0\n"
    assert done.stderr.endswith(f"That was rank 0 of 3; for another: edt logs {gang.exec_id} --rank 1\n")
    done = typed(api, tmp_path, "logs", gang.exec_id, "--rank", "2")
    assert (done.stdout, done.stderr) == ("this is rank 2\n", "")
    done = typed(api, tmp_path, "logs", gang.exec_id, "--rank", "3")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--rank 3: {gang.exec_id} has the ranks 0 to 2" in done.stderr
    elastic = api.submit()
    done = typed(api, tmp_path, "logs", elastic.exec_id, "--rank", "0")
    assert done.returncode == 2
    assert f"--rank 0: {elastic.exec_id} is elastic and has no ranks" in done.stderr
