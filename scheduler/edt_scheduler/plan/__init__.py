"""The decision, as one pure function: ``plan(state) -> Plan``.

No clock, no database, no randomness, no memory: the same call serves the scheduler's loop, "why does my job
wait", "what if" and a simulator. The contract (``state``) is meant to stay, the policy (``shares``) to be replaced.
What a policy must keep, held by property tests: never more on a node than its free slots,
nothing new on a node that is not up, a planned size is 0 or one of the job's sizes or what it holds already on
the way there, plan(apply(plan)) = plan, and the order of the inputs changes nothing.
"""
