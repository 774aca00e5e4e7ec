"""What is asked of Slurm and how its answers are read, without a Slurm."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from edt_contract.pools import NodeRequest, PoolState
from edt_provisioner.errors import BadSetting
from edt_provisioner.settings import read_settings
from edt_provisioner.slurm import SlurmSettings
from edt_provisioner.slurm.script import (
    Submission,
    batch_script,
    job_description,
    kind_of,
    leave_seconds,
    sbatch_options,
)
from edt_provisioner.slurm.states import Task, read_jobs, read_squeue


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("EDT_")]:
        monkeypatch.delenv(name)


def settings(monkeypatch: pytest.MonkeyPatch, **environ: str) -> SlurmSettings:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return read_settings(SlurmSettings, {})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("PARTITIONS", "low high", "names with commas between, as low,spare"),
        ("TIME_LIMIT", "tomorrow", "a time of at least a minute, as 90, 12:00:00 or 2-0"),
        ("TIME_LIMIT", "0:30", "a time of at least a minute, as 90, 12:00:00 or 2-0"),
        ("MEMORY", "lots", "a size such as 16G"),
        ("CPUS", "0", "a whole number from 1 to 4096"),
        ("ACCOUNTS", "research", "pairs with commas between, as a=b,c=d"),
        ("OPTIONS", "--nodes=4", "options of sbatch written --name=value, without those that have a setting"),
        ("OPTIONS", "-N4", "options of sbatch written --name=value"),
        ("OPTIONS", "--nice 7", "options of sbatch written --name=value"),
        ("PYTHON", "python", "the path of a Python, from / on"),
        ("AS_USER", "su", "no, sudo or jwt"),
        ("AS_USER", "jwt", "jwt only where EDT_SLURM_REST says where slurmrestd listens"),
        ("REST", "slurm:6820", "unix:/path, http://… or https://…"),
        ("GRACE_SECONDS", "-1", "a number of seconds from 0"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_with_what_it_takes(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    with pytest.raises(BadSetting) as caught:
        settings(monkeypatch, **{f"EDT_SLURM_{name}": value})
    assert str(caught.value).startswith(f"EDT_SLURM_{name}: ")
    assert words in str(caught.value)


def test_settings_that_do_not_go_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadSetting, match="EDT_POOL_MIN_NODES is not 0"):
        settings(monkeypatch, EDT_SLURM_AS_USER="sudo", EDT_POOL_MIN_NODES="1")
    monkeypatch.delenv("EDT_POOL_MIN_NODES")
    with pytest.raises(BadSetting, match="sudo or jwt where there are EDT_SLURM_ACCOUNTS"):
        settings(monkeypatch, EDT_SLURM_AS_USER="no", EDT_SLURM_ACCOUNTS="research=a")


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("90", 5400), ("90:30", 5430), ("12:00:00", 43200), ("2-0", 172_800), ("1-2:30", 95_400), ("1-0:0:5", 86_405)],
)
def test_a_time_limit_is_read_as_sbatch_reads_it(monkeypatch: pytest.MonkeyPatch, given: str, seconds: int) -> None:
    assert settings(monkeypatch, EDT_SLURM_TIME_LIMIT=given).slurm_time_limit == seconds


def test_a_jobs_account_goes_by_its_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    given = settings(
        monkeypatch,
        EDT_SLURM_AS_USER="sudo",
        EDT_SLURM_ACCOUNT="rest",
        EDT_SLURM_ACCOUNTS="research=a1,research/vision=a2",
    )
    found = [given.account(queue) for queue in ("research", "research/vision/x", "research/text", "", "sales")]
    assert found == ["a1", "a2", "a1", "rest", "rest"]


def test_first_nodes_and_growth_may_go_to_different_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    given = settings(
        monkeypatch,
        EDT_SLURM_PARTITIONS="normal",
        EDT_SLURM_GROWTH_PARTITIONS="scavenge,low",
        EDT_SLURM_GROWTH_QOS="idle",
    )
    first = kind_of(NodeRequest("s-1", 1), given, None, 8)
    growth = kind_of(NodeRequest("s-2", 1, first=False), given, None, 8)
    assert (first.partitions, first.qos) == ("normal", None)
    assert (growth.partitions, growth.qos) == ("scavenge,low", "idle")
    assert kind_of(NodeRequest("s-3", 1), given, None, 8) == first, "one array"


@pytest.mark.parametrize(("grace", "left"), [(0, 0), (2, 0), (3, 1), (10, 8), (30, 27), (120, 108)])
def test_a_node_leaves_a_little_before_the_grace_is_over(grace: float, left: float) -> None:
    assert leave_seconds(grace) == left


def asked(given: SlurmSettings) -> Submission:
    return Submission("edt-slurm-01", 3, kind_of(NodeRequest("s-1", 1), given, None, 8), "#!/bin/bash\n", "/o/%a.log")


def test_each_job_of_an_array_has_one_machine_and_nothing_of_the_services_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = settings(monkeypatch, EDT_SLURM_TIME_LIMIT="1:30", EDT_SLURM_OPTIONS="--nice=7 --mail-user='a b'")
    options = sbatch_options(asked(given), given)
    for option in ("--array=0-2", "--nodes=1", "--requeue", "--export=NIL", "--time=2", "--open-mode=append"):
        assert option in options
    assert options[-2:] == ["--nice=7", "--mail-user=a b"]


def test_slurmrestd_is_asked_in_the_shapes_of_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    given = settings(monkeypatch, EDT_SLURM_GRES="gpu:2", EDT_SLURM_MEMORY="2G", EDT_SLURM_TIME_LIMIT="10")
    old, new = (job_description(asked(given), given, new=new) for new in (False, True))
    assert isinstance(old["job"], dict) and isinstance(new["job"], dict)
    assert (old["job"]["gres"], old["job"]["memory_per_node"], old["job"]["time_limit"]) == ("gpu:2", 2048, 10)
    assert old["script"] == new["job"]["script"]
    assert new["job"]["tres_per_node"] == "gres/gpu:2"
    assert new["job"]["time_limit"] == {"set": True, "infinite": False, "number": 10}


NAME = "o'Brien; $(touch pwned)"


def test_whatever_a_batch_script_is_given_stays_a_word(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run with a srun that writes down what it sees."""
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/bash\nenv > seen\necho "$@" > words\n')
    srun.chmod(0o755)
    given = settings(monkeypatch, EDT_SLURM_PYTHON="/a b/python", EDT_SLURM_CPUS="4")
    environ = {"EDT_DATA_FS": NAME, "EDT_LEAVE_SECONDS": "8"}
    script = batch_script(["s-1", "s-2"], environ, f"/{NAME}/%a.token", given, "export OF_PROLOGUE=1\n")
    path = f"{tmp_path}:/usr/bin:/bin"
    numbers = {"SLURM_ARRAY_TASK_ID": "1", "SLURM_JOB_ID": "9", "SLURM_JOB_END_TIME": "1900000000", "PATH": path}
    done = subprocess.run(["bash"], input=script, text=True, env=numbers, cwd=tmp_path, check=False)
    assert done.returncode == 0
    seen = dict(line.partition("=")[::2] for line in (tmp_path / "seen").read_text().splitlines())
    assert (seen["EDT_NAME"], seen["EDT_DATA_FS"]) == ("s-2", NAME)
    assert (seen["EDT_TOKEN_FILE"], seen["OF_PROLOGUE"]) == (f"/{NAME}/1.token", "1")
    assert not (tmp_path / "pwned").exists()
    words = (tmp_path / "words").read_text()
    assert "--nodes=1 --ntasks=1 --cpus-per-task=4" in words and "/a b/python -P -m edt_agent.temporary" in words


