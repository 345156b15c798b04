#!/usr/bin/env bash
# Sweeps over input size on the present GPU: AlexNet over the batch, ResNet-50 over pixels, BERT-base over tokens, ten
# repetitions of each size, with kernels. Then predictions, tables and figures, packed into OUT as at most 8 files.
# Example, 13 minutes of an H200, then 3 minutes of its host:
#   benchmarks/sweeps.sh build/sweeps-out 540
# After SECONDS it stops and packs what is there; the same command goes on. Its measurements stay in SWEEPS_HOME.
# SWEPT="alexnet bert" runs only some; LOOP_S=1 has longer loops; DEVICE=cpu REPETITIONS=2 tries it without a GPU;
# MEASURE=0 only evaluates, on any machine that has SWEEPS_HOME.
set -euo pipefail
if [ $# -lt 1 ]; then
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
    exit 2
fi
out=$(realpath --canonicalize-missing "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONPATH=.${PYTHONPATH:+:$PYTHONPATH}
python=${PYTHON:-python3}
home=$(realpath --canonicalize-missing "${SWEEPS_HOME:-build/sweeps}")
end=$((SECONDS + ${2:-86400}))
mkdir -p "$home" "$out"

# Prints the arguments of a sweep.
arguments_of() {
    case $1 in
        alexnet) echo "alexnet --batch 1:256:x2" ;;
        resnet50) echo "resnet50 --input-size 1x3x224x224 --size 8:4096:x2" ;;
        bert) echo "transformers:BertModel --input-size 1x128 --tokens 50:500:50" ;;
        *) echo "no sweep $1; there are alexnet, resnet50 and bert" >&2 && return 2 ;;
    esac
}

# Runs a sweep until the limit, after which the script packs. Status 1 says that a size failed: the others were measured.
sweep() {
    local left=$((end - SECONDS)) status=0
    [ "$left" -gt 5 ] || return 124
    timeout --signal INT "$left" "$python" -m opcost sweep "$@" --home "$home" || status=$?
    [ "$status" -le 1 ] || return "$status"
}

measure() {
    local name options
    for name in ${SWEPT:-alexnet resnet50 bert}; do
        options=$(arguments_of "$name")
        # shellcheck disable=SC2086
        sweep $options --repetitions "${REPETITIONS:-10}" --seconds "${LOOP_S:-0.5}" --kernels --no-predict \
            ${DEVICE:+--device "$DEVICE"} || return $?
    done
}

evaluate() {
    local name options
    for name in ${SWEPT:-alexnet resnet50 bert}; do
        options=$(arguments_of "$name")
        # shellcheck disable=SC2086
        sweep $options --no-measure ${DEVICE:+--device "$DEVICE"} \
            --output "$home/evaluated/$name" --figures "$home/evaluated/$name" > "$home/evaluated/$name.txt" || return $?
    done
}

pack() {
    local table
    for table in sweep_repetitions sweep_failures sweep_kernels sweep_sizes meter_qualifications; do
        [ ! -f "$home/database/$table.csv" ] || cp "$home/database/$table.csv" "$out/"
    done
    [ ! -d "$home/database/power_logs" ] || tar -C "$home/database" -cJf "$out/power_logs.tar.xz" power_logs
    tar -C "$home" -cJf "$out/evaluated.tar.xz" evaluated
    echo "packed into $out"
}

mkdir -p "$home/evaluated"
status=0
if [ "${MEASURE:-1}" = 1 ]; then
    begin=$SECONDS
    measure || status=$?
    echo "measured for $((SECONDS - begin)) s"
fi
[ "$status" -ne 0 ] || evaluate || status=$?
pack
# 124 and 130: the limit was reached.
case $status in
    124 | 130) echo "not complete: run the same command again" ;;
    *) exit "$status" ;;
esac
