"""The code that agent, scheduler, API and runner share. Code that only one of them needs does not belong here.

* ``attempt``: the messages from an agent to a supervisor (``AttemptSpec`` once, ``DesiredState`` again and again)
* ``reports``: the reports of a supervisor, and the fields that each kind of report may have
* ``encoding``: writes dataclasses as JSON objects, one a line, for sockets and files, and reads them
* ``frameworks``: the table of the frameworks that this release runs
* ``broker``: names and settings of Celery that must be the same on both sides
* ``processes``, ``durable``, ``crash_points``: helpers that every process uses

The package imports only the standard library.
"""
