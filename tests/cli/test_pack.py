"""What is handed in: a script alone, a folder with what belongs to it and nothing else."""

from __future__ import annotations

import tarfile

import pytest

from edt_cli.errors import CannotStart
from edt_cli.pack import pack


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "model"
    (folder / "pkg" / "__pycache__").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".venv").mkdir()
    for name in ("main.py", "pkg/net.py", "pkg/__pycache__/net.cpython-311.pyc", ".git/HEAD", ".venv/x", ".settings"):
        (folder / name).write_text(name)
    return folder


def names(packed):
    with tarfile.open(fileobj=packed.file) as archive:
        return {member.name for member in archive if member.isfile()}


def test_a_script_goes_alone(folder):
    with (packed := pack(folder / "pkg" / "net.py", None)).file:
        assert names(packed) == {"net.py"}
        assert (packed.main, packed.model_dir) == ("net.py", None)


def test_a_folder_goes_whole_but_for_what_is_never_code(folder):
    with (packed := pack(folder, None)).file:
        assert names(packed) == {"model/main.py", "model/pkg/net.py", "model/.settings"}
        assert (packed.main, packed.model_dir) == ("main.py", "model")


def test_the_only_script_at_the_top_of_a_folder_without_a_main_is_the_one_that_runs(folder):
    (folder / "main.py").rename(folder / "train.py")
    (folder / "run.sh").touch()
    with (packed := pack(folder, None, checked=False)).file:
        assert (packed.main, packed.model_dir) == ("train.py", "model")


def test_a_folder_without_any_script_goes_unchecked_and_names_none(folder):
    (folder / "main.py").rename(folder / "run.sh")
    with (packed := pack(folder, None, checked=False)).file:
        assert (packed.main, packed.model_dir) == ("", "model")


@pytest.mark.parametrize(
    ("scripts", "words"),
    [
        ((), r"has no main\.py: the job has no script to run\. --unchecked leaves that to the server"),
        (("net.py", "train.py"), r"has no main\.py but net\.py, train\.py: name the script to run with --main"),
        ([f"{n}.py" for n in range(9)], r"but 0\.py, 1\.py, 2\.py, 3\.py, 4\.py …: "),
    ],
)
def test_a_folder_that_does_not_say_which_script_to_run_is_refused_with_those_it_has(folder, scripts, words):
    (folder / "main.py").unlink()
    for name in scripts:
        (folder / name).touch()
    with pytest.raises(CannotStart, match=words):
        pack(folder, None)


def test_what_a_link_points_to_goes_in_its_place(folder, tmp_path):
    (tmp_path / "shared.py").write_text("shared")
    (folder / "shared.py").symlink_to(tmp_path / "shared.py")
    with (packed := pack(folder, None)).file, tarfile.open(fileobj=packed.file) as archive:
        member = archive.getmember("model/shared.py")
        assert member.isfile()
        assert archive.extractfile(member).read() == b"shared"


def test_a_link_that_leads_back_up_is_refused(folder):
    (folder / "pkg" / "up").symlink_to(folder)
    with pytest.raises(CannotStart, match="a folder that it lies in"):
        pack(folder, None)


@pytest.mark.parametrize(
    ("path", "main", "words"),
    [("nothing.py", None, "does not exist"), ("model", "train.py", "--main"), ("model/main.py", "x.py", "for folders")],
)
def test_what_cannot_be_handed_in_is_said_with_the_way_out(folder, path, main, words):
    with pytest.raises(CannotStart, match=words):
        pack(folder.parent / path, main)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("notes.txt", "pass", "does not end in .py"),
        ("main.py", "import torch\ndef train(:\n", r"main.py, line 2: .* cannot read it"),
        ("main.py", "\0\0", "cannot read it"),
    ],
)
def test_what_python_cannot_read_is_refused_before_it_waits_for_slots(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    with pytest.raises(CannotStart, match=words) as refused:
        pack(tmp_path / name, None)
    assert "--unchecked" in str(refused.value)
    pack(tmp_path / name, None, checked=False).file.close()
