"""A script that only Keras 2 takes gets Keras 2, although its client does not say so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edt_api.submissions.keras2 import asks_nobody, keras2_spelling, with_keras2
from edt_scheduler.model.jobs import JobSpec

SAMPLES = Path(__file__).parent / "samples_tensorflow"
OF_KERAS_2 = {
    "import tensorflow as tf\n\ntf.keras.optimizers.Adam(lr=0.01)": "Adam(lr=…) in line 3",
    "from tensorflow import keras\nkeras.optimizers.SGD(0.1, decay=1e-6)": "SGD(decay=…) in line 2",
    "from tensorflow.keras.optimizers import SGD as Descent\nx = Descent(momentum=0.9, lr=0.1)": "SGD(lr=…) in line 2",
    "import keras.optimizers as o\no.Adam(lr=1)": "Adam(lr=…) in line 2",
    "import tensorflow as tf\ntf.keras.optimizers.legacy.Adam(0.1)": "keras.optimizers.legacy.Adam in line 2",
    "from keras.layers.core import Dense": "from keras.layers.core import Dense in line 1",
    "from keras.utils import np_utils": "from keras.utils import np_utils in line 1",
    "import keras.engine.topology": "import keras.engine.topology in line 1",
    "import tensorflow as tf\ns = tf.distribute.MultiWorkerMirroredStrategy()": "MultiWorkerMirroredStrategy in line 2",
    "from tensorflow.distribute import MultiWorkerMirroredStrategy": "MultiWorkerMirroredStrategy in line 1",
    "def f():\n    from keras.preprocessing.image import ImageDataGenerator": "ImageDataGenerator in line 2",
}
OF_EITHER = (
    "import tensorflow as tf\ntf.keras.optimizers.Adam(learning_rate=0.01)",
    "import torch\ntorch.optim.Adam([], lr=0.01)",
    "from mine import Adam\nAdam(lr=1)",
    "lr = 1\ndict(lr=lr)",
    "import keras\nkeras.optimizers.schedules.InverseTimeDecay(0.1, 1, decay=1)",
    "from tensorflow.keras.preprocessing.image import ImageDataGenerator",
    "from keras.utils import to_categorical",
    "from keras import layers\nlayers.Normalization()",
    "import tensorflow as tf\ntf.distribute.MirroredStrategy()",
    "keras.optimizers.Adam(lr=1)  # nothing of this name is imported",
    "this is no Python",
    "",
    "(" * 5000,
)


def looked_at(folder: Path, source: str) -> str | None:
    script = folder / "main.py"
    script.write_text(source)
    return keras2_spelling(script)


@pytest.mark.parametrize(("source", "found"), OF_KERAS_2.items(), ids=range(len(OF_KERAS_2)))
def test_what_only_keras_2_takes_is_found_with_its_line(tmp_path: Path, source: str, found: str) -> None:
    said = looked_at(tmp_path, source)
    assert said is not None and said.startswith("main.py has ") and found in said


def test_in_a_gang_only_tf_keras_follows_the_variable(tmp_path: Path) -> None:
    for source, found in (
        ("import keras\nkeras.optimizers.Adam(lr=1)", None),
        ("from keras.utils import np_utils", None),
        ("import tensorflow as tf\ntf.keras.optimizers.Adam(lr=1)", "main.py has Adam(lr=…) in line 2"),
    ):
        (tmp_path / "main.py").write_text(source)
        assert keras2_spelling(tmp_path / "main.py", gang=True) == found


@pytest.mark.parametrize("source", OF_EITHER, ids=range(len(OF_EITHER)))
def test_what_either_takes_is_left_alone(tmp_path: Path, source: str) -> None:
    assert looked_at(tmp_path, source) is None


def test_files_beside_the_script_are_looked_at_only_where_they_are_imported(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "parts.py").write_text("from keras.optimizers import Adam\nAdam(lr=1)")
    assert looked_at(tmp_path, "import keras") is None
    assert looked_at(tmp_path, "import net.parts, main") == "parts.py has Adam(lr=…) in line 2"


def test_files_are_parsed_up_to_a_size_that_they_have_together(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text("import keras\nkeras.optimizers.Adam(lr=1)")
    assert looked_at(tmp_path, "import parts\n" + "#" * 100 * 1024) is not None
    assert looked_at(tmp_path, "import parts\n" + "#" * (128 * 1024 - 20)) is None
    assert looked_at(tmp_path, "import keras\nkeras.optimizers.Adam(lr=1)\n" + "#" * 128 * 1024) is None


def test_pipes_and_links_in_place_of_scripts_are_neither_waited_for_nor_followed(tmp_path: Path) -> None:
    """A job may have put them into the code that a new job gets a copy of."""
    (tmp_path / "elsewhere").write_text("import keras\nkeras.optimizers.Adam(lr=1)")
    (tmp_path / "main.py").symlink_to("elsewhere")
    assert keras2_spelling(tmp_path / "main.py") is None
    (tmp_path / "main.py").unlink()
    os.mkfifo(tmp_path / "main.py")
    assert keras2_spelling(tmp_path / "main.py") is None


def test_a_script_that_is_not_there_has_nothing(tmp_path: Path) -> None:
    assert keras2_spelling(tmp_path / "main.py") is None


@pytest.mark.parametrize(
    ("sample", "older"),
    [
        ("1.2.3/digits.py", True),
        ("1.2.3/digits_keras.py", True),
        ("2.3.0/elastic-main.py", True),
        ("4.0/elastic-main.py", True),
        ("4.0/map_style.py", False),
    ],
)
def test_the_samples_of_wmlas_time_are_recognized(sample: str, older: bool) -> None:
    assert (keras2_spelling(SAMPLES / sample) is not None) is older


def job(framework: str, **environ: str) -> JobSpec:
    return JobSpec(framework, "main.py", "--exec-start", "name", framework, environ=environ, remark="misspelt")


def test_only_a_tensorflow_job_whose_user_has_not_chosen_is_asked() -> None:
    assert asks_nobody(job("tensorflow", OTHER="1"))
    assert not asks_nobody(job("pytorch"))
    assert not asks_nobody(job("tensorflow", TF_USE_LEGACY_KERAS="0"))


def test_the_job_gets_the_variable_and_its_remark_says_why_and_how_to_undo_it() -> None:
    spec = with_keras2(job("tensorflow", OTHER="1"), "main.py has Adam(lr=…) in line 3")
    assert dict(spec.environ) == {"TF_USE_LEGACY_KERAS": "1", "OTHER": "1"}
    assert spec.remark is not None and spec.remark.startswith("misspelt; this job gets Keras 2")
    assert "main.py has Adam(lr=…) in line 3" in spec.remark and "TF_USE_LEGACY_KERAS=0" in spec.remark
