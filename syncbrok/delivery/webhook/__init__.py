"""The handler of http and https endpoints: connections, requests, answers, names, and what may be dialled."""
