"""Whoever scales: rivals, and the operator's own code.

quire    the operator's scaling
keda     more than 5 waiting requests a replica, one type
hpa      KV use 0.8, one type
greedy   the cheapest type first, by saturation
melange  the best mix for the trace's mean load, fixed
single   the best single type, autoscaled by demand
oracle   the best mix for each 5 minutes, known beforehand, there at once
fixed    so many of each type, as somebody says
"""
