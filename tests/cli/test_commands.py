"""`edt …` against a platform that stands: what a user types, reads and gets as exit status."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.credentials import PASSWORD
from support.running_platform import Platform
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
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("platform"), slots=2) as platform:
        assert platform.cli("login", stdin=f"{PASSWORD}\n").stdout.startswith("Logged in")
        for name, text in {"good.py": GOOD, "bad.py": BAD, "long.py": LONG, "elastic.py": ELASTIC}.items():
            (platform.folder / name).write_text(text)
        yield platform


def good(platform: Platform, *words: str, **given: str):
    done = platform.cli(*words, **given)
    assert done.returncode == 0, done.stderr
    return done


class TestFollowing:
    def test_a_job_that_finishes_ends_with_0_and_shows_what_it_printed(self, platform):
        done = platform.cli("submit", "good.py", "-f", "--", "--epochs", "3", "two words")
        assert done.returncode == 0, done.stderr
        assert "arguments ['--epochs', '3', 'two words']" in done.stdout
        assert "FINISHED" in done.stderr
        line = next(line for line in done.stdout.splitlines() if line.startswith("environ "))
        ours = {name for name in json.loads(line.removeprefix("environ ")) if name.startswith("EDT_")}
        assert ours <= {"EDT_TAG", "EDT_NODE", "EDT_LIFE"}, "settings of the platform are no job's business"
        assert PASSWORD not in line

    def test_a_script_that_raises_ends_with_1_and_its_traceback(self, platform):
        done = platform.cli("submit", "bad.py", "-f")
        assert done.returncode == 1
        assert "ValueError: no such luck" in done.stderr
        assert "Traceback" in done.stderr

    def test_a_job_that_is_stopped_ends_with_130(self, platform):
        job = good(platform, "submit", "long.py", "--name", "sleeper").stdout.strip()
        platform.wait(job, "RUNNING")
        listed = good(platform, "ls").stdout
        assert job in listed and "sleeper" in listed and "RUNNING" in listed
        good(platform, "stop", job)
        assert platform.cli("logs", "-f", job).returncode == 130
        assert job not in good(platform, "ls").stdout
        assert "KILLED" in good(platform, "ls", "--all").stdout

    def test_a_training_is_followed_by_its_log_and_resizes_and_not_by_a_line_a_step(self, platform):
        done = platform.cli("submit", "elastic.py", "-n", "2", "-f")
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert "the script's own line" in lines
        assert "Train," not in done.stdout and "tag train_" not in done.stdout and "tag test_" not in done.stdout
        assert "END TRAINING: completed" in done.stdout
        told = [line[10:] for line in lines if line[2:3] == ":"]
        assert told[0] == "started: 2 epochs, 16 steps of 8 samples · attempt 1"
        assert any(line.startswith("epoch 2/2 · step 16/16 · loss") and "val_loss" in line for line in told)
        assert told[-1].startswith("done: 2 epochs, 16 steps in ")
        assert (done.stdout + done.stderr).count("eplicas were ") == 1, "a note is shown once"
        assert "0 → 1 slots: first attempt" in done.stderr
        job = done.stderr.split()[0]
        shown = good(platform, "logs", job).stdout.splitlines()
        assert shown.index("the script's own line") > shown.index(next(line for line in shown if "done: " in line))
        assert good(platform, "logs", job, "--stream", "elog").stdout.count("Train,") == 16
        assert "note: " in good(platform, "logs", job, "--stream", "training").stdout
        got = good(platform, "get", job).stdout
        assert re.search(r"Training +loss \S+", got) and re.search(r"Validation +val_loss \S+ \(epoch 2\)", got)
        assert re.search(r"Best +val_loss \S+ \(epoch [12]\)", got) and "samples/s in the mean" in got
        assert "ccuracy" not in got, "the script has none"
        assert re.search(rf"{job} .* val_loss \d", good(platform, "ls", "--all").stdout)

    def test_what_each_process_printed_is_shown_by_its_number(self, platform):
        job = good(platform, "submit", "elastic.py", "-n", "2").stdout.strip()
        platform.wait(job, "FINISHED")
        listed = good(platform, "logs", job, "--list").stdout.split()
        numbers = [name[7:-4] for name in listed if name.startswith("engine-") and name.endswith(".out")]
        for words in ((), ("-f",)):
            shown = good(platform, "logs", job, "--engine", numbers[0], *words).stdout
            assert "the script's own line" in shown and "allreduce" in shown
            driver = good(platform, "logs", job, "--driver", *words).stdout
            assert "the script's own line" in driver and driver.count("tag train_loss") == 16
        assert good(platform, "logs", job, "--stream", f"engine-{numbers[0]}.out").stdout == shown
        wrong = platform.cli("logs", job, "--engine", "4711")
        assert wrong.returncode == 2 and f"{job} has had engine" in wrong.stderr and numbers[-1] in wrong.stderr
        assert platform.cli("logs", job, "--engine", numbers[0], "--driver").returncode == 2
        assert platform.cli("logs", job, "--stream", "engine").returncode == 2

    def test_events_are_the_history_of_a_job_with_the_causes_of_its_sizes(self, platform):
        job = good(platform, "submit", "elastic.py", "-n", "2").stdout.strip()
        followed = platform.cli("events", job, "-f")
        assert followed.returncode == 0, followed.stderr
        shown = good(platform, "events", job).stdout.splitlines()
        assert shown[0].split() == ["TIME", "EVENT", "WHY"]
        told = [line[10:].split(maxsplit=1) for line in shown[1:]]
        assert told[0] == ["SUBMITTED"] and told[-1] == ["FINISHED"]
        assert any(line[10:].startswith("0 → 1 slots") and "first attempt" in line for line in shown)
        for line in followed.stdout.splitlines():
            assert line.split()[1] in " ".join(shown) or "worker" in line
        history = json.loads(good(platform, "events", job, "-o", "json").stdout)
        assert [each["seq"] for each in history] == list(range(1, len(history) + 1))
        [start] = [each for each in history if each["kind"] == "resize" and each["data"]["from"] == 0]
        assert start["resize"]["cause"] == "submit" and start["resize"]["to_slots"] == 1
        assert platform.cli("events", "edt-4711").returncode == 1

    def test_a_plain_loop_that_could_not_use_its_slots_says_so(self, platform):
        done = platform.cli("submit", "good.py", "-n", "2", "-f")
        assert "used one slot" in done.stderr and "FabricModel.train" in done.stderr

    def test_what_all_shows_of_a_growing_log_misses_nothing_of_any_stream(self, platform):
        """Each of the three is followed from where it was: what comes late in one is not hidden by another."""
        (platform.folder / "both.py").write_text(BOTH)
        done = platform.cli("submit", "both.py", "-f")
        assert done.returncode == 0, done.stderr
        assert [line for line in done.stdout.splitlines() if line.startswith("out ")] == ["out 0", "out 1", "out 2"]
        assert [line for line in done.stderr.splitlines() if line.startswith("err ")] == ["err 0", "err 1", "err 2"]


class TestPapers:
    def test_a_folder_is_handed_in_its_result_fetched_and_the_job_removed(self, platform):
        folder = platform.folder / "model"
        folder.mkdir()
        (folder / "main.py").write_text("import net\n" + GOOD)
        (folder / "net.py").write_text("")
        size = ("-n", "1", "--gpus-per-worker", "2")
        job = good(platform, "submit", "model", *size, "-e", "GREETING=hello & good+bye").stdout.strip()
        platform.wait(job, "FINISHED")
        shown = json.loads(good(platform, "get", job, "-o", "json").stdout)
        assert (shown["id"], shown["state"], shown["max_workers"]) == (job, "FINISHED", 2)
        assert "hello" not in shown["args"], "a variable may be a secret"
        assert "FINISHED" in good(platform, "get", job).stdout
        saved = good(platform, "result", job).stdout.strip()
        with zipfile.ZipFile(platform.folder / saved) as archive:
            assert archive.read("x.txt") == b"x"
        good(platform, "rm", job)
        gone = platform.cli("get", job)
        assert gone.returncode == 1 and job in gone.stderr

    def test_each_job_that_is_named_gets_its_own_answer(self, platform):
        running = good(platform, "submit", "long.py").stdout.strip()
        over = good(platform, "submit", "good.py").stdout.strip()
        platform.wait(running, "RUNNING")
        platform.wait(over, "FINISHED")
        done = platform.cli("stop", over, "edt-4711", running)
        answers = done.stdout.splitlines()
        assert answers[0] == f"{over} is over already: FINISHED" and len(answers) == 2
        assert answers[1].startswith(f"{running} is being stopped; nothing of its training is kept")
        assert done.returncode == 1 and "no job 'edt-4711'" in done.stderr and "Error 400" not in done.stderr
        for command in ("rm", "result"):
            assert "no job 'edt-4711'" in platform.cli(command, "edt-4711").stderr

    def test_all_jobs_are_removed_only_by_who_says_yes(self, platform):
        job = good(platform, "submit", "long.py").stdout.strip()
        refused = platform.cli("rm", "--all")
        assert refused.returncode == 2 and "1 of which run or wait" in refused.stderr and "--yes" in refused.stderr
        assert job in good(platform, "ls").stdout
        good(platform, "rm", "--all", "--yes")
        assert json.loads(good(platform, "ls", "-a", "-o", "json").stdout) == []
        assert good(platform, "rm", "--all", "--yes").stdout == "You have no jobs.\n"

    def test_an_image_is_asked_for_and_a_platform_without_containers_says_why_it_waits(self, platform):
        job = good(platform, "submit", "good.py", "--image", "registry/own:1").stdout.strip()
        until(lambda: "starts containers" in good(platform, "get", job).stdout, what="it says what it waits for")
        assert "registry/own:1" in good(platform, "get", job).stdout
        good(platform, "rm", job)

    def test_json_is_all_that_programs_get(self, platform):
        assert isinstance(json.loads(good(platform, "ls", "-a", "-o", "json").stdout), list)
        [node] = json.loads(good(platform, "nodes", "-o", "json").stdout)
        assert len(node["slots"]) == 2


class TestNodes:
    def test_a_node_is_cordoned_and_used_again(self, platform):
        [node] = platform.nodes()
        listed = good(platform, "nodes").stdout
        assert node["name"] in listed and "process" in listed
        assert good(platform, "nodes", "cordon", node["name"]).stdout == f"{node['name']} is cordoned\n"
        assert good(platform, "nodes", "uncordon", node["name"]).stdout == f"{node['name']} is up\n"
        assert platform.cli("nodes", "drain", "nowhere").returncode == 1


class TestUsers:
    def test_a_user_is_added_logs_in_sees_own_jobs_and_is_removed(self, platform, tmp_path):
        good(platform, "users", "add", "ada", "--password-stdin", stdin="countess1\n")
        assert "ada" in good(platform, "users").stdout
        own = {"XDG_CONFIG_HOME": str(tmp_path)}
        good(platform, "login", "-u", "ada", stdin="countess1\n", **own)
        assert (tmp_path / "edt" / "login.json").stat().st_mode & 0o777 == 0o600
        assert json.loads(good(platform, "ls", "-a", "-o", "json", **own).stdout) == []
        refused = platform.cli("users", "ls", **own)
        assert refused.returncode == 1 and len(refused.stderr.strip().splitlines()) == 1
        good(platform, "users", "passwd", "ada", stdin="countess2\n")
        assert platform.cli("ls", **own).returncode == 1, "a new password ends old logins"
        assert "run `edt login`" in platform.cli("ls", **own).stderr
        good(platform, "login", "-u", "ada", stdin="countess2\n", **own)
        guessed = platform.cli("users", "passwd", "ada", stdin="countess1\ncountess3\n", **own)
        assert guessed.returncode == 1 and "not your current password" in guessed.stderr
        one_line = platform.cli("users", "passwd", "ada", stdin="countess3\n", **own)
        assert one_line.returncode == 2 and "current password on the first line" in one_line.stderr
        changed = good(platform, "users", "passwd", "ada", stdin="countess2\ncountess3\n", **own)
        assert "log in again" in changed.stdout
        good(platform, "login", "-u", "ada", stdin="countess3\n", **own)
        good(platform, "logout", **own)
        assert not (tmp_path / "edt" / "login.json").exists()
        good(platform, "users", "rm", "ada")
        assert "ada" not in good(platform, "users", "ls").stdout


class TestALongerLife:
    def test_a_job_is_paused_resumed_and_stopped_with_a_sentence_each(self, platform):
        job = good(platform, "submit", "long.py").stdout.strip()
        platform.wait(job, "RUNNING")
        assert f"`edt resume {job}` starts it again from the beginning" in good(platform, "pause", job).stdout
        until(lambda: "PAUSED" in good(platform, "ls").stdout, 60, "it is paused")
        assert "paused by admin" in good(platform, "get", job).stdout
        twice = platform.cli("pause", job)
        assert (twice.returncode, twice.stderr.strip()) == (1, f"edt: {job} is paused already, by admin")
        assert "waits for slots" in good(platform, "resume", job).stdout
        platform.wait(job, "RUNNING")
        assert "it has no checkpoint yet" in good(platform, "stop", job).stdout
        platform.wait(job, "KILLED")
        over = platform.cli("resume", job)
        assert over.returncode == 1 and f"{job} is over (KILLED): submit it again" in over.stderr

    def test_a_training_that_is_over_goes_on_in_a_new_job(self, platform):
        job = good(platform, "submit", "elastic.py", "-n", "2").stdout.strip()
        platform.wait(job, "FINISHED")
        extended = good(platform, "extend", job, "--epochs", "3").stdout.strip()
        new = extended.split()[0]
        assert extended == f"{new} goes on where {job} ended, with 3 epochs in all"
        ended = platform.wait(new, "FINISHED")
        assert (ended["epochs"], ended["resumed_from"]) == (3, job)
        shown = good(platform, "get", new).stdout
        assert f"{job}, its checkpoint of step" in shown and "3 in all, as edt extend asked for" in shown
        fewer = platform.cli("extend", job, "--epochs", "2")
        assert fewer.returncode == 1 and f"takes more than the 2 that {job} has done" in fewer.stderr
        done = platform.cli("submit", "elastic.py", "-n", "2", "--resume-from", job, "-f")
        assert done.returncode == 1 and "nothing is left to train: it has done" in done.stderr


class TestMistakes:
    def test_a_wrong_password_keeps_no_login(self, platform, tmp_path):
        done = platform.cli("login", stdin="not this one\n", XDG_CONFIG_HOME=str(tmp_path))
        assert done.returncode == 1
        assert "does not accept this password" in done.stderr
        assert not list(Path(tmp_path).rglob("login.json"))

    def test_who_is_not_logged_in_is_told_what_to_do(self, platform, tmp_path):
        done = platform.cli("ls", XDG_CONFIG_HOME=str(tmp_path))
        assert (done.returncode, done.stdout) == (1, "")
        assert "run `edt login`" in done.stderr

    def test_a_token_in_the_environment_wins_over_the_login(self, platform):
        assert platform.cli("ls", EDT_TOKEN="nonsense").returncode == 1

    def test_an_api_that_is_not_there_is_named(self, platform):
        done = platform.cli("ls", EDT_API="http://127.0.0.1:9")
        assert done.returncode == 1
        assert "no answer from http://127.0.0.1:9" in done.stderr

    def test_an_image_that_is_none_is_refused_in_a_sentence_however_long_it_is(self, platform):
        for image in ("Not/An Image", "x" * 300):
            done = platform.cli("images", "allow", image)
            assert (done.returncode, done.stdout) == (1, "")
            assert done.stderr.startswith("edt: ") and "name" in done.stderr and "Traceback" not in done.stderr

    def test_wrong_use_ends_with_2(self, platform):
        assert platform.cli("submit", "nothing.py").returncode == 2
        assert platform.cli("submit", "good.py", "--max-workers", "0").returncode == 2
        assert platform.cli("submit", "good.py", "-e", "NONSENSE").returncode == 2
        assert platform.cli("rm").returncode == 2
        assert platform.cli("frobnicate").returncode == 2


def test_a_job_that_has_never_trained_has_no_sizes_to_emulate_and_what_was_fetched_can_be_kept(platform):
    done = platform.cli("submit", "good.py", "-f")
    job = done.stderr.split()[0]
    done = platform.cli("emulate", "--job", job, "--save-history", "history.json", "good.py")
    assert done.returncode == 2
    assert "history.json: history: got none in which a size is given" in done.stderr
    kept = json.loads((platform.folder / "history.json").read_text())
    assert kept["job"]["id"] == job and kept["updates"] == [] and kept["resizes"]
    done = platform.cli("emulate", "--job", "edt-4711", "good.py")
    assert done.returncode == 1 and "edt-4711" in done.stderr
