"""The data plane over torch.distributed: ``plane`` builds groups, and a ``group`` reduces steps and moves state.

``tree_reduction`` makes the sums of one engine. An exchange sums them over all engines: ``exchange`` between
processors, ``collective_exchange`` between GPUs, ``staged_exchange`` between GPUs through host memory.
"""
