"""Bytes: connections of clients and to engines, with httptools on both sides.

port                sockets that connections come to, and their bounds
client_connection   requests in, answers out
request             what was asked, and what connections share
refusals            what a connection answers by itself
framing             how answers are framed
deadlines           of all connections, by one timer
tasks               answers that are given by coroutines
engine_connection   one request at a time to an engine
pool                connections to one engine that are kept
headers             what passes from one side to the other
tls                 the certificate of the clients' port
sse                 events that are complete, and those that are not
"""
