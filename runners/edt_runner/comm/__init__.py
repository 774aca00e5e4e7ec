"""The data plane over torch.distributed: process groups, the tree reduction and state transfer (``process_groups``,
``tree_reduction``), and the connections below them (``connections``)."""
