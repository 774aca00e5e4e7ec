"""Reading what a job wrote: its logs and its results."""
