"""What crosses the wire, as shapes. Touches pydantic alone: the CLI reads it without a server.

What has WMLA's names is flat; all else is ours, under ``/api/v1``. Times are seconds since the epoch where nothing else
is said; None: not yet. What a person sends must not hold unknown keys; of what an agent of another version sends they
are dropped.
"""
