"""From what is seen to what should be, and making it so.

queue       which services need a look, each by one worker at a time
observing   from the store to what planning needs
applying    the difference, to the API server
ownership   whose an object is
ingress_class  which class an Ingress has whose service names none
status_writer, event_writer  what is said
engines     what engines say of themselves, and their limits
reconciler  one look at one service
metrics     of the operator itself
"""
