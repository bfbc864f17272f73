"""A cluster: its nodes, its engine, the network between them, and who judges what it did."""
