"""One engine: how it joins, trains, switches, regroups and ends.

``main`` prepares and ends its process. ``engine`` is its part of the protocol. ``step_runner`` runs the steps. ``link``
is its connection to the coordinator.
"""
