"""A user's stand-in for the module of parameters that WMLA's pages made."""

import os

from torch import optim


def getTrainData(distributed):
    return os.environ["DATA_DIR"]


def getTestData(distributed):
    return os.environ["DATA_DIR"]


def getTrainBatchSize():
    return 32


def getEpoch():
    return 2


def getOptimizer(model):
    return optim.Adam(model.parameters(), lr=0.01)