@pytest.mark.parametrize("status", [0, 7])
def test_a_batch_script_ends_as_its_step_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int) -> None:
    srun = tmp_path / "srun"
    srun.write_text(f"#!/bin/bash\nenv > seen\nexit {status}\n")
    srun.chmod(0o755)
    script = batch_script(["s-1"], {}, "/t/%a.token", settings(monkeypatch))
    numbers = {"SLURM_ARRAY_TASK_ID": "0", "SLURM_JOB_ID": "9", "PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert (
        subprocess.run(["bash"], input=script, text=True, env=numbers, cwd=tmp_path, check=False).returncode == status
    )
    assert "EDT_ENDS_AT" not in (tmp_path / "seen").read_text(), "there is no limit"


def test_squeues_lines_are_read_whatever_a_reason_contains() -> None:
    text = (
        "15|3|PENDING|ann|edt-slurm-0a|Resources\n"
        "15|4|PENDING|ann|edt-slurm-0a|(ReqNodeNotAvail, UnavailableNodes:n1,n2)\n"
        "15|0|RUNNING|ann|edt-slurm-0a|None\n"
        "15|[5-7]|PENDING|ann|edt-slurm-0a|a|b\n"
        "19|N/A|RUNNING|bob|other|None\n"
        "slurm_load_jobs warning\n"
    )
    tasks = read_squeue(text)
    assert [(task.array, task.index, task.reason) for task in tasks] == [
        ("15", 3, "Resources"),
        ("15", 4, "ReqNodeNotAvail"),
        ("15", 0, "None"),
        ("15", 5, "a|b"),
        ("15", 6, "a|b"),
        ("15", 7, "a|b"),
    ]


