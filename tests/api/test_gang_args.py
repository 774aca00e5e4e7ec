"""From args to a gang: what its processes run, how many there are, and what the user is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edt_api.errors import ArgumentsInvalid
from edt_api.submissions.args import MASK, Submission, parse
from edt_api.submissions.frameworks import PREBUILT, shown_name
from edt_api.submissions.main_script import prepare
from edt_api.submissions.submission import code, job_spec, read
from edt_contract.gang import MAIN, PYTHON, Processes, Rendezvous
from edt_scheduler.model import catalogue
from edt_scheduler.model.catalogue import Framework
from edt_scheduler.model.jobs import DefaultLog
from support.served_api import tar

SCRIPT = (PYTHON, "-u", MAIN)
RAY = catalogue.read({"name": "ray", "command": ["ray", "start"], "processes": "job", "image": "team/ray:2"})
VARIABLES = {"A": "entry", "B": "entry"}
OURS = catalogue.read({
    "name": "ours", "elastic": True, "backend": "pytorch", "image": "team/own:1", "environ": VARIABLES
})  # fmt: skip
DEVICES = catalogue.read({"name": "devices", "command": [PYTHON, MAIN], "processes": "device", "rendezvous": ["torch"]})


def find(name: str) -> Framework | None:
    return {**catalogue.built_in(), **{each.name: each for each in (RAY, OURS, DEVICES)}}.get(name)


class TestFrameworks:
    @pytest.mark.parametrize(
        ("name", "processes", "rendezvous", "backend", "model_folder"),
        [
            ("PyTorch", Processes.WORKER, (Rendezvous.TORCH,), "pytorch", True),
            ("distPyTorch", Processes.DEVICE, (Rendezvous.TORCH,), "pytorch", True),
            ("tensorflow", Processes.WORKER, (), "tensorflow", False),
            ("disttensorflow", Processes.WORKER, (Rendezvous.TENSORFLOW,), "tensorflow", True),
        ],
    )
    def test_each_of_wmlas_runs_the_script_its_own_way(
        self, name: str, processes: Processes, rendezvous: tuple[Rendezvous, ...], backend: str, model_folder: bool
    ) -> None:
        job = parse(f"--exec-start {name} --workerDeviceNum 2 --model-main main.py --epochs 1")
        assert job.gang is not None
        assert (job.gang.command, job.gang.processes, job.gang.rendezvous) == (SCRIPT, processes, rendezvous)
        assert (job.framework, job.backend, job.model_folder) == (name, backend, model_folder)
        assert (job.default_log, job.worker_device_num) == (DefaultLog.OUTPUT, 2)
        assert job.arguments == ("--epochs", "1")

    def test_elastic_jobs_are_no_gangs(self) -> None:
        job = parse("--exec-start edtPyTorch --numWorker 2")
        assert (job.gang, job.default_log, job.num_worker) == (None, DefaultLog.STEPS, 2)

    @pytest.mark.parametrize(
        ("name", "main"),
        [("PyTorch041", "PyTorch"), ("keras", "tensorflow"), ("tensorflow1100", "tensorflow"),
         ("disttensorflow_v1", "disttensorflow")],
    )  # fmt: skip
    def test_older_names_of_wmla_mean_what_there_is_now(self, name: str, main: str) -> None:
        assert parse(f"--exec-start {name} --model-main main.py").framework == main

    @pytest.mark.parametrize("asked", ["--numWorker 4", "--edt-options maxWorkers=4", ""])
    def test_more_workers_than_a_framework_takes_are_capped_and_the_user_is_told(self, asked: str) -> None:
        spec = {"hardwareSpec": {"nodes": {"num_nodes": "4", "gpu": {"num_gpu": 3}}}}
        form = None if asked else json.dumps(spec)
        job = read(f"--exec-start PyTorch {asked}", form)
        assert job.num_worker == 1
        assert job.remark == "PyTorch takes at most 1 worker, so 4 count as 1; --exec-start distPyTorch runs several"
        assert asked or job.worker_device_num == 3

    def test_as_many_workers_as_it_takes_are_no_matter(self) -> None:
        assert read("--exec-start PyTorch --workerDeviceNum 4", None).remark is None
        assert read("--exec-start distPyTorch --numWorker 64", None).num_worker == 64


class TestEntriesOfAdmins:
    def test_a_gang_gets_its_image_and_its_command_unless_the_user_names_another_image(self) -> None:
        job = parse("--exec-start ray --model-main main.py", find)
        assert job.gang is not None and job.gang.command == ("ray", "start") and job.gang.processes is Processes.JOB
        assert (job.image, job.own_python) == ("team/ray:2", True)
        assert parse("--exec-start ray --msd-image-name mine:2", find).image == "mine:2"

    def test_an_elastic_one_gives_its_jobs_an_image_and_variables(self) -> None:
        job = parse("--exec-start ours --numWorker 3 --msd-env B=job", find)
        assert (job.gang, job.image, job.backend) == (None, "team/own:1", "pytorch")
        assert job.environ == {"A": "entry", "B": "job"}

    def test_one_without_a_command_runs_only_what_its_jobs_bring(self) -> None:
        bare = catalogue.read({"name": "mpi", "command": [], "processes": "job", "rendezvous": ["mpi"]})
        job = parse("--exec-start mpi --user-cmd -- mpirun hostname", {"mpi": bare}.get)
        assert job.gang is not None and job.gang.rendezvous == (Rendezvous.MPI,)
        with pytest.raises(ArgumentsInvalid, match=r"--user-cmd: got nothing; .*since mpi has none of its own"):
            parse("--exec-start mpi --model-main main.py", {"mpi": bare}.get)

    @pytest.mark.parametrize(("name", "line", "runs"), [
        ("ray", "", True), ("ray", "--model-main main.py", False), ("devices", "", False), ("ours", "", False),
        ("PyTorch", "--pbmodel-name AlexNet", False),
    ])  # fmt: skip
    def test_one_whose_command_has_no_place_for_a_script_needs_none(self, name: str, line: str, runs: bool) -> None:
        assert parse(f"--exec-start {name} {line}", find).has_command is runs

    def test_an_upload_for_such_a_command_may_have_no_script(self, tmp_path: Path) -> None:
        job = parse("--exec-start ray --model-dir code", find)
        assert prepare(tar({"code/run.sh": b"ray status\n"}), tmp_path / "a", code(job, "code.tar")) == ("code", "")

    def test_a_main_for_another_python_is_not_compiled(self, tmp_path: Path) -> None:
        job = parse("--exec-start ray --model-main main.py", find)
        assert prepare(b"print 'hi'\n", tmp_path / "a", code(job, None)) == ("", "main.py")
        with pytest.raises(ArgumentsInvalid, match="does not compile"):
            prepare(b"print 'hi'\n", tmp_path / "b", code(parse("--exec-start PyTorch --model-main main.py"), None))


def command(line: str, name: str = "distPyTorch") -> Submission:
    return parse(f"--exec-start {name} --numWorker 2 {line}", find)


class TestCommands:
    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("--user-cmd -- bash run.sh train.py", ("bash", "run.sh", "train.py")),
            ("--user-cmd bash run.sh", ("bash", "run.sh")),
            ("--user-cmd 'bash run.sh'", ("bash", "run.sh")),
            ("--user-cmd='bash run.sh \"a b\"'", ("bash", "run.sh", "a b")),
            ("--user-cmd=bash run.sh", ("bash", "run.sh")),
            ("--user-cmd -- 'torchrun  --nproc_per_node 2 x.py'", ("torchrun", "--nproc_per_node", "2", "x.py")),
            ("--user-cmd -- bash -c 'echo  \"$RANK\" && ls'", ("bash", "-c", 'echo  "$RANK" && ls')),
            ("--user-cmd -- bash -c echo\\ a", ("bash", "-c", "echo a")),
            ("--user-cmd -- x --numWorker 5 -- --exec-start y", ("x", "--numWorker", "5", "--", "--exec-start", "y")),
            ("--user-cmd nvidia-smi", ("nvidia-smi",)),
            ("--user-cmd -- x {main} {python}", ("x", "{main}", "{python}")),
            ("\u2013user-cmd -- x", ("x",)),
        ],
    )
    def test_its_words_are_all_behind_the_option(self, line: str, words: tuple[str, ...]) -> None:
        job = command(line)
        assert job.gang is not None
        assert (*job.gang.command, *job.arguments) == words
        assert len(job.gang.command) == 1  # the words that follow are the job's: nothing in them is replaced
        assert job.num_worker == 2 and line.strip() in job.args_verbatim

    @pytest.mark.parametrize(
        "line", ["--user-cmd", "--user-cmd --", "--user-cmd=", "--user-cmd ''", "--user-cmd -- ' '"]
    )
    def test_without_words_it_is_refused(self, line: str) -> None:
        with pytest.raises(ArgumentsInvalid, match="--user-cmd: got nothing; it takes a command"):
            command(line)

    def test_a_main_script_is_none(self) -> None:
        with pytest.raises(ArgumentsInvalid, match=r"--user-cmd: got '{main}'; it takes a program; .* no main script"):
            command("--user-cmd -- {main} --epochs 5")

    @pytest.mark.parametrize(
        ("name", "processes"),
        [("PyTorch", Processes.WORKER), ("distPyTorch", Processes.WORKER), ("disttensorflow", Processes.WORKER),
         ("devices", Processes.WORKER), ("ray", Processes.JOB)],
    )  # fmt: skip
    def test_it_runs_once_for_each_worker_unless_the_entry_runs_one_process(
        self, name: str, processes: Processes
    ) -> None:
        gang = command("--user-cmd -- x", name).gang
        assert gang is not None and gang.processes is processes

    def test_the_variables_by_which_processes_meet_stay_the_frameworks(self) -> None:
        gang = command("--user-cmd -- torchrun x.py").gang
        assert gang is not None and gang.rendezvous == (Rendezvous.TORCH,)

    def test_secrets_before_it_are_masked_and_its_words_are_kept(self) -> None:
        job = command("--msd-env TOKEN=hush --user-cmd -- bash  run.sh")
        assert job.args_verbatim.endswith(f"--msd-env TOKEN={MASK} --user-cmd -- bash  run.sh")
        assert job.environ == {"TOKEN": "hush"}

    def test_words_of_a_script_before_it_follow_the_command(self) -> None:
        assert command("--epochs 3 --user-cmd -- bash run.sh").arguments == ("run.sh", "--epochs", "3")

    def test_an_elastic_framework_of_an_admin_takes_none_and_a_prebuilt_model_neither(self) -> None:
        with pytest.raises(ArgumentsInvalid, match="no command with ours"):
            command("--user-cmd -- x", "ours")
        with pytest.raises(ArgumentsInvalid, match="beside --pbmodel-name"):
            command("--pbmodel-name VGG16 --user-cmd -- x")

    @pytest.mark.parametrize(
        ("files", "options", "folder"),
        [
            ({"code/run.sh": "x"}, "--model-dir code", "code"),
            ({"run.sh": "x"}, "--model-dir code", ""),
            ({"code/run.sh": "x"}, "", "code"),
            ({"run.sh": "x", "lib/a": "x"}, "", ""),
            ({"run.sh": "x", "code/a": "x"}, "--model-dir /home/me/code/", "code"),
            ({"code/run.sh": "x"}, "--model-dir .", "code"),
        ],
    )
    def test_it_starts_in_the_folder_that_was_sent(
        self, tmp_path: Path, files: dict[str, str], options: str, folder: str
    ) -> None:
        job = command(f"{options} --user-cmd -- bash run.sh")
        assert prepare(tar(files), tmp_path / "code", code(job, None)) == (folder, "")
        assert job_spec(job, folder, "").model_dir == (folder or None)

    def test_it_can_start_in_no_folder_that_is_not_there(self, tmp_path: Path) -> None:
        job = command("--model-dir other --user-cmd -- x")
        with pytest.raises(ArgumentsInvalid, match=r"--model-dir: got 'other'; .* which holds code"):
            prepare(tar({"code/run.sh": "x"}), tmp_path / "staged", code(job, None))
        assert not (tmp_path / "staged").exists()

    def test_a_single_file_keeps_its_name_whatever_it_is(self, tmp_path: Path) -> None:
        staged = tmp_path / "staged"
        assert prepare(b"echo $RANK\n", staged, code(command("--user-cmd -- sh run.sh"), "run.sh")) == ("", "")
        assert [path.name for path in staged.iterdir()] == ["run.sh"]

    def test_without_an_upload_its_folder_is_empty(self, tmp_path: Path) -> None:
        assert prepare(None, tmp_path / "staged", code(command("--user-cmd -- x"), None)) == ("", "")
        assert list((tmp_path / "staged").iterdir()) == []


class TestPrebuiltModels:
    @pytest.mark.parametrize("framework", ["PyTorch", "distPyTorch"])
    @pytest.mark.parametrize("model", ["AlexNet", "VGG16", "ResNet18"])
    def test_those_of_pictures_are_one_script_with_the_models_name(self, framework: str, model: str) -> None:
        job = parse(f"--exec-start {framework} --pbmodel-name {model} --pbmodel-cmd train --epochs 2")
        assert (job.prebuilt, job.model_main) == ("pictures.py", "pictures.py")
        assert job.arguments == ("--model", model, "--epochs", "2")

    @pytest.mark.parametrize("name", ["tensorflow", "disttensorflow", "ray"])
    def test_other_frameworks_have_none(self, name: str) -> None:
        assert name not in PREBUILT
        with pytest.raises(ArgumentsInvalid, match=f"no name with {name}, which has no prebuilt models"):
            parse(f"--exec-start {name} --pbmodel-name AlexNet", find)


@pytest.mark.parametrize(
    ("framework", "app_name", "script", "folder", "line", "shown"),
    [
        ("PyTorch", "SingleNodePytorchTrain", "resnet.py", "", "", "resnet"),
        ("distPyTorch", "DistributePyTorchTrain", "main.py", "mnist", "", "mnist"),
        ("distPyTorch", "DistributePyTorchTrain", "", "code", "bash run.sh", "bash run.sh"),
        ("distPyTorch", "DistributePyTorchTrain", "", "", "x " * 50, "x " * 31 + "x…"),
        ("distPyTorch", "mine", "", "", "bash run.sh", "mine"),
        ("ray", "ray", "tune.py", "", "", "tune"),
        ("ray", "Ray jobs", "tune.py", "", "", "Ray jobs"),
    ],
)
def test_people_see_a_gang_under_its_scripts_or_its_commands_name(
    framework: str, app_name: str, script: str, folder: str, line: str, shown: str
) -> None:
    assert shown_name(framework, app_name, script, folder, line) == shown
