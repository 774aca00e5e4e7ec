"""Scripts that are written for Keras 2: told so where they fail on Keras 3, and at home where they asked for it.

Each line is tried with both, by a process each: the hint is right where Keras 2 takes what Keras 3 refused.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edt_contract.frameworks import supervisor_environ
from support.keras2_lines import OF_KERAS_2, OF_TENSORFLOW_1, OF_THE_PRIVATE_COPY, WRONG_IN_BOTH

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.timeout(240),
]  # the first of them waits for two processes that import TensorFlow
Said = dict[str, tuple[str | None, str | None]]
"""Line to what it raised and the hint that was given."""


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> list[Said]:
    """With Keras 3 and with Keras 2."""
    answers = [tmp_path_factory.mktemp("keras") / f"{keras2}.json" for keras2 in (0, 1)]
    environ = os.environ | supervisor_environ("tensorflow") | {"PYTHONPATH": f"{ROOT}/tests:{ROOT}/runners"}
    environ |= {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "support.keras2_lines", str(answer)],
            env=environ | {"TF_USE_LEGACY_KERAS": answer.stem},
            stderr=subprocess.PIPE,
        )
        for answer in answers
    ]
    for process in running:
        _, errors = process.communicate(timeout=200)
        assert process.returncode == 0, errors.decode()[-2000:]
    return [{line: tuple(what) for line, what in json.loads(answer.read_text()).items()} for answer in answers]


@pytest.mark.parametrize("line", [line for line in OF_KERAS_2 if "assert" not in line])
def test_what_only_keras_2_took_is_told_with_what_would_help(tried: list[Said], line: str) -> None:
    keras3, keras2 = tried
    raised, hint = keras3[line]
    assert raised is not None and hint is not None, raised
    assert "--msd-env TF_USE_LEGACY_KERAS=1" in hint
    assert keras2[line] == (None, None), "and it does help"


def test_whoever_names_tensorflows_private_copy_of_keras_is_told_the_public_name(tried: list[Said]) -> None:
    for outcomes in tried:
        _, hint = outcomes[OF_THE_PRIVATE_COPY]
        assert hint is not None and "import the same names from tensorflow.keras" in hint


@pytest.mark.parametrize("line", WRONG_IN_BOTH)
def test_of_what_is_wrong_with_both_nothing_is_said(tried: list[Said], line: str) -> None:
    for outcomes in tried:
        raised, hint = outcomes[line]
        assert raised is not None and hint is None, raised


@pytest.mark.parametrize("line", [line for line in OF_KERAS_2 if "assert" in line])
def test_a_script_that_asked_for_keras_2_gets_it_by_every_name_and_spelling(tried: list[Said], line: str) -> None:
    _, keras2 = tried
    assert keras2[line] == (None, None)


@pytest.mark.parametrize("line", OF_TENSORFLOW_1)
def test_what_is_tensorflow_1s_is_told_with_what_it_is(tried: list[Said], line: str) -> None:
    for outcomes in tried:
        raised, hint = outcomes[line]
        assert raised is not None and hint is not None and "written for TensorFlow 1" in hint


@pytest.mark.parametrize(
    ("keras2", "name"), [pytest.param("0", "keras policy", marks=pytest.mark.extended), ("1", "tf_keras policy")]
)
def test_what_a_process_computes_with_names_the_policy_of_its_keras(keras2: str, name: str) -> None:
    ask = (
        "import json, tensorflow as tf; tf.keras.layers\n"
        "from edt_runner.frameworks.tensorflow import TensorFlow\n"
        "print(json.dumps(TensorFlow().computing(on_device=False)))"
    )
    environ = os.environ | supervisor_environ("tensorflow") | {"PYTHONPATH": f"{ROOT}/runners"}
    environ |= {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": keras2}
    output = subprocess.run([sys.executable, "-c", ask], env=environ, check=True, capture_output=True, text=True).stdout
    assert json.loads(output)[name] == "float32"
