"""How many replicas on which accelerator: from what is asked, to what that takes.

Pure: time comes in with the inputs, and the same inputs and memory give the same decision.

    inputs      what a decision is made from
    decision    what is decided, and remembered
"""
