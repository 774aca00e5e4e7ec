"""FabricModel in a notebook, whose kernel holds no GPU and has no script that engines could run.

``model`` is the class that a cell uses. ``bundle`` writes what the training needs into a folder: model and functions
in one pickle, and a main.py. ``platform`` submits the folder as a job and follows it; without a platform, ``local``
runs the same main.py on this machine. In the job ``received`` loads the pickle and calls ``fabric_model``. ``weights``
brings the trained weights back into the notebook's model, ``display`` shows the progress.

The pickle is made by its user and loaded in that user's own job alone: neither the platform nor the notebook loads one.
"""
