"""What agent, scheduler, API and runner share, and nothing that only one of them needs.

* ``attempt``: what an agent tells a supervisor (``AttemptSpec`` once, ``DesiredState`` again and again)
* ``reports``: what a supervisor reports, and what each report's body may hold
* ``encoding``: dataclasses as JSON objects, one a line, as they go over sockets and into files
* ``environment``, ``names``: names that two sides must write alike
* ``processes``, ``durable``, ``crash_points``: helpers that every process uses

It imports only the standard library.
"""
