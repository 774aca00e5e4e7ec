"""The demo of ``make demo``: real trainings, resized while they train, and the proof that nothing changed."""
