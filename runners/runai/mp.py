"""``runai.mp`` is not part of OpenEDT; the import raises an error that names alternatives."""

raise ImportError(
    "runai.mp is not part of OpenEDT's runai. Instead: keras.distribution.ModelParallel with Keras 3, "
    "torch.distributed.tensor.parallel or FSDP with PyTorch",
    name="runai.mp",
)
