"""The data plane over torch.distributed: process groups, the tree reduction, state transfer and the watchdog."""
