"""Block 2: measure time and energy of each operator tuple -> database/operator_measurements.csv

Example: python general_pipeline_block2.py resnet18_32x3x32x32 --seconds 3
"""

import random
from dataclasses import replace
from functools import partial

from opcost.command_line import add_execution, add_input_data, add_meter, add_seconds, pipeline_parser, run

EXAMPLE = "python general_pipeline_block2.py resnet34_32x3x56x56 --device cuda:0 --seconds 3"


def main() -> int:
    description = "Measure each operator tuple that the database lacks: warm up, run it in a loop, log the power."
    parser = pipeline_parser(description, EXAMPLE)
    add_seconds(parser)
    add_execution(parser)
    add_meter(parser)
    add_input_data(parser)
    arguments = parser.parse_args()

    from opcost.apparatus import open_apparatus, protocol_for
    from opcost.reports import print_json, print_operator_measurements
    from opcost.request import Request
    from opcost.stage_measuring import measure_operators
    from opcost.stage_qualifying import qualified
    from opcost.terminal import progress_on_stderr

    apparatus = partial(qualified, partial(open_apparatus, execution=arguments.execution), meter_name=arguments.meter)
    request = Request.from_arguments(arguments)
    protocol = protocol_for(request.device, arguments.seconds, arguments.relative_error)
    protocol = replace(protocol, order_seed=random.SystemRandom().getrandbits(32))
    reports = measure_operators(request, protocol, apparatus, progress_on_stderr(), arguments.input_data)
    if arguments.json:
        print_json(reports)
    else:
        print_operator_measurements(reports, arguments.dry_run)
    return 1 if any(report.failed for report in reports) else 0


if __name__ == "__main__":
    run(main)
