"""Pure planning: what a service should be, from what is seen of it. No clock, no network.

names, settings        labels and names of parts; what the operator is configured with
observed               a service and its parts as they are in the cluster
durations, quantities  times as users write them; amounts as Kubernetes does
engine_flags           a spec's flags (a change restarts engines) and its live limits (it does not)
engine_pod             the pod of one accelerator
template               which template a Deployment has: kept unless what it is made of changed
placement              how many replicas on which accelerator
making_room            whether new pods would have a node if old ones went
memory                 whether a model fits an accelerator
network_paths, outside who may reach whom, as data
pinning                which commit the model's revision is
api_keys               a Secret's keys, as gateways are told of them
deployment, network, documents, disruption     the objects
conditions, events, status                 what is said of it
plan                   all of it, on one screen
"""
