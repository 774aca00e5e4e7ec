"""Gradient accumulation: several micro-batches for one update."""
