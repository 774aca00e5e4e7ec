"""Starts a training from a user's call: in a driver, in an engine, or with a new supervisor on this machine."""
