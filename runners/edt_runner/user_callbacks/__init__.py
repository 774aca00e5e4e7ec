"""A user's callbacks in an elastic training: when their hooks run, and what they remember. Room: runners.

Hooks run in every engine, as part of the commit that ends an epoch: the state after n ticks is the one after all hooks
that belong before tick n. So whoever has the state has them behind him, and nobody runs one twice or misses one.
"""
