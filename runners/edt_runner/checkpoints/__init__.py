"""Writes a training's files: recovery checkpoints, and the files that its user downloads."""
