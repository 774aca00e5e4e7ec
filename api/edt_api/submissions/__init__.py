"""Turns the body of a submission into a job: its turn, its upload, its archive, its args."""
