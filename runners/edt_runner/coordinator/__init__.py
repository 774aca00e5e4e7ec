"""The coordinator of an attempt. It decides which engines train together.

``coordinator`` is its state machine, which does no input or output. ``server`` is its process and has the sockets.
"""
