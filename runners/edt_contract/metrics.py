"""Which value of a metric is better, by the metric's name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

_LARGER = frozenset({
    "acc", "accuracy", "auc", "auroc", "auprc", "ap", "map", "bleu", "rouge", "meteor", "chrf", "correlation", "corr",
    "dice", "f1", "fbeta", "iou", "jaccard", "kappa", "ndcg", "precision", "psnr", "r2", "recall", "reward", "score",
    "similarity", "specificity", "sensitivity", "ssim", "mrr", "hits", "topk", "top1", "top5",
})  # fmt: skip
_WORDS = re.compile(r"[a-z]+[0-9]*")


@lru_cache(maxsize=1024)
def larger_is_better(name: str) -> bool:
    """Whether a larger value of the metric is better. Losses, errors and all unknown names: a smaller one.

    Args:
        name: the metric's name, also with ``val_`` before it: "val_accuracy", "BinaryF1Score".
    """
    apart = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().replace("io_u", "iou")  # Keras: MeanIoU, mean_io_u
    words = set(_WORDS.findall(apart))
    words |= {word.rstrip("0123456789") for word in words}  # bleu4
    return bool(words & _LARGER) and not words & {"loss", "error", "err"}


def better(name: str, values: Iterable[float]) -> float:
    """Return the best of at least one value of the metric."""
    return max(values) if larger_is_better(name) else min(values)
