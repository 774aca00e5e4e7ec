"""PyTorch's side of the runner: everything that knows modules, optimizers and data sets of torch.

torch is also what the data plane moves bytes with, in every process; what is here is only used by jobs in PyTorch.
"""
