"""``python -m benchmarks``, ``make bench``: every row, or those that are named."""

from benchmarks import (
    backlog,
    batch,
    chain,
    cluster,
    cluster_leader,
    consumers,
    delivery_sizes,
    failover,
    fan_out,
    filters,
    frontends,
    latency,
    memory,
    node_clients,
    origins,
    pipeline,
    publish,
    publish_and_deliver,
    publish_sizes,
    queues,
    quiet_subscribers,
    request_batches,
    start,
    tls_closing,
    tree,
)
from benchmarks.program import main

ROWS = (
    *(publish.ROW, batch.ROW, backlog.ROW, publish_and_deliver.ROW, chain.ROW, tree.ROW, latency.ROW),
    *(delivery_sizes.ROW, publish_sizes.ROW, origins.ROW, tls_closing.ROW, fan_out.ROW, quiet_subscribers.ROW),
    *(filters.ROW, request_batches.ROW),
    *(memory.ROW, start.ROW, queues.ROW, frontends.ROW, consumers.ROW, pipeline.ROW),
    *((node_clients.ROW,) if node_clients.can_run() else ()),
    *(cluster.ROW, cluster_leader.ROW, failover.ROW),
)

if __name__ == "__main__":
    main(ROWS)
