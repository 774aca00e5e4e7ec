"""What a training writes to disk: recovery checkpoints and the files for its user."""
