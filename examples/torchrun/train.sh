#!/usr/bin/env bash
# Runs once for each worker of the job. torchrun starts one process for each slot of the worker.
set -euo pipefail
exec torchrun \
    --nnodes "$WMLA_NWORKER" --nproc_per_node "$WMLA_WORKER_NDEVICE" --node_rank "$NODE_RANK" \
    --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT" \
    train.py "$@"
