"""Kill storms: the real platform, its parts killed as a seed chooses, and a checker that looks on.

python -m chaos                     what ``make chaos`` starts; `tests` has to be on the path
CHAOS_SECONDS=600                   of storm, each database by itself; then there is quiet until all jobs are over
CHAOS_SEED=7                        the choices; at random and printed where it is not given
CHAOS_DATABASE=sqlite|postgresql|both
CHAOS_WITHOUT=engine-stop,…         kinds that are passed over

A seed replays the same choices in the same order. What they hit is up to the moment: timing is the machine's.

| file | what |
|---|---|
| ``choices`` | what is done next, out of a seed; pure |
| ``victims`` | who that is on this machine |
| ``trainings`` | the jobs that are kept going, and what they must come to |
| ``storm`` | one storm over one database, and the quiet after it |
| ``counts`` | the line at the end |
"""
