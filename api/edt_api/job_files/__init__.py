"""Reads the files that a job wrote: its logs and its results."""
