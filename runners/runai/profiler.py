"""Not here: ``runai.profiler``. Room: runners."""

from runai._gone import gone

raise gone(
    "runai.profiler",
    "torch.profiler.profile with PyTorch, keras.callbacks.TensorBoard(profile_batch=…) or tf.profiler with Keras",
)
