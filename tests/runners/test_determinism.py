"""Deterministic kernels: strict mode in passes, and what an op without such a kernel ends.

An op like that exists on processors, too: ``put_``. So all but the kernels of GPUs is tested without one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from edt_runner.errors import PeerLost
from edt_runner.frameworks.pytorch import FRAMEWORK
from edt_runner.frameworks.pytorch import determinism as module
from edt_runner.frameworks.pytorch.determinism import Determinism

cuda: Any = torch.backends.cuda
WHY = "has no deterministic implementation on this device"


@pytest.fixture
def endings() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def determinism(endings: list[tuple[str, str]]) -> Iterator[Determinism]:
    """Determinism that was asked for. All settings of torch are those of before at the end."""
    cudnn, fill = torch.backends.cudnn, torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    before = torch.are_deterministic_algorithms_enabled(), cudnn.benchmark, cudnn.deterministic
    cuda.enable_cudnn_sdp(True)
    with warnings.catch_warnings():
        asked = Determinism()
        asked.ask(lambda *ending: endings.append(ending))
        yield asked
    torch.use_deterministic_algorithms(before[0])
    cudnn.benchmark, cudnn.deterministic = before[1:]
    cuda.enable_cudnn_sdp(True)
    torch.utils.deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]


def put() -> Tensor:
    return torch.zeros(4).put_(torch.tensor([1]), torch.ones(1))


def passing(determinism: Determinism, run: Callable[[], Any]) -> None:
    with determinism.strict():
        run()


def modes() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


# ── modes ───────────────────────────────────────────────────────────────────────────────────────────────────────
def test_before_anybody_has_asked_passes_run_as_the_user_has_chosen() -> None:
    before = modes()
    with Determinism().strict():
        assert modes() == before
        put()


def test_passes_run_in_strict_mode_and_all_else_with_warnings(determinism: Determinism) -> None:
    assert modes() == (True, True)
    with determinism.strict():
        assert modes() == (True, False)
    with pytest.raises(ZeroDivisionError):
        passing(determinism, lambda: 1 / 0)
    assert modes() == (True, True)


def test_new_memory_is_not_filled_and_cudnn_measures_nothing(determinism: Determinism) -> None:
    assert not torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    assert (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic) == (False, True)


def test_attention_uses_no_kernel_of_cudnn_as_long_as_the_guarantee_holds(determinism: Determinism) -> None:
    """With warnings torch would choose it, and not warn."""
    assert "cuDNN" not in FRAMEWORK.computing(on_device=False)["attention"]
    with pytest.raises(PeerLost):
        passing(determinism, put)
    assert "cuDNN" in FRAMEWORK.computing(on_device=False)["attention"]


# ── an op without a deterministic kernel ────────────────────────────────────────────────────────────────────────
def test_it_ends_the_guarantee_by_name_and_its_step_is_tried_again_with_warnings(
    determinism: Determinism, endings: list[tuple[str, str]]
) -> None:
    with pytest.raises(PeerLost, match="put_ has no deterministic implementation"):
        passing(determinism, put)
    assert endings == [("put_", WHY)]
    assert modes() == (True, True)
    with pytest.warns(UserWarning, match="put_ does not have"):
        passing(determinism, put)
    assert not determinism.is_strict


class Puts(torch.autograd.Function):
    """A module's op whose backward pass has no deterministic kernel."""

    @staticmethod
    def forward(ctx: Any, given: Tensor) -> Tensor:
        return given.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        put()
        return gradient


def test_it_is_found_in_a_backward_pass(determinism: Determinism, endings: list[tuple[str, str]]) -> None:
    loss: Any = Puts.apply(torch.ones(2, requires_grad=True)).sum()  # type: ignore[no-untyped-call]
    with pytest.raises(PeerLost):
        passing(determinism, loss.backward)
    assert endings == [("put_", WHY)]


def test_a_trial_pass_that_finds_it_is_run_again(determinism: Determinism, endings: list[tuple[str, str]]) -> None:
    runs: list[bool] = []

    def trial() -> None:
        runs.append(determinism.is_strict)
        passing(determinism, put)

    with pytest.warns(UserWarning):
        determinism.settle(trial)
    assert (runs, endings[0]) == ([True, False], ("put_", WHY))


def test_a_trial_pass_that_loses_a_peer_or_fails_is_not_run_again(determinism: Determinism) -> None:
    runs = []

    def loses() -> None:
        runs.append(1)
        raise PeerLost("gone")

    with pytest.raises(PeerLost, match="gone"):
        determinism.settle(loses)
    with pytest.raises(RuntimeError, match="size"):
        passing(determinism, lambda: torch.ones(2) + torch.ones(3))
    assert (len(runs), determinism.is_strict) == (1, True)


