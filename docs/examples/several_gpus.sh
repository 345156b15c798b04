#!/bin/sh
# The same operator tuples on one GPU of this host and on all: times, figures, and what the load of the host does to
# eager calls. It takes twelve minutes on four H200s, and needs the extras torch and timm.
#
# sh docs/examples/several_gpus.sh FOLDER [PYTHON]
set -eu
folder=${1:?name a folder for models and databases} python=${2:-python3}
opcost() { "$python" -m opcost "$@"; }
# Into a home of its own, without rows of other boards. The shipped cache corrections are used where they are of the card.
measure() {
  home=$folder/$1; shift
  mkdir -p "$home"; cp -r "$folder/measurements" "$home"
  opcost measure $models --relative-error 0.01 --same-board --verbose --home "$home" "$@" 2> "$home/run.log"
}

# Of random.Random(65).sample(sorted(timm.list_models()), 16), the first five that older versions of timm have, too, that
# fit on a small card and had no row.
opcost make-configs --home "$folder" \
  timm:resnet51q timm:mobilenetv3_large_150d timm:seresnetaa50d timm:twins_pcpvt_small timm:poolformerv2_m36
models='timm_resnet51q_32x3x256x256 timm_mobilenetv3_large_150d_32x3x256x256 timm_seresnetaa50d_32x3x224x224
timm_twins_pcpvt_small_32x3x224x224 timm_poolformerv2_m36_32x3x224x224'
opcost count $models --home "$folder"
opcost filter $models --home "$folder"

measure one --gpus 0
measure all --gpus all

# Launches from Python are what other processes' load of the host disturbs first.
models=timm_twins_pcpvt_small_32x3x224x224
measure eager_one --gpus 0 --execution eager
measure eager_all --gpus all --execution eager

"$python" benchmarks/side_by_side.py "$folder/one/database" "$folder/all/database"
"$python" benchmarks/side_by_side.py "$folder/eager_one/database" "$folder/eager_all/database"
