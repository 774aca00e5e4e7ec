"""``runai.profiler`` is not part of OpenEDT; the import raises an error that names alternatives."""

raise ImportError(
    "runai.profiler is not part of OpenEDT's runai. Instead: torch.profiler.profile with PyTorch, "
    "keras.callbacks.TensorBoard(profile_batch=…) or tf.profiler with Keras",
    name="runai.profiler",
)
