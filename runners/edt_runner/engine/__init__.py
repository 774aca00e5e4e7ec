"""One engine: how it joins, trains, switches, regroups and ends. ``main`` is its process, ``engine`` its protocol."""
