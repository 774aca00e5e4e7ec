"""What a notebook sends, and what its job makes of it: without a kernel and without a training."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from edt_runner.errors import UsageError
from pyedt.notebook import bundle, received
from pyedt.notebook.display import Curve, Progress, figure
from pyedt.notebook.model import FabricModel
from pyedt.notebook.platform import Size
from support.nursery import RUNNERS


class Parts:
    """A model whose optimizer has a hook and a scheduler, and whose weight has hooks of its own."""

    def __init__(self) -> None:
        self.model = nn.Linear(4, 2)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.5)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.1)
        self.optimizer.register_step_post_hook(_counted)
        self.model.weight.register_hook(_doubled)
        self.model.weight.register_post_accumulate_grad_hook(_kept)


def _counted(optimizer: Any, arguments: Any, named: Any) -> None:
    optimizer.steps = getattr(optimizer, "steps", 0) + 1


def _doubled(gradient: torch.Tensor) -> torch.Tensor:
    return 2 * gradient


def _kept(parameter: torch.Tensor) -> None:
    parameter.seen = True  # type: ignore[attr-defined]


def sent(folder: Path, parts: Parts, data: Any = None, *, secrets: tuple[str, ...] = ()) -> dict[str, Any]:
    """What a job loads of a training with these parts."""
    constructor = ((parts.model, data, functional.cross_entropy, parts.optimizer), {})
    bundle.write(folder, parts.model, constructor, ((1, 8), {"lr_scheduler": parts.scheduler}), secrets=secrets)
    return received.load(folder / received.PICKLE)


def test_an_optimizer_that_was_sent_steps_the_parameters_of_the_model_that_was_sent(tmp_path: Path) -> None:
    loaded = sent(tmp_path, Parts())
    model, _, _, optimizer = loaded["constructor"][0]
    assert [id(each) for each in optimizer.param_groups[0]["params"]] == [id(each) for each in model.parameters()]
    assert loaded["train"][1]["lr_scheduler"].optimizer is optimizer


def test_hooks_of_optimizer_and_parameters_are_sent(tmp_path: Path) -> None:
    model, _, _, optimizer = sent(tmp_path, Parts())["constructor"][0]
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    assert model.weight.grad.eq(2).all()
    assert model.bias.grad.eq(1).all()
    assert model.weight.seen
    assert optimizer.steps == 1


def test_a_scheduler_that_was_sent_goes_on_without_a_warning(tmp_path: Path) -> None:
    loaded = sent(tmp_path, Parts())
    optimizer, scheduler = loaded["constructor"][0][3], loaded["train"][1]["lr_scheduler"]
    optimizer.step()
    scheduler.step()  # a warning would be an error here
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)


def test_a_function_that_uses_the_environment_finds_the_jobs_and_not_the_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDT_TOKEN", "a-token-of-the-kernel")
    code = compile("lambda: environ['WHERE']", "cell", "eval")
    function = eval(code, {"environ": os.environ, "__name__": "__main__"})  # noqa: S307  a cell's, not a module's
    loaded = sent(tmp_path, Parts(), function, secrets=("a-token-of-the-kernel",))
    monkeypatch.setenv("WHERE", "in the job")
    assert loaded["constructor"][0][1]() == "in the job"
    assert b"a-token-of-the-kernel" not in (tmp_path / received.PICKLE).read_bytes()


def test_a_token_in_what_a_function_uses_is_not_sent(tmp_path: Path) -> None:
    function = eval("lambda: token", {"token": "a-secret-token", "__name__": "__main__"})  # noqa: S307
    with pytest.raises(UsageError, match="your token of the platform is in a variable"):
        sent(tmp_path, Parts(), function, secrets=("a-secret-token",))


def test_what_cannot_be_sent_is_named(tmp_path: Path) -> None:
    def lines() -> Any:
        return generator

    generator = (number for number in range(3))
    with pytest.raises(UsageError, match=r"^lines: cannot be sent \(cannot pickle 'generator' object\)"):
        sent(tmp_path, Parts(), lines)


def test_a_model_on_a_gpu_is_refused_by_the_name_of_its_parameter(tmp_path: Path) -> None:
    parts = Parts()
    parts.model.to("meta")
    with pytest.raises(UsageError, match="model: weight is on meta, takes a model on the processor"):
        sent(tmp_path, parts)


def test_modules_beside_the_notebook_go_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, code = tmp_path / "here", tmp_path / "code"
    (here / "shapes").mkdir(parents=True)
    code.mkdir()
    (here / "helpers.py").write_text("ONE = 1\n")
    (here / "shapes/__init__.py").write_text("")
    (here / "shapes/round.py").write_text("PI = 3\n")
    (here / "not_imported.py").write_text("")
    monkeypatch.chdir(here)
    for name, file in (("helpers", "helpers.py"), ("shapes", "shapes/__init__.py")):
        module = types.ModuleType(name)
        module.__file__ = str(here / file)
        monkeypatch.setitem(sys.modules, name, module)
    sent(code, Parts())
    found = {str(path.relative_to(code)) for path in code.rglob("*.py")}
    assert found == {"main.py", "modules/helpers.py", "modules/shapes/__init__.py", "modules/shapes/round.py"}


def package_here(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package beside the notebook that the kernel has imported; its folder."""
    package = here / "shapes"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    monkeypatch.chdir(here)
    module = types.ModuleType("shapes")
    module.__file__ = str(package / "__init__.py")
    monkeypatch.setitem(sys.modules, "shapes", module)
    return package


