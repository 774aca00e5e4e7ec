"""The shapes of requests and answers. Needs pydantic alone, so the CLI can use them without a server.

Shapes with WMLA's names are flat. All others are OpenEDT's own, under ``/api/v1``. Times are seconds since the epoch
unless a field documents otherwise; None means that the event has not happened yet. A person's request must not hold
unknown keys. In a request of an agent, which may have another version, unknown keys are dropped.
"""
