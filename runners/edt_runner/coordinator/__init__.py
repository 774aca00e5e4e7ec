"""The coordinator of an attempt: it decides which engines train together. ``coordinator`` is its state machine, which
has no input or output; ``server`` is its process."""
