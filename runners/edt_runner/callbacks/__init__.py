"""A user's callbacks in an elastic training: when their hooks run, and what the callbacks remember.

Every engine runs the hooks, as part of the commit that ends an epoch. The state after n steps is the state after all
hooks that belong before step n. An engine that has this state therefore has the effects of those hooks, and no engine
runs a hook twice or misses a hook.
"""
