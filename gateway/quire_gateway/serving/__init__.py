"""From a request to its answer.

body        the fields of a request's body that are read
inquiry     what a request asks for, read once
service     one service: its engines, its queue, who gets which
watch       the state of one engine, as it pushes it
fleet       all services, by the routing documents
directory   which service a model's name means
wish        what a request wants of its service
claim       a request's claim to an engine: counted, admitted, judged
account     what it is counted as
link        connections to one engine
exchange    one request on its way: tried, failed over, passed on
record      what is known of a request when it ends, and its line in the log
tracing     requests as spans, if that is wanted
relay       an engine's answer on its way to the client
keep_awake  comments on a stream that waits for its first engine
arrivals    what was asked of a service, counted
demand_report  these counts, as they are told to whoever sizes its fleet
gateway     routes, and what all requests share
management  health, metrics and the fleet, on a port of their own
"""
