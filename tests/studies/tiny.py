"""A whole experiment in a moment, for the tests of the reproduction and of its commands."""

TINY = b"""
title = "tiny"
target = "error"
[data]
source = "clusters"
n_clusters = 2
n_features = 4
n_rows = 14
noise = 0.1
[tasks]
train = 7
validation = 5
test = 6
order = "kept"
[rows]
support = 8
split = "first"
order = "shuffled"
train = "support"
constant = false
[features]
map = "mean"
[learning]
methods = ["independent", "unconditional", "conditional"]
loss = "absolute"
inner = "online"
rank = "exact"
[grid]
seeds = 2
step_low = 0.3
step_high = 30
step_count = 2
"""
