"""The HTTP API: requests, responses, and who may ask.

``main.create_app`` makes the application, ``python -m edt_api`` is the process. ``edt_scheduler.operations`` decides
and stores; this package holds the shapes of requests and answers (``schemas``, ``to_wire``), who may ask what
(``access``), what a submission is made of (``submissions``), and a module for each resource (``routes``; ``execs`` and
``logon`` are WMLA's). It uses no SQL, no queue and no process of a job. Importing it costs nothing, and ``schemas``
needs pydantic alone.
"""
