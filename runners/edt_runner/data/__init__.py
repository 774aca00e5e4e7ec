"""Micro-batches: loader processes, and the shared memory in which batches arrive."""
