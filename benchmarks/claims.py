"""Recompute every claim of docs/accuracy.md from the committed rows -> its tables in Markdown

Example: PYTHONPATH=. python benchmarks/claims.py              # the tables of docs/accuracy.md
         PYTHONPATH=. python benchmarks/claims.py --figures    # each figure by its name
         PYTHONPATH=. python benchmarks/claims.py --renew      # write the tables into docs/accuracy.md
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from claim_figures import all_figures
from tables import markdown

ROOT = Path(__file__).resolve().parent.parent
PAGE = Path("docs/accuracy.md")
SUMS = "database/sum_vs_full.csv"
OPERATORS = "database/operator_measurements.csv"
WHOLES = "database/full_model_measurements.csv"
CHAINS = "database/calls_in_chains.csv"
KERNELS = "database/kernel_times.csv"
SENTINEL = "database/sentinel_measurements.csv"


@dataclass(frozen=True)
class Claim:
    """A statement with its figures' names in braces, under which conditions it was measured, when, and its rows."""

    statement: str
    conditions: str
    measured: str
    rows: tuple[str, ...]


def against_wholes(name: str, quantity: str) -> tuple[str, ...]:
    figures = (f"{{{quantity}_{figure}}}" for figure in ("median", "worst", "worst_model", "median_2ms", "worst_2ms"))
    return (name, *figures)


SUM_HEADER = (
    "sum against whole",
    *("median of {models} models", "worst", "(model)"),
    *("median of {models_2ms} models of 2 ms and more", "worst"),
)
SUM_LINES = (
    against_wholes("time", "time"),
    against_wholes("time, corrected", "time_corrected"),
    against_wholes("energy", "energy"),
    against_wholes("energy, corrected", "energy_corrected"),
    against_wholes("time, modules alone", "modules_time"),
    against_wholes("energy, modules alone", "modules_energy"),
)


def in_precision(name: str, key: str) -> tuple[str, ...]:
    quantities = ("time", "time_corrected", "energy", "energy_corrected")
    return (name, *(f"{{{key}_{quantity}_{figure}}}" for quantity in quantities for figure in ("median", "worst_sum")))


PRECISION_HEADER = (
    "sums of {precision_models} models",
    *("time: median", "worst", "corrected: median", "worst"),
    *("energy: median", "worst", "corrected: median", "worst"),
)
PRECISION_LINES = (
    in_precision("fp32", "fp32"),
    in_precision("tf32", "tf32"),
    in_precision("bf16", "bf16"),
    in_precision("bf16, channels last", "bf16_channels_last"),
    in_precision("all {precision_sums}", "all_precisions"),
)

OTHER_SOURCES_HEADER = ("sums of {other_models} models", *PRECISION_HEADER[1:])
OTHER_SOURCES_LINES = (
    in_precision("default", "other_default"),
    in_precision("bf16", "other_bf16"),
    in_precision("all {other_sums}", "other"),
)


def by_method(name: str, word: str) -> tuple[str, ...]:
    figures = [f"{{{word}_tuple_{cost}_{figure}}}" for cost in COSTS for figure in ("median", "within")]
    figures += [f"{{{word}_family_{cost}_{figure}}}" for cost in COSTS for figure in ("median", "within", "worst")]
    return (name, *figures)


COSTS = ("time", "energy")
LEARNED_HEADER = (
    "predicted against measured",
    *("{unseen_tuples} unseen tuples: time, median", "within 10 %", "energy, median", "within 10 %"),
    *("{unseen_models} models of unseen families: time, median", "within 15 %", "worst"),
    *("energy, median", "within 15 %", "worst"),
)
LEARNED_LINES = (
    by_method("learned", "learned"),
    by_method("NeuralPower", "neural_power"),
    by_method("forest of attributes", "forest"),
    by_method("linear in FLOPs", "linear"),
    by_method("roofline", "roofline"),
)


def sweep_spreads(name: str, key: str) -> tuple[str, ...]:
    figures = ("sizes", "repetitions", "flagged", "builds")
    figures += tuple(f"{cost}_{figure}" for cost in COSTS for figure in ("spread", "range", "within", "between"))
    return (name, *(f"{{{key}_{figure}}}" for figure in figures))


