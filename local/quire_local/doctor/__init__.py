"""`quire doctor`: what is wrong with this machine or a cluster, and the command that mends it.

finding       one result: ok, warn or fail, in words, with a command
machine       what an engine needs here
installation  the kind, pods of quire, the gateway
operator      its leader, its rights, and whether there is one alone
nodes         GPUs, their labels, their device plugin
services      what stands in the way of each service
ways_in       whether somebody serves their Ingress or HTTPRoute, and its certificate is there
command       runs all, prints, and makes the exit status
"""
