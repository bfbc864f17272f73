"""``syncbrok bench``: what this machine's broker does, beside what this machine could do at best.

Every row is measured on real processes over loopback: ``syncbrok serve``, a load generator and a subscriber, each in a
process of its own. The ceilings are measured in the same run by the same generator and subscriber, with everything
left out that makes a broker: they move with the machine as the figures do, so it is the ratio that can be compared.
"""