SPREAD_HEADER = (
    "spread of repetitions",
    *("sizes", "repetitions", "flagged, left out", "builds"),
    *("time: largest from 1 ms on", "largest range", "within a build", "builds differ by up to"),
    *("energy: largest from 1 ms on", "largest range", "within a build", "builds differ by up to"),
)
SPREAD_LINES = (
    sweep_spreads("H200: ResNet-50, 8 to 4096 pixels", "h200_resnet50"),
    sweep_spreads("H200: AlexNet, batch 1 to 256", "h200_alexnet"),
    sweep_spreads("H200: BERT-base, 50 to 500 tokens", "h200_bert"),
    sweep_spreads("H100: ResNet-50", "h100_resnet50"),
    sweep_spreads("H100: AlexNet", "h100_alexnet"),
    sweep_spreads("H100: BERT-base", "h100_bert"),
    sweep_spreads("first run, H200: ResNet-50", "first_h200_resnet50"),
    sweep_spreads("first run, H200: AlexNet", "first_h200_alexnet"),
    sweep_spreads("first run, H200: BERT-base", "first_h200_bert"),
    sweep_spreads("first run, H100: ResNet-50", "first_h100_resnet50"),
    sweep_spreads("first run, H100: BERT-base", "first_h100_bert"),
)


def sweep_predicted(name: str, key: str) -> tuple[str, ...]:
    figures = (f"{{predicted_{key}_{cost}_{figure}}}" for cost in COSTS for figure in ("median", "worst", "within"))
    return (name, *figures, f"{{predicted_{key}_measured}}")


CURVES_HEADER = (
    "predicted curve against measured",
    *("time: median", "worst", "sizes in the 90 % interval"),
    *("energy: median", "worst", "sizes in the 90 % interval"),
    "sizes with measured operators",
)
CURVES_LINES = (
    sweep_predicted("ResNet-50 over pixels, batch 1", "resnet50"),
    sweep_predicted("AlexNet over the batch", "alexnet"),
    sweep_predicted("BERT-base over tokens, batch 1", "bert"),
)

GRAPHS = "CUDA graphs, captured values"
SWEEPS = "database/sweep_sizes.csv"
SWEPT_KERNELS = "database/sweep_kernels.csv"
SWEEPS_DAY = "{h200_bert_days} ([log](log/sweeps.md))"
SWEEPS_CONDITIONS = "one H200 (7d48), ten repetitions of 0.5 s in two builds; CUDA graphs, energies at 50 °C"
NETWORKS_CONDITIONS = f"one H200 (b014), from a file by `opcost profile`; {GRAPHS}"
LOOPS_DAYS = "2026-11-21/22 ([log](log/speed.md#2026-11-22-sixty-operators-in-short-and-long-loops))"
LAYERS_DAY = "2026-11-27 ([log](log/meters.md#2026-11-27-layers-of-loops-on-seven-boards))"
LAYERS = "docs/data/layers"
VALUES_DAYS = "2026-11-21 ([log](log/values.md))"
LEARNED_DAY = "2026-11-26 ([log](log/prediction.md))"
FAMILIES_DAY = "2026-11-27 ([log](log/prediction.md))"
RENEWED_DAY = "2026-11-28 ([log](log/prediction.md))"
LEARNED, HELD_BACK = "docs/data/prediction", "docs/data/held_back"
PATTERNS_DAYS = "2026-11-25 ([log](log/values.md))"

