"""The scheduler's room: the truth and every decision.

``operations`` are the use cases, the only door for the API; ``plan`` decides, purely; ``reconcile`` applies what
was decided; ``store`` is the database; ``doorbell`` wakes others. ``python -m edt_scheduler`` is the process.
The room knows no HTTP, no framework and no process of a job. Importing this package costs nothing.
"""
