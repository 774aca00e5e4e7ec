"""The grammar of args: what the platform takes for itself, what the script gets, what is refused and how."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edt_api.errors import ArgumentsInvalid
from edt_api.submissions.args import LONGEST, MASK, parse, split
from edt_api.submissions.options import MOST_WORKERS, OPTIONS

START = "--exec-start edtPyTorch"
MIXED = [
    *("--numWorker", "--numWorker=2", "2", "--", "--msd-env", "A=b", "--model-main", "x.py", "–msd-env", "--epochs"),
    *("--edt-options", "maxWorkers=3", "'", '"q"', "\\", "--data-source", "[]", "--exec-start", "=", ""),
]
RIGHT = {
    "--workerDeviceType": ["cpu", "gpu", "GPU"],
    "--workerMemory": ["8g", "8G", "4096M", "16Gi", "4096", "1.5gb"],
    "--workerCPULimit": ["2", "0.5", "500m"],
    "--numDriver": ["0", "1"],
    "--driverDeviceNum": ["0", "2"],
    "--msd-image-pull-policy": ["Always", "Never", "IfNotPresent"],
    "--msd-podaffinity-rule": ["preferred", "required"],
    "--msd-priority": ["1", "5000"],
    "--msd-pending-timeout": ["600"],
    "--msd-attr": ["a=b", "a=b=c", "a="],
    "--msd-label": ["team=a", "b"],
    "--debug-level": ["debug", "info", "warn", "error"],
    "--python-version": ["3", "3.6", "3.11.4"],
    "--sc-runasuser": ["0", "1000"],
    "--consumer": ["/projectid/training"],
    "--ig": ["dli"],
}
"""Values that options without effect take."""
WRONG = {
    "--workerDeviceType": ["tpu", ""],
    "--workerMemory": ["much", "-1g", "8x", "8 g", ""],
    "--driverMemoryLimit": ["g"],
    "--workerCPULimit": ["half", "-1", "1e3"],
    "--numDriver": ["-1", "one", "1.5"],
    "--numPs": ["x"],
    "--msd-image-pull-policy": ["Sometimes"],
    "--msd-podaffinity-rule": ["maybe"],
    "--msd-priority": ["0", "-5", "high", str(2**31)],
    "--msd-pending-timeout": ["0", "1h"],
    "--msd-attr": ["a", "=b", ""],
    "--msd-label": [" "],
    "--debug-level": ["loud"],
    "--python-version": ["three", "3.", "3.6.1.2"],
    "--sc-runasuser": ["root", "-1", str(2**32)],
    "--sc-fsgroup": ["users"],
    "--consumer": [""],
}
GIVEN = st.sampled_from([(name, value) for name, values in RIGHT.items() for value in values])
OWN = st.tuples(st.just(""), st.sampled_from(["--epochs", "3", "x y", "-", "--lr=.1"]))
ANY_VALUE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
quick = settings(max_examples=60, deadline=None)


class TestWords:
    def test_runs_of_blanks_tabs_and_line_ends_part_words_once(self) -> None:
        assert [word.text for word in split("  a \t\t b\n\n  c  ")] == ["a", "b", "c"]

    def test_a_backslash_newline_joins_lines_as_in_a_shell(self) -> None:
        assert [word.text for word in split("--lr 0.1 \\\n   --epo\\\nchs 3 \\\r\n")] == [
            "--lr",
            "0.1",
            "--epochs",
            "3",
        ]

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("'a b' \"c d\"", ["a b", "c d"]),
            ("--name='a b'c", ["--name=a bc"]),
            ('"say \\"hi\\" \\n"', ['say "hi" \\n']),
            ("''", [""]),
            ("it\\'s", ["it's"]),
            ("'a\\b'", ["a\\b"]),
        ],
    )
    def test_quotes_and_backslashes_work_as_in_a_shell(self, line: str, words: list[str]) -> None:
        assert [word.text for word in split(line)] == words == shlex.split(line)

    @pytest.mark.parametrize("line", ["--note it's", 'a "b', "a\\"])
    def test_what_is_never_closed_is_refused(self, line: str) -> None:
        with pytest.raises(ArgumentsInvalid, match="args"):
            split(line)

    @quick
    @given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
    def test_whatever_a_shell_quotes_comes_back(self, words: list[str]) -> None:
        assert [word.text for word in split(shlex.join(words))] == words

    @quick
    @given(st.text(alphabet="ab '\"\\ \n\t=-"))
    def test_a_word_stood_where_it_says(self, line: str) -> None:
        try:
            words = split(line)
        except ArgumentsInvalid:
            return
        for word in words:
            assert [again.text for again in split(line[word.start : word.end])] == [word.text]


class TestWhoseWordItIs:
    def test_platform_options_go_and_the_scripts_stay_in_their_order(self) -> None:
        line = f"{START} --cs-datastore-meta type=fs --epochs 1 --workerDeviceNum 1 data --model-main main.py --no-cuda"
        assert parse(line).arguments == ("--epochs", "1", "data", "--no-cuda")

    def test_both_ways_of_giving_a_value_are_taken(self) -> None:
        assert parse(f"{START} --numWorker=3 --model-main main.py").num_worker == 3
        assert parse(f"{START} --numWorker 3 --model-main=src/a.py").model_main == "src/a.py"

    def test_after_a_bare_double_dash_all_is_the_scripts(self) -> None:
        parsed = parse(f"{START} --model-dir d -- --epochs 10 --numWorker 7 -- x")
        assert parsed.arguments == ("--epochs", "10", "--numWorker", "7", "--", "x")
        assert parsed.num_worker == 1

    def test_a_quoted_framework_is_understood(self) -> None:
        assert parse('--exec-start "edtPyTorch"').framework == "edtPyTorch"

    def test_the_kind_of_slot_is_the_one_that_is_asked_for_or_open(self) -> None:
        asked = [parse(f"{START} --workerDeviceType {word}").device for word in ("gpu", "GPU", "cpu")]
        assert asked == ["gpu", "gpu", "cpu"]
        assert parse(f"{START} --workerDeviceNum 2").device is None, "a number of slots is no kind of them"

    def test_the_last_of_a_repeated_option_counts(self) -> None:
        assert parse(f"{START} --numWorker 2 --numWorker 5").num_worker == 5

    def test_what_wmla_knows_and_we_do_not_use_is_taken_silently(self) -> None:
        line = (
            f"{START} --ig dli --workerMemory 8g --msd-priority 10 --conda-env-name dlipy3 --debug-level debug "
            "--msd-attr a=b --cs-url-meta http://x --sc-runasuser 7 --epochs 2"
        )
        assert parse(line).arguments == ("--epochs", "2")

    @pytest.mark.parametrize("dash", ["–", "–-", "—", "−−"])
    def test_an_option_copied_from_a_page_with_a_long_dash_is_known(self, dash: str) -> None:
        assert parse(f"{START} {dash}msd-env EDT_PULL_WEIGHT_TIME_OUT=5").environ == {"EDT_PULL_WEIGHT_TIME_OUT": "5"}

    def test_a_long_dash_before_the_users_own_word_is_left_alone(self) -> None:
        assert parse(f"{START} –epochs 3 -x").arguments == ("–epochs", "3", "-x")

    @pytest.mark.parametrize("slip", ["--numWorkers", "--num-worker", "--NumWorker", "--num_workers"])
    def test_what_is_nearly_an_option_is_the_scripts_and_remarked_upon(self, slip: str) -> None:
        given = parse(f"--exec-start edtPyTorch --model-main main.py {slip}=4")
        assert (given.num_worker, given.arguments) == (1, (f"{slip}=4",))
        assert given.remark == f"{slip} went to the script, since the platform's option is --numWorker"

    @pytest.mark.parametrize(
        "line", ["--numWorker 2 --num-workers 4", "-- --numWorkers 4", "--epochs 3 --lr 0.1 -n 4", "numWorkers"]
    )
    def test_what_is_surely_the_scripts_is_not_remarked_upon(self, line: str) -> None:
        assert parse(f"--exec-start edtPyTorch --model-main main.py {line}").remark is None

    def test_negative_numbers_and_dashes_are_values_of_the_script(self) -> None:
        assert parse(f"{START} --seed -1 -").arguments == ("--seed", "-1", "-")


class TestValues:
    def test_an_elastic_maximum_of_generation_a_caps_the_workers(self) -> None:
        assert parse(f"{START} --edt-options maxWorkers=2").num_worker == 2
        assert parse(f"{START} --numWorker 8 --edt-options maxWorkers=2").num_worker == 2
        assert parse(f"{START} --numWorker 1 --edt-options maxWorkers=2").num_worker == 1

    def test_gpus_per_worker_have_two_names(self) -> None:
        assert parse(f"{START} --gpuPerWorker 2").worker_device_num == 2
        assert parse(f"{START} --gpuPerWorker 2 --workerDeviceNum 3").worker_device_num == 3

    def test_the_data_path_lies_below_the_data_file_system(self) -> None:
        assert parse(f"{START} --cs-datastore-meta type=fs,data_path=mnist/raw").data_path == "mnist/raw"
        assert parse(f"{START} --cs-datastore-meta type=fs,data_path=/mnist").data_path == "mnist"
        assert parse(f"{START} --cs-datastore-meta type=fs").data_path is None
        with pytest.raises(ArgumentsInvalid, match="--cs-datastore-meta"):
            parse(f"{START} --cs-datastore-meta type=fs,data_path=../other")

    @pytest.mark.parametrize(
        "value, got",
        [
            ("type=s3,secret_key=hidden", "got type=s3;"),
            ("type=fs,datapath=mnist", "got datapath=;"),
            ("mnist", "got mnist=;"),
            ("''", "got nothing;"),
        ],
    )
    def test_a_data_store_that_would_not_be_read_is_refused(self, value: str, got: str) -> None:
        with pytest.raises(ArgumentsInvalid) as error:
            parse(f"{START} --cs-datastore-meta {value}")
        assert got in str(error.value) and "hidden" not in str(error.value)

    @pytest.mark.parametrize(
        "image",
        [
            "openedt/runner-torch",
            "debian:bookworm-slim",
            "Registry.example.com:5000/team/a_b/c.d:v1.2_RC",
            "localhost/x@sha256:" + "0a" * 32,
            "a/b:1@sha256:" + "f" * 64,
        ],
    )
    def test_an_image_of_its_own_is_taken_as_docker_writes_it(self, image: str) -> None:
        assert parse(f"{START} --msd-image-name {image}").image == image
        assert parse(START).image is None

    @pytest.mark.parametrize(
        "image",
        ["", "Upper/Case", "a b", "-x", "a:", "a//b", "a@sha256:12", "a:b:c", "../a", "x" * 256, "a;rm", "http://a/b"],
    )
    def test_what_is_no_image_is_refused(self, image: str) -> None:
        with pytest.raises(ArgumentsInvalid, match=r"--msd-image-name: got .*; it takes a container image"):
            parse(f"{START} --msd-image-name={shlex.quote(image)}")

    def test_variables_of_the_job_may_hold_anything_after_the_first_equals_sign(self) -> None:
        parsed = parse(f"{START} --msd-env A=b=c --msd-env 'B=x y' --msd-env=C=")
        assert parsed.environ == {"A": "b=c", "B": "x y", "C": ""}

    def test_variables_by_which_agents_know_their_processes_cannot_be_set(self) -> None:
        with pytest.raises(ArgumentsInvalid, match="EDT_TAG"):
            parse(f"{START} --msd-env EDT_TAG=mine")

    @pytest.mark.parametrize(
        "value", ["0", "-1", "four", "1.5", "1e3", "", "٣", "1_0", str(MOST_WORKERS + 1), "9" * 40]
    )
    def test_a_wrong_number_is_told_with_what_is_taken(self, value: str) -> None:
        with pytest.raises(ArgumentsInvalid, match=r"--numWorker: got .*; it takes a whole number from 1"):
            parse(f"{START} --numWorker={shlex.quote(value)}")

    def test_restarts_after_an_exception_are_none_unless_asked_for(self) -> None:
        assert parse(START).max_restarts == 0
        assert parse(f"{START} --maxRestarts 3").max_restarts == 3
        assert parse(f"{START} --maxRestarts=0").max_restarts == 0
        for value in ("-1", "x", "1001", "''"):
            with pytest.raises(ArgumentsInvalid, match=r"--maxRestarts: got"):
                parse(f"{START} --maxRestarts={value}")

    def test_a_limit_on_the_wait_for_the_first_start_is_in_seconds(self) -> None:
        assert parse(f"{START} --msd-pending-timeout 600").pending_timeout == 600
        assert parse(START).pending_timeout is None

    @pytest.mark.parametrize("line", ["--numWorker", "--numWorker --model-main main.py", "--numWorker -- x"])
    def test_a_value_that_is_missing_is_not_taken_from_the_next_option(self, line: str) -> None:
        with pytest.raises(ArgumentsInvalid, match="--numWorker: got nothing"):
            parse(f"{START} {line}")


class TestOptionsWithoutEffect:
    @pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in RIGHT.items() for value in values])
    def test_what_wmlas_clients_send_is_taken_and_recorded(self, name: str, value: str) -> None:
        for line in (f"{name} {shlex.quote(value)}", f"{name}={shlex.quote(value)}"):
            parsed = parse(f"{START} {line} --epochs 2")
            assert parsed.options == (("--exec-start", "edtPyTorch"), (name, value))
            assert parsed.arguments == ("--epochs", "2")

    @pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
    def test_nonsense_is_refused_with_the_option_the_value_and_what_it_takes(self, name: str, value: str) -> None:
        with pytest.raises(ArgumentsInvalid) as refused:
            parse(f"{START} {name}={shlex.quote(value)}")
        got = repr(value) if value.strip() else "nothing"
        assert str(refused.value) == f"{name}: got {got}; it takes {OPTIONS[name].takes}"

    def test_the_last_value_is_recorded_and_all_of_what_may_be_given_often(self) -> None:
        line = "--msd-label a --ig one --msd-attr x=1 --msd-label b=2 --ig two --msd-attr y=2 --msd-label a"
        assert parse(f"{START} {line}").options[1:] == (
            ("--msd-label", "a"),
            ("--msd-attr", "x=1"),
            ("--msd-label", "b=2"),
            ("--ig", "two"),
            ("--msd-attr", "y=2"),
            ("--msd-label", "a"),
        )

    def test_secrets_are_recorded_as_stars(self) -> None:
        line = "--cs-url-bearer hush --cs-rmq-meta=host=hush,password=hush --msd-env TOKEN=hush --msd-env A="
        assert parse(f"{START} {line}").options[1:] == (
            ("--cs-url-bearer", MASK),
            ("--cs-rmq-meta", MASK),
            ("--msd-env", f"TOKEN={MASK}"),
            ("--msd-env", f"A={MASK}"),
        )

    def test_a_wrong_value_that_does_not_count_is_not_looked_at(self) -> None:
        assert parse(f"{START} --msd-priority high --msd-priority 3").options[1:] == (("--msd-priority", "3"),)

    @quick
    @given(st.lists(st.tuples(GIVEN | OWN, st.sampled_from([" ", "=", "   "]))))
    def test_recorded_options_come_back_and_the_scripts_words_stay_in_order(
        self, given: list[tuple[tuple[str, str], str]]
    ) -> None:
        line = " ".join(f"{name}{name and between}{shlex.quote(value)}" for (name, value), between in given)
        parsed = parse(f"{START} {line}")
        assert parsed.arguments == tuple(value for (name, value), _ in given if not name)
        last = {name: at for at, ((name, _), _) in enumerate(given)}
        kept = [
            (name, value)
            for at, ((name, value), _) in enumerate(given)
            if name and (OPTIONS[name].repeatable or last[name] == at)
        ]
        assert list(parsed.options[1:]) == kept

    @quick
    @given(st.sampled_from(sorted(OPTIONS)), ANY_VALUE)
    def test_any_value_of_any_option_is_understood_or_refused_by_its_name(self, name: str, value: str) -> None:
        try:
            parsed = parse(f"{START} {name}={shlex.quote(value)}")
        except ArgumentsInvalid as refused:
            assert str(refused).startswith(f"{name}: got ") and "; it takes " in str(refused)
            return
        assert parsed.options[-1][0] == name
        assert parsed.arguments == ()


class TestSlips:
    @pytest.mark.parametrize(
        ("slip", "name"),
        [
            ("--numWorkr", "--numWorker"),
            ("--numWroker", "--numWorker"),
            ("--NUMWORKER", "--numWorker"),
            ("--worker-memory", "--workerMemory"),
            ("--workerMemorys", "--workerMemory"),
            ("--msd_priority", "--msd-priority"),
            ("--msd-prioritty", "--msd-priority"),
            ("--msd-pending-timout", "--msd-pending-timeout"),
            ("--msd-image-pull-polcy", "--msd-image-pull-policy"),
            ("--cs-datastor-meta", "--cs-datastore-meta"),
            ("--conda-env-nam", "--conda-env-name"),
            ("--debuglevel", "--debug-level"),
            ("--model-mian", "--model-main"),
            ("--msd-labels", "--msd-label"),
        ],
    )
    def test_a_misspelt_option_is_named_whether_it_has_an_effect_or_not(self, slip: str, name: str) -> None:
        given = parse(f"{START} --lr 1 {slip} 4")
        assert given.arguments == ("--lr", "1", slip, "4")
        assert given.remark == f"{slip} went to the script, since the platform's option is {name}"

    @pytest.mark.parametrize(
        "word",
        ["--epochs", "--lr", "--model", "--model-name", "--batch-size", "--data-dir", "--log-level", "--num-epochs",
         "--momentum", "--seed", "--workers", "--max-epochs", "--image-size", "--device", "--gpus", "--i", "--IG"],
    )  # fmt: skip
    def test_usual_words_of_scripts_are_no_slips(self, word: str) -> None:
        assert parse(f"{START} {word} 1").remark is None

    def test_many_slips_are_told_in_short(self) -> None:
        remark = parse(f"{START} {' '.join(f'--numWorke{n}' for n in range(9))}").remark
        assert remark is not None and remark.endswith("; so did 4 more words like options of the platform")

    def test_a_long_line_of_slips_costs_little(self) -> None:
        parsed = parse(f"{START} {' '.join(f'--nu{n:06}' for n in range(20_000))}")
        assert len(parsed.arguments) == 20_000


class TestFrameworks:
    @pytest.mark.parametrize("name", ["Caffe", "ddlTensorFlow", "XGboost"])
    def test_one_of_wmla_that_is_not_run_is_refused_in_a_sentence(self, name: str) -> None:
        with pytest.raises(ArgumentsInvalid, match=f"--exec-start: got {name}.*this release runs: edtPyTorch"):
            parse(f"--exec-start {name} --model-main main.py")

    @pytest.mark.parametrize("name", ["edtTensorflow", "edtTensorFlow", "edtKeras"])
    def test_each_of_wmlas_names_for_elastic_tensorflow_is_the_one_framework(self, name: str) -> None:
        found = parse(f"--exec-start {name} --model-main main.py")
        assert (found.framework, found.backend) == ("edtTensorflow", "tensorflow")

    @pytest.mark.parametrize("name", ["edtpytorch", "Foo"])
    def test_an_unknown_one_is_refused_with_those_that_are_run(self, name: str) -> None:
        with pytest.raises(ArgumentsInvalid, match=f"{name}.*edtPyTorch"):
            parse(f"--exec-start {name}")

    @pytest.mark.parametrize("command", ["--user-cmd -- bash x.sh", "--user-cmd='bash x.sh'", "--user-cmd bash x.sh"])
    def test_an_elastic_job_takes_no_command(self, command: str) -> None:
        with pytest.raises(ArgumentsInvalid, match=r"--user-cmd: got 'bash x.sh'; it takes no command.*distPyTorch"):
            parse(f"{START} {command}")

    def test_a_prebuilt_model_takes_the_place_of_a_script(self) -> None:
        parsed = parse(f"{START} --pbmodel-name MNIST --pbmodel-cmd train --epochs 2")
        assert (parsed.prebuilt, parsed.model_main, parsed.arguments) == ("mnist.py", "mnist.py", ("--epochs", "2"))
        assert parse(START).prebuilt is None

    @pytest.mark.parametrize(
        ("line", "why"),
        [
            (f"{START} --pbmodel-name VGG16", "--pbmodel-name: got 'VGG16'; it takes MNIST"),
            ("--exec-start edtTensorflow --pbmodel-name MNIST", "no prebuilt models"),
            (f"{START} --pbmodel-name MNIST --model-main main.py", "'MNIST' beside --model-main"),
            (f"{START} --pbmodel-name MNIST --pbmodel-cmd test", "--pbmodel-cmd: got 'test'; it takes train"),
        ],
    )
    def test_other_prebuilt_models_are_refused_with_what_there_is(self, line: str, why: str) -> None:
        with pytest.raises(ArgumentsInvalid, match=why):
            parse(line)

    def test_args_without_a_framework_are_refused(self) -> None:
        with pytest.raises(ArgumentsInvalid, match="--exec-start: got nothing"):
            parse("--numWorker 2")


class TestSecrets:
    def test_args_are_shown_as_they_came_but_for_the_values_of_variables(self) -> None:
        line = f"  {START}   --msd-env TOKEN=hush --msd-env='KEY=hush hush'  --lr .1 –msd-env X=hush "
        shown = f"  {START}   --msd-env TOKEN={MASK} --msd-env=KEY={MASK}  --lr .1 –msd-env X={MASK} "
        assert parse(line).args_verbatim == shown

    def test_bearers_of_metric_forwarding_are_masked_whole(self) -> None:
        assert "hush" not in parse(f"{START} --cs-url-bearer hush --cs-rmq-meta=hush:hush").args_verbatim

    def test_neither_a_picture_nor_a_refusal_shows_a_secret(self) -> None:
        assert "hush" not in repr(parse(f"{START} --msd-env TOKEN=hush"))
        with pytest.raises(ArgumentsInvalid) as refused:
            parse(f"{START} --msd-env hush")
        assert "hush" not in str(refused.value)

    @quick
    @given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=3), st.booleans())
    def test_no_way_of_quoting_a_value_brings_it_into_the_shown_args(self, secret: str, joined: bool) -> None:
        secret = f"hush{secret}hush"
        option = f"--msd-env={shlex.quote('K=' + secret)}" if joined else f"--msd-env {shlex.quote('K=' + secret)}"
        parsed = parse(f"{START} {option} --lr 1")
        assert parsed.environ == {"K": secret}
        assert parsed.args_verbatim.split() == f"{START} --msd-env{'=' if joined else ' '}K={MASK} --lr 1".split()


class TestAnything:
    @quick
    @given(st.text())
    def test_whatever_comes_is_understood_or_refused_by_name(self, line: str) -> None:
        with_start = f"{START} {line}"
        for args in (line, with_start):
            try:
                parse(args)
            except ArgumentsInvalid as refused:
                assert "it takes" in str(refused)

    @quick
    @given(st.lists(st.sampled_from(MIXED)))
    def test_every_mixture_of_options_is_understood_or_refused_by_name(self, words: list[str]) -> None:
        try:
            parsed = parse(f"{START} {' '.join(words)}")
        except ArgumentsInvalid:
            return
        if "--" not in words:
            assert not {"--numWorker", "--msd-env", "--model-main"} & set(parsed.arguments)

    @pytest.mark.parametrize("line", ["a\0b", "\ud800", "x" * LONGEST])
    def test_what_no_program_could_be_given_is_refused(self, line: str) -> None:
        with pytest.raises(ArgumentsInvalid, match="args"):
            parse(f"{START} {line}")