@pytest.mark.parametrize(
    ("state", "reason", "pool_state", "words"),
    [
        ("PENDING", "Priority", PoolState.PENDING, "Priority: other jobs come first"),
        ("PENDING", "QOSMaxCpuPerUserLimit", PoolState.PENDING, "QOSMaxCpuPerUserLimit: a limit of the QOS is reached"),
        ("PENDING", "AssocGrpGRES", PoolState.PENDING, "AssocGrpGRES: a limit of the account or user is reached"),
        ("PENDING", "SomethingNew", PoolState.PENDING, "SomethingNew"),
        ("CONFIGURING", "None", PoolState.PENDING, "CONFIGURING: its machine is started"),
        ("RUNNING", "None", PoolState.RUNNING, ""),
        ("COMPLETING", "None", PoolState.RUNNING, ""),
        ("SUSPENDED", "None", PoolState.RUNNING, ""),
        ("SOMETHING_NEW", "None", PoolState.RUNNING, ""),
        ("COMPLETED", "None", PoolState.ENDED, ""),
        ("CANCELLED", "None", PoolState.ENDED, "CANCELLED: it was cancelled"),
        ("PREEMPTED", "None", PoolState.ENDED, "PREEMPTED: a job that goes first took its place"),
        ("TIMEOUT", "TimeLimit", PoolState.ENDED, "TIMEOUT: its time limit was over"),
        ("NODE_FAIL", "None", PoolState.ENDED, "NODE_FAIL: its machine failed"),
        ("OUT_OF_MEMORY", "OutOfMemory", PoolState.ENDED, "OUT_OF_MEMORY: it used more memory than its job may"),
        ("FAILED", "NonZeroExitCode", PoolState.ENDED, "FAILED: its script failed"),
    ],
)
def test_slurms_states_are_told_in_its_own_words_and_in_plain_ones(
    state: str, reason: str, pool_state: PoolState, words: str
) -> None:
    task = Task("edt-slurm-0a", "15", 0, state, reason)
    assert (task.pool_state, task.words, task.oom) == (pool_state, words, state == "OUT_OF_MEMORY")


def test_slurmrestds_jobs_are_read_in_old_and_new_shapes() -> None:
    old = [
        {"name": "a", "array_job_id": 15, "array_task_id": 0, "job_state": "RUNNING", "user_name": "ann"},
        {
            "name": "a",
            "array_job_id": 15,
            "array_task_id": None,
            "array_task_string": "3-4,7%2",
            "job_state": "PENDING",
        },
        {"name": "b", "array_job_id": 0, "array_task_id": None, "array_task_string": "", "job_state": "RUNNING"},
    ]
    number = {"set": True, "infinite": False}
    none = {"set": False, "infinite": False, "number": 0}
    new = [
        {"name": "a", "array_job_id": {**number, "number": 15}, "array_task_id": {**number, "number": 0}}
        | {"job_state": ["RUNNING"], "user_name": "ann"},
        {"name": "a", "array_job_id": {**number, "number": 15}, "array_task_id": none}
        | {"array_task_string": "3-4,7%2", "job_state": ["PENDING"]},
        {"name": "b", "array_job_id": none, "array_task_id": none, "job_state": ["RUNNING"]},
    ]
    assert read_jobs(old) == read_jobs(new)
    assert [(task.index, task.state) for task in read_jobs(old)] == [
        (0, "RUNNING"),
        (3, "PENDING"),
        (4, "PENDING"),
        (7, "PENDING"),
    ]
    (ending,) = read_jobs([{**new[0], "job_state": ["CANCELLED", "COMPLETING"]}])
    (again,) = read_jobs([{**new[0], "job_state": ["PENDING", "REQUEUED"]}])
    assert (ending.pool_state, again.pool_state) == (PoolState.RUNNING, PoolState.PENDING)
