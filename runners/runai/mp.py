"""Not here: ``runai.mp``. Room: runners."""

from runai._gone import gone

raise gone(
    "runai.mp",
    "keras.distribution.ModelParallel with Keras 3, torch.distributed.tensor.parallel or FSDP with PyTorch",
)
