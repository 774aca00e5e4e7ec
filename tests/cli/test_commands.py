"""`edt …` against a house that stands: what a user types, reads and gets as exit status."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.credentials import PASSWORD
from support.house import House
from support.waiting import until

GOOD = """
import json, os, sys
print("arguments", sys.argv[1:])
print("environ", json.dumps(dict(os.environ)))
open(os.environ["RESULT_DIR"] + "/model/x.txt", "w").write("x")
"""
BAD = "raise ValueError('no such luck')\n"
BOTH = """
import sys, time
for number in range(3):
    print("err", number, file=sys.stderr, flush=True)
    time.sleep(0.3)
    print("out", number, flush=True)
    time.sleep(0.3)
"""
ELASTIC = """
import torch
from torch.utils.data import TensorDataset
from fabric_model import FabricModel

numbers = torch.arange(64.0).reshape(-1, 1)
model = torch.nn.Linear(1, 1)
print("the script's own line")
FabricModel(
    model, lambda: (TensorDataset(numbers, numbers), TensorDataset(numbers, numbers)), torch.nn.functional.mse_loss,
    torch.optim.SGD(model.parameters(), lr=1e-6),
).train(2, 4, 2)
"""
LONG = "import time\nprint('awake', flush=True)\ntime.sleep(600)\n"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with House(tmp_path_factory.mktemp("house"), slots=2) as house:
        assert house.cli("login", stdin=f"{PASSWORD}\n").stdout.startswith("Logged in")
        for name, text in {"good.py": GOOD, "bad.py": BAD, "long.py": LONG, "elastic.py": ELASTIC}.items():
            (house.folder / name).write_text(text)
        yield house


def good(house: House, *words: str, **given: str):
    done = house.cli(*words, **given)
    assert done.returncode == 0, done.stderr
    return done


class TestFollowing:
    def test_a_job_that_finishes_ends_with_0_and_shows_what_it_printed(self, house):
        done = house.cli("submit", "good.py", "-f", "--", "--epochs", "3", "two words")
        assert done.returncode == 0, done.stderr
        assert "arguments ['--epochs', '3', 'two words']" in done.stdout
        assert "FINISHED" in done.stderr
        line = next(line for line in done.stdout.splitlines() if line.startswith("environ "))
        ours = {name for name in json.loads(line.removeprefix("environ ")) if name.startswith("EDT_")}
        assert ours <= {"EDT_TAG", "EDT_NODE", "EDT_LIFE"}, "settings of the platform are no job's business"
        assert PASSWORD not in line

    def test_a_script_that_raises_ends_with_1_and_its_traceback(self, house):
        done = house.cli("submit", "bad.py", "-f")
        assert done.returncode == 1
        assert "ValueError: no such luck" in done.stderr
        assert "Traceback" in done.stderr

    def test_a_job_that_is_stopped_ends_with_130(self, house):
        job = good(house, "submit", "long.py", "--name", "sleeper").stdout.strip()
        house.wait(job, "RUNNING")
        listed = good(house, "ls").stdout
        assert job in listed and "sleeper" in listed and "RUNNING" in listed
        good(house, "stop", job)
        assert house.cli("logs", "-f", job).returncode == 130
        assert job not in good(house, "ls").stdout
        assert "KILLED" in good(house, "ls", "--all").stdout

    def test_a_training_is_followed_by_its_progress_and_resizes_and_not_by_a_line_a_step(self, house):
        done = house.cli("submit", "elastic.py", "-n", "2", "-f")
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert "the script's own line" in lines
        assert "Train," not in done.stdout and "Test," in done.stdout
        progress = next(line for line in lines if line.startswith("epoch 2/2  step 16/16"))
        assert "worker" in progress and "loss" in progress
        assert "0 → 1 slots: first attempt" in done.stderr
        job = done.stderr.split()[0]
        assert good(house, "logs", job, "--stream", "elog").stdout.count("Train,") == 16
        listed = good(house, "logs", job, "--list").stdout.split()
        engines = next(name for name in listed if name.startswith("engine-") and name.endswith(".out"))
        assert "the script's own line" in good(house, "logs", job, "--stream", engines).stdout
        assert house.cli("logs", job, "--stream", "engine").returncode == 2

    def test_a_plain_loop_that_could_not_use_its_slots_says_so(self, house):
        done = house.cli("submit", "good.py", "-n", "2", "-f")
        assert "used one slot" in done.stderr and "FabricModel.train" in done.stderr

    def test_what_all_shows_of_a_growing_log_misses_nothing_of_any_stream(self, house):
        """Each of the three is followed from where it was: what comes late in one is not hidden by another."""
        (house.folder / "both.py").write_text(BOTH)
        done = house.cli("submit", "both.py", "-f")
        assert done.returncode == 0, done.stderr
        assert [line for line in done.stdout.splitlines() if line.startswith("out ")] == ["out 0", "out 1", "out 2"]
        assert [line for line in done.stderr.splitlines() if line.startswith("err ")] == ["err 0", "err 1", "err 2"]


class TestPapers:
    def test_a_folder_is_handed_in_its_result_fetched_and_the_job_removed(self, house):
        folder = house.folder / "model"
        folder.mkdir()
        (folder / "main.py").write_text("import net\n" + GOOD)
        (folder / "net.py").write_text("")
        size = ("-n", "1", "--gpus-per-worker", "2")
        job = good(house, "submit", "model", *size, "-e", "GREETING=hello & good+bye").stdout.strip()
        house.wait(job, "FINISHED")
        shown = json.loads(good(house, "get", job, "-o", "json").stdout)
        assert (shown["id"], shown["state"], shown["max_workers"]) == (job, "FINISHED", 2)
        assert "hello" not in shown["args"], "a variable may be a secret"
        assert "FINISHED" in good(house, "get", job).stdout
        saved = good(house, "result", job).stdout.strip()
        with zipfile.ZipFile(house.folder / saved) as archive:
            assert archive.read("x.txt") == b"x"
        good(house, "rm", job)
        gone = house.cli("get", job)
        assert gone.returncode == 1 and job in gone.stderr

    def test_each_job_that_is_named_gets_its_own_answer(self, house):
        running = good(house, "submit", "long.py").stdout.strip()
        over = good(house, "submit", "good.py").stdout.strip()
        house.wait(running, "RUNNING")
        house.wait(over, "FINISHED")
        done = house.cli("stop", over, "edt-4711", running)
        assert done.stdout.splitlines() == [f"{over} is over already: FINISHED", f"{running} is being stopped"]
        assert done.returncode == 1 and "no job 'edt-4711'" in done.stderr and "Error 400" not in done.stderr
        for command in ("rm", "result"):
            assert "no job 'edt-4711'" in house.cli(command, "edt-4711").stderr

    def test_all_jobs_are_removed_only_by_who_says_yes(self, house):
        job = good(house, "submit", "long.py").stdout.strip()
        refused = house.cli("rm", "--all")
        assert refused.returncode == 2 and "1 of which run or wait" in refused.stderr and "--yes" in refused.stderr
        assert job in good(house, "ls").stdout
        good(house, "rm", "--all", "--yes")
        assert json.loads(good(house, "ls", "-a", "-o", "json").stdout) == []
        assert good(house, "rm", "--all", "--yes").stdout == "You have no jobs.\n"

    def test_an_image_is_asked_for_and_a_house_without_containers_says_why_it_waits(self, house):
        job = good(house, "submit", "good.py", "--image", "registry/own:1").stdout.strip()
        until(lambda: "starts containers" in good(house, "get", job).stdout, what="it says what it waits for")
        assert "registry/own:1" in good(house, "get", job).stdout
        good(house, "rm", job)

    def test_json_is_all_that_programs_get(self, house):
        assert isinstance(json.loads(good(house, "ls", "-a", "-o", "json").stdout), list)
        [node] = json.loads(good(house, "nodes", "-o", "json").stdout)
        assert len(node["slots"]) == 2


class TestNodes:
    def test_a_node_is_cordoned_and_used_again(self, house):
        [node] = house.nodes()
        listed = good(house, "nodes").stdout
        assert node["name"] in listed and "process" in listed
        assert good(house, "nodes", "cordon", node["name"]).stdout == f"{node['name']} is cordoned\n"
        assert good(house, "nodes", "uncordon", node["name"]).stdout == f"{node['name']} is up\n"
        assert house.cli("nodes", "drain", "nowhere").returncode == 1


class TestUsers:
    def test_a_user_is_added_logs_in_sees_own_jobs_and_is_removed(self, house, tmp_path):
        good(house, "users", "add", "ada", "--password-stdin", stdin="countess1\n")
        assert "ada" in good(house, "users").stdout
        own = {"XDG_CONFIG_HOME": str(tmp_path)}
        good(house, "login", "-u", "ada", stdin="countess1\n", **own)
        assert (tmp_path / "edt" / "login.json").stat().st_mode & 0o777 == 0o600
        assert json.loads(good(house, "ls", "-a", "-o", "json", **own).stdout) == []
        refused = house.cli("users", "ls", **own)
        assert refused.returncode == 1 and len(refused.stderr.strip().splitlines()) == 1
        good(house, "users", "passwd", "ada", stdin="countess2\n")
        assert house.cli("ls", **own).returncode == 1, "a new password ends old logins"
        assert "run `edt login`" in house.cli("ls", **own).stderr
        good(house, "login", "-u", "ada", stdin="countess2\n", **own)
        guessed = house.cli("users", "passwd", "ada", stdin="countess1\ncountess3\n", **own)
        assert guessed.returncode == 1 and "not your current password" in guessed.stderr
        one_line = house.cli("users", "passwd", "ada", stdin="countess3\n", **own)
        assert one_line.returncode == 2 and "current password on the first line" in one_line.stderr
        changed = good(house, "users", "passwd", "ada", stdin="countess2\ncountess3\n", **own)
        assert "log in again" in changed.stdout
        good(house, "login", "-u", "ada", stdin="countess3\n", **own)
        good(house, "logout", **own)
        assert not (tmp_path / "edt" / "login.json").exists()
        good(house, "users", "rm", "ada")
        assert "ada" not in good(house, "users", "ls").stdout


class TestMistakes:
    def test_a_wrong_password_keeps_no_login(self, house, tmp_path):
        done = house.cli("login", stdin="not this one\n", XDG_CONFIG_HOME=str(tmp_path))
        assert done.returncode == 1
        assert "does not accept this password" in done.stderr
        assert not list(Path(tmp_path).rglob("login.json"))

    def test_who_is_not_logged_in_is_told_what_to_do(self, house, tmp_path):
        done = house.cli("ls", XDG_CONFIG_HOME=str(tmp_path))
        assert (done.returncode, done.stdout) == (1, "")
        assert "run `edt login`" in done.stderr

    def test_a_token_in_the_environment_wins_over_the_login(self, house):
        assert house.cli("ls", EDT_TOKEN="nonsense").returncode == 1

    def test_an_api_that_is_not_there_is_named(self, house):
        done = house.cli("ls", EDT_API="http://127.0.0.1:9")
        assert done.returncode == 1
        assert "no answer from http://127.0.0.1:9" in done.stderr

    def test_an_image_that_is_none_is_refused_in_a_sentence_however_long_it_is(self, house):
        for image in ("Not/An Image", "x" * 300):
            done = house.cli("images", "allow", image)
            assert (done.returncode, done.stdout) == (1, "")
            assert done.stderr.startswith("edt: ") and "name" in done.stderr and "Traceback" not in done.stderr

    def test_wrong_use_ends_with_2(self, house):
        assert house.cli("submit", "nothing.py").returncode == 2
        assert house.cli("submit", "good.py", "--max-workers", "0").returncode == 2
        assert house.cli("submit", "good.py", "-e", "NONSENSE").returncode == 2
        assert house.cli("rm").returncode == 2
        assert house.cli("frobnicate").returncode == 2


def test_a_job_that_has_never_trained_has_no_sizes_to_emulate_and_what_was_fetched_can_be_kept(house):
    done = house.cli("submit", "good.py", "-f")
    job = done.stderr.split()[0]
    done = house.cli("emulate", "--job", job, "--save-history", "history.json", "good.py")
    assert done.returncode == 2
    assert "history.json: history: got none in which a size is told" in done.stderr
    kept = json.loads((house.folder / "history.json").read_text())
    assert kept["job"]["id"] == job and kept["updates"] == [] and kept["resizes"]
    done = house.cli("emulate", "--job", "edt-4711", "good.py")
    assert done.returncode == 1 and "edt-4711" in done.stderr
