#!/bin/bash
# Measures on all GPUs of several nodes; the arguments are those of opcost measure. Rows are on the disk as they come: after
# the time limit submit the same job again.
#
# sbatch --nodes 4 --time 01:30:00 docs/examples/slurm/measure.sh 'resnet*' --relative-error 0.01
#SBATCH --job-name=opcost
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --gpus-per-node=8
#SBATCH --output=opcost-%j.log
#SBATCH --signal=B:TERM@60
set -eu
file=$PWD/opcost-scheduler-$SLURM_JOB_ID.json
trap 'kill $(jobs -p) 2>/dev/null; rm -f "$file"' EXIT
dask scheduler --scheduler-file "$file" --no-dashboard &
srun opcost worker --scheduler-file "$file" &
# In the background, so that the signal before the time limit ends this shell, which ends the rest.
opcost measure "$@" --scheduler-file "$file" &
wait $!
