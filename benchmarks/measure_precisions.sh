#!/usr/bin/env bash
# Measures models under several conditions on the present GPU: operators, whole models, and their comparison.
# Started again with the same folder it continues. Example, 6 minutes on an H200:
#   benchmarks/measure_precisions.sh build/precisions resnet50:32x3x224x224:fp32+tf32+bf16+bf16-channels_last+amp-bf16
# KERNELS=1 compares kernels instead of measuring. LIMIT_S=500 stops after 500 s, which loses nothing.
set -euo pipefail
home=$(realpath --canonicalize-missing "$1")
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONPATH=.${PYTHONPATH:+:$PYTHONPATH}
python=${PYTHON:-python3}
run=$home/run
end=$((SECONDS + ${LIMIT_S:-86400}))
mkdir -p "$home/measurements" "$run"
echo 'operators: ["*"]' > "$home/measurements/operator_whitelist.yml"

# Writes the config of a model under a condition, and prints its name.
config() {
    local model=$1 size=$2 condition=$3 name="$1_$2_$3"
    local folder="$home/measurements/$name" layout=contiguous
    [[ $condition = *-channels_last ]] && layout=channels_last
    mkdir -p "$folder"
    [ -f "$folder/summary.yml" ] || cat > "$folder/summary.yml" <<YAML
model_name: $model
weights_name: null
input_size: [${size//x/, }]
precision: ${condition%-channels_last}
memory_format: $layout
done: false
YAML
    echo "$name"
}

# Runs a command of opcost until the limit, whose status is 124. Status 1 says that a part could not be measured: the
# others were.
opcost() {
    local left=$((end - SECONDS))
    [ "$left" -gt 5 ] || exit 0
    local status=0
    timeout --signal INT "$left" "$python" -m opcost "$1" "${@:2}" --measurements "$home/measurements" --database "$run" ||
        status=$?
    case $status in
        0 | 1) ;;
        124) exit 0 ;;
        *) exit "$status" ;;
    esac
}

for model in "$@"; do
    IFS=: read -r name size conditions <<< "$model"
    cases=()
    for condition in ${conditions//+/ }; do
        cases+=("$(config "$name" "$size" "$condition")")
    done
    opcost count "${cases[@]}"
    opcost filter "${cases[@]}"
    if [ -n "${KERNELS:-}" ]; then
        opcost compare-kernels "${cases[@]}"
        continue
    fi
    opcost measure "${cases[@]}" --relative-error 0.01 --whole
    opcost compare "${cases[@]}"
done
