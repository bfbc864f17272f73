"""The benchmark: one program a row, each beside what this machine can do at best.

    python -m benchmarks                 every row three times; a table, and a JSON file a row in benchmarks/results/
    python -m benchmarks publish chain   these rows                          (make bench ARGS="publish chain")
    python -m benchmarks.publish         one row by itself
    python -m benchmarks.growth          how throughput changes with backlog, connections, sizes and queues; draws it

The set-up is the same everywhere: one broker process with the default configuration (every commit is fsynced before it
is answered), ``wrk`` publishes, nginx answers ``true`` as the subscriber, everything on 127.0.0.1, messages of 200
bytes. A ceiling is what the same load generator and subscriber reach, in the same run, with everything left out that
makes a broker; figures move with the machine, so it is the ratio that can be compared.

``wrk`` and nginx are Debian's packages ``wrk`` and ``nginx-light``. ``syncbrok bench`` needs neither: it is the short
benchmark for whoever has installed the broker.
"""
