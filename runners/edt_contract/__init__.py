"""What agent, scheduler, API and runner share, and nothing that only one of them needs.

* ``attempt``: what an agent tells a supervisor (``AttemptSpec`` once, ``DesiredState`` again and again)
* ``reports``: what a supervisor reports, and what each report's body may hold
* ``encoding``: dataclasses as JSON objects, one a line, as they go over sockets and into files
* ``frameworks``: the table of the frameworks that this release runs
* ``broker``: names and settings of Celery that two sides must write alike
* ``processes``, ``durable``, ``crash_points``: helpers that every process uses

It imports only the standard library.
"""