def test_a_token_in_a_module_beside_the_notebook_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, code = package_here(tmp_path / "here", monkeypatch), tmp_path / "code"
    code.mkdir()
    (package / "account.py").write_text('TOKEN = "a-secret-token"\n')
    with pytest.raises(UsageError, match=r"modules/shapes/account\.py: your token of the platform is in this file"):
        sent(code, Parts(), secrets=("a-secret-token",))


def test_links_in_a_package_are_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, code, private = package_here(tmp_path / "here", monkeypatch), tmp_path / "code", tmp_path / "private"
    for folder in (code, private):
        folder.mkdir()
    (private / "diary.txt").write_text("mine")
    (package / "folder").symlink_to(private)
    (package / "diary.txt").symlink_to(private / "diary.txt")
    sent(code, Parts())
    assert [path.name for path in (code / "modules/shapes").iterdir()] == ["__init__.py"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"python": [3, 9]}, r"the notebook's kernel has Python 3\.9 and the job has Python 3\."),
        ({"packages": {"torch": "1.13.1"}}, r"the notebook's kernel has torch 1\.13\.1 and the job has torch 2"),
        (
            {"packages": {"no_such_package": "2.0"}},
            r"the notebook's kernel has no_such_package 2\.0 and the job has none",
        ),
        ({"format": 99}, "the notebook's OpenEDT writes format 99"),
    ],
)
def test_a_job_of_other_versions_says_which_before_it_loads_anything(change: dict[str, Any], message: str) -> None:
    mine = {"format": received.FORMAT, "python": list(sys.version_info[:2]), "packages": {"torch": torch.__version__}}
    received.check(mine)
    with pytest.raises(UsageError, match=message):
        received.check({**mine, **change})


@pytest.mark.parametrize(
    ("train", "workers", "devices"),
    [
        ({"batch_size": 8}, 1, 1),
        ({"batch_size": 8, "engines_number": 3, "worker_num": 9}, 3, 1),
        ({"batch_size": 8, "worker_num": 2, "worker_device_num": 4}, 2, 4),
        ({"batch_size": 8, "effective_batch_size": 48}, 6, 1),
    ],
)
def test_the_most_workers_are_those_that_train_names(train: dict[str, Any], workers: int, devices: int) -> None:
    size = Size.of(train)
    assert (size.workers, size.devices) == (workers, devices)


def test_arguments_are_those_of_fabric_model() -> None:
    model = nn.Linear(4, 2)
    with pytest.raises(TypeError, match=r"FabricModel\(\): got an unexpected keyword argument 'no_such'"):
        FabricModel(model, list, functional.cross_entropy, None, no_such=1)
    with pytest.raises(UsageError, match=r"model: got builtins\.int, takes a torch\.nn\.Module or a keras\.Model"):
        FabricModel(3, list, functional.cross_entropy, None)
    made = FabricModel(model, list, functional.cross_entropy, None)
    with pytest.raises(TypeError, match=r"train\(\): got an unexpected keyword argument 'no_such'"):
        made.train(1, 8, no_such=1)
    with pytest.raises(UsageError, match=r"download\(\): called before train\(\)"):
        made.download()


def test_a_script_gets_fabric_model_itself_and_nothing_of_the_platform(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, fabric_model\n"
        "from pyedt.fabric_model import FabricModel\n"
        "import pyedt.notebook.received\n"
        "print(FabricModel is fabric_model.FabricModel, sorted({'httpx', 'edt_cli', 'edt_api'} & set(sys.modules)))\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(RUNNERS)}
    done = subprocess.run([sys.executable, script], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == "True []\n"


def test_the_figure_is_a_png_and_without_matplotlib_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    curve = Curve([(1, 2.0), (2, float("nan")), (3, 1.0)], [(1, 1), (3, 4)])
    drawn = figure(curve, "edt-7")
    assert drawn is not None
    assert drawn.startswith(b"\x89PNG")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    assert figure(curve, "edt-7") is None


def test_outside_of_a_kernel_progress_is_lines_each_once(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    progress.show("edt-7 · waiting")
    progress.show("edt-7 · step 1/4")  # too soon after the one before
    progress.show("edt-7 · finished", last=True)
    progress.show("edt-7 · finished", last=True)
    assert capsys.readouterr().out == "edt-7 · waiting\nedt-7 · finished\n"
