"""`quire top`: a fleet in the terminal.

source   a gateway's management port, by address or through a cluster
look     what all gateways said at one moment
rates    what two looks tell per second
view     everything that is shown, as a table or as JSON
drawing  the table, for any width
"""
