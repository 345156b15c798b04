"""Block 2: measure time and energy of each operator tuple -> database/operator_measurements.csv

Example: python general_pipeline_block2.py resnet18_32x3x32x32 --seconds 3
"""

import random
from functools import partial

from opcost.command.log import log_run
from opcost.command.options import CACHE, DURATION, EXECUTION, INPUT_VALUES, METER, SAME_BOARD, pipeline_parser
from opcost.command.run import run

EXAMPLE = """\
python general_pipeline_block0.py resnet18_32x3x32x32
python general_pipeline_block1.py resnet18_32x3x32x32
python general_pipeline_block2.py resnet18_32x3x32x32 --seconds 3"""


def main() -> int:
    description = "Block 2: measure time and energy of each operator tuple that the database does not have."
    own_options = (DURATION, EXECUTION, CACHE, METER, SAME_BOARD, INPUT_VALUES)
    arguments = pipeline_parser(description, EXAMPLE, *own_options).parse_args()
    log_run(arguments.verbose, None if arguments.dry_run else arguments.database)

    from opcost.measuring.protocol import protocol_for
    from opcost.measuring.setting import Setting
    from opcost.reporting.measurement_tables import print_operator_measurements
    from opcost.reporting.tables import print_json
    from opcost.reporting.terminal import progress_on_stderr
    from opcost.running.request import Request
    from opcost.running.worker_bench import open_child_bench
    from opcost.stages.measure_operators import measure_operators

    setting = Setting(execution=arguments.execution, cache=arguments.cache, meter=arguments.meter)
    request = Request.from_arguments(arguments, setting)
    seed = random.SystemRandom().getrandbits(32)
    protocol = partial(protocol_for, loop_s=arguments.seconds, relative_error=arguments.relative_error, order_seed=seed)
    reports = measure_operators(request, protocol, open_child_bench, progress_on_stderr(), arguments.input_data)
    print_json(reports) if arguments.json else print_operator_measurements(reports, arguments.dry_run)
    return 1 if any(report.failed for report in reports) else 0


if __name__ == "__main__":
    run(main)
