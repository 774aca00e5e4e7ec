"""The scheduling decision as one pure function: ``policy.plan(state) -> Plan``.

``plan`` reads no clock and no database, uses no randomness and keeps no memory. So the scheduler's loop calls it, and
so do the simulator and all answers to "why" and "what if". ``state`` is the contract. What users and queues are
entitled to is reckoned in ``queues``, what each slot is worth to a job in ``curves``, ``sizes`` and ``worth``, and the
two meet in ``shares`` and ``filling``. Where the slots are is decided in ``gangs``, ``placement`` and ``policy``, each
kind of slot for itself (``devices``). ``naming`` and ``reasons`` say which slots these are, and why.

Property tests check five rules that every policy must keep:

* A node never gets more engines than it has free slots.
* Nothing new starts on a node that is not up.
* The planned size of a job is 0, one of its sizes, or what it holds already or will hold while it moves. A gang has
  one size.
* plan(apply(plan)) = plan: after a plan is applied, the next plan changes nothing.
* The order of the inputs does not change the plan.
"""
