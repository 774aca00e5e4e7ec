"""A user's callbacks in an elastic training: when their hooks run, and what they remember.

Hooks run in every engine, as part of the commit that ends an epoch: the state after n steps is the one after all hooks
that belong before step n. So an engine that has the state has what those hooks did, and no engine runs a hook twice or
misses one.
"""
