"""Rows published to a broker: the writing half of the data source."""
