"""A checker that shares no code with the product: it trusts only what it reads itself.

It looks at the database (own SQL), at /proc, at the files in the spool folders, at checkpoints and at the record of
samples, and says which of the platform's invariants are broken, each in a sentence with the evidence. It imports
nothing of ``edt_*``; what it knows of their formats is written down here a second time, on purpose.

| file | looks at |
|---|---|
| ``database`` | the tables, in one consistent snapshot |
| ``machine`` | the processes of a home, and of which attempt each is |
| ``home_files`` | ``attempt.json``, the agents' records, the spooled reports |
| ``samples`` | which samples a training was made of |
| ``checkpoints`` | whether the newest one is whole |
| ``rows``, ``history``, ``living`` | the rules: on one snapshot, from snapshot to snapshot, on running processes |
| ``watch`` | ``Checker``, which is polled, and ``Watch``, which polls it |

I11 is judged for first starts only and I2 without quota: neither priorities nor quotas exist yet.
"""
