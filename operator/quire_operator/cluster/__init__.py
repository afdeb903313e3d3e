"""The operator's side of the API server.

kinds      which kinds of objects there are, and their paths
api        requests: apply, get, list, delete, events
store      what has been seen of the cluster
watching   kopf's watches, which fill the store
leader     which replica acts
"""
