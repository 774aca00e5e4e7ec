"""``edt-rsh``: starts commands on the other workers of a gang, as ``ssh`` does, for launchers such as mpirun.

A gang that runs one process for the whole job has a server on each other worker (``server``). ``client`` is the
program ``edt-rsh``: ``edt-rsh worker-1 COMMAND…`` runs COMMAND there with the environment of the job, and passes on
input, output and exit status. ``wire`` defines what they send to each other.

Server and client prove to each other that they know the gang's key. The key is not sent, and it is no secret of the
platform: the job's own processes have it in their environment. What follows is not encrypted, like the data that the
processes of a training exchange.
"""
