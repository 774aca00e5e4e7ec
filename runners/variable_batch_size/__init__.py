"""Training with a batch size that follows a trace. The names are those of ETH's library.

    import variable_batch_size as vbs

    sampler = vbs.CustomSampler(dataset, trace="trace.csv", minibatch_size=32)
    loader = DataLoader(dataset, batch_sampler=sampler)
    optimizer = vbs.LinearRuleOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), sampler, ref_batchsize=128)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        optimizer.set_epoch(epoch)
        for inputs, targets in loader:
            loss(model(inputs), targets).backward()
            optimizer.step()                           # True if the weights have changed

The trace holds the global batch of each update. Each process computes its share of an update's micro-batches; shares
may differ between processes. ``step`` accumulates, reduces and applies the gradients. It works in one process, in a
process group (gloo, NCCL) and under torch_xla.
"""

from edt_runner.lr_scaling.traces import Trace, TraceEnded
from variable_batch_size.collective import all_reduce_tensors, all_reduce_tensors_mesh, init_group
from variable_batch_size.optimizer import CustomOptimizer
from variable_batch_size.rules import (
    AdamScaleOptimizer,
    AdamSquareRootOptimizer,
    AdaScaleOptimizer,
    ConstantOptimizer,
    ConstantRuleOptimizer,
    LegwOptimizer,
    LinearRuleMomentumOptimizer,
    LinearRuleOptimizer,
    LinearWarmupRuleOptimizer,
    RootRuleOptimizer,
    RuleOptimizer,
)
from variable_batch_size.sampler import CustomSampler

__all__ = [
    "AdaScaleOptimizer",
    "AdamScaleOptimizer",
    "AdamSquareRootOptimizer",
    "ConstantOptimizer",
    "ConstantRuleOptimizer",
    "CustomOptimizer",
    "CustomSampler",
    "LegwOptimizer",
    "LinearRuleMomentumOptimizer",
    "LinearRuleOptimizer",
    "LinearWarmupRuleOptimizer",
    "RootRuleOptimizer",
    "RuleOptimizer",
    "Trace",
    "TraceEnded",
    "all_reduce_tensors",
    "all_reduce_tensors_mesh",
    "init_group",
]
