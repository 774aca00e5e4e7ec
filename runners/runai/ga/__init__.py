"""Gradient accumulation: one update from several micro-batches."""
