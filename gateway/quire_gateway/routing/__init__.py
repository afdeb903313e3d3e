"""What the gateway is told: which services there are, where their engines are, and who may ask.

document         one service, as the operator writes it
source           where documents come from, by the settings
file_source      from a file, read again when it changes
cluster_source   from a cluster: the operator's objects, and EndpointSlices
cluster_objects  from these objects to documents
reflector        a copy of some objects of the API server
access           API keys and their limits
"""
