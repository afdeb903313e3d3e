"""Several processes that move bytes, and one that decides for them: `--workers N`.

    supervisor   holds the sockets, starts the others, starts again who ends or hangs
    decider      services, queues, prefixes, limits, engines' states; /metrics and /fleet
    worker       connections: parses, asks the decider, relays, tells what became of it

child          how a decider or a worker is started
frames         what workers and the decider tell each other
channel        frames over a unix socket, all of one turn of the event loop in one write
board          a state that one process publishes and others read, whoever lives
snapshot       what the decider publishes: documents, and engines' loads
bench          the decider's end of a worker's channel: claims of requests elsewhere
remote         the worker's end: claims that are decided elsewhere
alone          the worker's choice while the decider is silent: the least loaded engine
totals         counts of workers, added up
"""
