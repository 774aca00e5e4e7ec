"""A trained PyTorch model as ONNX file, which onnxruntime runs here for other numbers of rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from edt_runner import context
from edt_runner.errors import RunnerError
from edt_runner.frameworks import onnx_export
from fabric_model import FabricModel

onnxruntime: Any = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
MSE = nn.functional.mse_loss


@pytest.fixture(autouse=True)
def no_remark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "remark", "")


class Listed:
    """A map-style data set of a list."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> Any:
        return self._items[index]


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def exported(
    folder: Path, net: nn.Module, train: Any, loss: Any = MSE, collate: Callable[[Any], Any] | None = None, **more: Any
) -> Path:
    """Write the model as after a training. Returns the path of the file."""
    model = FabricModel(net, lambda: (train, None), loss, torch.optim.SGD(net.parameters(), 0.1), **more)
    trainable = model._trainable
    onnx_export.write("save_to_onnx", trainable, trainable.samples(train, None, 0, collate), folder)
    return folder / "model.onnx"


def run(path: Path, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    found = session.run(names, {name: tensor.numpy() for name, tensor in inputs.items()})
    return {name: torch.from_numpy(np.asarray(array)) for name, array in zip(names, found, strict=True)}


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return torch.allclose(found, expected, rtol=1e-4, atol=1e-6)


class Conv(nn.Module):
    """BatchNorm whose averages differ from a batch's own, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.drop, self.dense = nn.Dropout(0.5), nn.Linear(144, 3)
        self.frozen = nn.BatchNorm1d(144)
        with torch.no_grad():
            for norm in (self.norm, self.frozen):
                norm.running_mean.copy_(numbers(len(norm.running_mean)))  # type: ignore[union-attr, arg-type]
                norm.running_var.mul_(3.0)  # type: ignore[union-attr]

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.norm(self.conv(image))).flatten(1)
        return self.dense(self.drop(self.frozen(hidden)))  # type: ignore[no-any-return]


def test_a_model_is_written_in_evaluation_mode_and_stays_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = Conv()
    net.train()
    net.frozen.eval()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    torch.manual_seed(3), random.seed(3), np.random.seed(3)
    expected = torch.rand(2), random.random(), np.random.rand()
    torch.manual_seed(3), random.seed(3), np.random.seed(3)
    path = exported(
        tmp_path, net, TensorDataset(numbers(10, 1, 8, 8), torch.arange(10) % 3), nn.functional.cross_entropy
    )
    assert (
        torch.equal(torch.rand(2), expected[0]) and random.random() == expected[1] and np.random.rand() == expected[2]
    )
    assert net.training and net.norm.training and not net.frozen.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    assert str(Path(__file__).parent).encode() not in path.read_bytes()
    images = numbers(7, 1, 8, 8)
    assert close(run(path, image=images)["output"], net.eval()(images))
    printed = capsys.readouterr()
    assert not printed.out
    begun, done = printed.err.splitlines()
    assert begun == "edt: model.onnx is being written."
    assert (
        "image [batch, 1, 8, 8] -> output [batch, 3]" in done and "differ from the trained model's by at most" in done
    )
    assert not context.remark


class Point(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(3, 2)

    def forward(self, points: Any, scale: Any) -> dict[str, Any]:
        left = self.dense(points["both"].left) * scale
        return {"sum": left + points["both"].right, "parts": (left, None)}


def test_a_batch_may_have_any_nesting_and_a_step_may_be_the_users_own(tmp_path: Path) -> None:
    items = [({"both": Point(numbers(3) + n, numbers(2))}, float(n)) for n in range(6)]

    def own_step(model: Any, batch: Any) -> Any:
        points, scale = batch
        return model(points, scale=scale.float().unsqueeze(1))["sum"].square().mean()

    net = Nested()
    path = exported(tmp_path, net, Listed(items), None, training_step=own_step)
    left, right, scale = numbers(5, 3), numbers(5, 2), numbers(5, 1)
    found = run(path, points_both_left=left, points_both_right=right, scale=scale)
    expected = net({"both": Point(left, right)}, scale)
    assert close(found["sum"], expected["sum"]) and close(found["parts_0"], expected["parts"][0])


def test_a_model_of_transformers_is_written_with_its_inputs_by_name_and_without_labels(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_embd=8, n_layer=1, n_head=2, vocab_size=20, n_positions=16, bos_token_id=0, eos_token_id=0
    )
    net = transformers.GPT2LMHeadModel(config)
    lengths = (5, 4, 7, 6, 7)  # the first batch is padded to 5 tokens, the second to 7

    def padded(samples: list[Any]) -> dict[str, torch.Tensor]:
        ids = nn.utils.rnn.pad_sequence(samples, batch_first=True)
        return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": ids}

    items = Listed([torch.randint(1, 20, (length,)) for length in lengths])
    path = exported(tmp_path, net, items, None, collate=padded)
    ids = torch.randint(1, 20, (4, 9))
    mask = torch.ones_like(ids)
    mask[0, 6:] = 0
    found = run(path, input_ids=ids, attention_mask=mask)
    assert list(found) == ["logits"]
    with torch.no_grad():
        expected = net.eval()(input_ids=ids, attention_mask=mask).logits
    assert torch.allclose(found["logits"], expected, rtol=1e-3, atol=1e-5)


@pytest.mark.extended
def test_weights_of_a_large_model_lie_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edt_runner.frameworks.pytorch.onnx._ONE_FILE", 1000)
    net = nn.Linear(400, 20)
    path = exported(tmp_path, net, TensorDataset(numbers(9, 400), numbers(9, 20)))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.onnx", "model.onnx.data"]
    assert path.stat().st_size < 4000 and (tmp_path / "model.onnx.data").stat().st_size >= 32000
    rows = numbers(4, 400)
    assert close(run(path, input=rows)["output"], net(rows))


# ── what cannot be written ────────────────────────────────────────────────────────────────────────────────────────
class ByValue(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> Any:
        return self.dense(x) if x.sum() > 0 else self.dense(-x)


class FixedRows(ByValue):
    """Takes any number of rows, and exports as a model for two of them."""

    def forward(self, x: torch.Tensor) -> Any:
        return torch.stack([self.dense(x[row]) for row in range(len(x))])


@torch.library.custom_op("edt_test::swapped", mutates_args=())
def swapped(x: torch.Tensor) -> torch.Tensor:
    return x.flip(0)


@swapped.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


swapped.register_autograd(lambda context, gradient: gradient.flip(0))


class OwnOp(ByValue):
    def forward(self, x: torch.Tensor) -> Any:
        return torch.ops.edt_test.swapped(self.dense(x))


class Drawing(ByValue):
    def forward(self, x: torch.Tensor) -> Any:
        return nn.functional.dropout(self.dense(x), 0.5, training=True)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (ByValue, "decides by the values of its tensors what it computes, which ONNX does not follow at test_onnx"),
        pytest.param(
            FixedRows,
            "fixes the shape of input 'x' at [2, 3], so that the file would not take [3, 3]",
            marks=pytest.mark.extended,
        ),
        (OwnOp, "ONNX has no counterpart of the op edt_test::swapped"),
        pytest.param(Drawing, "onnxruntime computes another result than the trained model", marks=pytest.mark.extended),
    ],
)
def test_what_cannot_be_written_leaves_no_file_and_a_sentence_that_says_why(
    kind: type[nn.Module], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("model.onnx", "model.onnx.data"):
        (tmp_path / name).write_text("of an earlier training")
    exported(tmp_path, kind(), TensorDataset(numbers(9, 3), numbers(9, 2)))
    assert not list(tmp_path.iterdir())
    printed = capsys.readouterr()
    assert not printed.out and len(printed.err.splitlines()) == 2
    assert printed.err.splitlines()[1] == f"edt: {context.remark}. The model's other files are complete."
    assert context.remark.startswith("save_to_onnx: model.onnx is not written, because ") and why in context.remark


def test_a_difference_is_named_with_its_size(tmp_path: Path) -> None:
    onnx: Any = pytest.importorskip("onnx")
    rows, double = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 2]) for name in ("rows", "double")
    )
    node = onnx.helper.make_node("Add", ["rows", "rows"], ["double"])
    path = tmp_path / "model.onnx"
    opset = [onnx.helper.make_opsetid("", 18)]
    graph = onnx.helper.make_graph([node], "double", [rows], [double])
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=10), path)
    given = numbers(4, 2).numpy()
    right = onnx_export.Example({"rows": given}, {"double": given * np.float32(2 + 1e-6)})
    text, largest = onnx_export.check(path, [right])
    assert text == "rows [batch, 2] -> double [batch, 2]" and 0 < largest < 1e-5
    wrong = given * 2
    wrong[1, 1] *= 1.01
    words = r"1 of 8 values of output 'double' differ, by up to 0\.0\d+, where the largest value is \d"
    with pytest.raises(RunnerError, match=words):
        onnx_export.check(path, [onnx_export.Example({"rows": given}, {"double": wrong})])
    onnx_export.check(path, [onnx_export.Example({"rows": given}, {"double": wrong}, half=True)])


def test_a_missing_package_is_told_before_the_training_and_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edt_runner.frameworks.pytorch.onnx.PACKAGES", ("a_package_that_nobody_has",))
    why = "because a_package_that_nobody_has is not installed: pip install 'openedt[onnx]'"
    assert onnx_export.missing("enable_onnx", "pytorch") == [f"enable_onnx: model.onnx will not be written, {why}."]
    assert not onnx_export.missing("", "pytorch")
    assert not exported(tmp_path, nn.Linear(3, 2), TensorDataset(numbers(9, 3), numbers(9, 2))).exists()
    assert context.remark == f"save_to_onnx: model.onnx is not written, {why}"


def test_a_process_that_was_killed_twice_while_it_wrote_is_not_followed_by_a_third(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edt_runner.frameworks.pytorch.onnx.PACKAGES", ("a_package_that_nobody_has",))
    begun = tmp_path / ".model.onnx.begun"
    for killed, why in {
        1: "a_package_that_nobody_has is not installed",
        2: "2 processes that wrote it were killed",
    }.items():
        begun.write_text(str(killed))
        exported(tmp_path, nn.Linear(3, 2), TensorDataset(numbers(9, 3), numbers(9, 2)))
        assert why in context.remark and not begun.exists()


def test_ctrl_c_leaves_no_half_file_and_ends_the_script_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Pressed(Listed):
        def __getitem__(self, index: int) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(SystemExit) as caught:
        exported(tmp_path, nn.Linear(3, 2), Pressed([0, 1]))
    assert caught.value.code == 130 and not list(tmp_path.iterdir())
    assert "edt: Stopped; model.onnx is not written." in capsys.readouterr().err
