"""The HTTP API: its requests and responses, and the rules for who may send them.

``main.create_app`` makes the application. ``python -m edt_api`` starts the process. ``edt_scheduler.operations``
decides and stores. This package holds the shapes of requests and answers (``schemas``, ``to_wire``), the access rules
(``access``), the reading of submissions (``submissions``), the reading of a job's files (``job_files``), and one module
for each resource (``routes``; ``execs`` and ``logon`` are WMLA's). The package uses no SQL, no queue and no process of
a job. Importing the package itself loads nothing else, and ``schemas`` needs only pydantic.
"""
