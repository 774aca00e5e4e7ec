"""A model that trains on any number of engines: ``from fabric_model import FabricModel``.

    def datasets():
        return train_set, test_set

    model = FabricModel(net, datasets, F.cross_entropy, torch.optim.Adam(net.parameters()))
    model.train(10, 32, 4)          # 10 epochs, 32 samples per micro-batch, 4 micro-batches per step

Every process of a job must see the same data. In a process without a platform, the import therefore seeds Python,
NumPy and the frameworks that are already imported with EDT_SEED. In a job, the platform has already done so.
"""

from edt_runner.launch.seeding import seed_at_import
from edt_runner.step_lines import print_backend
from fabric_model.model import FabricModel

__all__ = ["FabricModel"]

print_backend()
seed_at_import(__name__)