CLAIMS: Mapping[str, tuple[Claim, ...]] = {
    "sums": (
        Claim(
            "{time_worst_model} ({worst_whole}), the worst in time: sum / whole {worst_ratio}, corrected "
            "{worst_corrected_ratio}",
            GRAPHS,
            "{worst_days}",
            (SUMS,),
        ),
        Claim(
            "Small inputs: ResNet-34 at 56x56 ({resnet34_small_whole}) {resnet34_small_ratio}, corrected "
            "{resnet34_small_corrected_ratio} (energy {resnet34_small_energy_corrected_ratio}); ResNet-18 at 32x32 "
            "({resnet18_small_whole}) {resnet18_small_ratio}, corrected {resnet18_small_corrected_ratio} "
            "(energy {resnet18_small_energy_corrected_ratio})",
            GRAPHS,
            "{small_inputs_days}",
            (SUMS,),
        ),
        Claim(
            "Eager sums of {eager_models} models are {eager_time_lowest} to {eager_time_highest} off in time, "
            "{eager_energy_lowest} to {eager_energy_highest} in energy",
            "eager, captured values, no correction",
            "{eager_days}",
            (SUMS,),
        ),
        Claim(
            "Sums of operators measured on Gaussian inputs, {normal_models} models: time {normal_time_median} off in "
            "the median, {normal_time_worst} at worst; energy {normal_energy_median} and {normal_energy_worst}",
            "CUDA graphs, Gaussian inputs, no correction",
            "{normal_days}",
            (SUMS,),
        ),
        Claim(
            "{other_card_models} models of torchvision on H100s: time {other_card_time_median} off in the median, "
            "{other_card_time_worst} at worst, corrected {other_card_time_corrected_median} and "
            "{other_card_time_corrected_worst}; energy {other_card_energy_median} and {other_card_energy_worst}, "
            "corrected {other_card_energy_corrected_median} and {other_card_energy_corrected_worst_sum}",
            GRAPHS,
            "{other_card_days}",
            (SUMS,),
        ),
        Claim(
            "Kernels alone take {kernels_alone_lowest} to {kernels_alone_highest} of their time in the model, "
            "{kernels_alone_median} in the median of {kernel_models} models; {same_kernels_lowest} of the time is in "
            "the same kernels",
            "PyTorch profiler, eager, one run each",
            "{kernel_days}",
            (KERNELS,),
        ),
        Claim(
            "The kernels of a kind of operator alone take another time than in their model: {kinds_median} off in the "
            "median, {kinds_90} at the 90th percentile, {kinds_worst} at worst ({kinds_worst_kind}); in bf16 "
            "{bf16_kinds_median}, {bf16_kinds_90} and {bf16_kinds_worst} ({bf16_kinds_worst_kind})",
            "as above, uncorrected; {kinds} kinds with more than 2 % of the kernel time of {kinds_models} models, in "
            "bf16 {bf16_kinds} of {bf16_kinds_models} cases, most of H100s",
            "{kinds_days}, bf16 {bf16_kinds_days}",
            (KERNELS,),
        ),
        Claim(
            "{held_out_wholes} wholes that are later than chains and rules of the cache correction: corrected time "
            "{held_out_wholes_time_median} off in the median, {held_out_wholes_time_95} at the 95th percentile, "
            "{held_out_wholes_time_worst} at worst; energy {held_out_wholes_energy_median}, "
            "{held_out_wholes_energy_95} and {held_out_wholes_energy_worst}",
            f"{GRAPHS}; the shortest takes {{held_out_shortest}}",
            "{held_out_wholes_days}",
            (SUMS, WHOLES),
        ),
        Claim(
            "Every whole with 95 % of its sum's time on its own board ({every_whole} wholes of {every_whole_models} "
            "models): corrected time {every_whole_time_median} off in the median, at worst {every_whole_time_worst} "
            "({every_whole_time_worst_model} on {every_whole_time_worst_board}); energy {every_whole_energy_median} "
            "and {every_whole_energy_worst}",
            GRAPHS,
            "{every_whole_days}",
            (OPERATORS, WHOLES),
        ),
        Claim(
            "Sums of operators of other boards only than the whole's, {other_boards_models} models: corrected time "
            "{other_boards_time_median} off in the median, {other_boards_time_worst} at worst; energy "
            "{other_boards_energy_median} and {other_boards_energy_worst}. The same models with operators of their "
            "boards: {other_boards_own_time_median}, {other_boards_own_time_worst}; {other_boards_own_energy_median}, "
            "{other_boards_own_energy_worst}",
            GRAPHS,
            "{every_whole_days}",
            (OPERATORS, WHOLES),
        ),
    ),
    "precision claims": (
        Claim(
            "Sums of ResNet-50 and ViT-B/16 in amp-bf16, over their wholes: {autocast_time} in time, corrected "
            "{autocast_time_corrected}; {autocast_energy} in energy, corrected {autocast_energy_corrected}",
            "as above",
            "{autocast_days}",
            (SUMS,),
        ),
        Claim(
            "The same in bf16 on an H100: {h100_time} in time, corrected {h100_time_corrected}; {h100_energy} in "
            "energy, corrected {h100_energy_corrected}",
            "as above",
            "{h100_days}",
            (SUMS,),
        ),
        Claim(
            "Kernels alone take {precision_kernels_lowest} to {precision_kernels_highest} of their time in the model, "
            "{precision_kernels_median} in the median of {precision_kernel_cases} cases of {precision_kernel_models} "
            "models on an H200; on an H100 {h100_kernels} (ResNet-50 and ViT-B/16 in bf16); "
            "{precision_same_kernels_lowest} of the time is in the same kernels",
            "PyTorch profiler, eager, one run each",
            "{precision_kernel_days}",
            (KERNELS,),
        ),
    ),
    "other source claims": (
        Claim(
            "Kernels alone take {other_kernels_lowest} to {other_kernels_highest} of their time in the model, "
            "{other_kernels_median} in the median of {other_kernel_cases} cases; {other_same_kernels_lowest} of the "
            "time is in the same kernels",
            "PyTorch profiler, eager, one run each",
            "{other_kernel_days}",
            (KERNELS,),
        ),
        Claim(
            "A graph network, an LSTM, a GRU and a spectral network ({networks_graph_whole} to {networks_lstm_whole}): "
            "corrected sum / whole {networks_time_corrected} in time, {networks_energy_corrected} in energy",
            NETWORKS_CONDITIONS,
            "{networks_days}",
            (SUMS,),
        ),
        Claim(
            "A force field ({networks_forces_whole}): {networks_forces_time_corrected} and "
            "{networks_forces_energy_corrected}; two Mamba blocks ({networks_mamba_whole}): "
            "{networks_mamba_time_corrected} and {networks_mamba_energy_corrected}",
            NETWORKS_CONDITIONS,
            "{networks_days}",
            (SUMS,),
        ),
    ),
    "predictions": (
        Claim(
            "If all operators of one kind have no row, their cost in a model differs from the predicted cost by less "
            "than {held_out_time_95} times the predicted cost in time, {held_out_energy_95} times in energy, in 95 % "
            "of the cases",
            "each of {held_out_kinds} kinds held out from all models; {held_out_cases} models that are mostly of other "
            f"kinds; {GRAPHS}, energies at 50 °C",
            "{held_out_days}",
            (OPERATORS, "database/model_operators.csv"),
        ),
        Claim(
            "The same in eager execution: {eager_held_out_time_95} times in time, {eager_held_out_energy_95} times in "
            "energy",
            "{eager_held_out_kinds} kinds, {eager_held_out_cases} cases of {eager_held_out_models} models; energies as "
            "measured",
            "{eager_held_out_days}",
            (OPERATORS, "database/model_operators.csv"),
        ),
        Claim(
            "Sums with cache correction of {predicted_models} models, of which operators outside the shipped whitelist "
            "are predicted (up to {predicted_share_most} of the time): {predicted_time_median} off in time in the "
            "median, {predicted_time_worst} at worst; energy {predicted_energy_median} and {predicted_energy_worst}; "
            "{predicted_within} are within the expected error",
            "rates from whitelisted operators only; otherwise as above",
            "{held_out_days}",
            (OPERATORS, WHOLES),
        ),
    ),
    "learned claims": (
        Claim(
            "The 90 % interval of a tuple contains {tuple_time_covered} of the times and {tuple_energy_covered} of the "
            "energies, that of a model of an unseen family {family_time_covered} and {family_energy_covered}; half of "
            "it is {family_time_half} in time and {family_energy_half} in energy in the median",
            "as above",
            RENEWED_DAY,
            (LEARNED,),
        ),
        Claim(
            "{models_beyond} of the {unseen_models} models are more than 15 % off in time: of the families "
            "{families_beyond}",
            "as above",
            RENEWED_DAY,
            (LEARNED,),
        ),
        Claim(
            "{later_wholes} wholes of models at batch 32, predicted before their rows were known: {later_time_median} "
            "off in time and {later_energy_median} in energy in the median, at worst {later_time_worst} and "
            "{later_energy_worst} ({later_time_worst_model}); {later_time_within} and {later_energy_within} of them in "
            "the 90 % interval",
            "counted on shapes; other models of their families were measured",
            FAMILIES_DAY,
            (LEARNED,),
        ),
        Claim(
            "{batches_wholes} wholes of four models at batch sizes {batch_sizes}: "
            "{batches_time_median} and {batches_energy_median} off in the median, at worst {batches_time_worst} and "
            "{batches_energy_worst} ({batches_time_worst_model} at 1), in time {larger_batches_worst} above 1; "
            "{batches_time_within} and {batches_energy_within} of them in the 90 % interval",
            "counted on shapes; one H200 (d919); at most {batches_measured} of a predicted time in measured operators",
            FAMILIES_DAY,
            (LEARNED,),
        ),
        Claim(
            "{held_back_wholes} models whose list was committed before they were measured, most of transformers, timm "
            "and files, 5 in bf16: {held_back_time_median} and {held_back_energy_median} off in the median, at worst "
            "{held_back_time_worst} ({held_back_time_worst_model}) and {held_back_energy_worst} "
            "({held_back_energy_worst_model}); {held_back_time_within} and {held_back_energy_within} of them in the "
            "90 % interval",
            "counted on shapes; one H200 (cb3d); at most 8 % of the time in measured operators, of Swin3D-T 99 %",
            RENEWED_DAY,
            (HELD_BACK,),
        ),
        Claim(
            "{h100_models_wholes} models of torchvision, chosen before they were measured on an H100, of which an H200 "
            "has all rows: {h100_models_time_median} and {h100_models_energy_median} off in the median, at worst "
            "{h100_models_time_worst} and {h100_models_energy_worst} ({h100_models_time_worst_model}); "
            "{h100_models_time_within} and {h100_models_energy_within} of them in the 90 % interval",
            "one H100 (4141); 4 % to 81 % of the time in measured operators",
            RENEWED_DAY,
            (HELD_BACK,),
        ),
        Claim(
            "The median error in a tenth of the tuples is {curve_few_time} in time and {curve_few_energy} in energy "
            "after learning from {curve_few} of the others, {curve_half_time} and {curve_half_energy} after "
            "{curve_half}, {curve_most_time} and {curve_most_energy} after {curve_most}",
            "random draws, mean of three; otherwise as above",
            LEARNED_DAY,
            (LEARNED,),
        ),
        Claim(
            "The median error in time of {later_tuples} tuples of {later_models} later models is {later_tenth_none} "
            "after learning from a tenth of the models, {later_half_none} from half, {later_whole_none} from all; with "
            "a list of {random_number} random tuples {later_tenth_random}, {later_half_random}, {later_whole_random}, "
            "of the {least_certain_number} least certain ones {later_tenth_least_certain}, {later_half_least_certain}, "
            "{later_whole_least_certain}. These lower that of the random list from {random_list_none} to "
            "{random_list_least_certain}",
            "shares: mean of three draws of models; lists drawn for an equal expected GPU time",
            FAMILIES_DAY,
            (LEARNED,),
        ),
        Claim(
            "Learning from all samples takes {learning_seconds}, predicting {predicting_calls} calls "
            "{predicting_seconds}",
            "two cores",
            RENEWED_DAY,
            (LEARNED,),
        ),
    ),
    "sweep claims": (
        Claim(
            "BERT-base's energy is linear from {h200_bert_energy_piece_2_sizes} tokens: "
            "{h200_bert_energy_piece_2_constant} and {h200_bert_energy_piece_2_slope} per token, residual "
            "{h200_bert_energy_piece_2_residual}; on another board (25a0) {first_h200_bert_energy_piece_2_constant} "
            "and {first_h200_bert_energy_piece_2_slope}; one line through all sizes from 50 on leaves "
            "{h200_bert_energy_line_residual}",
            SWEEPS_CONDITIONS,
            SWEEPS_DAY,
            (SWEEPS,),
        ),
        Claim(
            "250 tokens take {h200_bert_250_time} and {h200_bert_250_energy}, less than 200 tokens "
            "({h200_bert_200_time} and {h200_bert_200_energy}): {h200_bert_250_new} of the kernel time is in kernels "
            "that these do not launch",
            "as above",
            SWEEPS_DAY,
            (SWEEPS, SWEPT_KERNELS),
        ),
        Claim(
            "ResNet-50 at batch 1 takes {h200_resnet50_8_time} at 8 pixels a side, {h200_resnet50_256_time} at 256 and "
            "{h200_resnet50_512_time} at 512; it launches {h200_resnet50_8_kernels}, {h200_resnet50_256_kernels} and "
            "{h200_resnet50_512_kernels} kernels of {h200_resnet50_8_kernel_time}, {h200_resnet50_256_kernel_time} and "
            "{h200_resnet50_512_kernel_time}",
            "the same on board acdc",
            SWEEPS_DAY,
            (SWEEPS, SWEPT_KERNELS),
        ),
        Claim(
            "An image takes AlexNet {h200_alexnet_1_unit_time} and {h200_alexnet_1_unit_energy} at batch 1, "
            "{h200_alexnet_256_unit_time} and {h200_alexnet_256_unit_energy} at batch 256",
            "board 7d48",
            SWEEPS_DAY,
            (SWEEPS,),
        ),
        Claim(
            "{h100_resnet50_same_kernels} of ResNet-50's and {h100_bert_same_kernels} of BERT-base's kernel time on an "
            "H100 is in kernels that the H200 launches at the same size; 200 tokens take {h100_bert_200_time}, 250 "
            "tokens {h100_bert_250_time}",
            "one H100 (f31b), ten repetitions in two builds",
            SWEEPS_DAY,
            (SWEEPS, SWEPT_KERNELS),
        ),
        Claim(
            "The same sweeps on other H200s: times {first_h200_resnet50_time_apart_median} (ResNet-50), "
            "{first_h200_alexnet_time_apart_median} (AlexNet) and {first_h200_bert_time_apart_median} (BERT-base) "
            "apart in the median, at most {first_h200_resnet50_time_apart_worst}, "
            "{first_h200_alexnet_time_apart_worst} and {first_h200_bert_time_apart_worst}; energies "
            "{first_h200_resnet50_energy_apart_median}, {first_h200_alexnet_energy_apart_median} and "
            "{first_h200_bert_energy_apart_median}, at most {first_h200_resnet50_energy_apart_worst}, "
            "{first_h200_alexnet_energy_apart_worst} and {first_h200_bert_energy_apart_worst}",
            "boards bcd8 and 25a0, whose sweeps missed the aim for spreads",
            SWEEPS_DAY,
            (SWEEPS,),
        ),
    ),
    "repeatability": (
        Claim(
            "Sums of {two_boards_models} models on two boards agree within {two_boards_time_worst} in time "
            "({two_boards_time_median} in the median); in energy the second board is {two_boards_energy_lowest} to "
            "{two_boards_energy_highest} off",
            f"boards {{two_boards}}, {GRAPHS}; energies at 50 °C",
            "{two_boards_days}",
            (OPERATORS, "database/model_operators.csv"),
        ),
        Claim(
            "{two_boards_operators} operators on the same two boards: times differ by {two_boards_operator_median} in "
            "the median, {two_boards_operator_beyond_1} of them by more than 1 %",
            "as above",
            "{two_boards_days}",
            (OPERATORS,),
        ),
        Claim(
            "{runs} runs of {run_operators} operators of ResNet-50 vary by {runs_time_median} in time and "
            "{runs_energy_median} in energy (coefficient of variation, median; 95th percentile {runs_time_95} and "
            "{runs_energy_95})",
            f"one board, fresh processes, shuffled order, {GRAPHS}, energies at 50 °C",
            "{runs_days}",
            ("docs/data/repeatability",),
        ),
        Claim(
            "Of the differences between two of these runs the 95 % interval contains {runs_time_held} in time and "
            "{runs_energy_held} in energy",
            "as above",
            "{runs_days}",
            ("docs/data/repeatability",),
        ),
        Claim(
            "{boards} boards differ by up to {boards_energy_range} in the energy of one addition of two 8192x8192 "
            "matrices and by up to {boards_time_range} in its time",
            "median of each board; energies at 50 °C",
            "{boards_days}",
            (SENTINEL,),
        ),
        Claim(
            "The boards are of two classes by this energy: {low_class_boards} take {low_class_energies} "
            "({low_class_range}), {high_class_boards} {high_class_energies} ({high_class_range}). In the second class "
            "the energy of operators that move 4 to 5 TB/s differs by {streams_higher} (median of {streams}), that of "
            "those below 1 TB/s by {light_higher} ({light_operators}); times differ by {classes_time}",
            "as above; the cause is unknown, memory of another make is a guess",
            "{boards_days}",
            (SENTINEL, OPERATORS),
        ),
        Claim(
            "Whole models differ between boards by {wholes_boards_energy_median} in energy and "
            "{wholes_boards_time_median} in time in the median of {wholes_boards_models} models, by up to "
            "{wholes_boards_energy_worst} and {wholes_boards_time_worst}",
            "largest over smallest of 2 to {wholes_boards_most} boards, CUDA graphs, energies at 50 °C",
            "{wholes_boards_days}",
            (WHOLES,),
        ),
        Claim(
            "The whole MobileNetV3-Large takes {mobilenet_shortest} to {mobilenet_longest} on {mobilenet_boards} "
            "boards",
            "CUDA graphs, 3 s",
            "{mobilenet_days}",
            (WHOLES,),
        ),
        Claim(
            "{short_builds} of {builds} builds of the whole EfficientNet-B0 take {short_builds_by} less time than the "
            "others (cause unknown)",
            "one board, two processes, CUDA graphs",
            "{builds_days}",
            ("docs/data/whole_builds.csv",),
        ),
    ),
    "speed": (
        Claim(
            "An operator takes {operator_seconds_median} in the median and {operator_seconds_mean} on average, from "
            "one start to the next ({campaign_operators} operators, {campaign_minutes})",
            f"one board, {GRAPHS}, `--relative-error 0.01`",
            "{campaign_days}",
            (OPERATORS,),
        ),
        Claim(
            "ResNet-50's {resnet50_measurements} measurements take {resnet50_span} (54 s with the start of Python and "
            "PyTorch, by `time`: [log](log/speed.md)); sum / whole is {resnet50_time} in time and {resnet50_energy} in "
            "energy (corrected {resnet50_time_corrected} and {resnet50_energy_corrected})",
            f"one board, fresh processes, {GRAPHS}, `--relative-error 0.01`",
            "{resnet50_days}",
            ("docs/data/resnet50",),
        ),
        Claim(
            "A loop that ends at 1 % agrees with one of 10 s: within 0.3 % in time for {fast_time_within} of "
            "{fast_operators} operators, within 1 % in energy for {fast_energy_within} (median difference "
            "{fast_time_median} and {fast_energy_median}; on the same build {fast_time_within_same_build} and "
            "{fast_energy_within_same_build}); it takes {fast_seconds_median} in the median, all included",
            "{fast_boards} boards, {fast_kinds} kinds of operators of {fast_shortest} to {fast_longest}, "
            "several versions of the rules; energies at 50 °C",
            LOOPS_DAYS,
            ("docs/data/fast_vs_reference.csv",),
        ),
        Claim(
            "Loops of 10 s agree with loops of 30 s within {long_time_worst} in time and {long_energy_worst} in "
            "energy ({long_operators} operators)",
            "as above, the same build",
            LOOPS_DAYS,
            ("docs/data/fast_vs_reference.csv",),
        ),
    ),
    "meters": (
        Claim(
            "NVML's power samples are within {samples_steady_worst} of the energy counter under a steady load on "
            "{qualified_boards} boards, and up to {samples_pulsed_worst} off under pulses of 10 ms to 50 ms",
            "qualification of the meters",
            "{qualified_days}",
            ("database/meter_qualifications.csv",),
        ),
        Claim(
            "In loops of 10 s the two meters differ by {meters_apart_median} in the median "
            "({meters_apart_operators} operators)",
            "as the loops of 10 s above",
            LOOPS_DAYS,
            ("docs/data/fast_vs_reference.csv",),
        ),
        Claim(
            "The sum of {short_windows} windows of 0.2 s of EnergyMeter is {short_windows_sums} off the energy "
            "counter, that of {long_windows} windows of 1 s to 10 s {long_windows_sums}; one window is "
            "{short_window_rms} and {long_window_rms} off (root mean square)",
            "{windows_boards} boards, one of them an H100; on-off loads of 50 ms to 600 ms at random phases; windows "
            "from one tick of the counter to another",
            "2026-11-27 ([log](log/meters.md#2026-11-27-windows-of-energymeter-on-three-more-boards))",
            ("docs/data/metered_windows.csv", "docs/data/metered_windows_d579.csv"),
        ),
        Claim(
            "LayerwiseEnergy makes blocks of 1.3 s to 5 s of ViT-B/16 {vit_b_16_overhead} longer, those of ResNet-50, "
            "which are launch-bound, {resnet50_overhead} (noise of the host included)",
            "inference and training, batch 32, eager; {layer_boards} boards of H200s and H100s; means of pairs of "
            "blocks by board, iterations after the first ten; two boards with fewer marked iterations",
            LAYERS_DAY,
            (LAYERS,),
        ),
        Claim(
            "LayerwiseEnergy makes loops of 1,000 iterations of ResNet-50 in training {layer_long_overhead} longer",
            "one H100 (a313), mean of {layer_long_pairs} pairs of loops, one standard error",
            LAYERS_DAY,
            (LAYERS,),
        ),
        Claim(
            "Power rises by {slope_lowest} to {slope_highest} per kelvin on {slope_boards} boards",
            "the same addition; boards of which this is known to 0.1 % per kelvin",
            "{slope_days}",
            ("database/meter_qualifications.csv",),
        ),
    ),
    "values": (
        Claim(
            "A 3x3 convolution takes {convolution_zeros_saves} less energy on zeros than on Gaussian inputs, "
            "{convolution_half_zeros_saves} less on half zeros; {value_operators} kinds of operators take "
            "{zeros_save_least} to {zeros_save_most} less on zeros",
            "one board, eager loops of 1.2 s",
            VALUES_DAYS,
            ("docs/data/input_values.csv",),
        ),
        Claim(
            "SiLU takes {silu_half_zeros_costs} more energy on half zeros: exact zeros slow it down",
            "as above",
            VALUES_DAYS,
            ("docs/data/input_values.csv",),
        ),
        Claim(
            "Indices as words of a text (Zipf) change the time of an embedding by {zipf_embedding_time}, of "
            "`scatter_add_` by {zipf_scatter_time}; `index_put_` with `accumulate` takes {zipf_put_times} as long",
            "one H100, eager loops of 0.8 s",
            PATTERNS_DAYS,
            ("docs/data/indices_masks_weights.csv",),
        ),
        Claim(
            "Boolean masks change attention by at most {masks_attention_time} in time and {masks_attention_energy} in "
            "energy; weights of which half are zero cost the same within {half_zero_weights}",
            "as above",
            PATTERNS_DAYS,
            ("docs/data/indices_masks_weights.csv",),
        ),
    ),
    "counting": (
        Claim(
            "For all {counted_models} models of torchvision, operator tuples hold {counted_flops} of the FLOPs and "
            "{counted_bytes} of the bytes of an unobserved run; {published_multiply_adds} agree with the published "
            "multiply-adds within 0.5 %",
            "batch 1, published input size; on a CPU and on an H200",
            "{counted_days}",
            ("docs/accuracy/counting_cpu.md", "docs/accuracy/counting_h200.md"),
        ),
    ),
}
"""The claims of each section of the page; other tables stand before some of them."""


