"""The framework-neutral engine: one training, any number of processes. Room: runners.

Knows neither torch nor tensorflow: a framework comes in through ``adapter.Adapter``, the bytes move through
``adapter.Plane``. What a step does is a pure function of (seed, tick): ``schedule``, ``permutation``,
``shares``, ``tree`` and ``seeds`` say what; ``loop`` does it.
"""
