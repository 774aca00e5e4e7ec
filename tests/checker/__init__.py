"""A checker that shares no code with the product: it believes nothing but what it sees.

It looks at the database (own SQL), at /proc, at the papers in the spool folders, at checkpoints and at the record of
samples, and says which of the platform's invariants are broken, each in a sentence with the evidence. It imports
nothing of ``edt_*``; what it knows of their formats is written down here a second time, on purpose.

| file | looks at |
|---|---|
| ``database`` | the tables, in one consistent picture |
| ``machine`` | the processes of a home, and of which attempt each is |
| ``papers`` | ``attempt.json``, the agents' ledgers, the spooled reports |
| ``samples`` | which samples a training was made of |
| ``checkpoints`` | whether the newest one is whole |
| ``rows``, ``history``, ``living`` | the rules: on one picture, from picture to picture, on what lives |
| ``watch`` | ``Checker``, which is polled, and ``Watch``, which polls it |

I11 is judged for first starts only and I2 without quota: neither priorities nor quotas exist yet.
"""