def tables(figures: Mapping[str, str]) -> dict[str, str]:
    """Return each section's table by the section's name."""
    against = {
        "wholes": (SUM_HEADER, SUM_LINES),
        "precisions": (PRECISION_HEADER, PRECISION_LINES),
        "learned": (LEARNED_HEADER, LEARNED_LINES),
        "other sources": (OTHER_SOURCES_HEADER, OTHER_SOURCES_LINES),
        "sweep spreads": (SPREAD_HEADER, SPREAD_LINES),
        "predicted sweeps": (CURVES_HEADER, CURVES_LINES),
    }
    found = {
        section: markdown(_filled(header, figures), [_filled(line, figures) for line in lines])
        for section, (header, lines) in against.items()
    }
    for section, claims in CLAIMS.items():
        lines = [
            (*_filled((one.statement, one.conditions, one.measured), figures), ", ".join(map(_link, one.rows)))
            for one in claims
        ]
        found[section] = markdown(("claim", "conditions", "measured", "rows"), lines, alignment="---")
    return found


def _filled(texts: tuple[str, ...], figures: Mapping[str, str]) -> list[str]:
    return [text.format_map(figures) for text in texts]


def _link(path: str) -> str:
    """Return a link to committed rows, for a page in docs/."""
    target = path.removeprefix("docs/") if path.startswith("docs/") else f"../{path}"
    return f"[{Path(path).name}]({target})"


def renewed(page: str, figures: Mapping[str, str]) -> str:
    """Return the page with each section's table in the place of the one between its marks."""
    for section, table in tables(figures).items():
        marks = rf"(<!-- claims: {section} -->\n).*?(<!-- end -->)"
        page, found = re.subn(marks, rf"\1\n{table}\n\n\2", page, flags=re.DOTALL)
        if found != 1:
            raise ValueError(f"the page has {found} places for the table {section!r}")
    return page


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--figures", action="store_true", help="print each figure by its name")
    what.add_argument("--renew", action="store_true", help=f"write the tables into {PAGE}")
    arguments = parser.parse_args()
    figures = all_figures(ROOT)
    if arguments.figures:
        print(markdown(("figure", "value"), figures.items()))
    elif arguments.renew:
        page = ROOT / PAGE
        page.write_text(renewed(page.read_text(encoding="utf-8"), figures), encoding="utf-8")
    else:
        print("\n\n".join(tables(figures).values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
