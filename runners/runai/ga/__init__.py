"""Gradient accumulation: several micro-batches for one update. Room: runners; no framework."""
