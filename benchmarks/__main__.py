"""``python -m benchmarks``, ``make bench``: every row, or those that are named."""

from benchmarks import backlog, batch, chain, latency, publish
from benchmarks.program import main

ROWS = (publish.ROW, batch.ROW, backlog.ROW, chain.ROW, latency.ROW)

if __name__ == "__main__":
    main(ROWS)
