#!/usr/bin/env bash
# Repeats the measurements behind docs/accuracy.md on one NVIDIA GPU that nothing else uses: about 25 minutes.
# Name steps to run only these. The step `fast` ends after 8 minutes; started again it continues.
# Example: benchmarks/all.sh build/benchmarks            # or: benchmarks/all.sh build/benchmarks count qualify repeat
set -euo pipefail
output=$(realpath --canonicalize-missing "$1")
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONPATH=.${PYTHONPATH:+:$PYTHONPATH}
python=${PYTHON:-python3}
model=resnet50_32x3x224x224
mkdir -p "$output"

count() {
    "$python" general_pipeline_block0.py "$model"
    "$python" general_pipeline_block1.py "$model"
}

qualify() {
    "$python" power_logger.py --qualify --database "$output/database"
}

# Status 1 says that some operators could not be measured: the others were.
measured() {
    "$@" || [ $? -eq 1 ]
}

# Three runs of ResNet-50's operators in fresh processes and shuffled order, the whole model, and the comparison.
repeat() {
    for number in 1 2 3; do
        run="$output/run$number"
        mkdir -p "$run"
        cp "$output/database/meter_qualifications.csv" "$run"
        # Once is enough for the cache corrections.
        [ "$number" = 1 ] || cp "$output/run1/calls_in_chains.csv" "$run" || true
        (time measured "$python" general_pipeline_block2.py "$model" --relative-error 0.01 --database "$run") 2>&1 | tail -n 12
    done
    measured "$python" full_model_measurement.py "$model" --seconds 3 --database "$run"
    "$python" compare_sum_vs_full.py "$model" --database "$run"
    "$python" benchmarks/repeatability.py "$output"/run?
    "$python" benchmarks/time_spent.py "$output"/run?
}

overhead() {
    "$python" benchmarks/logging_overhead.py --blocks 8
}

fast() {
    "$python" benchmarks/fast_vs_reference.py --database "$output/database" --drawn-from database \
        --output "$output/fast_vs_reference.csv"
    "$python" benchmarks/fast_vs_reference.py --evaluate "$output/fast_vs_reference.csv"
}

all_steps="count qualify fast repeat overhead"
for step in ${*:-$all_steps}; do
    declare -F "$step" > /dev/null || { echo "$step: no such step; there are: $all_steps"; exit 2; }
    "$step"
done
