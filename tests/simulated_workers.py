"""What Dask workers of the tests load first: their benches are simulated (``DASK_DISTRIBUTED__WORKER__PRELOAD``)."""

from fatal_bench import fatal_answering

from opcost.running import bench

bench.answering = fatal_answering
