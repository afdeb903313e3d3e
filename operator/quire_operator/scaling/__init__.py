"""How many replicas on which accelerator: from what is asked, to what that takes.

Pure: time comes in with the inputs, and the same inputs and memory give the same decision.

    inputs, decision   what a decision is made from; what is decided, and remembered
    decide             all services together, the most important first
    service, case      the rules for one service, and what they know of it
    preparing          how that is computed
    soundness          which figures from outside make sense
    hearing, fleet     what was heard lately; what there is, and what is on its way
    shortages          accelerators that find no node; failures: those whose replicas fail
    retrying           how long what did not work is left alone
    demand, urgency    requests per second in buckets of lengths; what cannot wait for them
    capacity, offers   what one replica does within its promises; what each accelerator offers
    measured           what replicas have measured of themselves
    engines, steady    what an engine does whatever is asked; with so many requests all the time
    mix, spreading     the cheapest replicas for some load; some load on replicas that are given
    ways               the same where long prompts are kept apart, and where they are not
    loads, grouping    what requests take of a replica; what is alike, put together
    parts              what replicas for some load cost at least
    programs           linear programs; without_solver: those that are answered by sorting
    sizing             both for the load that is planned for
    clamping, rooms    bounds of the spec; GPUs that services compete for
    standing_in        others for what found no node
    bounds, minimum    keeping to them; dear replicas that make room for the minimum
    victims            which replica goes
    keeping, reporting what memory keeps besides; a decision in words
"""
