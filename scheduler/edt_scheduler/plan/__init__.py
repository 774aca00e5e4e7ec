"""The scheduling decision as one pure function: ``policy.plan(state) -> Plan``.

``plan`` reads no clock and no database, uses no randomness and keeps no memory. So the scheduler's loop can call it,
and a simulator or a "what if" query could call it in the same way. ``state`` is the contract and should stay as it is.
``shares``, ``gangs``, ``policy`` and ``reasons`` are the policy and can be replaced.

Property tests check five rules that every policy must keep:

* A node never gets more engines than it has free slots.
* Nothing new starts on a node that is not up.
* The planned size of a job is 0, one of its sizes, or the number of slots that it holds already. A gang has one size.
* plan(apply(plan)) = plan: after a plan is applied, the next plan changes nothing.
* The order of the inputs does not change the plan.
"""
