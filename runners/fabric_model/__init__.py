"""``from fabric_model import FabricModel``: a model that trains on any number of engines.

    def datasets():
        return train_set, test_set

    model = FabricModel(net, datasets, F.cross_entropy, torch.optim.Adam(net.parameters()))
    model.train(10, 32, 4)          # 10 epochs, 32 samples a micro-batch, 4 micro-batches a step

Importing it seeds Python, NumPy and torch with the job's seed (EDT_SEED without a platform), unless the platform
has done so: every process of a job must see the same data.
"""

from edt_runner.launch.train import seed_plain_process
from fabric_model.model import FabricModel

__all__ = ["FabricModel"]

seed_plain_process()
