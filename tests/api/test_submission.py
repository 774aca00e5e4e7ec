"""From args, form and folder to a job: whose word wins, and where the main script is found."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edt_api.errors import ArgumentsInvalid, UploadRefused
from edt_api.submissions.main_script import COMPILED_BYTES, DEFAULT_MAIN, check, locate
from edt_api.submissions.submission import check_data_folder, job_spec, read, refuse_a_path, script_name

START = "--exec-start edtPyTorch"
KEYS = ["args", "hardwareSpec", "nodes", "num_nodes", "gpu", "num_gpu", "dataSource", "type"]
ANY_FORM = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(KEYS), inner),
)


def lay(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("print(1)\n")
    return root


def found(options: str, root: Path) -> tuple[str, str]:
    """The folder and the main script that these options find in this folder."""
    asked = read(f"{START} {options}", None)
    return locate(root, asked.model_dir, asked.model_main or DEFAULT_MAIN)


class TestTheForm:
    def test_args_come_by_the_query_or_by_the_form(self) -> None:
        assert read(f"{START} --numWorker 3", None).num_worker == 3
        assert read(None, json.dumps({"args": f"{START} --numWorker 3"})).num_worker == 3

    def test_a_hardware_spec_wins_over_the_options_and_may_write_numbers_as_strings(self) -> None:
        nodes = {"num_nodes": "4", "num_drivers": "0", "mem": {"size": "16g"}, "gpu": {"num_gpu": 2, "mig_profile": ""}}
        got = read(f"{START} --numWorker 1", json.dumps({"hardwareSpec": {"nodes": nodes}}))
        assert (got.num_worker, got.worker_device_num) == (4, 2)

    def test_a_hardware_spec_that_is_only_named_says_nothing(self) -> None:
        got = read(f"{START} --numWorker 3", json.dumps({"hardwareSpec": {"name": "large"}}))
        assert (got.num_worker, got.worker_device_num) == (3, 1)

    @pytest.mark.parametrize("number", [True, 1.5, "many", -1, [], 10**9])
    def test_a_wrong_number_in_it_is_refused_by_name(self, number: object) -> None:
        with pytest.raises(ArgumentsInvalid, match="hardwareSpec num_nodes"):
            read(START, json.dumps({"hardwareSpec": {"nodes": {"num_nodes": number}}}))

    def test_what_is_recorded_of_the_form_is_short_and_can_be_written(self) -> None:
        for form in ({"hardwareSpec": {"a": "x" * 20_000}}, {"dataSource": ["x" * 20_000]}):
            with pytest.raises(ArgumentsInvalid, match=r"200\d\d characters"):
                read(START, json.dumps(form))
        deep = {"\ud800": {"b": {"c": {"d": {"e": {"f": 1}}}}}}
        with pytest.raises(ArgumentsInvalid, match="objects in objects") as refused:
            read(START, json.dumps({"hardwareSpec": deep}))
        assert str(refused.value).encode()

    def test_a_data_source_wins_over_the_datastore_option(self) -> None:
        source = [{"type": "fs", "location": {"paths": "mnist"}}]
        line = f"{START} --cs-datastore-meta type=fs,data_path=other"
        assert read(line, json.dumps({"dataSource": source})).data_path == "mnist"
        assert read(f"{line} --data-source '{json.dumps(source)}'", None).data_path == "mnist"
        assert read(line, json.dumps({"dataSource": []})).data_path == "other"

    @pytest.mark.parametrize(
        "source", [[{"type": "s3"}], {}, "x", [1], [{"type": "fs", "location": {"paths": "../up"}}], [{}, {}]]
    )
    def test_a_data_source_of_another_kind_is_refused(self, source: object) -> None:
        with pytest.raises(ArgumentsInvalid, match="dataSource"):
            read(START, json.dumps({"dataSource": source}))

    @pytest.mark.parametrize("data", ["{", "[]", "1", '{"args": 7}', "[" * 100_000])
    def test_a_form_that_is_no_object_with_args_is_refused(self, data: str) -> None:
        with pytest.raises(ArgumentsInvalid):
            read(None, data)

    @settings(max_examples=60, deadline=None)
    @given(ANY_FORM)
    def test_whatever_json_comes_is_understood_or_refused_by_name(self, form: object) -> None:
        try:
            read(START, json.dumps(form))
        except ArgumentsInvalid as refused:
            assert "it takes" in str(refused)


class TestTheMainScript:
    @pytest.mark.parametrize(
        ("files", "options", "folder", "main"),
        [
            (["net/main.py"], "--model-dir net --model-main main.py", "net", "main.py"),
            (["main.py"], "--model-dir net --model-main main.py", None, "main.py"),
            (["main.py", "lib/x.py"], "--model-main main.py", None, "main.py"),
            (["net/main.py"], "--model-main main.py", "net", "main.py"),
            (["net/main.py"], "--model-dir /home/me/net/ --model-main /home/me/net/main.py", "net", "main.py"),
            (["main.py"], "--model-main ../elsewhere/main.py", None, "main.py"),
            (["net/src/run.py"], "--model-dir net --model-main src/run.py", "net", "src/run.py"),
            (["a/b/main.py"], "--model-dir a/b --model-main main.py", "a/b", "main.py"),
            (["net/main.py"], "--model-dir net", "net", "main.py"),
            (["net/main.py", "net/net/main.py"], "--model-dir net", "net", "main.py"),
        ],
    )
    def test_it_is_found_however_the_archive_was_packed(
        self, tmp_path: Path, files: list[str], options: str, folder: str | None, main: str
    ) -> None:
        where = found(options, lay(tmp_path, *files))
        spec = job_spec(read(f"{START} {options}", None), *where)
        assert (spec.model_dir, spec.model_main) == (folder, main)

    def test_one_that_no_python_reads_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "main.py").write_bytes(b"\x7fELF\x02\0\0\0")
        with pytest.raises(ArgumentsInvalid, match=r"--model-main: got 'main\.py', a binary file"):
            check(tmp_path / "main.py", "main.py", compiled=True)

    def test_one_that_is_not_there_is_told_with_what_is(self, tmp_path: Path) -> None:
        lay(tmp_path, "net/train.py", "net/README")
        with pytest.raises(ArgumentsInvalid, match=r"--model-main: got 'main.py'.*net/train.py"):
            found("--model-main main.py", tmp_path)

    def test_a_bare_script_is_called_as_the_option_says_whatever_the_part_was_called(self) -> None:
        named = read(f"{START} --model-main src/train.py", None)
        assert script_name(named, "tmp123") == "train.py"
        assert script_name(named, None) == "train.py"
        unnamed = read(START, None)
        assert script_name(unnamed, "C:\\work\\a.py") == "a.py"
        with pytest.raises(ArgumentsInvalid, match="--model-main"):
            script_name(unnamed, None)

    def test_the_text_of_a_path_is_not_taken_for_a_script(self) -> None:
        with pytest.raises(UploadRefused, match="open the file"):
            refuse_a_path(io.BytesIO(b"/home/me/tmpabc.modelDir.tar"))
        refuse_a_path(io.BytesIO(b"print('x.py')\n"))

    def test_the_application_is_called_as_wmla_calls_it_unless_told_otherwise(self) -> None:
        assert read(START, None).app_name == "ElasticPyTorchTrain"
        assert read(f"{START} --appName mine", None).app_name == "mine"

    def test_a_folder_that_is_not_in_the_upload_is_told_with_those_that_are(self, tmp_path: Path) -> None:
        lay(tmp_path, "net/main.py", "net/lib.py")
        with pytest.raises(ArgumentsInvalid, match=r"--model-dir: got 'other'; .* which holds net$"):
            found("--model-dir other", tmp_path)
        assert found("--model-dir other --model-main main.py", lay(tmp_path, "main.py")) == ("", "main.py")

    def test_a_main_script_that_is_a_folder_is_refused(self, tmp_path: Path) -> None:
        lay(tmp_path, "net/src/main.py")
        with pytest.raises(ArgumentsInvalid, match=r"--model-main: got 'src', a folder; .*net/src/main.py"):
            found("--model-dir net --model-main src", tmp_path)

    @pytest.mark.parametrize(
        ("source", "why"),
        [
            (b"", "an empty file"),
            (b" \n\n", "an empty file"),
            (b"x = (1,\n", r"SyntaxError, line 1 '\(' was never closed: x = \(1,"),
            (b"print 'hi'\n", r"SyntaxError, line 1 Missing parentheses .*: print 'hi'"),
            (b"if x:\nprint(1)\n", "IndentationError, line 2 .*: print"),
            (b"return 1\n", "'return' outside function"),
            (b"# coding: nothing\n", "unknown encoding"),
            ("x = 'ä'\n".encode("latin-1"), "utf-8"),
        ],
    )
    def test_a_main_script_that_python_cannot_read_is_refused_with_the_line(
        self, tmp_path: Path, source: bytes, why: str
    ) -> None:
        script = tmp_path / "main.py"
        script.write_bytes(source)
        with pytest.raises(ArgumentsInvalid, match=rf"--model-main: got 'main\.py', .*{why}.*; it takes a"):
            check(script, "main.py", compiled=True)

    @pytest.mark.parametrize(
        "source", [b"x = '\\d'\n", b"x = 1 is 1\n", b"-" * 5000 + b"1\n", b"x = " + b"[" * 150 + b"]" * 150]
    )
    def test_what_python_only_warns_of_or_finds_too_deep_is_taken(self, tmp_path: Path, source: bytes) -> None:
        script = tmp_path / "main.py"
        script.write_bytes(source)
        check(script, "main.py", compiled=True)

    def test_a_script_too_long_to_be_compiled_in_time_is_taken_as_it_is(self, tmp_path: Path) -> None:
        script = tmp_path / "main.py"
        script.write_bytes(b"x = (\n".ljust(COMPILED_BYTES + 1, b"#"))
        check(script, "main.py", compiled=True)
        script.write_bytes(script.read_bytes()[:-1])
        with pytest.raises(ArgumentsInvalid, match="never closed"):
            check(script, "main.py", compiled=True)

    def test_the_script_of_an_image_of_its_own_may_be_for_another_python(self, tmp_path: Path) -> None:
        script = tmp_path / "main.py"
        script.write_bytes(b"print 'hi'\n")
        check(script, "main.py", compiled=False)


class TestTheDataFolder:
    def test_it_is_there_where_the_api_can_see_the_data(self, tmp_path: Path) -> None:
        (tmp_path / "mnist").mkdir()
        check_data_folder(read(f"{START} --cs-datastore-meta type=fs,data_path=mnist", None), tmp_path)
        with pytest.raises(ArgumentsInvalid, match=r"--cs-datastore-meta data_path: got 'cifar'; it takes a folder"):
            check_data_folder(read(f"{START} --cs-datastore-meta type=fs,data_path=cifar", None), tmp_path)

    def test_it_is_not_looked_for_where_the_api_sees_no_data(self, tmp_path: Path) -> None:
        away = tmp_path / "not-mounted"
        check_data_folder(read(f"{START} --cs-datastore-meta type=fs,data_path=cifar", None), away)
        check_data_folder(read(START, None), tmp_path)
