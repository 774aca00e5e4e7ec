"""The scheduler: what the platform knows of jobs and nodes, and every decision about them.

    model, views   states, rules and what is shown of them; pure
    plan           which job gets how many slots; pure
    decide         a snapshot of the store, its plan, and the transaction that applies it; who leads
    ingest         what reports change
    attempts       how attempts begin, lose engines and nodes, and end; used by decide, ingest and operations
    operations     the use cases, the only part that the API calls
    periodic       tasks that run by the clock: retention, sweeping, sums
    notify         notifications to nodes and schedulers, over Celery
    store          the database; SQL is written there and nowhere else
    home           files in EDT_HOME: submitted code, fence files, the secret key, lost+found
    platform       opens all of this; whether home and database belong together

``python -m edt_scheduler`` is the process that decides. It knows no HTTP, no framework and no process of a job.
Importing this package costs nothing.
"""
