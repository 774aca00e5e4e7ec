"""Which metrics are better when they are larger, by their names."""

from __future__ import annotations

import pytest

from edt_contract.metrics import larger_is_better


@pytest.mark.parametrize(
    "name",
    ["accuracy", "val_accuracy", "top5_acc", "Accuracy", "roc_auc", "BinaryF1Score", "precision", "val_recall", "r2",
     "MeanIoU", "mean_io_u", "iou", "bleu4", "dice"],
)  # fmt: skip
def test_a_metric_named_like_an_accuracy_is_better_when_it_is_large(name: str) -> None:
    assert larger_is_better(name)


@pytest.mark.parametrize(
    "name",
    ["loss", "val_loss", "dice_loss", "perplexity", "mse", "error_rate", "mean_absolute_error", "r", "f", "what", ""],
)
def test_a_loss_and_whatever_nobody_knows_is_better_when_it_is_small(name: str) -> None:
    assert not larger_is_better(name)