@pytest.mark.usefixtures("determinism")
def test_outside_of_passes_it_ends_the_guarantee_by_a_warning_which_the_user_sees_once(
    monkeypatch: pytest.MonkeyPatch, endings: list[tuple[str, str]]
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *rest: seen.append(str(message)))
    Determinism().ask(lambda *ending: endings.append(ending))
    for _ in range(3):
        put()
    warnings.showwarning("another", UserWarning, "a_file.py", 1)
    assert set(endings) == {("put_", WHY)}
    assert [text.partition(" ")[0] for text in seen] == ["put_", "another"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("cumsum_cuda_kernel does not have a deterministic implementation, but you set", "cumsum_cuda_kernel"),
        (
            "_histc_cuda with floating point input does not have a deterministic implementation",
            "_histc_cuda with floating point input",
        ),
        ("Deterministic behavior was enabled, but it uses CuBLAS and", "cuBLAS with CUBLAS_WORKSPACE_CONFIG=:0:0"),
        ("Flash Attention defaults to a non-deterministic algorithm. To explicitly", "Flash Attention"),
        ("Memory Efficient attention defaults to a non-deterministic algorithm. ", "Memory Efficient attention"),
        ("No available kernel. Aborting execution.", "No available kernel. Aborting execution."),
        ("CUDA out of memory", None),
    ],
)
def test_the_op_is_named_as_torch_names_it(text: str, name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0")
    assert module.op_that_raised(RuntimeError(text)) == name


@contextmanager
def precision(backend: Any, value: str) -> Iterator[None]:
    """A context in which matrix products have another precision."""
    before, backend.matmul.fp32_precision = backend.matmul.fp32_precision, value
    yield
    backend.matmul.fp32_precision = before


# ── what decides bits ───────────────────────────────────────────────────────────────────────────────────────────
def test_kinds_of_attention_and_precisions_are_told_without_a_warning() -> None:
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert FRAMEWORK.computing(on_device=False)["attention"] == "plain"
    found = FRAMEWORK.computing(on_device=False)
    assert "flash" in found["attention"]
    assert not {"multiprocessors", "MIG", "CUBLAS_WORKSPACE_CONFIG"} & set(found)
    with precision(torch.backends.mkldnn, "bf16"):
        other = FRAMEWORK.computing(on_device=False)
    assert other["precision of float32"] != found["precision of float32"]
    assert FRAMEWORK.computing(on_device=False) == found


def test_the_profile_of_a_mig_device_is_told_and_not_which_one_it_is() -> None:
    assert module.mig_profile("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "MIG-9f3c") == "1g.10gb"
    assert module.mig_profile("NVIDIA H100 80GB HBM3", "MIG-9f3c") == "unknown"
    assert module.mig_profile("NVIDIA H100 80GB HBM3", "GPU-1b2d") == ""


# ── on a GPU ────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.cuda
def test_an_op_of_a_gpu_ends_the_guarantee_by_name(determinism: Determinism, endings: list[tuple[str, str]]) -> None:
    values = torch.rand(1000, device="cuda")
    with pytest.raises(PeerLost):
        passing(determinism, lambda: torch.histc(values, 10))
    assert "histc" in endings[0][0]
    with pytest.warns(UserWarning):
        passing(determinism, lambda: torch.histc(values, 10))


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_two_passes_through_attention_and_convolutions_have_equal_bits(
    determinism: Determinism, endings: list[tuple[str, str]], dtype: torch.dtype
) -> None:
    """Attention's backward pass adds parts in any order unless it is told not to; with enough heads that shows."""
    torch.cuda.manual_seed(0)
    query, key, value = (torch.randn(8, 8, 1024, 64, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3))
    images = torch.randn(32, 16, 33, 33, device="cuda", dtype=dtype, requires_grad=True)
    convolution = nn.Conv2d(16, 32, 3, device="cuda", dtype=dtype)
    inputs = [query, key, value, images, convolution.weight]

    def gradients() -> list[Tensor]:
        for each in inputs:
            each.grad = None
        with determinism.strict():
            attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            (attended.square().sum() + convolution(images).square().sum()).backward()
        return [each.grad.clone() for each in inputs if each.grad is not None]

    first = gradients()
    for _ in range(5):
        assert all(torch.equal(one, other) for one, other in zip(first, gradients(), strict=True))
    assert endings == []


@pytest.mark.cuda
def test_what_decides_bits_on_a_gpu_is_told_without_a_warning() -> None:
    found = FRAMEWORK.computing(on_device=True)
    assert found["multiprocessors"] > 0 and found["device"] == torch.cuda.get_device_name(0)
    assert found["device"] != FRAMEWORK.computing(on_device=False)["device"]
    with precision(cuda, "tf32"):
        other = FRAMEWORK.computing(on_device=True)
    assert [name for name in found if found[name] != other[name]] in (
        ["precision of float32 on GPUs"],
        ["matrix products", "precision of float32 on GPUs"],
    )
